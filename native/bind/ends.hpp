// What Python's handles need of a channel, whatever its kind. One implementation per kind: log_ends.hpp, ring_ends.hpp.
#pragma once

#include "gate.hpp"

#include "../core/arrow_batch.hpp"
#include "../core/bridge.hpp"
#include "../core/liveness.hpp"
#include "../core/mapping.hpp"
#include "../core/message.hpp"
#include "../core/waiting.hpp"

#include <memory>
#include <optional>
#include <string>

namespace penstock::bind {

// A participant of a channel. The handle that owns it serialises all calls, but for those said to be safe.
class End {
  public:
    virtual ~End() = default;
    virtual const std::string &path() const = 0;
    virtual std::shared_ptr<Mapping> mapping() const = 0;
    virtual void rejoin() = 0;  // in a forked child: a seat of its own, at the same place
    virtual void leave() = 0;   // gives the seat back
    virtual void disturb() = 0; // everybody who sleeps on this channel looks again
};

// Words that change when a message comes, or room for one, and what they were before. Looked at without the interpreter.
class Glance {
  public:
    void clear() { count_ = 0, changes_ = nullptr; }
    // Worth an attempt when `word` is so much further than `seen`.
    void add(const Atomic<uint64_t> &word, uint64_t seen, uint64_t step = 1) {
        if (count_ == most) return; // what is left out is seen by the sleeper's own look
        words_[count_] = &word;
        steps_[count_] = step;
        seen_[count_++] = seen;
    }
    void add_changes(const Atomic<uint32_t> &word, uint32_t seen) { changes_ = &word, changes_seen_ = seen; }
    bool empty() const { return count_ == 0 && changes_ == nullptr; }
    bool changed() const {
        for (size_t i = 0; i < count_; ++i)
            if (words_[i]->relaxed() - seen_[i] >= steps_[i]) return true;
        return changes_ != nullptr && changes_->relaxed() != changes_seen_;
    }

  private:
    static constexpr size_t most = 16;
    const Atomic<uint64_t> *words_[most];
    uint64_t seen_[most], steps_[most];
    size_t count_ = 0;
    const Atomic<uint32_t> *changes_ = nullptr;
    uint32_t changes_seen_ = 0;
};

class Receiver : public End {
  public:
    // The next message that may be delivered now.
    const Message *peek() { return passage.gate() == nullptr || passage.allowed() != 0 ? look() : nullptr; }
    Passage passage; // leads nowhere but in tests

    virtual Atomic<uint32_t> &event() = 0; // something was committed
    virtual std::shared_ptr<Watched> watched() = 0;
    virtual void glance(Glance &at) = 0; // there was nothing: what will change
    virtual void begin_call() {}         // what earlier calls gave is in its owner's hands

    virtual const Message *look() = 0;                       // the next message, not yet taken, or null
    virtual bool copy(void *to, const Message &message) = 0; // false: it was overwritten meanwhile, look again
    virtual void take() = 0;                                 // what look() gave is done with
    // Takes what is there into a batch, at most `limit` rows and about `most` bytes; whether nothing is left. `last`: the newest.
    virtual bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) = 0;
    virtual void fetch(void *to, const Message &message) const = 0; // only the bytes; safe without the interpreter
    // Reading in place: between the two the message's bytes are lent. False: they were overwritten.
    virtual void lend(const Message &message) = 0;
    virtual bool intact(const Message &message) = 0;
    virtual void give_back(const Message &message) = 0;
    virtual bool keeps_lent() const = 0; // whether lent bytes stay as they are until given back

    virtual bool repair() = 0;         // while nothing comes: what a dead writer left half
    virtual bool readable() const = 0; // moves nothing
    virtual Run run(uint64_t max) = 0; // for the recorder
    virtual void check_run() = 0;      // after a run was copied: throws if writers went over it
    virtual void take_run(const Run &run) = 0;
    virtual void show_position() = 0;

    virtual uint64_t position() const = 0;
    virtual uint64_t lag() const = 0;
    virtual uint64_t lost() const = 0;         // bytes of the stream
    virtual int64_t lost_messages() const = 0; // -1: not known
    virtual uint64_t incomplete() const { return 0; }
    virtual uint64_t conflated() const { return 0; }
    virtual uint64_t restarts() const { return 0; }
};

inline void Gate::wake() {
    for (const auto &weak : receivers_)
        if (const auto receiver = weak.lock()) receiver->disturb();
}

// A channel as the bridge sees it through a gate.
class GatedWatched final : public Watched {
  public:
    explicit GatedWatched(std::shared_ptr<Receiver> receiver) : receiver_(std::move(receiver)), watched_(receiver_->watched()) {}
    Atomic<uint32_t> &event() override { return watched_->event(); }
    bool readable(uint64_t position) const override { return receiver_->passage.allowed() != 0 && watched_->readable(position); }
    bool stalled(uint64_t position) const override { return watched_->stalled(position); }

  private:
    std::shared_ptr<Receiver> receiver_;
    std::shared_ptr<Watched> watched_;
};

// The loop of Receiver::fill over a kind's own reader; `add` says whether the message was whole.
template <class Reader, class Add>
bool fill_batch(Reader &reader, BatchBuilder &batch, int64_t limit, size_t most, Message &last, Add &&add) {
    for (int64_t i = 0; i < limit;) {
        const Message *message = reader.look();
        if (message == nullptr) return true;
        if (batch.payload_bytes() + message->length > most && batch.rows() != 0) return false;
        BatchRow row;
        row.position = message->position;
        row.time_ns = message->time_ns;
        row.session = message->session;
        if (!add(row, *message)) continue;
        last = *message;
        reader.take();
        ++i;
    }
    return false;
}

class Sender : public End {
  public:
    virtual Atomic<uint32_t> &room() = 0;                       // event: there may be room now
    virtual void glance(Glance &) {}                            // there was none: what will change
    virtual Atomic<uint32_t> &members() = 0;                    // event: a subscription came
    virtual int64_t offer(const void *data, size_t length) = 0; // the position after it, or no_room
    virtual size_t offer_many(const Piece *pieces, size_t count) = 0;
    virtual bool reserve(size_t length, Reservation &place) = 0;
    virtual int64_t commit(const Reservation &place) = 0;
    virtual void abort(const Reservation &place) = 0;
    // What a frame says beside its bytes; before commit.
    virtual void describe(const Reservation &, std::optional<uint64_t>, int64_t, int64_t, const std::string &) {
        throw Error(Code::invalid, path() + ": only frames carry fields beside their bytes");
    }

    // A message of any length: `advance` until it returns true, waiting for room in between.
    virtual bool advance(Sending &sending) = 0;
    virtual void repair() {} // while there is no room: what the dead left
    virtual void give_up(Sending &sending) = 0;

    virtual size_t payload_max() const = 0; // that offer and claim take
    virtual size_t message_max() const = 0; // that send takes
    virtual uint64_t position() const = 0;
    virtual int32_t session() const = 0;
    virtual uint32_t readers() = 0;
    virtual uint64_t lag() = 0; // of the slowest subscription
    bool all_read() { return lag() == 0; }
};

} // namespace penstock::bind
