// The state behind Python's publication handle, whatever the channel's kind.
#pragma once

#include "handle.hpp"
#include "log_ends.hpp"

namespace penstock::bind {

class Publication : public Handle<Sender> {
  public:
    explicit Publication(std::shared_ptr<Sender> end) : Handle(std::move(end)), offered_max_(this->end().payload_max()) {}

    int64_t send(const BytesArgument &data, PyObject *timeout) {
        Sender &sender = ready();
        if (data.size() < copy_without_interpreter && data.size() <= offered_max_) { // the path that has to be short
            const int64_t position = sender.offer(data.data(), data.size());
            if (position != no_room) return position;
        }
        return send_patiently(data, timeout_ns(timeout));
    }

    bool wait_for_readers(uint32_t count, int64_t timeout) {
        const Busy busy(*this);
        auto attempt = [&] { return ready().readers() >= count; };
        return wait_until(end().members(), timeout, 0, 1'000'000, attempt, [] { return true; }, [] {});
    }

    // After an attempt that failed: until `attempt` finds room. Looks for it busily for a moment, as a reader's room comes in
    // large pieces, and sleeps then.
    template <class Attempt> bool wait_for_room(int64_t timeout, Attempt &&attempt) {
        const Busy busy(*this);
        Glance watched;
        auto look = [&] {
            watched.clear();
            ready().glance(watched);
        };
        auto attempted = [&] {
            if (attempt()) return true;
            look();
            return false;
        };
        look(); // a kind that has nothing to look at sleeps at once
        return wait_until(
            end().room(), timeout, watched.empty() ? 0 : room_spin_ns, 1'000'000, attempted, [&] { return watched.changed(); },
            [&] {
                if (!closed()) ready().repair();
            },
            false);
    }

  private:
    int64_t send_patiently(const BytesArgument &data, int64_t timeout) {
        if (data.size() > end().message_max()) {
            const bool whole = end().message_max() == end().payload_max(); // never in fragments
            throw Error(Code::too_large, end().path() + ": a message of " + std::to_string(data.size()) +
                                             " bytes; the largest is " + std::to_string(end().message_max()) +
                                             (whole ? " here: create the channel with a larger capacity" : ""));
        }
        Sending sending{data.data(), data.size()};
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
};

} // namespace penstock::bind
