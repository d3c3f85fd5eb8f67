// Messages that were consumed and not yet acknowledged: when they are acknowledged, and whether they were redelivered. Chooses no
// pipe.
#pragma once

#include "pipe/queues/fair_queue.hpp"

namespace penstock {

class Acknowledger {
  public:
    explicit Acknowledger(FairQueue &queue) : queue_(queue) {}
    Acknowledger(const Acknowledger &) = delete;
    Acknowledger &operator=(const Acknowledger &) = delete;

    // A message was consumed, and is to be acknowledged.
    void consumed(bool redelivered) {
        redelivered_ = redelivered;
        unacknowledged_ = true;
    }
    // The same, of one that may be held back.
    void consumed(const FairQueue::Pipe &pipe) {
        last_pipe_ = pipe.index;
        consumed(pipe.reader.redelivered());
    }
    // Whether the message consumed last had been given to a reader that died with it.
    bool redelivered() const { return redelivered_; }

    // Whether a message was consumed that is not acknowledged.
    bool pending() const { return unacknowledged_; }

    // Acknowledges everything consumed, except messages held back. Nothing while any bytes are lent: they must not change.
    // `notify` gets each writer that should be woken.
    template <class Notify> void acknowledge(Notify &&notify) {
        if (!unacknowledged_ || lent_ != 0) return;
        unacknowledged_ = false;
        queue_.each_pipe([&](FairQueue::Pipe &pipe) {
            unacknowledged_ |= pipe.reader.defers_ack();
            if (pipe.reader.acknowledge()) notify(pipe.from);
        });
    }
    // The message consumed last has not reached its owner: until resume_ack() it, and what comes after it in its pipe, is not
    // acknowledged.
    void defer_ack() {
        queue_.each_pipe([&](FairQueue::Pipe &pipe) {
            if (pipe.index == last_pipe_) pipe.reader.defer_ack();
        });
    }
    void resume_ack() {
        queue_.each_pipe([](FairQueue::Pipe &pipe) { pipe.reader.resume_ack(); });
    }
    void lend() { ++lent_; }
    void give_back() { --lent_; }
    // Messages already consumed are redelivered when this peer detaches.
    void requeue_on_close() { unacknowledged_ = false; }
    // In a forked child: consumed messages are the parent's.
    void forget() {
        unacknowledged_ = false;
        lent_ = 0;
    }

  private:
    FairQueue &queue_;
    uint32_t lent_ = 0, last_pipe_ = ~0u; // of the message consumed last
    bool unacknowledged_ = false, redelivered_ = false;
};

} // namespace penstock
