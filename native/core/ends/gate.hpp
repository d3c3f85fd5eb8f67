// A test's gate between a channel and its subscriptions: the test decides when each message is delivered and each wait returns.
#pragma once

#include "ground/atomics.hpp"

#include <memory>
#include <vector>

namespace penstock {

class ReaderEnd;

// One for all subscriptions of a channel. Used under the GIL. The bridge's thread reads the atomic words, too; they need no
// order, since wake() follows each change and the subscription looks again under the GIL.
class Gate : public std::enable_shared_from_this<Gate> {
  public:
    // From now on only deliver() delivers messages.
    void hold() {
        held_.relaxed(true);
        credit_.relaxed(0);
        epoch_.increment(1);
    }
    // Every subscription may take that many messages more.
    void deliver(uint64_t count) {
        credit_.relaxed(credit() > UINT64_MAX - count ? UINT64_MAX : credit() + count);
        wake();
    }
    // Every wait that is under way ends as if its timeout had passed.
    void expire() {
        expired_.increment(1);
        wake();
    }
    void release() {
        held_.relaxed(false);
        wake();
    }
    void add(const std::shared_ptr<ReaderEnd> &reader) { readers_.push_back(reader); }

    bool held() const { return held_.relaxed(); }
    uint64_t credit() const { return credit_.relaxed(); }
    uint64_t epoch() const { return epoch_.relaxed(); }
    uint64_t expired() const { return expired_.relaxed(); }
    uint32_t waiting() const { return waiting_; }

    class Waiter { // while one of these lives, a thread waits; null: there is no gate
      public:
        explicit Waiter(Gate *gate) : gate_(gate), expired_(gate == nullptr ? 0 : gate->expired()) {
            if (gate_ != nullptr) ++gate_->waiting_;
        }
        ~Waiter() {
            if (gate_ != nullptr) --gate_->waiting_;
        }
        Waiter(const Waiter &) = delete;
        Waiter &operator=(const Waiter &) = delete;
        bool stepped() const { return gate_ != nullptr; }
        bool over() const { return gate_ != nullptr && gate_->expired() != expired_; }

      private:
        Gate *const gate_;
        const uint64_t expired_;
    };

  private:
    void wake();

    Atomic<bool> held_{};
    Atomic<uint64_t> credit_{};
    Atomic<uint64_t> epoch_{};
    Atomic<uint64_t> expired_{};
    uint32_t waiting_ = 0;
    std::vector<std::weak_ptr<ReaderEnd>> readers_;
};

// One subscription's way through the gate of its channel, if that has one.
class DeliveryGate {
  public:
    void lead_through(std::shared_ptr<Gate> gate) { gate_ = std::move(gate); }
    const std::shared_ptr<Gate> &gate() const { return gate_; }
    bool stepped() const { return gate_ != nullptr && gate_->held(); }
    Gate *holding() const { return stepped() ? gate_.get() : nullptr; } // the gate, while a test holds it
    // How many messages may be taken now.
    uint64_t allowed() const {
        if (!stepped()) return UINT64_MAX;
        const uint64_t used = epoch_.relaxed() == gate_->epoch() ? used_.relaxed() : 0, credit = gate_->credit();
        return credit > used ? credit - used : 0;
    }
    void used(uint64_t count) {
        if (!stepped()) return;
        if (epoch_.relaxed() != gate_->epoch()) {
            epoch_.relaxed(gate_->epoch());
            used_.relaxed(0);
        }
        used_.increment(count);
    }

  private:
    std::shared_ptr<Gate> gate_;
    Atomic<uint64_t> epoch_{};
    Atomic<uint64_t> used_{};
};

} // namespace penstock
