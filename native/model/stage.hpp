// Shared by the term log's scenarios: one channel, messages that name their sender, readers that check them. Terms are
// 256 bytes, frames 32 or 64, so that a few messages cross every boundary.
#pragma once

#include "pristine.hpp"

#include "log/log_reader.hpp"
#include "log/log_writer.hpp"

namespace penstock::model {

// One channel for all executions; its bytes are laid out again before each.
class Stage {
  public:
    // `named`: members' names are looked at. `last`: the log keeps last values.
    explicit Stage(uint32_t window = 256, uint32_t slots = 4, bool named = false, LastShape last = {}) {
        LogGeometry g;
        g.term_length = 256;
        g.window = window;
        g.slot_count = slots;
        g.last = last;
        static Pristine file;
        const uint8_t boot[16] = {};
        mapping = file.restore(uint64_t{slots} << 48 | uint64_t{last.keys} << 32 | window,
                               log_file_size(g.slot_count, g.term_length, Kind::log, g.last),
                               [&](int fd) { format_log(fd, g, "{}", boot, 0); });
        World::share(mapping->bytes(), mapping->size(), terms_offset(slots));
        const auto *control = reinterpret_cast<Control *>(mapping->bytes() + control_offset);
        World::quiet(&control->totals, sizeof control->totals);
        World::quiet(&control->sessions, sizeof control->sessions);
        for (uint32_t i = 0; i < slots; ++i) {
            const auto *slot = reinterpret_cast<Slot *>(mapping->bytes() + slots_offset + i * sizeof(Slot));
            World::quiet(&slot->counters, sizeof slot->counters);
            World::quiet(&slot->identity.pid, 12); // pid, session, departed
            if (!named) World::quiet(&slot->identity.joined_ns, 8);
        }
    }
    static std::shared_ptr<TermLog> open() { return std::make_shared<TermLog>(-1, "log", mapping); }
    static LogWriter &writer(int thread, bool exclusive = false) {
        return handle_of<LogWriter>(thread, open(), exclusive, nullptr);
    }
    static LogReader &reader(int thread, Start start = {}, uint64_t drop_after_ns = 0, const std::string &name = {}) {
        return handle_of<LogReader>(thread, open(), start, drop_after_ns, name);
    }
    // Moves the tail on by messages of `each` bytes, header included, while nobody else is there yet.
    static void advance(uint64_t bytes, uint32_t each = 32) {
        LogWriter writer(open(), false, nullptr);
        const uint8_t nothing[32] = {};
        for (uint64_t done = 0; done < bytes; done += each)
            if (writer.offer(nothing, each - header_length) == no_room) std::abort();
    }

    static inline std::shared_ptr<Mapping> mapping;
};

struct Word {
    uint32_t writer, number;
};

inline bool offer(LogWriter &writer, uint32_t who, uint32_t number) {
    const Word word{who, number};
    return writer.offer(&word, sizeof word) != no_room;
}
inline void offer_surely(LogWriter &writer, uint32_t who, uint32_t number) {
    while (!offer(writer, who, number)) spin_pause();
}

// A reader's messages: each writer's numbers must come in order and without a hole.
struct Seen {
    uint32_t next[threads_max + 1] = {};
    uint32_t total = 0;
    uint64_t last_position = 0;
    bool first = true;

    void consume(LogReader &reader, const Message &message, bool from_the_start = true) {
        EXPECT(message.length == sizeof(Word));
        penstock::read(message.data, message.length);
        Word word;
        std::memcpy(&word, message.data, sizeof word);
        EXPECT(word.writer <= threads_max);
        if (!from_the_start && next[word.writer] == 0) next[word.writer] = word.number;
        EXPECT(word.number == next[word.writer]);
        EXPECT(first || message.position > last_position);
        first = false;
        last_position = message.position;
        ++next[word.writer];
        ++total;
        reader.consume();
    }
};

inline void read_count(LogReader &reader, Seen &seen, uint32_t count) {
    while (seen.total < count) {
        const Message *message = reader.peek();
        if (message == nullptr) spin_pause();
        else seen.consume(reader, *message);
    }
}
// A thread that sends so many messages as `who`, and one that reads so many.
inline void offers(LogWriter &writer, uint32_t who, uint32_t count, bool mortal = false) {
    World::thread(
        [&writer, who, count] {
            for (uint32_t i = 0; i < count; ++i) offer_surely(writer, who, i);
        },
        mortal);
}
inline void reads(LogReader &reader, uint32_t count) {
    World::thread([&reader, count] {
        Seen seen;
        read_count(reader, seen, count);
    });
}
// Until `who` was heard to the end, whatever the dead left in between.
inline void read_past_the_dead(LogReader &reader, Seen &seen, uint32_t who, uint32_t count) {
    while (seen.next[who] < count) {
        const Message *message = reader.peek();
        if (message != nullptr) seen.consume(reader, *message);
        else if (!reader.unblock()) spin_pause();
    }
}

} // namespace penstock::model
