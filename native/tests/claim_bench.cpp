// The cost of claims at one tail by 1 to 16 writers. Ways: `log` is LogWriter itself. `swap` is its claim alone, over the same
// three terms. `guess` is the same, but the first swap expects the tail where this writer left it, without a look. `add` is
// get-and-add, with what it overshoots. Then a model of so many cores, which counts how often the tail's cache line moves.
// Writes JSON, a line for each case. docs/design/term_log.md says what follows from it.
#include "support.hpp"

#include <algorithm>
#include <queue>
#include <thread>
#include <vector>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr uint64_t frame_bytes = 96; // a message of 64 bytes
constexpr uint32_t term_bytes = 1 << 20;

enum class Way { log, swap, guess, add };
constexpr const char *way_names[] = {"log", "swap", "guess", "add"};

struct Counts {
    uint64_t operations = 0; // on the tail's cache line
    uint64_t failed = 0;     // swaps
    uint64_t beyond = 0;     // claims by get-and-add that ended beyond the limit
    uint64_t padded = 0;     // bytes lost at a term's end
    void add(const Counts &other) {
        operations += other.operations;
        failed += other.failed;
        beyond += other.beyond;
        padded += other.padded;
    }
};

// A tail over three terms with a limit that moves on by cleaning, as in a log that nobody reads.
class Bare {
  public:
    Bare() : memory_(size_t{3} * term_bytes) { limit_.value.release(step); }

    uint64_t claim(Way way, uint64_t &seen_tail, uint64_t &seen_limit, Atomic<uint64_t> &note, Counts &counts) {
        note.release(claiming);
        const uint64_t at = way == Way::add ? by_add(seen_tail, seen_limit, counts) : by_swap(way, seen_tail, seen_limit, counts);
        note.release(at | claim_taken);
        return at;
    }
    void commit(uint64_t at, const void *data, Atomic<uint64_t> &note) {
        FrameHeader *to = frame(at);
        std::memcpy(reinterpret_cast<uint8_t *>(to) + header_length, data, frame_bytes - header_length);
        to->word0.release(pack_word0(frame_bytes, flags_whole, FrameType::data));
        note.release(claim_idle);
    }
    uint64_t tail() const { return tail_.value.acquire(); }
    FrameHeader *frame(uint64_t at) { return reinterpret_cast<FrameHeader *>(memory_.data() + at % memory_.size()); }

  private:
    static constexpr uint64_t step = 32 * 1024;

    uint64_t by_swap(Way way, uint64_t &seen_tail, uint64_t &seen_limit, Counts &counts) {
        uint64_t at = seen_tail;
        if (way == Way::swap) {
            at = tail_.value.acquire();
            ++counts.operations;
        }
        for (;;) {
            const uint64_t left = term_bytes - at % term_bytes;
            const uint64_t end = at + std::min(frame_bytes, left);
            if (end > seen_limit) seen_limit = room(end);
            ++counts.operations;
            if (!tail_.value.cas(at, end)) {
                ++counts.failed;
                continue;
            }
            if (left >= frame_bytes) {
                seen_tail = end;
                return at;
            }
            pad(at, left, counts);
            at = end;
        }
    }
    uint64_t by_add(uint64_t &seen_tail, uint64_t &seen_limit, Counts &counts) {
        for (;;) {
            if (seen_tail + frame_bytes > seen_limit) seen_limit = room(seen_tail + frame_bytes);
            ++counts.operations;
            const uint64_t at = tail_.value.add(frame_bytes), end = at + frame_bytes;
            seen_tail = end;
            if (end > seen_limit) {
                seen_limit = limit_.value.acquire();
                if (end > seen_limit) { // it cannot be given back: this writer must wait until there is room
                    ++counts.beyond;
                    seen_limit = room(end);
                }
            }
            const uint64_t left = term_bytes - at % term_bytes;
            if (left >= frame_bytes) return at;
            pad(at, left, counts); // it lies in two terms: padding in both, and another claim
            pad(at + left, frame_bytes - left, counts);
        }
    }
    void pad(uint64_t at, uint64_t length, Counts &counts) {
        counts.padded += length;
        frame(at)->word0.release(pack_word0(static_cast<uint32_t>(length), flags_whole, FrameType::pad));
    }
    uint64_t room(uint64_t end) {
        for (;;) {
            uint64_t limit = limit_.value.acquire(), free = 0;
            if (limit >= end) return limit;
            if (!lock_.value.cas(free, 1)) {
                platform::yield();
                continue;
            }
            limit = limit_.value.acquire();
            for (; limit < end; limit += step) {
                const uint64_t at = (limit + header_length) % memory_.size(), first = std::min(step, memory_.size() - at);
                std::memset(memory_.data() + at, 0, first);
                std::memset(memory_.data(), 0, step - first);
                limit_.value.release(limit + step);
            }
            lock_.value.release(0);
        }
    }

    Paired<Atomic<uint64_t>> tail_{}, limit_{}, lock_{};
    std::vector<uint8_t> memory_;
};

int64_t cpu_ns() { return system_ns(CLOCK_PROCESS_CPUTIME_ID); }

// Each writer makes so many claims, all at once; prints what a claim took.
void run(Way way, uint32_t writers, uint64_t each) {
    LogGeometry geometry;
    geometry.term_length = geometry.window = term_bytes;
    const Channel channel(geometry);
    Bare bare;
    Atomic<uint32_t> waiting{};
    std::vector<Counts> counts(writers);
    std::vector<std::thread> threads;
    for (uint32_t number = 0; number < writers; ++number)
        threads.emplace_back([&, number] {
            const auto writer = way == Way::log ? channel.writer() : nullptr;
            Paired<Atomic<uint64_t>> note{};
            Counts mine;
            const uint8_t text[frame_bytes - header_length] = {1};
            uint64_t seen_tail = 0, seen_limit = 0;
            waiting.add(1);
            while (waiting.acquire() <= writers) platform::yield();
            for (uint64_t i = 0; i < each; ++i) {
                if (way == Way::log) {
                    while (writer->offer(text, sizeof text) == no_room) platform::yield();
                } else bare.commit(bare.claim(way, seen_tail, seen_limit, note.value, mine), text, note.value);
            }
            counts[number] = mine;
        });
    while (waiting.acquire() < writers) platform::yield();
    const int64_t wall = monotonic_ns(), cpu = cpu_ns();
    waiting.add(1);
    for (std::thread &thread : threads) thread.join();
    const auto claims = static_cast<double>(each * writers);
    const double wall_ns = static_cast<double>(monotonic_ns() - wall) / claims,
                 cpu_each = static_cast<double>(cpu_ns() - cpu) / claims;
    Counts sum;
    for (const Counts &one : counts) sum.add(one);
    if (way != Way::log) CHECK(bare.tail() == each * writers * frame_bytes + sum.padded);
    std::printf("{\"case\": \"measured\", \"way\": \"%s\", \"writers\": %u, \"wall_ns\": %.2f, \"cpu_ns\": %.2f, "
                "\"operations\": %.4f, \"failed\": %.4f, \"beyond\": %.6f, \"padded\": %.4f}\n",
                way_names[static_cast<int>(way)], writers, wall_ns, cpu_each, static_cast<double>(sum.operations) / claims,
                static_cast<double>(sum.failed) / claims, static_cast<double>(sum.beyond) / claims,
                static_cast<double>(sum.padded) / claims);
}

// ---- the model: a core for each writer, one cache line, which serves one request after another ----
struct Costs { // ns
    int64_t transfer = 60, hit = 5, decide = 3, work = 60;
};

struct Event {
    int64_t at;
    uint64_t number; // requests of the same time are served in the order in which they were made
    uint32_t core;
    bool operator>(const Event &other) const { return at != other.at ? at > other.at : number > other.number; }
};

struct Core {
    uint64_t expected = 0; // the tail's value as this core knows it
    bool looked = false;
    uint64_t left = 0;
};

void model(Way way, uint32_t writers, uint64_t each, Costs costs) {
    std::vector<Core> cores(writers);
    std::vector<bool> shares(writers, false);
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    uint64_t value = 0, transfers = 0, failed = 0, number = 0;
    int64_t free_at = 0, end = 0;
    int owner = -1; // the core that may write; -1: those of `shares` may read
    for (uint32_t core = 0; core < writers; ++core) {
        cores[core].left = each;
        events.push({static_cast<int64_t>(core) * 7, number++, core});
    }
    while (!events.empty()) {
        const Event event = events.top();
        events.pop();
        Core &core = cores[event.core];
        const bool reads = way == Way::swap && !core.looked;
        const bool has = owner == static_cast<int>(event.core) || (reads && owner < 0 && shares[event.core]);
        int64_t done = event.at + costs.hit;
        if (!has) {
            done = std::max(event.at, free_at) + costs.transfer;
            free_at = done;
            ++transfers;
            if (!reads) std::fill(shares.begin(), shares.end(), false);
            else if (owner >= 0) shares[static_cast<size_t>(owner)] = true;
            owner = reads ? -1 : static_cast<int>(event.core);
            shares[event.core] = true;
        }
        end = std::max(end, done);
        if (reads) {
            core.expected = value;
            core.looked = true;
            events.push({done + costs.decide, number++, event.core});
        } else if (way != Way::add && core.expected != value) {
            ++failed;
            core.expected = value;
            events.push({done + costs.decide, number++, event.core});
        } else {
            core.expected = ++value;
            core.looked = false;
            if (--core.left != 0) events.push({done + costs.work, number++, event.core});
        }
    }
    const auto claims = static_cast<double>(each * writers);
    std::printf(
        "{\"case\": \"model\", \"way\": \"%s\", \"writers\": %u, \"transfers\": %.3f, \"failed\": %.3f, \"wall_ns\": %.1f}\n",
        way_names[static_cast<int>(way)], writers, static_cast<double>(transfers) / claims, static_cast<double>(failed) / claims,
        static_cast<double>(end) / claims);
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t count = argument(argc, argv, "--count", 4'000'000);
    for (const uint32_t writers : {1u, 2u, 4u, 8u, 16u}) {
        for (const Way way : {Way::log, Way::swap, Way::guess, Way::add}) run(way, writers, count / writers);
        for (const Way way : {Way::swap, Way::guess, Way::add}) model(way, writers, 2000, {});
    }
    return 0;
}
