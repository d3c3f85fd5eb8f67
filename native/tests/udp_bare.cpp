// The cost of UDP over loopback without a library: the references of `python -m bench udp`. A loop over bytes that are laid out
// as in the network log, in system calls of several kinds; round trips between two processes. JSON lines.
#include "udp_loops.hpp"

#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <sched.h>
#include <string>
#include <sys/time.h>
#include <sys/wait.h>

using namespace penstock::bare;

namespace {

void one_way(const Shape &shape, const char *way, bool runs, bool gro, int64_t limit_ns) {
    OneWay pair(gro);
    size_t bytes = 0;
    for (const size_t one : shape.datagrams) bytes += one;
    int64_t sending = 0, receiving = 0;
    double bursts = 0;
    for (int64_t begun = cpu_ns(), now = begun; now - begun < limit_ns; ++bursts) {
        runs ? pair.send_runs(shape.datagrams) : pair.send_many(shape.datagrams);
        const int64_t between = cpu_ns();
        pair.receive(bytes);
        const int64_t after = cpu_ns();
        sending += between - now;
        receiving += after - between;
        now = after;
    }
    const double messages = bursts * shape.messages, datagrams = bursts * static_cast<double>(shape.datagrams.size());
    std::printf("{\"case\": \"%s\", \"way\": \"%s\", \"send_ns\": %.2f, \"receive_ns\": %.2f, \"datagram_send_ns\": %.1f, "
                "\"datagram_receive_ns\": %.1f}\n",
                shape.name, way, static_cast<double>(sending) / messages, static_cast<double>(receiving) / messages,
                static_cast<double>(sending) / datagrams, static_cast<double>(receiving) / datagrams);
}

// ---- round trips between two processes ----

enum class Wait { spin, block, spin_then_poll };

void take(int fd, char *bytes, Wait wait) {
    if (wait == Wait::block) {
        CHECK(recv(fd, bytes, 64, 0) == 64);
        return;
    }
    const int64_t until = wall_ns() + (wait == Wait::spin ? INT64_MAX / 2 : 20'000);
    for (;;) {
        if (recv(fd, bytes, 64, MSG_DONTWAIT) == 64) return;
        if (wait == Wait::spin_then_poll && wall_ns() > until) {
            pollfd one{fd, POLLIN, 0};
            poll(&one, 1, -1);
        }
    }
}
void stay_on(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(core), &set);
    sched_setaffinity(0, sizeof set, &set);
}

void round_trips(const char *way, Wait wait, const char *placement, int here, int there, int count) {
    const int mine = make_socket(), its = make_socket();
    connect_to(mine, its);
    connect_to(its, mine);
    char bytes[64] = {1};
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (there >= 0) stay_on(there);
        for (int i = 0; i < count; ++i) {
            take(its, bytes, wait);
            CHECK(send(its, bytes, 64, 0) == 64);
        }
        _exit(0);
    }
    cpu_set_t before;
    sched_getaffinity(0, sizeof before, &before);
    if (here >= 0) stay_on(here);
    std::vector<int64_t> times;
    const int64_t cpu = cpu_ns();
    for (int i = 0; i < count; ++i) {
        const int64_t begun = wall_ns();
        CHECK(send(mine, bytes, 64, 0) == 64);
        take(mine, bytes, wait);
        times.push_back(wall_ns() - begun);
    }
    const double used = static_cast<double>(cpu_ns() - cpu) / count;
    sched_setaffinity(0, sizeof before, &before);
    waitpid(child, nullptr, 0);
    close(mine);
    close(its);
    std::sort(times.begin(), times.end());
    std::printf("{\"case\": \"round trip\", \"way\": \"%s\", \"placement\": \"%s\", \"p50_ns\": %ld, \"p99_ns\": %ld, "
                "\"cpu_ns\": %.0f}\n",
                way, placement, times[times.size() / 2], times[times.size() * 99 / 100], used);
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    const int64_t limit = quick ? 5'000'000 : 200'000'000;
    for (const Shape &shape : shapes()) {
        one_way(shape, "GSO + GRO", true, true, limit);
        one_way(shape, "GSO + recvmmsg", true, false, limit);
        one_way(shape, "sendmmsg + recvmmsg", false, false, limit);
    }
    std::fflush(stdout);
    const int count = quick ? 300 : 10'000;
    const bool two = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    for (const auto &[name, wait] :
         {std::pair{"spinning", Wait::spin}, {"spinning 20 µs", Wait::spin_then_poll}, {"asleep", Wait::block}}) {
        if (two) round_trips(name, wait, "apart", 0, 1, count);
        round_trips(name, wait, "free", -1, -1, count);
        if (wait != Wait::spin) round_trips(name, wait, "one core", 0, 0, count);
    }
    return 0;
}
