// The pipes within a process: ZeroMQ's trace pointer by pointer, then threads at them, checked and, with --bench, timed.
#include "support.hpp"

#include "threads/mailbox.hpp"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::test;

namespace {

template <class Pipe> void sound(Pipe &pipe) {
    const auto at = pipe.pointers();
    CHECK(at.c == at.w || at.c == nullptr);
}

// Construct; write a, incomplete; write b; flush; read three times.
void trace() {
    YPipe<int, 4> pipe;
    auto at = pipe.pointers();
    CHECK(at.front == at.back && at.r == at.back && at.w == at.back && at.f == at.back && at.c == at.back);
    const void *first = at.back;
    pipe.write(1, true); // a, incomplete: only the back moves
    at = pipe.pointers();
    CHECK(at.front == first && at.w == first && at.f == first && at.c == first && at.back != first);
    const void *second = at.back;
    pipe.write(2); // b: the group is complete, nothing is shown
    at = pipe.pointers();
    CHECK(at.w == first && at.c == first && at.f == at.back && at.back != second);
    const void *end = at.back;
    CHECK(pipe.flush());
    at = pipe.pointers();
    CHECK(at.w == end && at.c == end && at.f == end && at.r == first);
    int value = 0;
    CHECK(pipe.read(value) && value == 1); // both come over with one operation
    at = pipe.pointers();
    CHECK(at.r == end && at.front == second && at.c == end);
    CHECK(pipe.read(value) && value == 2);
    at = pipe.pointers();
    CHECK(at.front == end && at.r == end && at.c == end);
    CHECK(!pipe.read(value)); // nothing: c says that the reader sleeps
    at = pipe.pointers();
    CHECK(at.c == nullptr && at.r == end && at.w == end);
    pipe.write(3);
    CHECK(!pipe.flush()); // once
    at = pipe.pointers();
    CHECK(at.c == at.w && at.w == at.f);
    pipe.write(4);
    CHECK(pipe.flush());
    CHECK(pipe.read(value) && value == 3 && pipe.read(value) && value == 4 && !pipe.read(value));
}

// A message within so many milliseconds.
template <class Box, class T> bool receive(Box &box, T &value, int ms) {
    if (box.try_recv(value)) return true;
    if (!box.wait(ms)) return false;
    box.woken();
    return box.try_recv(value);
}

// Exactly when the reader sleeps a message raises the signal.
void signals() {
    Mailbox<int> box;
    int value = 0;
    for (int i = 0; i < 3; ++i) {
        CHECK(!box.wait(0));
        box.send(i);
        CHECK(box.wait(0));
        CHECK(receive(box, value, 0) || receive(box, value, 0));
        CHECK(value == i && !box.try_recv(value));
        box.woken();
    }
}

// Values are taken back only up to what is complete, over chunk boundaries.
void unwrite() {
    YPipe<int, 4> pipe;
    int value = 0;
    for (int round = 0; round < 50; ++round) {
        pipe.write(round);
        for (int i = 0; i < round % 11; ++i) pipe.write(1000 + i, true);
        for (int i = round % 11 - 1; i >= 0; --i) CHECK(pipe.unwrite(value) && value == 1000 + i);
        CHECK(!pipe.unwrite(value));
        pipe.flush();
        sound(pipe);
        CHECK(pipe.read(value) && value == round && !pipe.read(value));
    }
}

// Groups of several values come over whole; a reader that sleeps is told of exactly once.
void groups(uint64_t count) {
    YPipe<uint64_t, 16> pipe;
    Signaler signal;
    uint64_t sleeps = 0, wakes = 0;
    std::thread reader([&] {
        uint64_t expected = 0, value = 0;
        while (expected < count) {
            if (!pipe.read(value)) {
                CHECK(expected % 5 == 0); // never in the middle of a group
                ++sleeps;
                while (!signal.wait(1000)) {
                }
                signal.lower();
                continue;
            }
            CHECK(value == expected);
            ++expected;
        }
    });
    for (uint64_t i = 0; i < count; ++i) {
        pipe.write(i, i % 5 != 4);
        if (i % 5 == 4 && !pipe.flush()) {
            ++wakes;
            signal.raise();
        }
    }
    if (!pipe.flush()) {
        ++wakes;
        signal.raise();
    }
    reader.join();
    CHECK(wakes == sleeps || wakes == sleeps + 1);
}

void many_writers(uint64_t count, int writers) {
    Mailbox<uint64_t> mailbox;
    std::vector<std::thread> threads;
    for (int w = 0; w < writers; ++w)
        threads.emplace_back([&, w] {
            for (uint64_t i = 0; i < count; ++i) mailbox.send(uint64_t(w) << 32 | i);
        });
    std::vector<uint64_t> next(static_cast<size_t>(writers));
    uint64_t silent = 0;
    for (uint64_t got = 0; got < count * static_cast<uint64_t>(writers);) {
        uint64_t value = 0;
        if (!mailbox.try_recv(value)) {
            // A writer that is stopped before its signal gives it late, when its message was read: no message is behind it then.
            if (mailbox.wait(1000)) mailbox.woken();
            else CHECK(++silent < 5); // every second a look of its own: that is not how it should be woken
            continue;
        }
        CHECK((value & 0xffffffff) == next[value >> 32]);
        ++next[value >> 32];
        ++got;
    }
    for (std::thread &thread : threads) thread.join();
}

double seconds_since(std::chrono::steady_clock::time_point begun) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

void bench() {
    constexpr uint64_t count = 20'000'000;
    for (uint64_t every : {uint64_t{1}, uint64_t{16}}) {
        YPipe<uint64_t, 256> pipe;
        uint64_t value = 0;
        const auto begun = std::chrono::steady_clock::now();
        for (uint64_t i = 0; i < count; i += every) {
            for (uint64_t k = 0; k < every; ++k) pipe.write(i + k);
            pipe.flush();
            for (uint64_t k = 0; k < every; ++k) CHECK(pipe.read(value) && value == i + k);
        }
        std::printf("{\"what\": \"ypipe write + flush + read, flushing every %d\", \"ns\": %.2f}\n", int(every),
                    seconds_since(begun) / count * 1e9);
    }
    {
        Mailbox<uint64_t> mailbox;
        uint64_t value = 0;
        mailbox.send(0);
        CHECK(mailbox.try_recv(value));
        double sending = 0;
        for (uint64_t i = 0; i < count / 20; i += 1000) {
            const auto begun = std::chrono::steady_clock::now();
            for (uint64_t k = 0; k < 1000; ++k) mailbox.send(i + k);
            sending += seconds_since(begun);
            for (uint64_t k = 0; k < 1000; ++k) CHECK(mailbox.try_recv(value));
        }
        std::printf("{\"what\": \"mailbox send\", \"ns\": %.2f}\n", sending / (count / 20) * 1e9);
    }
    {
        Mailbox<uint64_t> there, back;
        constexpr uint64_t trips = 100'000;
        std::thread echo([&] {
            uint64_t value = 0;
            for (uint64_t i = 0; i < trips;) {
                if (!receive(there, value, 1000)) continue;
                back.send(value);
                ++i;
            }
        });
        uint64_t value = 0;
        const auto begun = std::chrono::steady_clock::now();
        for (uint64_t i = 0; i < trips; ++i) {
            there.send(i);
            while (!receive(back, value, 1000)) {
            }
        }
        std::printf("{\"what\": \"mailbox round trip between threads\", \"ns\": %.0f}\n", seconds_since(begun) / trips * 1e9);
        echo.join();
    }
}

} // namespace

int main(int argc, char **argv) {
    trace();
    signals();
    unwrite();
    if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
        bench();
        return 0;
    }
    const uint64_t until = argument(argc, argv, "--seconds", 2);
    const auto begun = std::chrono::steady_clock::now();
    uint64_t rounds = 0;
    do {
        groups(50'000);
        many_writers(10'000, 4);
        ++rounds;
    } while (seconds_since(begun) < static_cast<double>(until));
    std::printf("pipe_stress: %llu messages in %llu rounds\n", static_cast<unsigned long long>(rounds * 90'000),
                static_cast<unsigned long long>(rounds));
    return 0;
}
