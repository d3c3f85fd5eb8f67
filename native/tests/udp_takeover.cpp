// Several processes subscribe to one endpoint while a publisher sends. The one that holds the socket is killed again and again,
// at random moments. Every survivor reads every message, once, in order. Printed: how long each part of a takeover took, and how
// often ownership was tried.
#include "udp_folder.hpp"

#include <random>
#include <sys/wait.h>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr size_t size_max = 3000;

uint32_t size_of(uint32_t number) { return 8 + number * 2654435761u % 300 + (number % 97 == 0 ? 2600 : 0); }

void publish(const Place &place, uint32_t count) {
    auto writer = place.writer();
    CHECK(wait_until(*writer, [&] { return writer->receivers() != 0; }));
    std::vector<uint8_t> bytes(size_max);
    for (uint32_t i = 0; i < count; ++i) {
        std::memcpy(bytes.data(), &i, sizeof i);
        for (size_t at = 4; at < size_of(i); ++at) bytes[at] = static_cast<uint8_t>(i + at);
        PendingSend sending{bytes.data(), size_of(i)};
        CHECK(wait_until(*writer, [&] { return writer->send_some(sending); }), "message %u", i);
    }
    writer->leave();
    CHECK(Conductor::instance().finish(60'000'000'000));
    const UdpCounts counts = writer->counts();
    std::printf("  sent in %lu datagrams, %lu of them again, for %lu naks; %lu refused connections\n", counts.datagrams_sent,
                counts.retransmitted, counts.naks_received, counts.receive_failed + counts.send_failed);
}

// Written by the process that took ownership over, once a datagram has come. Nanoseconds; `noticed`: since the kill.
struct TakenOver {
    Atomic<uint64_t> noticed, owned, first, tries;
};
struct Shared {
    static constexpr uint32_t rows_max = 128;
    Atomic<uint32_t> over; // the publisher has ended
    Atomic<uint64_t> killed_ns;
    Atomic<uint64_t> count;
    TakenOver rows[rows_max];
};

void note(Shared &shared, const Takeover &t) {
    const uint64_t at = shared.count.add(1);
    if (at >= Shared::rows_max) return;
    const auto killed = static_cast<int64_t>(shared.killed_ns.relaxed());
    const int64_t noticed = t.noticed_ns == 0 ? t.owned_ns : t.noticed_ns;
    TakenOver &row = shared.rows[at];
    row.noticed.relaxed(static_cast<uint64_t>(std::max<int64_t>(noticed - killed, 0)));
    row.owned.relaxed(static_cast<uint64_t>(t.owned_ns - noticed));
    row.first.relaxed(static_cast<uint64_t>(std::max<int64_t>(t.first_ns - t.owned_ns, 0))); // it came in the same turn
    row.tries.relaxed(t.tries);
}

template <class Part> void tell(const char *what, const Shared &shared, Part part) {
    std::vector<double> all;
    for (uint32_t i = 0; i < std::min<uint64_t>(shared.count.relaxed(), Shared::rows_max); ++i)
        all.push_back(static_cast<double>(part(shared.rows[i]).relaxed()) / 1e6);
    if (all.empty()) return;
    std::sort(all.begin(), all.end());
    std::printf("  %s: median %.2f ms, p99 %.2f ms of %zu\n", what, all[all.size() / 2], all[(all.size() * 99 - 1) / 100],
                all.size());
}

struct Report {
    uint32_t first, count;
    int64_t gap_ns; // the longest time between two messages
};

// Reads to the end; or, if it came too late for anything, until it is over. Tells `out` once it is there, and at the end.
void subscribe(const Place &place, uint32_t count, Shared &shared, int out) {
    auto reader = place.reader();
    char there = 1;
    CHECK(::write(out, &there, 1) == 1);
    Report report{0, 0, 0};
    uint32_t next = 0;
    int64_t before = 0;
    bool noted = reader->owns_socket(); // the first one took nothing over
    for (;;) {
        if (!noted && reader->owns_socket()) {
            const Takeover taken = reader->takeover();
            if (taken.first_ns != 0) note(shared, taken), noted = true;
        }
        const Message *message = nullptr;
        CHECK(wait_until(*reader,
                         [&] {
                             return (message = reader->peek()) != nullptr || reader->ended() ||
                                    (shared.over.relaxed() != 0 && report.count == 0);
                         }),
              "after %u", next);
        if (message == nullptr) break;
        uint32_t number;
        CHECK(message->length >= 8);
        std::memcpy(&number, message->data, sizeof number);
        if (report.count == 0) report.first = next = number;
        CHECK(number == next, "%u instead of %u", number, next);
        CHECK(message->length == size_of(number), "message %u has %zu bytes", number, message->length);
        for (size_t at = 4; at < message->length; ++at) CHECK(message->data[at] == static_cast<uint8_t>(number + at));
        ++next;
        ++report.count;
        const int64_t now = monotonic_ns();
        if (before != 0) report.gap_ns = std::max(report.gap_ns, now - before);
        before = now;
        reader->consume();
    }
    CHECK(report.count == 0 || next == count, "the last one was %u", next - 1);
    CHECK(reader->lost() == 0);
    CHECK(reader->incomplete() <= (report.first == 0 ? 0 : 1)); // it may have come in the middle of a message
    reader->leave();
    CHECK(::write(out, &report, sizeof report) == sizeof report);
}

struct Process {
    pid_t pid;
    int from;
};
template <class Body> Process start(Body &&body) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        ::close(ends[0]);
        body(ends[1]);
        _exit(0);
    }
    ::close(ends[1]);
    return {pid, ends[0]};
}

} // namespace

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    const uint64_t seed = argument(argc, argv, "--seed", 1);
    const auto count = static_cast<uint32_t>(argument(argc, argv, "--messages", 300'000));
    const auto every = argument(argc, argv, "--every-ms", 200) * 2'000'000; // on average
    const auto subscribers = static_cast<size_t>(argument(argc, argv, "--subscribers", 3));
    std::mt19937_64 random(seed);
    const Folder folder;
    auto &shared =
        *static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    UdpEndpointOptions options;
    {
        const Place place(folder, options);
        std::vector<Process> all;
        const auto add = [&] {
            all.push_back(start([&](int out) { subscribe(place, count, shared, out); }));
            char there;
            CHECK(::read(all.back().from, &there, 1) == 1);
        };
        for (size_t i = 0; i < subscribers; ++i) add();
        Process publisher = start([&](int) { publish(place, count); });
        const OpenFile opened = open_file(place.path);
        const EndpointFile file(opened.fd(), place.path);
        uint32_t kills = 0;
        for (;;) {
            // A random moment, until the publisher has ended.
            pollfd done = {publisher.from, POLLIN, 0};
            const uint64_t ns = random() % every;
            const timespec nap{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
            if (ppoll(&done, 1, &nap, nullptr) != 0) break;
            const auto owner = static_cast<pid_t>(file.control().rare.owner_pid.relaxed());
            const auto found = std::find_if(all.begin(), all.end(), [&](const Process &one) { return one.pid == owner; });
            siginfo_t ended{};
            if (found == all.end() || waitid(P_PID, static_cast<id_t>(owner), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
                ended.si_pid != 0)
                continue;
            shared.killed_ns.relaxed(static_cast<uint64_t>(monotonic_ns()));
            CHECK(kill(owner, SIGKILL) == 0 && waitpid(owner, nullptr, 0) == owner);
            ::close(found->from);
            all.erase(found);
            ++kills;
            add();
        }
        int status;
        CHECK(waitpid(publisher.pid, &status, 0) == publisher.pid && status == 0, "seed %lu", seed);
        shared.over.relaxed(1);
        int64_t gap = 0;
        uint64_t read = 0;
        for (const Process &one : all) {
            Report report;
            CHECK(::read(one.from, &report, sizeof report) == sizeof report, "seed %lu: a survivor failed", seed);
            CHECK(waitpid(one.pid, &status, 0) == one.pid && status == 0, "seed %lu", seed);
            gap = std::max(gap, report.gap_ns);
            read += report.count;
        }
        std::printf(
            "%u messages, %u owners killed, %lu takeovers, %lu images, %zu survivors read %lu; the longest pause %.1f ms\n",
            count, kills, file.control().rare.takeovers.relaxed(), file.control().rare.last_number.relaxed(), all.size(), read,
            static_cast<double>(gap) / 1e6);
        tell("from the kill until a conductor knows", shared, [](const TakenOver &row) -> auto & { return row.noticed; });
        tell("from there until the images are gone on with", shared, [](const TakenOver &row) -> auto & { return row.owned; });
        tell("from there until a datagram has come", shared, [](const TakenOver &row) -> auto & { return row.first; });
        uint64_t tries = 0;
        const uint64_t noted = std::min<uint64_t>(shared.count.relaxed(), Shared::rows_max);
        for (uint32_t i = 0; i < noted; ++i) tries += shared.rows[i].tries.relaxed();
        std::printf("  ownership was tried %lu times in these %lu takeovers\n", tries, noted);
    }
    folder.check_empty();
    return 0;
}
