// What a handle's waits sleep on: until there are subscriptions, room, or a message. `Handle`: the handle that waits, whose end
// another call may take away meanwhile. `Base`: an EndTarget, which may explain waits.
#pragma once

#include "ends/end_target.hpp"

namespace penstock {

template <class Base, class Handle> class MembersTarget : public Base {
  public:
    static constexpr WaitsFor what = WaitsFor::readers;
    explicit MembersTarget(Handle &publication) : publication_(publication) {}
    int64_t slice_ns() const { return first_slice_ns; }
    void prepare() {
        WriterEnd &writer = publication_.ready();
        this->announce(writer, writer.members());
    }

  private:
    Handle &publication_;
};

template <class Base, class Handle> class RoomTarget : public Base {
  public:
    static constexpr WaitsFor what = WaitsFor::room;
    explicit RoomTarget(Handle &publication) : publication_(publication) {}
    void failed() {
        watched_.clear();
        publication_.ready().add_watches(watched_);
    }
    bool changed() const { return watched_.changed(); }
    int64_t spin_ns() { // with nothing to look at it sleeps at once
        return !watched_.empty() && publication_.room_spin_habit().due() ? room_spin_ns : 0;
    }
    void spun(bool found) { publication_.room_spin_habit().spun(found); }
    static constexpr bool often = false;
    int64_t slice_ns() const { return first_slice_ns; }
    void prepare() {
        WriterEnd &writer = publication_.ready();
        this->announce(writer, writer.room());
    }
    void idle() {
        if (!publication_.closed()) publication_.ready().repair();
    }

  private:
    Handle &publication_;
    WatchSet watched_;
};

template <class Base, class Handle> class MessageTarget : public Base {
  public:
    static constexpr WaitsFor what = WaitsFor::messages;
    MessageTarget(Handle &subscription, int64_t timeout)
        : subscription_(subscription), waiter_(timeout != 0 ? subscription.end().delivery_gate.holding() : nullptr) {}
    void failed() {
        watched_.clear();
        ReaderEnd &reader = subscription_.ready();
        reader.add_watches(watched_);
        source_ = reader.sleeps() ? &reader : nullptr;
    }
    bool changed() const { return watched_.changed(); }
    int serve_socket() {
        if (source_ == nullptr) return Base::serve_socket();
        source_->serve_socket();
        return 4; // that was a system call
    }
    int64_t spin_ns() {
        if (!timed()) return 0; // a message that is held back would look like a new one
        return subscription_.worth_spinning() ? subscription_.spin_ns() : 0;
    }
    void spun(bool found) { subscription_.spun(found); }
    void prepare() {
        ReaderEnd &reader = subscription_.ready();
        this->announce(reader, reader.event());
    }
    // An end that sleeps as it likes looks after its peers meanwhile.
    int64_t longest_ns() const {
        if (this->end_sleeps()) return 5 * slice_ns_max;
        return subscription_.is_calm() ? calm_slice_ns : slice_ns_max;
    }
    void idle() {
        if (!subscription_.closed()) subscription_.ready().repair();
    }
    bool timed() const { return !waiter_.stepped(); }
    bool over() const { return waiter_.over(); }

  private:
    Handle &subscription_;
    WatchSet watched_;
    ReaderEnd *source_ = nullptr; // whose messages a spin brings in itself; pinned by the wait
    const Gate::Waiter waiter_;   // a test says when this is over, not the clock
};

} // namespace penstock
