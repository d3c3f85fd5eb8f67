// The limit of claims: the slowest subscription, cleaning ahead of the claims, and dropping subscriptions that are too slow. A
// publication that lacks room moves the limit, under the log's lock, at most one step beyond its need; no thread does it in the
// background. docs/design/term_log.md.
#pragma once

#include "ground/clock.hpp"
#include "ground/waiting.hpp"
#include "log/log_members.hpp"
#include "log/term_buffer.hpp"

#include <algorithm>

namespace penstock {

inline constexpr int64_t reap_interval_ns = 1'000'000;

class LogRoom {
  public:
    // `window`: bytes that claims may be ahead of the slowest subscription.
    LogRoom(const TermBuffer &buffer, LogMembers &members, Control &control, uint32_t window)
        : buffer_(buffer), members_(members), control_(control), window_(window) {}

    uint64_t tail() const {
        // SYNC 5: pairs with LogWriter::claim_tail; forbids looking at the claim records before the tail: a claim below it could
        // have none
        return check_aligned(control_.tail.value.acquire());
    }
    uint64_t limit() const {
        return control_.limit.value
            .acquire(); // SYNC 2: pairs with LogRoom::make_room; forbids writing below it before it is clean
    }
    // Positions are read from shared memory: frames are read and written only where one can begin.
    uint64_t check_aligned(uint64_t position) const {
        if (position % frame_alignment != 0) throw_no_frame(members_.where(), position);
        return position;
    }

    // Bytes that are cleaned before the limit is moved behind them.
    static uint64_t clean_step(uint64_t term_length) {
        return std::min<uint64_t>(32 * 1024, term_length / platform::cleans_per_term);
    }

    // Whether it is time to look for the dead again.
    bool reap_is_due(int64_t now_ns) {
        if (now_ns - last_reap_ns_ < reap_interval_ns) return false;
        last_reap_ns_ = now_ns;
        return true;
    }

    // Under the lock: makes claims up to `end` possible if the slowest subscription allows it. `clock`: asked only if it does
    // not.
    template <class Undo> bool make_room(uint64_t end, const MonotonicClock &clock, Undo &&undo) {
        uint64_t lim = limit();
        if (lim >= end) return true;
        uint64_t allowed = position_limit();
        if (allowed < end && drop_slow(end, clock.now_ns(), undo)) allowed = position_limit();
        // The limit is never further than a window behind; a limit that says so was overwritten, and cleaning would not end.
        if (allowed > lim && allowed - lim > buffer_.size() + buffer_.term_length()) throw_no_frame(members_.where(), lim);
        const uint64_t step = clean_step(buffer_.term_length());
        while (lim < end && lim < allowed) {
            const uint64_t next = std::min(lim + step, allowed);
            // SYNC 43: pairs with LogLook::kept; forbids cleaning being visible before the limit up to which there is room
            // already: a look would take cleaned bytes for kept ones
            release_fence();
            buffer_.clean(lim + header_length, next + header_length);
            lim = next;
            // SYNC 2: pairs with LogRoom::limit; forbids the limit being visible before the range below it is clean
            control_.limit.value.release(lim);
        }
        return lim >= end;
    }

    // Under the lock. Room is missing: drops dead subscriptions, and living ones whose `drop_after` is over.
    template <class Undo> bool drop_slow(uint64_t end, int64_t now_ns, Undo &&undo) {
        bool changed = reap_is_due(now_ns) && members_.reap(undo);
        for (uint32_t i = 0; i < members_.count(); ++i) {
            Slot &s = members_.slot(i);
            const uint64_t patience = s.identity.drop_after_ns.relaxed();
            if (patience == 0 || !LogMembers::is_active(s, Role::subscription)) continue;
            // SYNC -: a guess whom to let go; position_limit reads it again before anything is cleaned
            const uint64_t position = s.reader.position.acquire();
            if (position + window_ >= end) continue;
            if (s.identity.blocked_since.relaxed() == 0 || s.identity.blocked_at.relaxed() != position) {
                s.identity.blocked_at.relaxed(position);
                s.identity.blocked_since.relaxed(static_cast<uint64_t>(now_ns));
            } else if (static_cast<uint64_t>(now_ns) - s.identity.blocked_since.relaxed() >= patience) {
                s.identity.state.release(static_cast<uint32_t>(State::dropped)); // SYNC -: the fence that follows orders it
                // SYNC 8: pairs with LogReader::check_not_dropped; forbids cleaning before the state is visible: the subscription
                // would take cleaned bytes for a message
                full_fence();
                control_.totals.dropped.increment(1);
                changed = true;
            }
        }
        if (changed) event_notify(control_.data.value); // a dropped one may sleep
        return changed;
    }

  private:
    // Where claims must end now: the slowest subscription plus the window. With none, the tail plus the window.
    uint64_t position_limit() const {
        uint64_t slowest = tail();
        const uint64_t start = slowest;
        for (uint32_t i = 0; i < members_.count(); ++i) {
            const Slot &s = members_.slot(i);
            if (!LogMembers::is_active(s, Role::subscription)) continue;
            // SYNC 3: pairs with LogReader::show_position, NetworkPublication::publish_progress; forbids cleaning a frame before
            // its reader's last look at it
            const uint64_t position = s.reader.position.acquire();
            if (position < slowest) slowest = position;
        }
        // A position that no reader can have (damaged memory) must not let the limit run backwards or away.
        if (start - slowest > buffer_.size()) return limit();
        return (slowest & ~uint64_t{frame_alignment - 1}) + window_;
    }

    const TermBuffer &buffer_;
    LogMembers &members_;
    Control &control_;
    const uint64_t window_;
    int64_t last_reap_ns_ = 0;
};

} // namespace penstock
