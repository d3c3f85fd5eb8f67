// The counters in a peer's slot. Only the slot's owner adds to them.
#pragma once

#include "ground/files/counts.hpp"
#include "pipe/files/pipe_layout.hpp"

namespace penstock {

class PeerCounters {
  public:
    explicit PeerCounters(PeerSlot &slot) : counts_(slot.counters) {}

    // Positions count the bytes of the frames that the peer has read and written, in whichever pipes.
    uint64_t read_position() const { return counts_.read.relaxed(); }
    uint64_t written_position() const { return counts_.written.relaxed(); }

    void sent(uint64_t messages, uint64_t bytes, uint64_t framed) {
        counts_.messages_sent.increment(messages);
        counts_.bytes_sent.increment(bytes);
        counts_.written.increment(framed);
    }
    void received(uint64_t messages, uint64_t bytes, uint64_t redelivered, uint64_t position) {
        counts_.messages_received.increment(messages);
        counts_.bytes_received.increment(bytes);
        counts_.read.relaxed(position);
        if (redelivered != 0) counts_.redelivered.increment(redelivered);
    }
    void refused() { counts_.back_pressure.increment(1); }
    void dropped(uint64_t framed) {
        counts_.messages_dropped.increment(1);
        counts_.bytes_dropped.increment(framed);
    }

    // The owner is gone. Under the table's lock.
    void move_to(PipeControl::Totals &totals) {
        move_count(counts_.messages_sent, totals.messages_sent);
        move_count(counts_.bytes_sent, totals.bytes_sent);
        move_count(counts_.messages_received, totals.messages_received);
        move_count(counts_.bytes_received, totals.bytes_received);
        move_count(counts_.back_pressure, totals.back_pressure);
        move_count(counts_.messages_dropped, totals.messages_dropped);
        move_count(counts_.redelivered, totals.redelivered);
        move_count(counts_.written, totals.written);
        move_count(counts_.read, totals.read);
        move_count(counts_.bytes_dropped, totals.bytes_dropped);
    }

  private:
    PeerSlot::Counters &counts_;
};

} // namespace penstock
