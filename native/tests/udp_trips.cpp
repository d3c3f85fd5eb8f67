// Round trips of 64 bytes between two processes over loopback: plain sockets, and the network log in the same placement. JSON
// lines.
#include "udp_folder.hpp"
#include "udp_loops.hpp"

#include <climits>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr int64_t spin_ns = 20'000;

enum class Wait { spin, spin_then_sleep, sleep };
struct Case {
    const char *who, *way, *placement;
    Wait wait;
    int here, there; // cores; -1: any
};

void stay_on(int core) {
    if (core < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(core), &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

// The work, in a child: what it starts ends with it.
template <class Work> pid_t in_child(Work &&work) {
    std::fflush(stdout);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        work();
        std::fflush(stdout);
        _exit(0);
    }
    return child;
}
void expect_success(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

class Plain {
  public:
    Plain(int fd, Wait wait) : fd_(fd), wait_(wait) {}
    void send() { CHECK(::send(fd_, bytes_, sizeof bytes_, 0) == sizeof bytes_); }
    void consume() {
        if (wait_ == Wait::sleep) {
            CHECK(recv(fd_, bytes_, sizeof bytes_, 0) == sizeof bytes_);
            return;
        }
        const int64_t until = wait_ == Wait::spin ? INT64_MAX : monotonic_ns() + spin_ns;
        while (recv(fd_, bytes_, sizeof bytes_, MSG_DONTWAIT) != sizeof bytes_) {
            if (wait_ == Wait::spin || monotonic_ns() < until) continue;
            pollfd one{fd_, POLLIN, 0};
            ::poll(&one, 1, -1);
        }
    }

  private:
    const int fd_;
    const Wait wait_;
    char bytes_[64] = {1};
};

class Logged {
  public:
    Logged(const Place &from, const Place &to, Wait wait) : wait_(wait), reader_(from.reader()) {
        UdpWriterOptions options;
        options.linger_ns = 100'000'000;
        writer_ = to.writer(options);
        while (writer_->receivers() == 0) {
            const uint32_t ticket = writer_->prepare();
            writer_->sleep(ticket, 1'000'000);
            reader_->peek();
        }
    }
    void send() { CHECK(writer_->offer(bytes_, sizeof bytes_) != no_room); }
    void consume() {
        const Message *message = wait_ == Wait::sleep ? nullptr : spin();
        if (message == nullptr) CHECK(wait_until(*reader_, [&] { return (message = reader_->peek()) != nullptr; }));
        CHECK(message->length == sizeof bytes_);
        std::memcpy(bytes_, message->data, sizeof bytes_);
        reader_->consume();
    }

  private:
    const Message *spin() {
        const int64_t until = wait_ == Wait::spin ? INT64_MAX : monotonic_ns() + spin_ns;
        const Message *message;
        while ((message = reader_->peek()) == nullptr && monotonic_ns() < until) spin_pause();
        return message;
    }
    const Wait wait_;
    char bytes_[64] = {1};
    std::unique_ptr<UdpReader> reader_;
    std::unique_ptr<UdpWriter> writer_;
};

template <class Link> void answer(Link &&link, int core, int count) {
    stay_on(core);
    for (int i = 0; i < count; ++i) {
        link.consume();
        link.send();
    }
}
template <class Link> void ask(const Case &one, Link &&link, int warm, int count) {
    stay_on(one.here);
    std::vector<int64_t> times;
    int64_t cpu = 0;
    for (int i = -warm; i < count; ++i) {
        if (i == 0) cpu = bare::cpu_ns();
        const int64_t begun = bare::wall_ns();
        link.send();
        link.consume();
        if (i >= 0) times.push_back(bare::wall_ns() - begun);
    }
    const double used = static_cast<double>(bare::cpu_ns() - cpu) / count;
    std::sort(times.begin(), times.end());
    std::printf("{\"who\": \"%s\", \"way\": \"%s\", \"placement\": \"%s\", \"p50_ns\": %ld, \"p99_ns\": %ld, \"cpu_ns\": %.0f}\n",
                one.who, one.way, one.placement, times[times.size() / 2], times[times.size() * 99 / 100], used);
}

void plain(const Case &one, int warm, int count) {
    const int mine = bare::make_socket(), its = bare::make_socket();
    bare::connect_to(mine, its);
    bare::connect_to(its, mine);
    const pid_t other = in_child([&] { answer(Plain(its, one.wait), one.there, warm + count); });
    ask(one, Plain(mine, one.wait), warm, count);
    expect_success(other);
    close(mine);
    close(its);
}
void logged(const Case &one, int warm, int count) {
    const Folder folder;
    {
        const Place there(folder), back(folder);
        const pid_t other = in_child([&] {
            answer(Logged(there, back, one.wait), one.there, warm + count);
            CHECK(Conductor::instance().finish(20'000'000'000));
        });
        ask(one, Logged(back, there, one.wait), warm, count);
        expect_success(other);
        CHECK(Conductor::instance().finish(20'000'000'000));
    }
    folder.check_empty();
}

} // namespace

int main(int argc, char **argv) {
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    const int count = quick ? 300 : 5'000, rounds = quick ? 1 : 3, warm = 100;
    struct Placed {
        const char *name;
        int here, there;
    };
    for (const auto &[way, wait] :
         {std::pair{"spinning", Wait::spin}, {"spinning 20 µs", Wait::spin_then_sleep}, {"asleep", Wait::sleep}})
        for (const Placed &placed : {Placed{"apart", 0, 1}, {"free", -1, -1}, {"one core", 0, 0}}) {
            if (placed.there == 1 && sysconf(_SC_NPROCESSORS_ONLN) == 1) continue;
            if (placed.there == 0 && wait == Wait::spin) continue; // each would wait for the other's time slice
            for (int round = 0; round < rounds; ++round) {         // in turn: the machine's moods meet both
                const Case sockets{"bare", way, placed.name, wait, placed.here, placed.there};
                const Case network{"network log", way, placed.name, wait, placed.here, placed.there};
                expect_success(in_child([&] { plain(sockets, warm, count); }));
                expect_success(in_child([&] { logged(network, warm, count); }));
            }
        }
    return 0;
}
