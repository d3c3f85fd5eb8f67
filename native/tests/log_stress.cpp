// Threads hammer one log: concurrent writers by every way of writing, steady readers, readers that come and go, writers
// that die with claims open. Every steady reader must see every completed message once, in one order.
#include "support.hpp"

#include <atomic>
#include <chrono>
#include <thread>

using namespace penstock;
using namespace penstock::test;

namespace {

struct Shared {
    explicit Shared(const Channel &channel) : channel(channel) {}
    const Channel &channel;
    std::atomic<bool> stop{false};
    std::atomic<uint32_t> next_writer{1};
    std::atomic<uint64_t> completed{0};
    std::atomic<int> writers{0};
};

void write_some(Shared &shared, uint64_t seed, bool mortal) {
    std::mt19937_64 random(seed);
    while (!shared.stop) {
        auto writer = shared.channel.writer();
        const uint32_t id = shared.next_writer++;
        uint64_t number = 0, life = mortal ? 1 + random() % 2000 : UINT64_MAX;
        std::vector<uint8_t> buffer;
        while (!shared.stop && life-- != 0) {
            const uint64_t way = random() % 16;
            const uint32_t most = way == 0 ? writer->payload_max() * 2 : 300;
            const auto length = static_cast<uint32_t>(sizeof(Proof) + random() % most);
            if (way < 8 || length > writer->payload_max()) {
                buffer.resize(length);
                fill(buffer.data(), id, number, length);
                PendingSend sending{buffer.data(), length};
                while (!writer->send_some(sending)) {
                    if (shared.stop) {
                        writer->give_up(sending);
                        break;
                    }
                    std::this_thread::yield();
                }
                if (sending.position == no_room) break;
                ++number;
            } else if (way < 12) {
                const size_t count = 1 + random() % 20;
                buffer.resize(count * length);
                std::vector<IoVec> pieces;
                for (size_t i = 0; i < count; ++i) {
                    fill(buffer.data() + i * length, id, number + i, length);
                    pieces.push_back({buffer.data() + i * length, length});
                }
                number += writer->offer_many(pieces.data(), count);
            } else {
                ClaimedRange range;
                if (!writer->claim(length, writer->open_index(), range)) continue;
                if (random() % 4 == 0) {
                    std::memset(range.payload, 0xee, length);
                    writer->abort(range);
                } else {
                    fill(range.payload, id, number++, length);
                    writer->commit(range);
                }
            }
        }
        if (mortal && random() % 2 == 0) { // die with a claim open, perhaps with garbage in it
            ClaimedRange range;
            if (writer->claim(100, random() % 2 ? writer->open_index() : 0, range) && random() % 2)
                std::memset(range.payload, 0x55, 100);
            shared.completed += number;
            writer->log().crash_for_test();
            continue;
        }
        shared.completed += number;
    }
    --shared.writers;
}

struct Seen {
    uint64_t messages = 0, order = 14695981039346656037ull;
};

Seen read_all(Shared &shared, std::shared_ptr<LogReader> reader, bool to_the_end) {
    Seen seen;
    std::unordered_map<uint32_t, uint64_t> next;
    int idle = 0;
    while (to_the_end || !shared.stop) {
        const Message *message = reader->peek();
        if (message == nullptr) {
            reader->unblock();
            if (shared.writers == 0 && shared.stop && ++idle > 100) break;
            std::this_thread::yield();
            continue;
        }
        idle = 0;
        const Proof proof = check_message(message->data, message->length);
        uint64_t &expected = next[proof.writer];
        if (to_the_end)
            CHECK(proof.number == expected, "writer %u: %lu, not %lu", proof.writer, (unsigned long)proof.number,
                  (unsigned long)expected);
        else CHECK(proof.number >= expected);
        expected = proof.number + 1;
        seen.order = (seen.order ^ message->position) * 1099511628211ull;
        ++seen.messages;
        reader->consume();
    }
    return seen;
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = argument(argc, argv, "--seed", std::random_device{}());
    const uint64_t seconds = argument(argc, argv, "--seconds", 3);
    std::printf("log_stress --seed %lu --seconds %lu\n", (unsigned long)seed, (unsigned long)seconds);
    std::mt19937_64 random(seed);
    LogGeometry g;
    g.term_length = g.window = 64 * 1024;
    const uint64_t edges[] = {0, (uint64_t{1} << 31) - g.term_length, (uint64_t{1} << 47) - g.term_length,
                              (uint64_t{1} << 48) - g.term_length};
    g.start_position = edges[random() % 4];
    g.initial_term_id = static_cast<int32_t>(random());
    const Channel channel(g);
    Shared shared(channel);

    std::vector<std::shared_ptr<LogReader>> readers;
    for (int i = 0; i < 2; ++i) readers.push_back(channel.reader({Start::From::earliest, 0}));
    std::vector<Seen> seen(readers.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < readers.size(); ++i) threads.emplace_back([&, i] { seen[i] = read_all(shared, readers[i], true); });
    for (int i = 0; i < 3; ++i) {
        ++shared.writers;
        threads.emplace_back(write_some, std::ref(shared), random(), i != 0);
    }
    threads.emplace_back([&, churn = random()] { // readers that come, start somewhere, and leave or die
        std::mt19937_64 dice(churn);
        while (!shared.stop) {
            auto reader = channel.reader({dice() % 2 ? Start::From::earliest : Start::From::newest, 0});
            for (uint64_t i = dice() % 500; i != 0; --i) {
                const Message *message = reader->peek();
                if (message == nullptr) break;
                check_message(message->data, message->length);
                reader->consume();
            }
            if (dice() % 2) reader->log().crash_for_test();
        }
    });
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    shared.stop = true;
    for (std::thread &thread : threads) thread.join();
    for (const Seen &one : seen) {
        CHECK(one.messages == shared.completed, "saw %lu of %lu", (unsigned long)one.messages,
              (unsigned long)shared.completed.load());
        CHECK(one.order == seen[0].order);
    }
    CHECK(shared.completed > 0);
    std::printf("%lu messages, %lu repairs\n", (unsigned long)shared.completed.load(),
                (unsigned long)readers[0]->log().control().totals.repaired.relaxed());
    return 0;
}
