// Threads hammer one log that keeps last values: writers of every key, some of which die with the lock, and readers that join
// late, some of which die. Each late reader must get the newest message of each key, then the stream, nothing twice and nothing
// missing.
#include "support.hpp"

#include "log/last_values.hpp"

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr uint32_t keys = 16, writers = 3;

// Of each key the number of its newest message only grows: a key has one writer at a time.
struct Word {
    uint32_t key, filler;
    uint64_t number;
};

struct Shared {
    explicit Shared(const Channel &channel) : channel(channel) {}
    const Channel &channel;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> sent{0}, joined{0};
};

// The keys whose remainder is `part`. A writer that dies may have sent its last message or not: its successor leaves a gap.
void write_some(Shared &shared, uint64_t seed, uint32_t part) {
    std::mt19937_64 random(seed);
    uint64_t number = 0;
    while (!shared.stop) {
        auto writer = shared.channel.writer();
        LastValues last(writer->shared_log());
        uint64_t life = 1 + random() % 2000;
        while (!shared.stop && --life != 0) {
            const uint32_t key = part + writers * static_cast<uint32_t>(random() % (keys / writers));
            uint8_t body[300] = {};
            const Word word{key, 0, ++number};
            std::memcpy(body, &word, sizeof word);
            const size_t length = sizeof word + random() % (sizeof body - sizeof word);
            const bool dies = life == 1 && random() % 2 == 0;
            try {
                const int64_t after = last.send(reinterpret_cast<const uint8_t *>(&key), sizeof key, body, length,
                                                [&](const uint8_t *data, size_t size) {
                                                    const int64_t at = writer->offer(data, size);
                                                    if (dies) throw Error(Code::busy, "dies");
                                                    return at;
                                                });
                if (after != no_room) ++shared.sent;
                else std::this_thread::yield();
            } catch (const Error &error) {
                CHECK(error.code == Code::busy, "%s", error.what());
            }
            if (dies) writer->log().crash_for_test();
            if (dies) break;
        }
    }
}

// Joins late, again and again: per key the numbers grow from the kept one on, and the positions do not overlap.
void join_late(Shared &shared, uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!shared.stop) {
        auto reader = shared.channel.reader();
        uint64_t next = 0, number[keys] = {};
        const std::vector<LastValue> kept = LastValues(reader->shared_log()).snapshot(next);
        reader->skip_to(next);
        ++shared.joined;
        uint64_t before = 0;
        for (const LastValue &one : kept) {
            Word word{};
            std::memcpy(&word, one.payload.data(), sizeof word);
            CHECK(word.key < keys && number[word.key] == 0);
            CHECK(one.position < next && (one.position > before || before == 0));
            number[word.key] = word.number;
            before = one.position;
        }
        for (uint64_t i = random() % 500; i != 0 && !shared.stop;) {
            const Message *message = reader->peek();
            if (message == nullptr) {
                reader->unblock();
                std::this_thread::yield();
                continue;
            }
            Word word{};
            std::memcpy(&word, message->data, sizeof word);
            CHECK(message->position >= next, "a message that was in the table");
            CHECK(word.number > number[word.key], "key %u: %lu after %lu", word.key, (unsigned long)word.number,
                  (unsigned long)number[word.key]);
            number[word.key] = word.number;
            reader->consume();
            --i;
        }
        if (random() % 2) reader->log().crash_for_test();
    }
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = argument(argc, argv, "--seed", std::random_device{}());
    const uint64_t seconds = argument(argc, argv, "--seconds", 3);
    std::printf("last_stress --seed %lu --seconds %lu\n", (unsigned long)seed, (unsigned long)seconds);
    std::mt19937_64 random(seed);
    LogGeometry g;
    g.term_length = g.window = 64 * 1024;
    g.last = {keys, 300};
    const Channel channel(g);
    Shared shared(channel);
    auto steady = channel.reader({Start::From::earliest, 0});
    std::map<uint32_t, std::pair<uint64_t, std::vector<uint8_t>>> newest;
    const auto read_on = [&] {
        while (const Message *message = steady->peek()) {
            Word word{};
            std::memcpy(&word, message->data, sizeof word);
            newest[word.key] = {message->position, {message->data, message->data + message->length}};
            steady->consume();
        }
        steady->show_position();
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < writers; ++i) threads.emplace_back(write_some, std::ref(shared), random(), i);
    for (int i = 0; i < 2; ++i) threads.emplace_back(join_late, std::ref(shared), random());
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < end) {
        read_on();
        steady->unblock();
        std::this_thread::yield();
    }
    shared.stop = true;
    for (std::thread &thread : threads) {
        read_on();
        thread.join();
    }
    auto late = channel.reader();
    uint64_t next = 0;
    const std::vector<LastValue> kept = LastValues(late->shared_log()).snapshot(next);
    while (steady->position() < next) {
        read_on();
        steady->unblock();
    }
    CHECK(kept.size() == newest.size(), "%zu keys, not %zu", kept.size(), newest.size());
    for (const LastValue &one : kept) {
        Word word{};
        std::memcpy(&word, one.payload.data(), sizeof word);
        CHECK(newest[word.key] == std::pair(one.position, one.payload), "key %u is not its newest", word.key);
    }
    CHECK(shared.sent > 0 && shared.joined > 0);
    std::printf("%lu messages, %lu joins\n", (unsigned long)shared.sent.load(), (unsigned long)shared.joined.load());
    return 0;
}
