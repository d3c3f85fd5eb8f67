// A member of a sync queue: a reader and a writer of one log that do not wait for each other. Messages have a sender and a type
// before their body. Knows the log and nothing of its users; the model checker runs this very file. docs/design/sync_queue.md.
#pragma once

#include "ground/messages/sync_message.hpp"
#include "log/log_reader.hpp"
#include "log/log_writer.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// The messages that a member skips: those of its own publication, of some senders, of some types.
struct SyncScreen {
    bool hides(const SyncParts &parts) const {
        return (!senders.empty() && senders.find(parts.sender) != senders.end()) ||
               (!types.empty() && types.find(parts.type) != types.end());
    }
    std::optional<int32_t> own; // the session of its own publication
    std::set<std::string, std::less<>> senders, types;
};

// A member's reading end. It gives bodies. Messages that were spilled, which means moved into the member's own memory, come
// first, then those in the log. One thread at a time.
class SyncReader {
  public:
    explicit SyncReader(LogReader &log) : log_(&log) {}
    void read_from(LogReader &log) { log_ = &log; } // in a forked child, which has its own slot
    void screen(SyncScreen screen) { screen_ = std::move(screen); }

    // The next message that is not passed over, or null. Its data is its body, readable until consume(). Throws `too_slow` where
    // the reader was let go while it spilled.
    const Message *peek() {
        while (!spilled_.empty()) {
            Spilled &first = spilled_.front();
            if (first.dropped) {
                const std::exception_ptr why = first.dropped;
                drop_first();
                std::rethrow_exception(why);
            }
            parts_ = read_sync(first.message.data, first.message.length);
            if (!screen_.hides(parts_)) return give(first.message, true); // the screen may have changed since it was spilled
            drop_first();
            ++screened_;
        }
        const Message *found = peek_log();
        return found == nullptr ? nullptr : give(*found, false);
    }
    // The message that peek() returned is done with.
    void consume() {
        if (is_spilled_) drop_first();
        else log_->consume();
    }
    // Sender and type of the message that peek() returned.
    const SyncParts &parts() const { return parts_; }
    // Whether that message is the member's own copy, which no writer overwrites.
    bool is_spilled() const { return is_spilled_; }

    // Moves everything unread into the member's own memory, so that no writer waits for this reader. Returns whether anything
    // changed. Throws `busy` beyond `limit` bytes: what has moved by then stays moved.
    bool spill(size_t limit) {
        const uint64_t before = log_->position();
        bool moved = false;
        try {
            while (spill_one()) {
                moved = true;
                if (spilled_bytes_ > limit)
                    throw Error(Code::busy, log_->log().where() + ": no room to write, and " + std::to_string(spilled_bytes_) +
                                                " bytes of messages are unread here: read before you write, or join with a "
                                                "larger spill_limit");
            }
        } catch (const Error &error) {
            if (error.code != Code::too_slow) throw;
            Spilled here; // the reader learns of it when it reaches this position
            here.message.position = log_->position();
            here.dropped = std::current_exception();
            spilled_.push_back(std::move(here));
            return true;
        }
        return moved || log_->position() != before;
    }
    void forget() {
        spilled_.clear();
        spilled_bytes_ = 0;
    }

    bool has_spilled() const { return !spilled_.empty(); }
    size_t spilled_bytes() const { return spilled_bytes_; }
    uint64_t screened() const { return screened_; }
    uint64_t position() const { return spilled_.empty() ? log_->position() : spilled_.front().message.position; }
    bool readable() const { return !spilled_.empty() || log_->readable(); }
    LogReader &log() const { return *log_; }

  private:
    struct Spilled {
        Message message; // whole, over `bytes`
        std::vector<uint8_t> bytes;
        std::exception_ptr dropped; // set: not a message, but where the reader was let go
    };
    static constexpr size_t cost_of_one = 200; // about the memory of a spilled message beside its bytes

    const Message *give(const Message &whole, bool spilled) {
        body_ = whole;
        body_.data = parts_.body;
        body_.length = parts_.length;
        body_.assembled = whole.assembled || spilled;
        is_spilled_ = spilled;
        return &body_;
    }
    const Message *peek_log() {
        for (;;) {
            const Message *found = log_->peek();
            if (found == nullptr) return nullptr;
            if (!screen_.own || found->session != *screen_.own) {
                parts_ = parts_of(*found);
                if (!screen_.hides(parts_)) return found;
            }
            log_->consume();
            ++screened_;
        }
    }
    // A message without a whole header was perhaps overwritten, because the reader was let go: then that is the error.
    SyncParts parts_of(const Message &message) {
        read(message.data, message.length);
        try {
            return read_sync(message.data, message.length);
        } catch (const Error &) {
            if (log_->droppable()) log_->check_not_dropped();
            throw;
        }
    }
    bool spill_one() {
        const Message *found = peek_log();
        if (found == nullptr) return false;
        Spilled one;
        one.bytes.assign(found->data, found->data + found->length);
        if (log_->droppable()) log_->check_not_dropped();
        one.message = *found;
        one.message.data = one.bytes.data();
        spilled_bytes_ += one.bytes.size() + cost_of_one;
        spilled_.push_back(std::move(one)); // before the take: without memory for it the message stays in the log
        log_->consume();
        return true;
    }
    void drop_first() {
        if (!spilled_.front().dropped) spilled_bytes_ -= spilled_.front().bytes.size() + cost_of_one;
        spilled_.pop_front();
    }

    LogReader *log_;
    SyncScreen screen_;
    Message body_; // the message looked at last, as it is given
    SyncParts parts_;
    bool is_spilled_ = false;
    std::deque<Spilled> spilled_;
    size_t spilled_bytes_ = 0;
    uint64_t screened_ = 0;
};

// A member's writing end. A prefix, made by sync_prefix, precedes every body. One thread at a time, but for the bodies of
// reserved messages.
class SyncWriter {
  public:
    explicit SyncWriter(LogWriter &log) : log_(log) {}

    // Bytes of the longest body that offer, offer_many and reserve take.
    size_t payload_max(std::string_view prefix) const {
        return log_.payload_max() > prefix.size() ? log_.payload_max() - prefix.size() : 0;
    }
    // Bytes of the longest body that can be sent in fragments: half of the window, so that two always fit.
    size_t message_max(std::string_view prefix) const {
        const size_t most = log_.log().geometry().window / 2;
        return most > prefix.size() ? most - prefix.size() : 0;
    }
    void refuse_oversize(std::string_view prefix, size_t length, size_t most, const char *advice) const {
        if (length > most || prefix.size() > log_.payload_max())
            throw Error(Code::too_large, log_.log().where() + ": a message of " + std::to_string(length) +
                                             " bytes; it takes up to " + std::to_string(most) + " here. " + advice);
    }

    // The stream position after the message, or no_room.
    int64_t offer(std::string_view prefix, const void *data, size_t length) {
        refuse_oversize(prefix, length, payload_max(prefix), use_send);
        if (log_.sending_fragments()) return no_room;
        ClaimedRange range;
        if (!claim(prefix, length, 0, range)) return no_room;
        copy_in(range.payload, data, length);
        return log_.commit(range);
    }
    // Room for a message: its prefix is written, and `range.payload` is where its body goes.
    bool claim(std::string_view prefix, size_t length, uint32_t index, ClaimedRange &range) {
        if (!log_.claim(static_cast<uint32_t>(prefix.size() + length), index, range)) return false;
        copy_in(range.payload, prefix.data(), prefix.size());
        range.payload += prefix.size();
        return true;
    }
    // As many messages as there is room for, in order; how many. They are put together in a buffer, and written in runs.
    size_t offer_many(std::string_view prefix, const IoVec *bodies, size_t count) {
        for (size_t i = 0; i < count; ++i) refuse_oversize(prefix, bodies[i].length, payload_max(prefix), use_send);
        size_t done = 0;
        while (done < count) {
            const size_t taken = build_run(prefix, bodies + done, count - done);
            const size_t now = log_.offer_many(pieces_.data(), taken);
            done += now;
            if (now < taken) break;
        }
        return done;
    }

  private:
    static constexpr size_t run_max = 64 * 1024;
    static constexpr const char *use_send =
        "This is the max_payload of offer and claim. Use send, which cuts it into fragments, or a larger capacity";

    size_t build_run(std::string_view prefix, const IoVec *bodies, size_t count) {
        size_t taken = 0, bytes = 0;
        while (taken < count && (taken == 0 || bytes + prefix.size() + bodies[taken].length <= run_max))
            bytes += prefix.size() + bodies[taken++].length;
        run_.resize(bytes);
        pieces_.clear();
        uint8_t *to = run_.data();
        for (size_t i = 0; i < taken; ++i) {
            std::memcpy(to, prefix.data(), prefix.size());
            if (bodies[i].length != 0) copy_bytes(to + prefix.size(), bodies[i].data, bodies[i].length);
            const size_t length = prefix.size() + bodies[i].length;
            pieces_.push_back({to, length});
            to += length;
        }
        return taken;
    }

    LogWriter &log_;
    std::vector<uint8_t> run_; // its memory serves the next call
    std::vector<IoVec> pieces_;
};

// Throws `busy` if a living member that lets no writer wait for it blocks `length` bytes.
inline void refuse_waiting(TermLog &log, size_t length) {
    std::string who;
    if (log.refused(length + header_length, who))
        throw Error(Code::busy, log.where() + ": no room, and member '" + who + "' does not let writers wait for it");
}

// An attempt of a member that waits for room for `length` bytes. The member spills its unread messages before it sleeps:
// otherwise members that all write before they read would wait for each other.
template <class Attempt>
bool attempt_or_spill(TermLog &writes, SyncReader &reader, size_t length, size_t spill_limit, Attempt &&attempt) {
    do
        if (attempt()) return true;
    while (reader.spill(spill_limit));
    refuse_waiting(writes, length);
    reader.log().unblock(); // a dead member's claim may be between this reader and the messages to spill
    return false;
}

// The words that such a member sleeps on: room, and new data, because messages that others write meanwhile are unread here, too.
struct RoomOrData {
    void announce(TermLog &writes) {
        Atomic<uint32_t> &room = writes.control().space.value, &data = writes.control().data.value;
        entries[0] = wait_entry(room, event_announce(room));
        entries[1] = wait_entry(data, event_announce(data));
        event_announced();
    }
    WaitEntry entries[2];
};

} // namespace penstock
