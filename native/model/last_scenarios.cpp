// The scenarios of a log's last values: late readers join while messages are sent, and senders die at any of their operations.
#include "stage.hpp"

#include "log/last_values.hpp"

namespace penstock::model {
namespace {

constexpr LastShape shape{2, sizeof(Word)};

// A publication and its end of the table. A message's key is its first word: who sent it.
struct LastWriter {
    LogWriter &writer;
    LastValues last;

    explicit LastWriter(int thread) : writer(Stage::writer(thread)), last(writer.shared_log()) {}
    bool send(uint32_t who, uint32_t number) {
        const Word word{who, number};
        return last.send(reinterpret_cast<const uint8_t *>(&word.writer), sizeof word.writer,
                         reinterpret_cast<const uint8_t *>(&word), sizeof word,
                         [&](const uint8_t *body, size_t size) { return writer.offer(body, size); }) != no_room;
    }
    void send_surely(uint32_t who, uint32_t number) {
        while (!send(who, number)) spin_pause();
    }
};

// What a late reader is given: the kept messages, and then the stream. `seen` goes on from the number of each key's message.
struct LateReader {
    LogReader &reader;
    LastValues last;
    Seen seen;
    uint64_t next = 0;

    explicit LateReader(LogReader &made) : reader(made), last(made.shared_log()) {
        const std::vector<LastValue> kept = last.snapshot(next);
        reader.skip_to(next);
        uint64_t before = 0;
        for (const LastValue &one : kept) {
            EXPECT(one.payload.size() == sizeof(Word));
            EXPECT(one.position < next && (before == 0 || one.position > before));
            before = one.position + 1;
            Word word;
            std::memcpy(&word, one.payload.data(), sizeof word);
            EXPECT(word.writer <= threads_max && seen.next[word.writer] == 0); // one message of each key
            seen.next[word.writer] = word.number + 1;
        }
    }
    // Each message once, none missing, up to the number `count` of this key.
    void read_to_the_end(uint32_t who, uint32_t count) { read_past_the_dead(reader, seen, who, count); }
};

// A reader joins at any moment: what it is given and what it reads then are all messages, once.
void joins_while_written() {
    Stage stage(256, 3, false, shape);
    LastWriter &writer = *new LastWriter(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 2; ++i) writer.send_surely(1, i);
    });
    World::thread([&] { LateReader(Stage::reader(1)).read_to_the_end(1, 2); });
}

// Two keys of two publications, which take turns at the lock.
void joins_two_keys() {
    Stage stage(256, 3, false, shape);
    LastWriter &one = *new LastWriter(0), &two = *new LastWriter(1);
    World::thread([&] { one.send_surely(1, 0); });
    World::thread([&] { two.send_surely(2, 0); });
    World::thread([&] {
        LateReader late(Stage::reader(2));
        late.read_to_the_end(1, 1);
        late.read_to_the_end(2, 1);
    });
}

// The log has no room: nothing is kept of the message, and no lock is held while its publication waits for the reader.
void waits_without_the_lock() {
    Stage stage(128, 3, false, shape);
    LastWriter &writer = *new LastWriter(0);
    LogReader &slow = Stage::reader(1);
    World::thread([&] {
        for (uint32_t i = 0; i < 4; ++i) writer.send_surely(1, i);
    });
    World::thread([&] {
        LateReader late(slow); // takes the table's lock, whatever the publication waits for
        late.read_to_the_end(1, 4);
    });
}

// A publication dies at any operation of its send. The next one to take the lock finishes it: its message is in the log and in
// the table, or in neither.
template <bool sends> void sender_dies() {
    Stage stage(256, 4, false, shape);
    LastWriter &mortal = *new LastWriter(0), &living = *new LastWriter(1);
    LogReader &all = Stage::reader(1), &late = Stage::reader(1);
    World::thread([&] { mortal.send(1, 0); }, true);
    World::thread([&] {
        if (sends) living.send_surely(2, 0); // the lock's next holder finishes the message, or the reader below does
        LateReader joined(late);
        Seen seen;
        while (seen.last_position < joined.next) {
            const Message *message = all.peek();
            if (message != nullptr && message->position >= joined.next) break;
            if (message != nullptr) seen.consume(all, *message);
            else if (all.position() >= joined.next) break;
            else if (!all.unblock()) spin_pause();
        }
        for (uint32_t who = 1; who <= 2; ++who) EXPECT(joined.seen.next[who] == seen.next[who]);
        living.send_surely(2, sends ? 1 : 0); // and it stays right
        joined.read_to_the_end(2, sends ? 2 : 1);
    });
}

// Two holders die one behind the other, the second of which may have finished the first one's message.
void two_senders_die() {
    Stage stage(256, 4, false, shape);
    LastWriter &first = *new LastWriter(0), &second = *new LastWriter(1);
    LogReader &reader = Stage::reader(2), &all = Stage::reader(2);
    World::thread([&] { first.send(1, 0); }, true);
    World::thread([&] { second.send(1, 1); }, true);
    World::thread([&] {
        while (!World::died(0) && !World::finished(0)) spin_pause();
        while (!World::died(1) && !World::finished(1)) spin_pause();
        LateReader joined(reader);
        uint32_t newest = 0; // the number behind that of the newest message in the log
        while (all.position() < joined.next) {
            const Message *message = all.peek();
            if (message == nullptr) {
                if (all.position() < joined.next && !all.unblock()) spin_pause();
                continue;
            }
            penstock::read(message->data, message->length);
            Word word;
            std::memcpy(&word, message->data, sizeof word);
            newest = word.number + 1;
            all.consume();
        }
        EXPECT(joined.seen.next[1] == newest);
    });
}

} // namespace

const std::vector<Scenario> &last_scenarios() {
    static const std::vector<Scenario> all = {
        {"last_joins_while_written", "a late reader gets the newest message of a key, then the stream", joins_while_written},
        {"last_joins_two_keys", "of two keys of two publications", joins_two_keys, true},
        {"last_waits_without_the_lock", "no publication waits for room with the table's lock", waits_without_the_lock, true},
        {"last_sender_dies", "a sender dies anywhere: the next reader finishes its message", sender_dies<false>},
        {"last_sender_dies_before_another", "or the next sender does", sender_dies<true>},
        {"last_two_senders_die", "two die one behind the other", two_senders_die},
    };
    return all;
}

} // namespace penstock::model
