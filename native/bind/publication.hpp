// The state behind Python's publication handle, whatever the channel's kind.
#pragma once

#include "handle.hpp"
#include "log_ends.hpp"

namespace penstock::bind {

class Publication : public Handle<Sender> {
  public:
    using Handle::Handle;

    int64_t send(const BytesArgument &data, PyObject *timeout) {
        Sender &sender = ready();
        if (data.size() < copy_without_interpreter) { // the path that has to be short
            if (data.size() <= sender.payload_max()) {
                const int64_t position = sender.offer(data.data(), data.size());
                if (position != no_room) return position;
            }
        }
        return send_patiently(data, timeout_ns(timeout));
    }

    bool wait_for_readers(uint32_t count, int64_t timeout) {
        const Busy busy(*this);
        auto attempt = [&] { return ready().readers() >= count; };
        return wait_until(end().members(), timeout, 0, 1'000'000, attempt, [] { return true; }, [] {});
    }

  private:
    int64_t send_patiently(const BytesArgument &data, int64_t timeout) {
        if (data.size() > end().message_max()) {
            const bool whole = end().message_max() == end().payload_max(); // never in fragments
            throw Error(Code::too_large, end().path() + ": a message of " + std::to_string(data.size()) +
                                             " bytes; the largest is " + std::to_string(end().message_max()) +
                                             (whole ? " here: create the channel with a larger capacity" : ""));
        }
        const Busy busy(*this);
        Sending sending{data.data(), data.size()};
        auto attempt = [&] { return ready().advance(sending); };
        bool done = false;
        try {
            done = wait_until(
                end().room(), timeout, 0, 1'000'000, attempt, [] { return true; },
                [&] {
                    if (!closed()) ready().repair();
                });
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
};

} // namespace penstock::bind
