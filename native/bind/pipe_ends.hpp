// A pipe channel's ends, as Python's handles need them: reader, writer, a recorder's tap. Reader and writer may belong to one
// peer.
#pragma once

#include "bind.hpp"
#include "ends.hpp"

#include "pipe/pipe_tap.hpp"

namespace penstock::bind {

class PipeWatched final : public Watched {
  public:
    PipeWatched(std::shared_ptr<PipePeer> peer, bool until_end) : peer_(std::move(peer)), until_end_(until_end) {}
    Atomic<uint32_t> &event() override { return peer_->bell(); }
    bool readable(uint64_t) const override { return peer_->readable() || (until_end_ && peer_->seems_ended(false)); }
    bool stalled(uint64_t) const override {
        return peer_->others_wait() || (until_end_ && look_.now() && peer_->seems_ended(true));
    }

  private:
    std::shared_ptr<PipePeer> peer_;
    const bool until_end_;
    mutable Sometimes look_; // the bridge's thread
};

inline void disturb_peer(PipePeer &peer) { event_disturb(peer.bell()); }

// Shared by a reader and a recorder's tap. `Role`: the end's role.
template <class Role> class PeerEnd : public Role {
  public:
    explicit PeerEnd(std::shared_ptr<PipePeer> peer) : peer_(std::move(peer)) {}
    ~PeerEnd() override { peer_->leave(); }

    const std::string &where() const final { return peer_->where(); }
    std::shared_ptr<Mapping> mapping() const final { return peer_->mapping(); }
    void rejoin() final { peer_->rejoin(); }
    void leave() final { peer_->leave(); }
    void disturb() final { disturb_peer(*peer_); }
    Atomic<uint32_t> &event() final { return peer_->bell(); }
    bool repair() final { return peer_->repair(); }
    bool readable() const final { return peer_->readable(); }

  protected:
    const std::shared_ptr<PipePeer> peer_;
};

class PipeReaderEnd : public PeerEnd<ReaderEnd>, public Lender {
  public:
    PipeReaderEnd(std::shared_ptr<PipePeer> peer, bool by_hand) : PeerEnd(std::move(peer)), by_hand_(by_hand) {}
    PipePeer &peer() const { return *peer_; }

    std::shared_ptr<Watched> watched(bool until_end) override { return std::make_shared<PipeWatched>(peer_, until_end); }
    bool ended() override { return peer_->ended(); }
    void glance(Glance &at) override {
        peer_->words([&](const Atomic<uint64_t> &word, uint64_t seen) { at.add(word, seen); });
        at.add_changes(peer_->control().changes.value, peer_->seen_changes());
    }
    void begin_call() override {
        if (!by_hand_) peer_->acknowledge();
    }

    void hold_back() override { peer_->hold_back(); }
    void hand_out() override { peer_->hand_out(); }

    const Message *look() override { return peer_->look(); }
    bool copy(void *to, const Message &message) override {
        copy_bytes(to, message.data, message.length);
        return true;
    }
    void take() override { peer_->take(); }
    // At most half of a pipe's capacity, so that the writer can fill the other half until this one is acknowledged.
    bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) override {
        limit = std::min<int64_t>(limit, peer_->geometry().mark / 2 + 1);
        if (limit <= 0) return false;
        uint64_t left = peer_->geometry().capacity / 2;
        const bool more = peer_->drain([&](const Message &message) {
            BatchRow row;
            row.position = message.position;
            row.time_ns = message.time_ns;
            row.session = message.session;
            batch.add(row, message.data, message.length, true);
            left -= std::min(left, message.next - message.position);
            return --limit == 0 || left == 0 || batch.payload_bytes() >= most;
        });
        if (batch.rows() != 0) last = peer_->drained();
        return !more;
    }

    Lender &lender() override { return *this; }
    void fetch(void *to, const Message &message) const override { copy_bytes(to, message.data, message.length); }
    void lend(const Message &) override {
        peer_->take();
        peer_->lend();
    }
    bool intact(const Message &) override { return true; }
    void give_back(const Message &) override { peer_->give_back(); }
    bool keeps_lent() const override { return true; }

    LatencySlot *latency() override {
        const Mapping &map = *peer_->mapping();
        return latency_of(map.bytes(), map.size(), peer_->geometry().peers, peer_->mine());
    }

    RunSource *runs() override { return nullptr; } // it takes its messages away from others

    uint64_t position() const override { return peer_->read_position(); }
    uint64_t lag() const override { return peer_->lag_in(); }
    uint64_t lost() const override { return peer_->missed_bytes(); }
    int64_t lost_messages() const override { return static_cast<int64_t>(peer_->missed()); }

  private:
    const bool by_hand_;
};

// For a recorder: a copy of all that is sent, in whole runs.
class PipeTapEnd final : public PeerEnd<StreamEnd>, public RunSource {
  public:
    PipeTapEnd(std::shared_ptr<PipePeer> peer, uint64_t position) : PeerEnd(peer), tap_(std::move(peer), position) {}

    RunSource *runs() override { return this; }
    Run run(uint64_t max) override { return tap_.run(max); }
    void take_run(const Run &run) override { tap_.take(run); }
    bool skips() const override { return true; }

    uint64_t position() const override { return tap_.position(); }
    uint64_t lag() const override { // at most: as recorded, with what stands before each body
        peer_->follow();
        return 4 * peer_->lag_in();
    }
    uint64_t lost() const override { return tap_.missed() * PipeTap::missing_length; }
    int64_t lost_messages() const override { return static_cast<int64_t>(tap_.missed()); }

  private:
    PipeTap tap_;
};

class PipeWriterEnd final : public WriterEnd {
  public:
    explicit PipeWriterEnd(std::shared_ptr<PipePeer> peer) : peer_(std::move(peer)) {}
    ~PipeWriterEnd() override { peer_->leave(); }
    PipePeer &peer() { return *peer_; }

    const std::string &where() const override { return peer_->where(); }
    std::shared_ptr<Mapping> mapping() const override { return peer_->mapping(); }
    void rejoin() override { peer_->rejoin(); }
    void leave() override { peer_->leave(); }
    void disturb() override { disturb_peer(*peer_); }
    Atomic<uint32_t> &room() override { return peer_->bell(); }
    void glance(Glance &at) override {
        peer_->room_words([&](const Atomic<uint64_t> &word, uint64_t seen, uint64_t step) { at.add(word, seen, step); });
        at.add_changes(peer_->control().changes.value, peer_->seen_changes());
    }
    Atomic<uint32_t> &members() override { return peer_->bell(); }

    int64_t offer(const void *data, size_t length) override {
        check(length);
        if (peer_->write(data, length)) return at();
        return refuse(length);
    }
    size_t offer_many(const Piece *pieces, size_t count) override {
        for (size_t i = 0; i < count; ++i) check(pieces[i].length);
        size_t done = peer_->write_many(pieces, count);
        while (done < count && peer_->when_full() != WhenFull::wait) // drops one by one
            if (offer(pieces[done].data, pieces[done].length) == no_room) break;
            else ++done;
        return done;
    }
    bool reserve(size_t length, Reservation &place) override { return peer_->reserve(static_cast<uint32_t>(length), place); }
    int64_t commit(const Reservation &place) override {
        peer_->commit(place);
        return at();
    }
    void abort(const Reservation &place) override { peer_->abort(place); }
    bool advance(Sending &sending) override {
        sending.position = offer(sending.data, sending.length);
        return sending.position != no_room;
    }
    void give_up(Sending &) override {}
    void repair() override { peer_->repair(); }

    // To one peer, if `to` is not 0, with what its pattern says beside the bytes.
    bool send_to(uint64_t to, uint64_t id, int32_t kind, const void *data, size_t length) {
        check(length);
        if (peer_->write(data, length, id, kind, to)) return true;
        if (to != 0 && (peer_->repair(), !peer_->alive(to)))
            throw Error(Code::disconnected, where() + ": the peer that this goes to is gone");
        return refuse(length) != no_room;
    }

    size_t payload_max() const override { return peer_->payload_max(); }
    size_t message_max() const override { return peer_->payload_max(); }
    std::string why_full() const override {
        const uint64_t waiting = peer_->waiting();
        if (waiting == 0 && peer_->readers() == 0) return "nobody is there to receive it";
        return std::to_string(waiting) + " messages wait to be read" + (peer_->readers() == 0 ? ", and nobody is there to" : "") +
               (peer_->claims_open() ? ", and a claim of this publication is open" : "");
    }
    uint64_t position() const override { return peer_->written_position(); }
    int32_t session() const override { return session_of(peer_->id()); }
    uint32_t readers() override {
        peer_->follow();
        peer_->repair();
        return peer_->readers();
    }
    uint64_t lag() override {
        peer_->follow();
        return peer_->lag_out();
    }

  private:
    int64_t at() const { return static_cast<int64_t>(peer_->written_position()); }
    int64_t refuse(size_t length) {
        if (peer_->when_full() == WhenFull::wait) {
            peer_->count_refused();
            return no_room;
        }
        peer_->count_dropped(frame_bytes(length)); // this one
        return at();
    }
    void check(size_t length) const {
        if (length > peer_->payload_max())
            throw Error(Code::too_large, where() + ": a message of " + std::to_string(length) + " bytes; the largest is " +
                                             std::to_string(peer_->payload_max()) +
                                             " here: create the channel with a larger capacity");
    }

    std::shared_ptr<PipePeer> peer_;
};

} // namespace penstock::bind
