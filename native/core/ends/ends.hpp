// A channel's ends, for all kinds: the roles of its reader and its writer. Each kind implements them
// in its *_ends.hpp; a channel without a first publication in early_ends.hpp.
#pragma once

#include "ends/gate.hpp"
#include "ends/watch_set.hpp"

#include "ground/files/channel_file.hpp"
#include "ground/files/latency.hpp"
#include "ground/files/mapping.hpp"
#include "ground/liveness.hpp"
#include "ground/messages/arrow_batch.hpp"
#include "ground/messages/message.hpp"
#include "ground/wait_note.hpp"
#include "threads/bridge.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace penstock {

inline constexpr size_t large_copy = 256 * 1024; // bytes; a longer copy lets others work meanwhile

// A participant of a channel. The handle that owns it serialises all calls, but for those said to be safe. Made by make_shared
// and knowing its owners (as do PipePeer, Gate and ManualClock): a shared_ptr to it that comes from Python then owns the C++
// object alone, so that a native thread may be the last to let it go. The words "GIL" and "interpreter" are about Python's
// handles: a handle of C++ is used by one thread at a time.
class End : public std::enable_shared_from_this<End> {
  public:
    virtual ~End() = default;
    virtual const std::string &where() const = 0;
    virtual std::shared_ptr<Mapping> mapping() const = 0;
    virtual const ByteLocks &locks() const = 0; // the file that it has open, whatever has its name now
    virtual void rejoin() = 0;                  // in a forked child: its own locks, at the same place
    virtual void leave() = 0;                   // gives the slot back
    virtual void interrupt() = 0;               // wakes all threads that sleep on this channel

    // Whether a wait sleeps in the end itself: a socket may wake it, too. prepare() comes before an attempt: what changes from
    // then on ends the sleep() after it, which takes what prepare() gave. It runs without the GIL, beside other calls, and ends
    // after the given nanoseconds at the latest.
    virtual bool sleeps() const { return false; }
    virtual uint32_t prepare() { return 0; }
    virtual void sleep(uint32_t, int64_t) {}
    virtual void serve_socket() {
    } // between two looks of a spin: receives what has arrived, where only callers do that; as sleep() runs
    virtual void end_wait() {} // the wait is over, whatever it brought
    // Where this participant notes its waits: a WaitNote. Null: it has no slot of its own.
    virtual Atomic<uint64_t> *wait_word() { return nullptr; }
    uint32_t awaits = 0;     // waits that consist of several sleeps, or of none in a thread: coroutines, requests
    uint64_t await_note = 0; // the note of the last of them, in place of those of its sleeps
    // Why a wait ended in vain, for its error; with the GIL.
    std::string take_reason() const {
        std::string text = std::exchange(reason, {});
        return text.empty() ? text : "; " + text;
    }
    mutable std::string reason;
};

// A message's sender and type; both empty where messages have none. Valid until the next message is taken.
struct Envelope {
    std::string_view sender, type;
};

// A recorder's reader: whole runs of frames, unchanged.
class RunSource {
  public:
    virtual FrameBlock run(uint64_t max) = 0;    // the next committed frames, at most that many bytes
    virtual void check_run() {}                  // after a run was copied: throws if writers went over it
    virtual void take_run(const FrameBlock &) {} // the run is copied
    virtual void show_position() {}              // to writers that wait for this reader
    // Where nothing is committed: an open claim as padding. An empty block: no message is behind one; no value: its length is not
    // known.
    virtual std::optional<FrameBlock> open_claim() { return FrameBlock{}; }
    virtual bool skips() const = 0; // the position may jump over losses; if not, a jump is a mistake

  protected:
    ~RunSource() = default;
};

// An end that follows the stream. This much a wait and a recorder need of it.
class StreamEnd : public End {
  public:
    // Whether the channel has had a publication, ever; before that there is nothing to read: early_ends.hpp.
    virtual bool decided() { return true; }
    virtual bool is_resolved() const { return true; } // as far as this end knows, without looking
    virtual std::string metadata() {                  // of a channel that is decided
        const auto map = mapping();
        OpenedChannel about;
        read_common(reinterpret_cast<const Header *>(map->bytes()), where(), about);
        return about.metadata;
    }
    virtual bool prefault() { return mapping()->populate(); }

    virtual Atomic<uint32_t> &event() = 0;  // something was committed
    virtual bool readable() const = 0;      // moves nothing
    virtual bool repair() { return false; } // while nothing arrives: repairs a dead writer's half-written state
    // Whether an event tells of all that comes: nothing that was begun is left to repair.
    virtual bool settled() const { return false; }
    virtual RunSource *runs() = 0; // null where a reader takes messages away from others

    virtual uint64_t position() const = 0;
    virtual uint64_t lag() const = 0;
    virtual uint64_t lost() const = 0;         // bytes of the stream
    virtual int64_t lost_messages() const = 0; // -1: not known
};

// Messages read in place. Between lend() and give_back() a message's bytes are lent.
class Lender {
  public:
    virtual void lend(const Message &message) = 0;                  // takes it
    virtual void fetch(void *to, const Message &message) const = 0; // only the bytes; safe without the GIL
    // The bytes where they can only be read. `map`: the end's mapping; becomes the one that they are in.
    virtual const uint8_t *readable_bytes(const Message &message, std::shared_ptr<Mapping> &) { return message.data; }
    virtual bool intact(const Message &message) = 0; // false: the bytes were overwritten
    virtual void give_back(const Message &) {}
    virtual bool lends_stable_bytes() const = 0; // whether lent bytes stay as they are until given back

  protected:
    ~Lender() = default;
};

// A user's reader: one message after the other.
class ReaderEnd : public StreamEnd {
  public:
    // The next message that may be delivered now.
    const Message *peek_allowed() { return delivery_gate.gate() == nullptr || delivery_gate.allowed() != 0 ? peek() : nullptr; }
    DeliveryGate delivery_gate; // leads nowhere but in tests

    virtual ReaderEnd *resolved() { return this; } // the end that it is for good; null until the channel is decided
    ReaderEnd &target() {
        ReaderEnd *end = resolved();
        return end == nullptr ? *this : *end;
    }
    virtual std::shared_ptr<Waitable> watched(bool until_end) = 0; // until_end: the end of the stream is something to read, too
    virtual void add_watches(WatchSet &at) = 0;                    // there was nothing: what will change
    // After a look that found nothing: whether the stream has ended. There has been a publication, none is left, all was read.
    virtual bool ended() = 0;
    virtual std::string why_ended() const { return "every publication has closed or died, and all was read"; }
    virtual std::string why_lost() const { return {}; } // if it has ended without a word of a publication that may come back
    virtual std::string why_waiting() { return {}; } // of a wait for the end: which participant keeps the stream open, if known
    virtual void begin_call() {}                     // the owner has the messages of earlier calls
    virtual void defer_ack() {}                      // but not yet the message taken last: its owner hears of it later
    virtual void resume_ack() {}                     // now it does
    virtual void continue_batch() {}                 // in a batch: another message will be taken
    virtual Envelope envelope() const { return {}; } // of the message taken last
    virtual uint32_t columns() const { return column_position | column_session | column_payload | column_time_ns; } // fill()'s

    virtual const Message *peek() = 0;                       // the next message, not yet taken, or null
    virtual bool copy(void *to, const Message &message) = 0; // false: it was overwritten meanwhile, look again
    virtual void consume() = 0;                              // what peek() gave is done with
    // Takes messages into a batch, at most `limit` rows and about `most` bytes. True if none is left. `last`: the newest.
    virtual bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) = 0;
    virtual Lender &lender() = 0;

    virtual LatencySlot *latency() { return nullptr; } // where this participant's latencies are counted
    // By how much latencies of that session's messages are too short, in nanoseconds: another machine's clock.
    virtual int64_t clock_correction(int32_t) const { return 0; }

    virtual bool has_kept() const { return false; } // last values from before its position are still to be given

    virtual uint64_t incomplete() const { return 0; }
    virtual uint64_t conflated() const { return 0; }
    virtual uint64_t restarts() const { return 0; }
};

// An end in a slot of its channel's file. `Role`: the end's role; `File`: the core's view of the file, a TermLog or a Ring.
template <class Role, class File> class SlotEnd : public Role {
  public:
    explicit SlotEnd(std::shared_ptr<File> file) : file_(std::move(file)) {}
    ~SlotEnd() override { file_->detach(); }
    const std::string &where() const final { return file_->where(); }
    std::shared_ptr<Mapping> mapping() const override { return file_->mapping(); }
    const ByteLocks &locks() const final { return file_->locks(); }
    void rejoin() override {
        file_->forget_slot();
        file_->return_after_fork();
        take_slot();
    }
    void leave() override { file_->detach(); }

  protected:
    virtual void take_slot() = 0; // again, at the same place
    const std::shared_ptr<File> file_;
};

inline void Gate::wake() {
    for (const auto &weak : readers_)
        if (const auto reader = weak.lock()) reader->interrupt();
}

// A channel as the bridge sees it through a gate.
class GatedWatched final : public Waitable {
  public:
    GatedWatched(std::shared_ptr<ReaderEnd> reader, bool until_end)
        : seen_expired_(reader->delivery_gate.gate()->expired()), reader_(std::move(reader)),
          watched_(reader_->watched(until_end)) {}
    Atomic<uint32_t> &event() override { return watched_->event(); }
    bool readable(uint64_t position) const override {
        return reader_->delivery_gate.allowed() != 0 && watched_->readable(position);
    }
    // Also once after each expire(): waits that are under way look, and end.
    bool stalled(uint64_t position) const override {
        const uint64_t expired = reader_->delivery_gate.gate()->expired();
        return std::exchange(seen_expired_, expired) != expired || watched_->stalled(position);
    }

  private:
    mutable uint64_t seen_expired_; // the bridge's thread
    std::shared_ptr<ReaderEnd> reader_;
    std::shared_ptr<Waitable> watched_;
};

// The loop of ReaderEnd::fill over a kind's own reader; `add` says whether the message was whole.
template <class Reader, class Add>
bool fill_batch(Reader &reader, BatchBuilder &batch, int64_t limit, size_t most, Message &last, Add &&add) {
    for (int64_t i = 0; i < limit;) {
        const Message *message = reader.peek();
        if (message == nullptr) return true;
        if (batch.payload_bytes() + message->length > most && batch.rows() != 0) return false;
        BatchRow row;
        row.position = message->position;
        row.time_ns = message->time_ns;
        row.session = message->session;
        if (!add(row, *message)) continue;
        last = *message;
        reader.consume();
        ++i;
    }
    return false;
}

// A reader whose bytes stay as they are until it is done with them, unless writers may drop it.
class InPlaceReader : public ReaderEnd, public Lender {
  public:
    bool copy(void *to, const Message &message) override {
        copy_bytes(to, message.data, message.length);
        check_dropped();
        return true;
    }
    bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) override {
        const bool in_place = !droppable();
        return fill_batch(*this, batch, limit, most, last, [&](const BatchRow &row, const Message &message) {
            if (in_place) batch.add(row, message.data, message.length, !message.assembled);
            else batch.add_copied(row, message.length, [&](uint8_t *to) { return copy(to, message); });
            return true;
        });
    }
    Lender &lender() final { return *this; }
    void fetch(void *to, const Message &message) const final { copy_bytes(to, message.data, message.length); }
    void lend(const Message &message) final {
        check_dropped();
        hold(message); // an assembled one, too: its reader counts as behind until it gives the copy back
        consume();
    }
    bool intact(const Message &) final {
        check_dropped();
        return true;
    }
    bool lends_stable_bytes() const final { return true; }
    int64_t lost_messages() const final { return lost() == 0 ? 0 : -1; }

  protected:
    virtual bool droppable() const = 0;
    virtual void check_dropped() = 0;              // throws if it was dropped
    virtual void hold(const Message &message) = 0; // until give_back()
};

class WriterEnd : public End {
  public:
    virtual Atomic<uint32_t> &room() = 0;                       // event: there may be room now
    virtual void add_watches(WatchSet &) {}                     // there was none: what will change
    virtual Atomic<uint32_t> &members() = 0;                    // event: a subscription joined
    virtual int64_t offer(const void *data, size_t length) = 0; // the position after it, or no_room
    virtual size_t offer_many(const IoVec *pieces, size_t count) = 0;
    virtual bool claim(size_t length, ClaimedRange &range) = 0;
    virtual int64_t commit(const ClaimedRange &range) = 0;
    virtual void abort(const ClaimedRange &range) = 0;
    // What a frame says beside its bytes; before commit.
    virtual void describe(const ClaimedRange &, FrameFields) {
        throw Error(Code::invalid, where() + ": only frames carry fields beside their bytes");
    }

    // A message of any length: `advance` until it returns true, waiting for room in between. It goes out in one piece unless the
    // kind has fragments.
    virtual bool advance(PendingSend &sending) {
        sending.position = offer(sending.data, sending.length);
        return sending.position != no_room;
    }
    virtual void repair() {} // while there is no room: repairs the state that dead participants left
    virtual void give_up(PendingSend &) {}

    virtual size_t payload_max() const = 0;                      // that offer and claim take
    virtual size_t message_max() const { return payload_max(); } // that send takes
    virtual std::string why_full() const { return "a subscription is behind by the whole capacity"; }
    virtual std::string why_no_readers() const { return {}; } // of a wait for subscriptions, if it is known
    virtual uint64_t position() const = 0;
    virtual int32_t session() const = 0;
    virtual uint32_t readers() = 0;
    virtual uint64_t lag() = 0; // of the slowest subscription
    bool all_read() { return lag() == 0; }
};

} // namespace penstock
