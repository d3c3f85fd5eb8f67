// Chooses among the pipes to other peers: the next one in turn that has room. After ZeroMQ's lb_t. Knows neither recorders nor
// counters.
#pragma once

#include "pipe/table/pipe_table.hpp"

#include <utility>

namespace penstock {

class LoadBalancer {
  public:
    struct Pipe {
        uint32_t index;
        uint64_t to;
        PipeWriter writer;
        bool alive;           // whether its reader is
        bool usable = true;   // one without a living reader is used while no reader lives
        bool claimed = false; // room in it is claimed: until that is committed or aborted, nothing else is written there
    };

    // Room for a message in the next pipe in turn that has any, or null. `to`: only in the pipe to that peer, if it is not 0.
    // `drop_oldest`: if there is no room, the oldest messages are dropped, and `dropped` gets the bytes of each.
    template <class Dropped>
    [[gnu::always_inline]] Pipe *choose(uint32_t length, ClaimedRange &room, uint64_t to, bool drop_oldest, Dropped &&dropped) {
        const size_t count = pipes_.size();
        for (size_t i = 0; i < count; ++i) {
            const size_t at = next_ + i < count ? next_ + i : next_ + i - count;
            Pipe &pipe = pipes_[at];
            if (!pipe.usable || pipe.claimed || (to != 0 && pipe.to != to)) continue;
            bool found = pipe.writer.claim(length, room);
            while (!found && drop_oldest) {
                const uint64_t bytes = pipe.writer.drop_oldest();
                if (bytes == 0) break;
                dropped(bytes);
                found = pipe.writer.claim(length, room);
            }
            if (!found) continue;
            room.index = pipe.index;
            chosen_ = pipe.to;
            return &pipe;
        }
        return nullptr;
    }
    // Counts a message for which the pipes that drop the oldest had no room: in the one whose turn it was.
    void refuse() {
        if (next_ < pipes_.size()) pipes_[next_].writer.refuse();
    }
    // Shares messages out among the pipes that can be used, in equal runs. `write(pipe, first, most)` writes messages from
    // `first` on, and returns how many of them found room. Returns how many did in all.
    template <class Write> size_t share(size_t count, Write &&write) {
        const auto usable =
            static_cast<size_t>(std::count_if(pipes_.begin(), pipes_.end(), [](const Pipe &pipe) { return pipe.usable; }));
        if (usable == 0) return 0;
        const size_t each = (count + usable - 1) / usable;
        size_t done = 0;
        for (size_t tried = 0; tried < pipes_.size() && done < count; ++tried) {
            Pipe &pipe = pipes_[next_];
            if (pipe.usable && !pipe.claimed) done += write(pipe, done, std::min(each, count - done));
            advance_past(pipe);
        }
        return done;
    }
    // The next message goes to the pipe after this one.
    void advance_past(const Pipe &pipe) {
        const auto at = static_cast<size_t>(&pipe - pipes_.data()) + 1;
        next_ = at < pipes_.size() ? at : 0;
    }

    // Keeps the room that was found until end_claim().
    void begin_claim(Pipe &pipe, uint32_t length) {
        pipe.claimed = true;
        ++claims_;
        claimed_bytes_ += most_bytes(length);
    }
    // The pipe in which that room is, or null if it is not this peer's any more.
    Pipe *end_claim(const ClaimedRange &room) {
        if (claims_ != 0) {
            --claims_;
            claimed_bytes_ -= most_bytes(room.length);
        }
        for (Pipe &pipe : pipes_)
            if (pipe.index == room.index) return std::exchange(pipe.claimed, false) ? &pipe : nullptr;
        return nullptr;
    }
    uint32_t claims() const { return claims_; }
    // Whether claims keep every pipe that a message could go to; `to`: that to this peer, if it is not 0.
    bool all_claimed(uint64_t to) const {
        const auto is_open = [&](const Pipe &pipe) { return pipe.usable && (to == 0 || pipe.to == to); };
        return claims_ != 0 && std::any_of(pipes_.begin(), pipes_.end(), is_open) &&
               std::none_of(pipes_.begin(), pipes_.end(), [&](const Pipe &pipe) { return is_open(pipe) && !pipe.claimed; });
    }
    uint64_t claimed_bytes() const { return claimed_bytes_; } // at most

    uint64_t chosen() const { return chosen_; } // the peer that the last message was written to
    bool any_alive() const {
        return std::any_of(pipes_.begin(), pipes_.end(), [](const Pipe &pipe) { return pipe.alive; });
    }
    std::vector<uint64_t> alive() const { // the living peers
        std::vector<uint64_t> found;
        for (const Pipe &pipe : pipes_)
            if (pipe.alive) found.push_back(pipe.to);
        return found;
    }
    uint64_t lag() const { // bytes that the slowest peer has not acknowledged
        uint64_t most = 0;
        for (const Pipe &pipe : pipes_) most = std::max(most, pipe.writer.lag());
        return most;
    }
    uint64_t waiting() const { // unacknowledged messages
        uint64_t all = 0;
        for (const Pipe &pipe : pipes_) all += pipe.writer.waiting();
        return all;
    }
    template <class Each> void room_words(Each &&each) const { // as PipeWriter::room_words
        for (const Pipe &pipe : pipes_)
            if (pipe.usable) pipe.writer.room_words(each);
    }

    // The pipes that the table has now. Those that stay keep what they know. Under the table's lock.
    void update(const std::vector<PipeEnds::NetworkPublication> &ends, const PipeTable &pipes) {
        std::vector<Pipe> now;
        now.reserve(ends.size());
        for (const PipeEnds::NetworkPublication &end : ends) {
            const auto known =
                std::find_if(pipes_.begin(), pipes_.end(), [&](const Pipe &pipe) { return pipe.index == end.index; });
            const bool claimed = known != pipes_.end() && known->claimed;
            if (end.alive && !claimed &&
                std::any_of(now.begin(), now.end(), [&](const Pipe &pipe) { return pipe.to == end.to; })) {
                // Taken over by a reader that has another one from here: it is only read empty.
                pipes.link(end.index).writer.closed.relaxed(1);
                continue;
            }
            now.push_back({end.index, end.to, known != pipes_.end() ? known->writer : pipes.writer_of(end.index), end.alive, true,
                           claimed});
        }
        pipes_ = std::move(now);
        const bool any = any_alive();
        for (Pipe &pipe : pipes_) pipe.usable = pipe.alive || !any;
        if (next_ >= pipes_.size()) next_ = 0;
    }
    void clear() {
        pipes_.clear();
        claims_ = 0;
        claimed_bytes_ = 0;
    }
    void close() { // there will be no more messages from here
        for (Pipe &pipe : pipes_) pipe.writer.close();
    }

  private:
    static uint64_t most_bytes(uint32_t length) { return 2 * align_frame(uint64_t{length} + header_length); } // with padding

    std::vector<Pipe> pipes_;
    size_t next_ = 0;
    uint64_t chosen_ = 0, claimed_bytes_ = 0;
    uint32_t claims_ = 0;
};

} // namespace penstock
