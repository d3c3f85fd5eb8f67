// The status of a handle that follows a stream, for users and recorders; waiting for one of several; the gates at
// which tests hold channels.
#include "bind/ground/strict.hpp"
#include "bind/handles/publication.hpp"
#include "bind/handles/subscription.hpp"
#include "bind/handles/tap.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <optional>
#include <vector>

namespace penstock::bind {

namespace {

// A wait of a coroutine, counted by the gate as a thread's is.
class GateWait {
  public:
    explicit GateWait(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) { waiter_.emplace(gate_.get()); }
    bool over() const { return waiter_ && waiter_->over(); }
    void end() { waiter_.reset(); }

  private:
    std::shared_ptr<Gate> gate_;
    std::optional<Gate::Waiter> waiter_;
};

// Ends the waits of another thread, for good. The count of wakes in the event is the state.
class Waker {
  public:
    void wake() { event_interrupt(event_); }
    bool woken() const { return event_.relaxed() > event_has_sleeper; }
    WaitEntry announce() { return wait_entry(event_, event_announce(event_)); }

  private:
    Atomic<uint32_t> event_{};
};

// Sleeps on the events of all handles.
template <class Kind> class ManyTarget : public Target {
  public:
    static constexpr WaitsFor what = WaitsFor::messages;
    explicit ManyTarget(const std::vector<Kind *> &handles, Waker *waker = nullptr) : handles_(handles), waker_(waker) {}
    void prepare() {
        entries_.clear();
        for (Kind *handle : handles_) {
            Atomic<uint32_t> &event = handle->ready().event();
            const uint32_t expected = event_announce(event);
            if (entries_.size() < room()) entries_.push_back(wait_entry(event, expected));
        }
        if (waker_ != nullptr) entries_.push_back(waker_->announce());
        event_announced();
    }
    // With more events than one call can sleep on it looks at the others soon; at a recorder's leisure.
    void sleep(int64_t ns) {
        const int64_t soon = waker_ == nullptr ? 1'000'000 : 10'000'000;
        event_sleep_many(entries_.data(), entries_.size(), handles_.size() > room() ? std::min(ns, soon) : ns);
    }
    void note(uint64_t word) {
        for (Kind *handle : handles_) // one that was closed meanwhile may have given its slot away
            if (!handle->closed()) note_wait(handle->end(), word);
    }
    void idle() {
        for (Kind *handle : handles_) handle->ready().repair();
    }

  protected:
    const std::vector<Kind *> &handles_;

  private:
    size_t room() const { return wait_many_max - (waker_ != nullptr); }

    Waker *waker_;
    std::vector<WaitEntry> entries_;
};

// The same for users, whose subscriptions spin and whose channels a test may hold.
class SubscriptionsTarget : public ManyTarget<Subscription> {
  public:
    SubscriptionsTarget(const std::vector<Subscription *> &subscriptions, int64_t timeout)
        : ManyTarget(subscriptions), watched_(subscriptions.size()) {
        if (timeout == 0) return;
        for (const Subscription *subscription : subscriptions)
            if (Gate *gate = subscription->end().delivery_gate.holding()) stepped_.emplace_back(gate);
    }
    static constexpr size_t warned_max = 8; // channels: each has a line in the log
    void failed() {
        for (size_t i = 0; i < handles_.size(); ++i) {
            watched_[i].clear();
            handles_[i]->ready().add_watches(watched_[i]);
        }
    }
    bool changed() const {
        return std::any_of(watched_.begin(), watched_.end(), [](const WatchSet &one) { return one.changed(); });
    }
    int64_t spin_ns() {
        int64_t most = 0;
        if (!timed()) return most; // a message that is held back would look like a new one
        for (Subscription *subscription : handles_)
            if (subscription->worth_spinning()) most = std::max(most, subscription->spin_ns());
        return most;
    }
    void spun(bool found) {
        for (Subscription *subscription : handles_) subscription->spun(found);
    }
    int64_t longest_ns() const {
        const bool calm = std::all_of(handles_.begin(), handles_.end(), [](Subscription *one) { return one->is_calm(); });
        return calm ? calm_slice_ns : slice_ns_max;
    }
    void warn(int64_t waited_ns) {
        const size_t count = std::min(handles_.size(), warned_max);
        for (size_t i = 0; i < count; ++i)
            if (!handles_[i]->closed()) explain_wait(handles_[i]->end(), WaitsFor::nothing, waited_ns);
    }
    bool timed() const { return stepped_.empty(); }
    bool over() const {
        return std::any_of(stepped_.begin(), stepped_.end(), [](const Gate::Waiter &waiter) { return waiter.over(); });
    }

  private:
    std::vector<WatchSet> watched_;
    std::deque<Gate::Waiter> stepped_;
};

void bind_gates(nb::module_ &m) {
    nb::class_<Gate>(m, "Gate", "Decides for a test when messages are delivered and waits return.")
        .def(nb::new_([] { return std::make_shared<Gate>(); }))
        .def("hold", &Gate::hold)
        .def("deliver", &Gate::deliver, nb::arg("count"))
        .def("expire", &Gate::expire)
        .def("release", &Gate::release)
        .def_prop_ro("held", &Gate::held)
        .def_prop_ro("waiting", &Gate::waiting);
    nb::class_<GateWait>(m, "GateWait", "A wait in an event loop. A test ends it, not the clock.")
        .def_prop_ro("over", &GateWait::over, "Whether the test ended every wait since this one began.")
        .def("end", &GateWait::end);
    m.def(
        "gate_wait",
        [](Subscription &subscription) -> GateWait * {
            ReaderEnd &reader = subscription.ready();
            return reader.delivery_gate.stepped() ? new GateWait(reader.delivery_gate.gate()) : nullptr;
        },
        nb::arg("subscription"), nb::rv_policy::take_ownership,
        nb::sig("def gate_wait(subscription: Subscription) -> GateWait | None"),
        "For a wait that begins now: None unless a test holds the channel.");
}

} // namespace

void bind_streams(nb::module_ &m) {
    nb::class_<StreamEnd>(m, "StreamEnd", "An end of a channel that follows the stream, made for a Tap.")
        .def("prefault", &StreamEnd::prefault);
    nb::class_<ReaderEnd, StreamEnd>(m, "ReaderEnd", "The reading end of a channel, made for a Subscription.")
        .def(
            "lead_through",
            [](const std::shared_ptr<ReaderEnd> &self, std::shared_ptr<Gate> gate) {
                gate->add(self);
                self->delivery_gate.lead_through(std::move(gate));
            },
            nb::arg("gate"));

    nb::class_<StreamHandle>(m, "StreamHandle", nb::type_slots(strict_slots), "A subscription, or a recorder's tap.")
        .def_prop_ro("closed", &StreamHandle::closed)
        .def_prop_ro(
            "position", [](StreamHandle &self) { return self.ready().position(); }, "The position where reading continues.")
        .def_prop_ro(
            "lag", [](StreamHandle &self) { return self.ready().lag(); }, "Bytes of the stream between here and its end.")
        .def_prop_ro(
            "lost", [](StreamHandle &self) { return self.ready().lost(); },
            "Bytes of the stream that it missed because it was lapped (ring) or dropped (log, drop_after).")
        .def_prop_ro(
            "lost_messages",
            [](StreamHandle &self) -> std::optional<int64_t> {
                const int64_t lost = self.ready().lost_messages();
                if (lost < 0) return std::nullopt;
                return lost;
            },
            "Messages that it missed; None where only the bytes are known (a log that dropped it).");
    nb::class_<Tap, StreamHandle>(m, "Tap", "A recorder's reader of a channel whose subscriptions take messages away.")
        .def(nb::init<std::shared_ptr<StreamEnd>>(), nb::arg("end"))
        .def("close", &Tap::close, "Gives the slot back; writers no longer wait for it. Safe to call twice.");
}

// The result of `look(descriptor, place)` at the file that a handle has open. The descriptor is the handle's own and stays
// open for the call. Nothing may map it beyond: a forked child would keep the handle's lock by such a mapping.
template <class Handle> nb::object look_at_file(Handle &handle, nb::callable look) {
    auto &end = handle.ready();
    const typename Handle::Busy busy(handle);
    return look(end.locks().descriptor(), end.locks().path());
}

void bind_waiting(nb::module_ &m) {
    bind_gates(m);
    const char *about_files =
        "The result of `look(descriptor, place)`, for the file that a handle has open, whatever has its name "
        "now. The descriptor is the handle's, for the length of the call.";
    m.def("look_at_file", &look_at_file<StreamHandle>, nb::arg("handle"), nb::arg("look"),
          nb::sig("def look_at_file(handle: StreamHandle, look: Callable[[int, str], Any]) -> Any"), about_files);
    m.def("look_at_file", &look_at_file<Publication>, nb::arg("handle"), nb::arg("look"),
          nb::sig("def look_at_file(handle: Publication, look: Callable[[int, str], Any]) -> Any"), about_files);
    m.def(
        "decided", [](StreamHandle &stream) { return stream.closed() ? stream.end().is_resolved() : stream.ready().decided(); },
        nb::arg("stream"),
        "Whether the channel has had a publication, ever: until then it is open, and has no codec and nothing to read.");
    m.def(
        "metadata_of",
        [](StreamHandle &stream) {
            const std::string metadata = stream.end().metadata();
            return nb::bytes(metadata.data(), metadata.size());
        },
        nb::arg("stream"), "The metadata of a channel that is decided.");
    m.def(
        "wait_any",
        [](const std::vector<Subscription *> &subscriptions, nb::object timeout) {
            const int64_t limit = timeout_ns(timeout.ptr());
            std::vector<size_t> found;
            wait_for(limit, SubscriptionsTarget(subscriptions, limit), [&] {
                for (size_t i = 0; i < subscriptions.size(); ++i)
                    if (subscriptions[i]->has_news(subscriptions[i]->ready())) found.push_back(i);
                return !found.empty();
            });
            return found;
        },
        nb::arg("subscriptions"), nb::arg("timeout").none(), "The subscriptions that have something for a user.");
    nb::class_<Waker>(m, "Waker", "Ends the waits of another thread, for good.")
        .def(nb::init<>())
        .def("wake", &Waker::wake)
        .def_prop_ro("woken", &Waker::woken);
    m.def(
        "wait_any_frames",
        [](const std::vector<StreamHandle *> &streams, nb::object timeout, Waker &waker) {
            wait_for(timeout_ns(timeout.ptr()), ManyTarget<StreamHandle>(streams, &waker), [&] {
                return waker.woken() ||
                       std::any_of(streams.begin(), streams.end(), [](StreamHandle *one) { return one->ready().readable(); });
            });
        },
        nb::arg("streams"), nb::arg("timeout").none(), nb::arg("waker"),
        "Until one of the streams has something for a recorder, or the waker has woken.");
}

} // namespace penstock::bind
