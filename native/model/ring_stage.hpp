// Shared by the ring's scenarios: one channel, messages that say their number, a reader that checks them.
// The circle is 256 bytes, frames 64: a fourth message overwrites the first.
#pragma once

#include "pristine.hpp"

#include "ring/ring_reader.hpp"
#include "ring/ring_writer.hpp"

namespace penstock::model {

class RingStage {
  public:
    explicit RingStage(uint32_t slots = 2) {
        RingGeometry g;
        g.capacity = 256;
        g.slot_count = slots;
        static Pristine file;
        const uint8_t boot[16] = {};
        mapping =
            file.restore(slots, ring_file_size(g.slot_count, g.capacity), [&](int fd) { format_ring(fd, g, "{}", boot, 0); });
        World::share(mapping->bytes(), mapping->size(), mapping->size());
        quiet_ring(*mapping, slots);
    }
    static std::shared_ptr<Ring> open() { return std::make_shared<Ring>(-1, "ring", mapping); }
    static RingWriter &writer(int thread) { return handle_of<RingWriter>(thread, open(), nullptr); }
    static RingReader &reader(int thread, bool conflate = false) {
        return handle_of<RingReader>(thread, open(), Start{}, conflate);
    }
    static inline std::shared_ptr<Mapping> mapping;
};

inline void send(RingWriter &writer, uint64_t number) { writer.offer(&number, sizeof number); }
inline void sends(RingWriter &writer, uint64_t count, bool mortal = false) {
    World::thread(
        [&writer, count] {
            for (uint64_t i = 0; i < count; ++i) send(writer, i);
        },
        mortal);
}

// A reader's messages: each message says its number, numbers grow, and every hole was counted.
struct Got {
    uint64_t total = 0, last = 0;
    bool one(RingReader &reader) {
        const Message *message = reader.peek();
        if (message == nullptr) return false;
        uint64_t number = ~uint64_t{0};
        EXPECT(message->length <= 40);
        uint64_t words[5];
        if (!reader.copy(words, *message)) return true;
        number = message->length == 0 ? 0 : words[0];
        if (message->length > sizeof number) EXPECT(words[4] == number); // of a long one, the last word too
        const uint64_t due = reader.sequence();
        reader.consume();
        if (message->length != 0) EXPECT(number + 1 == reader.sequence());
        EXPECT(reader.sequence() == due + 1);
        last = number;
        ++total;
        return true;
    }
    // Until everything sent was got, lost, or passed over.
    void all(RingReader &reader, uint64_t count) {
        while (total + reader.lost_messages() + reader.conflated() < count)
            if (!one(reader)) spin_pause();
        EXPECT(total + reader.lost_messages() + reader.conflated() == count);
        EXPECT(reader.sequence() == count);
    }
};
inline void receives(RingReader &reader, uint64_t count, bool lossless = false) {
    World::thread([&reader, count, lossless] {
        Got got;
        got.all(reader, count);
        if (lossless) EXPECT(got.total == count);
        EXPECT((reader.lost_messages() == 0) == (reader.lost_bytes() == 0));
    });
}

} // namespace penstock::model
