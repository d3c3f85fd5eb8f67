// The state behind Python's publication handle, whatever the channel's kind.
#pragma once

#include "bind/ends/end_target.hpp"
#include "bind/handles/handle.hpp"

namespace penstock::bind {

class Publication : public Handle<WriterEnd> {
  public:
    explicit Publication(std::shared_ptr<WriterEnd> end) : Handle(std::move(end)), offered_max_(this->end().payload_max()) {}

    int64_t send(const BytesArgument &data, int64_t timeout) {
        WriterEnd &writer = ready();
        if (data.size() < large_copy && data.size() <= offered_max_) { // the path that has to be short
            const int64_t position = writer.offer(data.data(), data.size());
            if (position != no_room) return position;
        }
        return send_patiently(data, timeout);
    }

    bool wait_for_readers(uint32_t count, int64_t timeout) {
        return wait_for_members(timeout, [&] { return ready().readers() >= count; });
    }
    // Until `attempt` finds the subscriptions that it wants.
    template <class Attempt> bool wait_for_members(int64_t timeout, Attempt &&attempt) {
        const Busy busy(*this);
        return wait_for(timeout, MembersTarget<ExplainedTarget, Publication>(*this), attempt);
    }
    // After an attempt that failed: until `attempt` finds room. Looks for it for a moment before it sleeps, as a reader's room
    // comes in large pieces.
    template <class Attempt> bool wait_for_room(int64_t timeout, Attempt &&attempt) {
        const Busy busy(*this);
        return wait_for(timeout, RoomTarget<ExplainedTarget, Publication>(*this), attempt);
    }

    SpinHabit &room_spin_habit() { return room_spin_habit_; }

    // Throws if no message of that many bytes can ever be sent here.
    void check_length(size_t length) {
        if (length <= end().message_max()) return;
        const bool whole = end().message_max() == end().payload_max(); // never in fragments
        throw Error(Code::too_large, end().where() + ": a message of " + std::to_string(length) + " bytes; the largest is " +
                                         std::to_string(end().message_max()) +
                                         (whole ? " here: create the channel with a larger capacity" : ""));
    }

  private:
    int64_t send_patiently(const BytesArgument &data, int64_t timeout) {
        check_length(data.size());
        PendingSend sending{data.data(), data.size()};
        bool done = false;
        try {
            done = wait_for_room(timeout, [&] { return ready().advance(sending); });
        } catch (...) {
            if (!closed() && generation() == ForkGuard::generation()) end().give_up(sending);
            throw;
        }
        if (!done) {
            end().give_up(sending);
            return no_room;
        }
        return sending.position;
    }

    const size_t offered_max_; // that offer takes
    SpinHabit room_spin_habit_;
};

// Sets the error of a call that waited for room in vain. `what`: "no room", say.
inline PyObject *raise_no_room(Publication &publication, const char *what) {
    const WriterEnd &end = publication.end();
    const nb::object text =
        nb::steal(text_of(end.where() + ": " + what + " within the timeout: " + end.why_full() + end.take_reason()));
    if (text.is_valid()) PyErr_SetObject(timeout_error(), text.ptr());
    return nullptr;
}

} // namespace penstock::bind
