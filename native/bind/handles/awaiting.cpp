// A handle's part of coroutines: a message that is carried on attempt by attempt, and a descriptor that says when the next
// attempt is worth it. Nothing here waits.
#include "bind/ground/arguments.hpp"
#include "bind/handles/publication.hpp"
#include "bind/handles/subscription.hpp"

#include "threads/bridge.hpp"

#include <utility>

namespace penstock::bind {

namespace {

// An event as the bridge sees it. A position here is the event's value before an attempt that failed.
class EventWatched final : public Waitable {
  public:
    EventWatched(std::shared_ptr<Mapping> map, Atomic<uint32_t> &event) : map_(std::move(map)), event_(event) {}
    Atomic<uint32_t> &event() override { return event_; }
    bool readable(uint64_t before) const override { return event_.relaxed() != static_cast<uint32_t>(before); }
    bool stalled(uint64_t) const override { return true; } // the dead make no event: each slice is worth a look

  private:
    const std::shared_ptr<Mapping> map_;
    Atomic<uint32_t> &event_;
};

// A descriptor for one call that waits: for room, for subscriptions, or for messages. prepare() comes before each attempt, arm()
// after one that failed. Each call has its own: the event may have changed for one and not for another.
class EventWatch {
  public:
    EventWatch(nb::object owner, bool members)
        : owner_(std::move(owner)), members_(members), generation_(ForkGuard::generation()) {
        if (nb::isinstance<Publication>(owner_)) publication_ = nb::inst_ptr<Publication>(owner_);
        else subscription_ = &nb::cast<Subscription &>(owner_);
    }
    ~EventWatch() {
        if (watch_ && generation_ == ForkGuard::generation()) Bridge::instance().forget(watch_);
    }
    EventWatch(const EventWatch &) = delete;
    EventWatch &operator=(const EventWatch &) = delete;

    void prepare() { before_ = event_prepare(event()); }
    int arm() {
        Atomic<uint32_t> &watched = event();
        repair();
        if (generation_ != ForkGuard::generation()) { // the bridge of this process is another one
            watch_.reset();
            generation_ = ForkGuard::generation();
        }
        if (!watch_) watch_ = Bridge::instance().watch(std::make_shared<EventWatched>(mapping(), watched));
        Bridge::instance().arm(*watch_, before_);
        return watch_->fd();
    }

  private:
    Atomic<uint32_t> &event() {
        if (subscription_ != nullptr) return subscription_->ready().event();
        WriterEnd &writer = publication_->ready();
        return members_ ? writer.members() : writer.room();
    }
    void repair() {
        if (subscription_ != nullptr) subscription_->end().repair();
        else if (!members_) publication_->end().repair();
    }
    std::shared_ptr<Mapping> mapping() {
        return subscription_ != nullptr ? subscription_->end().mapping() : publication_->end().mapping();
    }

    nb::object owner_;
    Publication *publication_ = nullptr;
    Subscription *subscription_ = nullptr; // one of the two
    const bool members_;
    uint32_t generation_, before_ = 0;
    std::shared_ptr<Bridge::Watch> watch_;
};

// A message that goes out whole, or not at all.
class SendAttempt {
  public:
    SendAttempt(nb::object owner, Publication &publication, nb::object data)
        : owner_(std::move(owner)), data_(std::move(data)), publication_(publication), bytes_(data_.ptr(), &publication.end()),
          sending_{bytes_.data(), bytes_.size()}, generation_(ForkGuard::generation()) {
        publication_.check_length(bytes_.size());
    }
    ~SendAttempt() { end(); }
    SendAttempt(const SendAttempt &) = delete;
    SendAttempt &operator=(const SendAttempt &) = delete;

    // The position after the message, or no_room.
    int64_t step() {
        const Publication::Busy busy(publication_);
        WriterEnd &writer = publication_.ready();
        if (ended_ || generation_ != ForkGuard::generation())
            throw Error(Code::invalid, writer.where() + ": this message was sent or given up, or belongs to the parent process");
        if (!writer.advance(sending_)) return no_room;
        ended_ = true;
        yield_gil();
        return sending_.position;
    }
    // Gives up the fragments that are not sent.
    void end() {
        if (std::exchange(ended_, true) || publication_.closed() || generation_ != ForkGuard::generation()) return;
        publication_.end().give_up(sending_);
        if (sending_.begun) yield_gil();
    }

  private:
    // Other messages of this publication waited for the end of this one, which had fragments.
    void yield_gil() {
        if (sending_.length > publication_.end().payload_max()) publication_.end().interrupt();
    }

    nb::object owner_, data_;
    Publication &publication_;
    BytesArgument bytes_;
    PendingSend sending_;
    const uint32_t generation_;
    bool ended_ = false;
};

} // namespace

void bind_awaiting(nb::module_ &m) {
    nb::class_<EventWatch>(m, "EventWatch", "Says when it is worth to try again: for room, for subscriptions, or for messages.")
        .def(
            "__init__", [](EventWatch *self, nb::object handle, bool members) { new (self) EventWatch(handle, members); },
            nb::arg("handle"), nb::arg("members") = false,
            nb::sig("def __init__(self, handle: Publication | Subscription, members: bool = False) -> None"),
            "On a publication: for room, or with `members` for subscriptions. On a subscription: for messages.")
        .def("prepare", &EventWatch::prepare, "Before an attempt.")
        .def("arm", &EventWatch::arm,
             "After an attempt that failed: a descriptor that is readable once the next one is worth it, and at least every 50 "
             "ms.");
    nb::class_<SendAttempt>(m, "SendAttempt", "One message on its way.")
        .def(
            "__init__",
            [](SendAttempt *self, nb::object publication, nb::object data) {
                new (self) SendAttempt(publication, nb::cast<Publication &>(publication), data);
            },
            nb::arg("publication"), nb::arg("data").none(),
            nb::sig("def __init__(self, publication: Publication, data: Buffer) -> None"))
        .def(
            "step",
            [](SendAttempt &self) -> nb::object {
                const int64_t position = self.step();
                if (position == no_room) return nb::none();
                return nb::int_(position);
            },
            nb::sig("def step(self) -> int | None"), "The position after the message, or None if there was no room.")
        .def("end", &SendAttempt::end, "Gives up the fragments that are not sent.");
}

} // namespace penstock::bind
