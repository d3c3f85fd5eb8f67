// The cost of UDP over loopback without a library: the references of `python -m bench udp`. A loop over bytes that are laid out
// as in the network log, in system calls of several kinds; round trips between two processes. JSON lines.
#include "check.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <random>
#include <sched.h>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace {

constexpr size_t mtu = 1408, log_size = size_t{48} << 20; // a log that no cache holds
constexpr size_t buffer_size = 65536, run_max = 65507;

int64_t clock_of(clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}
int64_t cpu_ns() { return clock_of(CLOCK_PROCESS_CPUTIME_ID); }
int64_t wall_ns() { return clock_of(CLOCK_MONOTONIC); }

sockaddr_in loopback(uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = port;
    return at;
}
int make_socket() {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int room = 4 << 20;
    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    sockaddr_in at = loopback(0);
    CHECK(bind(fd, reinterpret_cast<sockaddr *>(&at), sizeof at) == 0);
    return fd;
}
uint16_t port_of(int fd) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    CHECK(getsockname(fd, reinterpret_cast<sockaddr *>(&at), &size) == 0);
    return at.sin_port;
}
void connect_to(int fd, int other) {
    const sockaddr_in at = loopback(port_of(other));
    CHECK(connect(fd, reinterpret_cast<const sockaddr *>(&at), sizeof at) == 0);
}

// ---- one way: a burst is sent, then received, by one thread; both ends go on through cold memory ----

struct Shape {
    const char *name;
    std::vector<size_t> datagrams; // one burst
    double messages;               // in it
};

// A frame has a header of 32 bytes and ends at a multiple of 32.
size_t frame(size_t payload) { return (payload + 32 + 31) / 32 * 32; }

std::vector<Shape> shapes() {
    std::vector<Shape> made;
    made.push_back({"64 B", std::vector<size_t>(46, 14 * frame(64)), 46 * 14});
    made.push_back({"1 KiB", std::vector<size_t>(60, frame(1024)), 60});
    std::vector<size_t> large(46, mtu); // 65,536 bytes: 47 whole datagrams and the rest
    large.insert(large.end(), {mtu, frame(65536 - 47 * (mtu - 32))});
    made.push_back({"64 KiB", large, 1});
    std::mt19937_64 random(1); // 16 to 1,024 bytes, as many frames in a datagram as fit
    Shape mixed{"mixed", {}, 0};
    size_t used = 0;
    while (mixed.datagrams.size() < 46) {
        const size_t need = frame(16 + random() % 1009);
        if (used + need > mtu) {
            mixed.datagrams.push_back(used);
            used = 0;
        }
        used += need;
        ++mixed.messages;
    }
    --mixed.messages; // the frame that did not fit
    made.push_back(mixed);
    return made;
}

class OneWay {
  public:
    explicit OneWay(bool gro) : from_(make_socket()), to_(make_socket()), source_(log_size, 7), place_(log_size), buffers_(16) {
        connect_to(from_, to_);
        connect_to(to_, from_);
        const int on = 1;
        if (gro) CHECK(setsockopt(to_, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0);
        for (auto &buffer : buffers_) buffer.resize(buffer_size);
    }
    ~OneWay() {
        close(from_);
        close(to_);
    }
    OneWay(const OneWay &) = delete;
    OneWay &operator=(const OneWay &) = delete;

    // Equal datagrams go out in one call each run.
    void send_runs(const std::vector<size_t> &burst) {
        for (size_t i = 0; i < burst.size();) {
            size_t count = 1, bytes = burst[i];
            while (i + count < burst.size() && count < 64 && burst[i + count - 1] == burst[i] && burst[i + count] <= burst[i] &&
                   bytes + burst[i + count] <= run_max)
                bytes += burst[i + count++];
            iovec piece{next(bytes), bytes};
            alignas(cmsghdr) char space[CMSG_SPACE(sizeof(uint16_t))] = {};
            msghdr message{};
            message.msg_iov = &piece;
            message.msg_iovlen = 1;
            message.msg_control = space;
            message.msg_controllen = sizeof space;
            cmsghdr *control = CMSG_FIRSTHDR(&message);
            control->cmsg_level = IPPROTO_UDP;
            control->cmsg_type = UDP_SEGMENT;
            control->cmsg_len = CMSG_LEN(sizeof(uint16_t));
            const auto each = static_cast<uint16_t>(burst[i]);
            std::memcpy(CMSG_DATA(control), &each, sizeof each);
            CHECK(sendmsg(from_, &message, 0) == static_cast<ssize_t>(bytes), "sendmsg: %s", strerror(errno));
            i += count;
        }
    }
    void send_many(const std::vector<size_t> &burst) {
        mmsghdr messages[64] = {};
        iovec pieces[64];
        for (size_t i = 0; i < burst.size(); ++i) {
            pieces[i] = {next(burst[i]), burst[i]};
            messages[i].msg_hdr.msg_iov = &pieces[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        for (size_t i = 0; i < burst.size(); i += 16) {
            const auto count = static_cast<unsigned>(std::min<size_t>(16, burst.size() - i));
            CHECK(sendmmsg(from_, messages + i, count, 0) == static_cast<int>(count), "sendmmsg: %s", strerror(errno));
        }
    }
    // Until all bytes of a burst are there and copied to their place.
    void receive(size_t bytes) {
        while (bytes != 0) {
            mmsghdr messages[16] = {};
            iovec pieces[16];
            alignas(cmsghdr) char space[16][64];
            for (size_t i = 0; i < 16; ++i) {
                pieces[i] = {buffers_[i].data(), buffer_size};
                messages[i].msg_hdr.msg_iov = &pieces[i];
                messages[i].msg_hdr.msg_iovlen = 1;
                messages[i].msg_hdr.msg_control = space[i];
                messages[i].msg_hdr.msg_controllen = sizeof space[i];
            }
            const int got = recvmmsg(to_, messages, 16, MSG_DONTWAIT, nullptr);
            CHECK(got > 0, "a datagram was lost: %s", strerror(errno));
            for (int i = 0; i < got; ++i) {
                const size_t length = messages[i].msg_len;
                if (placed_ + length > log_size) placed_ = 0;
                std::memcpy(place_.data() + placed_, buffers_[static_cast<size_t>(i)].data(), length);
                placed_ += length;
                bytes -= length;
            }
        }
    }

  private:
    uint8_t *next(size_t bytes) {
        if (sent_ + bytes > log_size) sent_ = 0;
        sent_ += bytes;
        return source_.data() + sent_ - bytes;
    }
    const int from_, to_;
    std::vector<uint8_t> source_, place_;
    std::vector<std::vector<uint8_t>> buffers_;
    size_t sent_ = 0, placed_ = 0;
};

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
