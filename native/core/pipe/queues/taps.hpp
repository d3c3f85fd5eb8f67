// A sender's pipes to recorders. Each recorder gets a copy of every message, before the message itself is visible. Chooses
// nothing: every recorder gets everything.
#pragma once

#include "pipe/table/pipe_table.hpp"

namespace penstock {

class Taps {
  public:
    bool empty() const { return taps_.empty(); }
    bool has(uint64_t recorder) const {
        return std::any_of(taps_.begin(), taps_.end(), [&](const Tap &tap) { return tap.to == recorder; });
    }
    // Whether every recorder that is waited for has room for one more message, and for as much as is claimed elsewhere: that will
    // be copied, too.
    bool have_room(uint32_t length, uint64_t claimed_bytes, uint64_t claimed_messages) {
        return std::all_of(taps_.begin(), taps_.end(), [&](Tap &tap) {
            return !tap.waited_for || tap.writer.has_room(length, claimed_bytes, claimed_messages);
        });
    }
    // Copies a message. If there is no room, its number is missing in the recording.
    void record(const void *data, uint32_t length, const PipeTag &tag) {
        for (Tap &tap : taps_)
            if (!tap.writer.write(data, length, tag)) tap.writer.skip();
    }
    // Makes the copies visible.
    void flush() {
        for (Tap &tap : taps_) tap.writer.flush();
    }
    template <class Each> void each_recorder(Each &&each) const {
        for (const Tap &tap : taps_) each(tap.to);
    }
    // As PipeWriter::room_words, of the recorders that may be waited for.
    template <class Each> void room_words(Each &&each) const {
        for (const Tap &tap : taps_)
            if (tap.waited_for && tap.writer.lag() != 0) tap.writer.room_words(each);
    }

    // The pipes that the table has now. Those that stay keep what they know.
    void update(const std::vector<PipeEnds::Recorder> &ends, const PipeTable &pipes) {
        std::vector<Tap> now;
        now.reserve(ends.size());
        for (const PipeEnds::Recorder &end : ends) {
            const auto known = std::find_if(taps_.begin(), taps_.end(),
                                            [&](const Tap &tap) { return tap.index == end.index && tap.to == end.to; });
            if (known != taps_.end()) now.push_back(*known);
            else now.push_back({end.index, end.to, pipes.writer_of(end.index), end.waited_for});
        }
        taps_ = std::move(now);
    }
    void clear() { taps_.clear(); }

  private:
    struct Tap {
        uint32_t index;
        uint64_t to;
        PipeWriter writer;
        bool waited_for;
    };
    std::vector<Tap> taps_;
};

} // namespace penstock
