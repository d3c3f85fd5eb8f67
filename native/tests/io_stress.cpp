// Io threads: what they promise one by one, then shutting down in the middle of traffic, again and again. With --bench, timed.
#include "support.hpp"

#include "io_thread.hpp"

#include <chrono>
#include <cstring>
#include <sys/socket.h>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::test;

namespace {

std::atomic<int64_t> living{0};

double seconds_since(std::chrono::steady_clock::time_point begun) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}
void await(const std::atomic<uint64_t> &word, uint64_t value) {
    for (int i = 0; word.load() < value; ++i) {
        CHECK(i < 10'000'000);
        std::this_thread::yield();
    }
}

// Counts itself, and takes note of what it is called for. What it is doing when it should end takes some calls more.
class Worker : public IoObject {
  public:
    explicit Worker(std::shared_ptr<Home> home, uint64_t owes = 0) : IoObject(std::move(home)), owes_(owes) { ++living; }
    ~Worker() override {
        CHECK(state_ == 3);
        --living;
    }
    void work(std::atomic<uint64_t> *done) {
        CHECK(state_ == 1 || state_ == 2);
        ++*done;
        if (owes_ != 0 && --owes_ == 0 && state_ == 2) drained();
    }
    // Another of its kind on another thread, of which it may have several.
    void breed(const std::shared_ptr<Home> &where, std::atomic<uint64_t> *done) {
        const Ref<Worker> child = launch<Worker>(where);
        if (child) child.call([done](Worker &worker) { worker.work(done); });
    }
    void quit() { end_me(); }
    size_t family() const { return children(); }

  protected:
    void plugged() override {
        CHECK(state_ == 0);
        state_ = 1;
    }
    void ending(int64_t) override {
        CHECK(state_ == 1);
        state_ = 2;
        if (owes_ == 0) drained();
    }
    void expired() override { ++expired_count; }
    void closed() override {
        CHECK(state_ != 3);
        state_ = 3;
    }

  public:
    static inline std::atomic<uint64_t> expired_count{0};

  private:
    uint64_t owes_;
    int state_ = 0; // made, plugged, ending, over
};

// One end of a socket pair: sends so many bytes as there is room for, and takes what comes. It has come to its end when all is
// sent.
class Session : public IoObject {
  public:
    Session(std::shared_ptr<Home> home, int fd, size_t bytes, std::atomic<uint64_t> *sent, std::atomic<uint64_t> *got)
        : IoObject(std::move(home)), fd_(fd), left_(bytes), sent_(sent), got_(got) {
        ++living;
    }
    ~Session() override { --living; }
    void more(size_t bytes) {
        left_ += bytes;
        if (handle_ != nullptr) poller().watch_writable(handle_, left_ != 0);
    }

  protected:
    void plugged() override {
        handle_ = watch(fd_);
        poller().watch_readable(handle_, true);
        poller().watch_writable(handle_, left_ != 0);
        poller().add_timer(monotonic_ns() + 200'000, *this, 7);
    }
    void ending(int64_t) override {
        ends_ = true;
        if (left_ == 0) drained();
    }
    void closed() override {
        handle_ = nullptr;
        ::close(fd_);
    }
    void timer(int id) override {
        CHECK(id == 7);
        poller().add_timer(monotonic_ns() + 200'000, *this, 7);
    }
    void writable() override {
        static const char bytes[512] = {};
        const ssize_t done = ::send(fd_, bytes, std::min(left_, sizeof bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done > 0) {
            left_ -= static_cast<size_t>(done);
            *sent_ += static_cast<uint64_t>(done);
        } else if (done < 0 && errno != EAGAIN) {
            left_ = 0;
        }
        if (left_ != 0) return;
        poller().watch_writable(handle_, false);
        if (ends_) drained();
    }
    void readable() override {
        char bytes[512];
        const ssize_t done = ::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
        if (done > 0) *got_ += static_cast<uint64_t>(done);
        else if (done == 0) poller().watch_readable(handle_, false);
    }

  private:
    const int fd_;
    size_t left_;
    std::atomic<uint64_t> *sent_, *got_;
    Poller::Handle handle_ = nullptr;
    bool ends_ = false;
};

// Reads what comes on a descriptor that is not its own.
class Listener : public IoObject {
  public:
    Listener(std::shared_ptr<Home> home, int fd, std::atomic<uint64_t> *heard)
        : IoObject(std::move(home)), fd_(fd), heard_(heard) {
        ++living;
    }
    ~Listener() override { --living; }

  protected:
    void plugged() override {
        poller().watch_readable(watch(fd_), true);
        poller().add_timer(monotonic_ns() + 20'000'000, *this, 1);
    }
    void timer(int) override { fired_ = true; } // in memory that is gone, if it comes too late: AddressSanitizer sees that
    void readable() override {
        char byte;
        if (::recv(fd_, &byte, 1, MSG_DONTWAIT) == 1) ++*heard_;
    }

  private:
    const int fd_;
    std::atomic<uint64_t> *heard_;
    volatile bool fired_ = false;
};

void await_living(int64_t count) {
    for (int i = 0; living != count; ++i) {
        CHECK(i < 10'000'000);
        std::this_thread::yield();
    }
}

// What is over hears nothing more, though its descriptor lives on.
void listens() {
    std::atomic<uint64_t> heard{0}, done{0};
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    IoThreads threads(1);
    Ref<Listener> listener = threads.launch<Listener>(pair[0], &heard);
    CHECK(::send(pair[1], "a", 1, 0) == 1);
    await(heard, 1);
    listener.end();
    listener = {};
    await_living(0);
    CHECK(::send(pair[1], "b", 1, 0) == 1);
    const Ref<Worker> worker = threads.launch<Worker>();
    for (uint64_t i = 1; i <= 3; ++i) {
        worker.call([&](Worker &w) { w.work(&done); });
        await(done, i);                                             // the thread has gone round
        std::this_thread::sleep_for(std::chrono::milliseconds(15)); // past its timer, too
    }
    CHECK(heard == 1);
    for (const int fd : pair) ::close(fd);
}

// Calls run in order, on one thread; ended objects run none, and go when nobody refers to them any more.
void promises() {
    std::atomic<uint64_t> done{0};
    IoThreads threads(2);
    Ref<Worker> one = threads.launch<Worker>();
    std::vector<int> order; // the object's thread alone writes it
    for (int i = 0; i < 1000; ++i) one.call([&order, i](Worker &) { order.push_back(i); });
    one.call([&](Worker &worker) { worker.work(&done); });
    await(done, 1);
    for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<size_t>(i)] == i);

    // It ends when asked to, with what it owns; the memory is there as long as a reference is.
    one.call([&](Worker &worker) {
        for (int i = 0; i < 3; ++i) worker.breed(worker.home(), &done);
    });
    await(done, 4);
    CHECK(living == 4);
    Ref<Worker> same = one;
    one.end();
    one.end();
    await_living(1);
    same.call([&](Worker &worker) { worker.work(&done); }); // nobody is there to do it
    same = {};
    CHECK(living == 1);
    one = {};
    await_living(0);
    CHECK(done == 4);
    CHECK(threads.shutdown(0));
    bool refused = false;
    try {
        threads.launch<Worker>();
    } catch (const Error &) {
        refused = true;
    }
    CHECK(refused);
}

// What is under way is finished, if there is time; else it is dropped in time.
void lingers() {
    std::atomic<uint64_t> done{0};
    {
        IoThreads threads(1);
        const Ref<Worker> worker = threads.launch<Worker>(uint64_t{3});
        std::thread late([&, worker = Ref<Worker>(worker)]() mutable {
            for (int i = 0; i < 3; ++i) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                worker.call([&](Worker &w) { w.work(&done); });
            }
            worker = {};
        });
        CHECK(threads.shutdown(60'000'000'000));
        CHECK(done == 3);
        late.join();
    }
    CHECK(living == 0 && Worker::expired_count == 0);
    {
        IoThreads threads(2);
        const Ref<Worker> worker = threads.launch<Worker>(uint64_t{1});
        const auto begun = std::chrono::steady_clock::now();
        CHECK(threads.shutdown(20'000'000));
        CHECK(seconds_since(begun) >= 0.02 && Worker::expired_count == 1 && living == 1);
    }
    CHECK(living == 0); // let go when its thread had gone
    Worker::expired_count = 0;

    // Bytes that have a reader arrive; those that have none are given up when the time is over.
    for (const bool read : {true, false}) {
        std::atomic<uint64_t> sent{0}, got{0};
        constexpr size_t bytes = 2 << 20;
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
        std::thread reader;
        IoThreads threads(2);
        threads.launch<Session>(pair[0], bytes, &sent, &got);
        if (read)
            reader = std::thread([&] {
                char into[4096];
                for (size_t all = 0; all < bytes;) {
                    const ssize_t part = ::recv(pair[1], into, sizeof into, 0);
                    if (part > 0) all += static_cast<size_t>(part);
                }
            });
        const auto begun = std::chrono::steady_clock::now();
        CHECK(threads.shutdown(read ? 60'000'000'000 : 30'000'000));
        CHECK(read ? sent == bytes : sent < bytes);
        CHECK(read || seconds_since(begun) < 10);
        if (read) reader.join();
        ::close(pair[1]);
        CHECK(living == 0);
    }
}

// An object that keeps its thread does not keep the one who shuts down.
void stuck() {
    auto &go_on = *new std::atomic<bool>(false);
    std::atomic<uint64_t> begun{0};
    {
        IoThreads threads(1);
        const Ref<Worker> worker = threads.launch<Worker>();
        worker.call([&](Worker &) {
            begun = 1;
            while (!go_on) std::this_thread::yield();
        });
        await(begun, 1);
        CHECK(!threads.shutdown(0, 20'000'000));
    }
    go_on = true;
    await_living(0); // the rest of it goes once it can
}

// Everything at once, and the end at any moment.
uint64_t traffic(std::mt19937_64 &random) {
    std::atomic<uint64_t> done{0}, sent{0}, got{0};
    std::atomic<bool> over{false};
    std::vector<std::thread> callers;
    {
        IoThreads threads(1 + random() % 3);
        std::vector<Ref<Worker>> workers;
        std::vector<Ref<Session>> sessions;
        for (int i = 0; i < 4; ++i) workers.push_back(threads.launch<Worker>(random() % 3));
        for (int i = 0; i < 2; ++i) {
            int pair[2];
            CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
            for (const int fd : pair) sessions.push_back(threads.launch<Session>(fd, random() % 5000, &sent, &got));
        }
        for (int c = 0; c < 2; ++c)
            callers.emplace_back([&, workers, sessions, seed = random()]() mutable { // with references of its own
                std::mt19937_64 dice(seed);
                while (!over) {
                    const size_t at = dice() % workers.size();
                    switch (dice() % 8) {
                    case 0:
                        workers[at].call([other = workers[dice() % workers.size()], &done](Worker &) {
                            other.call([&done](Worker &worker) { worker.work(&done); }); // from there to the next
                        });
                        break;
                    case 1:
                        workers[at].call([where = workers[dice() % workers.size()].object()->home(), &done](Worker &worker) {
                            if (worker.family() < 20) worker.breed(where, &done);
                        });
                        break;
                    case 2:
                        if (dice() % 16 == 0) workers[at].end();
                        break;
                    case 3:
                        workers[at] = workers[dice() % workers.size()];
                        break;
                    case 4:
                        sessions[dice() % sessions.size()].call([](Session &session) { session.more(100); });
                        break;
                    default:
                        workers[at].call([&done](Worker &worker) { worker.work(&done); });
                    }
                }
            });
        if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
        if (random() % 2 == 0) workers.clear();
        CHECK(threads.shutdown(static_cast<int64_t>(random() % 3) * 500'000));
        over = true;
        for (std::thread &caller : callers) caller.join();
    }
    callers.clear();
    CHECK(living == 0, "%lld are left", static_cast<long long>(living));
    return done;
}

void bench() {
    IoThreads threads(2);
    struct Ball : IoObject {
        explicit Ball(std::shared_ptr<Home> home) : IoObject(std::move(home)) {}
        Ref<Ball> other;
        std::atomic<uint64_t> *left = nullptr;
        void hit() {
            if (left->fetch_sub(1) > 1) other.call([](Ball &ball) { ball.hit(); });
        }
    };
    std::atomic<uint64_t> left{200'000};
    const Ref<Ball> one(threads.launch<Ball>()), two(threads.launch<Ball>());
    std::atomic<uint64_t> ready{0};
    for (const auto &[from, to] : {std::pair{one, two}, std::pair{two, one}})
        from.call([to = to, &left, &ready](Ball &ball) {
            ball.other = to;
            ball.left = &left;
            ++ready;
        });
    await(ready, 2);
    const auto begun = std::chrono::steady_clock::now();
    one.call([](Ball &ball) { ball.hit(); });
    while (static_cast<int64_t>(left.load()) > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::printf("{\"what\": \"command there and back between two io threads\", \"ns\": %.0f}\n",
                seconds_since(begun) / 100'000 * 1e9);
    for (const Ref<Ball> &ball : {one, two}) ball.call([](Ball &b) { b.other = {}; });
    threads.shutdown(0);
}

} // namespace

int main(int argc, char **argv) {
    if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
        bench();
        return 0;
    }
    listens();
    promises();
    lingers();
    stuck();
    const uint64_t until = argument(argc, argv, "--seconds", 2), rounds = argument(argc, argv, "--shutdowns", 0);
    std::mt19937_64 random(argument(argc, argv, "--seed", 1));
    const auto begun = std::chrono::steady_clock::now();
    uint64_t count = 0, messages = 0;
    do {
        messages += traffic(random);
        ++count;
    } while (rounds != 0 ? count < rounds : seconds_since(begun) < static_cast<double>(until));
    std::printf("io_stress: %llu messages in %llu shutdowns\n", static_cast<unsigned long long>(messages),
                static_cast<unsigned long long>(count));
    return 0;
}
