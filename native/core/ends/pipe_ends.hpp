// A pipe channel's ends: reader, writer, a recorder's tap. Reader and writer may belong to one
// peer.
#pragma once

#include "ends/ends.hpp"
#include "ground/members/process_name.hpp"

#include "pipe/pipe_tap.hpp"

#include <utility>

namespace penstock {

class PipeWatched final : public Waitable {
  public:
    PipeWatched(std::shared_ptr<PipePeer> peer, bool until_end) : peer_(std::move(peer)), until_end_(until_end) {}
    Atomic<uint32_t> &event() override { return peer_->peers().bell(); }
    bool readable(uint64_t) const override { return peer_->pipes().readable() || (until_end_ && peer_->may_have_ended(false)); }
    bool stalled(uint64_t) const override {
        return peer_->pipes().has_unread_elsewhere() || (until_end_ && rate_limit_.allows() && peer_->may_have_ended(true));
    }
    bool settled(uint64_t) const override { return !until_end_ && peer_->pipes().is_only_reader(); }

  private:
    std::shared_ptr<PipePeer> peer_;
    const bool until_end_;
    mutable RateLimit rate_limit_; // the bridge's thread
};

// One end's part in its peer: the slot is given back when every end of it has left.
class PeerPart {
  public:
    explicit PeerPart(PipePeer &peer) : peer_(peer) { peer_.add_handle(); }
    ~PeerPart() { leave(); }
    PeerPart(const PeerPart &) = delete;
    PeerPart &operator=(const PeerPart &) = delete;
    void leave() {
        if (!std::exchange(left_, true)) peer_.drop_handle();
    }

  private:
    PipePeer &peer_;
    bool left_ = false;
};

inline void disturb_peer(PipePeer &peer) { event_interrupt(peer.peers().bell()); }

// Shared by a reader and a recorder's tap. `Role`: the end's role.
template <class Role> class PeerEnd : public Role {
  public:
    explicit PeerEnd(std::shared_ptr<PipePeer> peer) : peer_(std::move(peer)), part_(*peer_) {
        if (reads_only(peer_->peers().role())) peer_->file().protect_circles();
    }

    const std::string &where() const final { return peer_->peers().where(); }
    std::shared_ptr<Mapping> mapping() const final { return peer_->file().mapping(); }
    const ByteLocks &locks() const final { return peer_->peers().locks(); }
    void rejoin() final { peer_->reattach(); }
    void leave() final { part_.leave(); }
    void interrupt() final { disturb_peer(*peer_); }
    Atomic<uint32_t> &event() final { return peer_->peers().bell(); }
    Atomic<uint64_t> *wait_word() final { return &peer_->peers().me().counters.wait; }
    bool repair() final { return peer_->repair(); }
    bool readable() const final { return peer_->pipes().readable(); }

  protected:
    const std::shared_ptr<PipePeer> peer_;

  private:
    PeerPart part_;
};

class PipeReaderEnd : public PeerEnd<ReaderEnd>, public Lender {
  public:
    PipeReaderEnd(std::shared_ptr<PipePeer> peer, bool by_hand) : PeerEnd(std::move(peer)), manual_ack_(by_hand) {}
    PipePeer &peer() const { return *peer_; }

    std::shared_ptr<Waitable> watched(bool until_end) override { return std::make_shared<PipeWatched>(peer_, until_end); }
    bool ended() override { return peer_->ended(); }
    bool settled() const override { return peer_->pipes().is_only_reader(); } // a second reader rings this one's bell
    std::string why_waiting() override {
        const uint32_t other = peer_->process_with_unread();
        return other == 0 ? ""
                          : "every publication has closed or died, but " + named_process(other, locks().descriptor()) +
                                " has messages that it has not read";
    }
    void add_watches(WatchSet &at) override {
        peer_->incoming().words([&](const Atomic<uint64_t> &word, uint64_t seen) { at.add(word, seen); });
        at.add_changes(peer_->peers().changes(), peer_->peers().seen_changes());
    }
    void begin_call() override {
        if (!manual_ack_) peer_->acknowledge();
    }

    void defer_ack() override { peer_->acknowledger().defer_ack(); }
    void resume_ack() override { peer_->acknowledger().resume_ack(); }

    const Message *peek() override { return peer_->peek(); }
    bool copy(void *to, const Message &message) override {
        copy_bytes(to, message.data, message.length);
        return true;
    }
    void consume() override { peer_->consume(); }
    // At most half of a pipe's capacity, so that the writer can fill the other half until this one is acknowledged.
    bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) override {
        limit = std::min<int64_t>(limit, peer_->file().geometry().max_messages / 2 + 1);
        if (limit <= 0) return false;
        uint64_t left = peer_->file().geometry().capacity / 2;
        const bool more = peer_->drain([&](const Message &message) {
            BatchRow row;
            row.position = message.position;
            row.time_ns = message.time_ns;
            row.session = message.session;
            batch.add(row, message.data, message.length, true);
            left -= std::min(left, message.next - message.position);
            return --limit == 0 || left == 0 || batch.payload_bytes() >= most;
        });
        if (batch.rows() != 0) last = peer_->incoming().message();
        return !more;
    }

    Lender &lender() override { return *this; }
    void fetch(void *to, const Message &message) const override { copy_bytes(to, message.data, message.length); }
    void lend(const Message &) override {
        peer_->consume();
        peer_->acknowledger().lend();
    }
    const uint8_t *readable_bytes(const Message &message, std::shared_ptr<Mapping> &map) override {
        const ptrdiff_t at = message.data - map->bytes();
        map = peer_->file().lent_mapping(locks());
        return map->bytes() + at;
    }
    bool intact(const Message &) override { return true; }
    void give_back(const Message &) override { peer_->acknowledger().give_back(); }
    bool lends_stable_bytes() const override { return true; }

    LatencySlot *latency() override {
        const Mapping &map = *peer_->file().mapping();
        return latency_of(map.bytes(), map.size(), peer_->file().geometry().max_members, peer_->peers().mine());
    }

    RunSource *runs() override { return nullptr; } // it takes its messages away from others

    uint64_t position() const override { return peer_->peers().counters().read_position(); }
    uint64_t lag() const override { return peer_->pipes().unread(); }
    uint64_t lost() const override { return peer_->incoming().missed_bytes(); }
    int64_t lost_messages() const override { return static_cast<int64_t>(peer_->incoming().missed()); }

  private:
    const bool manual_ack_;
};

// For a recorder: a copy of all that is sent, in whole runs.
class PipeTapEnd final : public PeerEnd<StreamEnd>, public RunSource {
  public:
    PipeTapEnd(std::shared_ptr<PipePeer> peer, uint64_t position) : PeerEnd(peer), tap_(std::move(peer), position) {}

    RunSource *runs() override { return this; }
    FrameBlock run(uint64_t max) override { return tap_.run(max); }
    void take_run(const FrameBlock &run) override { tap_.acknowledge(run); }
    bool skips() const override { return true; }

    uint64_t position() const override { return tap_.position(); }
    uint64_t lag() const override { // at most: as recorded, with the header before each body
        peer_->refresh();
        return 4 * peer_->pipes().unread();
    }
    uint64_t lost() const override { return tap_.missed() * PipeTap::missing_length; }
    int64_t lost_messages() const override { return static_cast<int64_t>(tap_.missed()); }

  private:
    PipeTap tap_;
};

class PipeWriterEnd final : public WriterEnd {
  public:
    explicit PipeWriterEnd(std::shared_ptr<PipePeer> peer) : peer_(std::move(peer)), part_(*peer_) {}
    PipePeer &peer() { return *peer_; }

    const std::string &where() const override { return peer_->peers().where(); }
    std::shared_ptr<Mapping> mapping() const override { return peer_->file().mapping(); }
    const ByteLocks &locks() const override { return peer_->peers().locks(); }
    void rejoin() override { peer_->reattach(); }
    void leave() override { part_.leave(); }
    void interrupt() override { disturb_peer(*peer_); }
    Atomic<uint64_t> *wait_word() override { return &peer_->peers().me().counters.wait; }
    Atomic<uint32_t> &room() override { return peer_->peers().bell(); }
    void add_watches(WatchSet &at) override {
        peer_->room_words([&](const Atomic<uint64_t> &word, uint64_t seen, uint64_t step) { at.add(word, seen, step); });
        at.add_changes(peer_->peers().changes(), peer_->peers().seen_changes());
    }
    Atomic<uint32_t> &members() override { return peer_->peers().bell(); }

    int64_t offer(const void *data, size_t length) override {
        check(length);
        return write(data, length) ? at() : refuse(length);
    }
    size_t offer_many(const IoVec *pieces, size_t count) override {
        for (size_t i = 0; i < count; ++i) check(pieces[i].length);
        size_t done = peer_->write_many(pieces, count);
        while (done < count && peer_->peers().when_full() != WhenFull::wait) // drops one by one
            if (offer(pieces[done].data, pieces[done].length) == no_room) break;
            else ++done;
        return done;
    }
    bool claim(size_t length, ClaimedRange &range) override {
        if (peer_->peers().role() != PeerRole::push) check_partner(0);
        if (peer_->claim(static_cast<uint32_t>(length), range)) return true;
        refuse_while_claimed(0);
        return false;
    }
    bool advance(PendingSend &sending) override { // of `send`, which would wait for its own claim
        if (WriterEnd::advance(sending)) return true;
        refuse_while_claimed(0);
        return false;
    }
    int64_t commit(const ClaimedRange &range) override {
        if (!peer_->commit(range))
            throw Error(Code::disconnected,
                        where() + ": the peer that this message was to go to has left or died: send it again");
        return at();
    }
    void abort(const ClaimedRange &range) override { peer_->abort(range); }
    void repair() override { peer_->repair(); }

    // To one peer, if `to` is not 0, with what its pattern says beside the bytes.
    bool send_to(uint64_t to, uint64_t id, int32_t kind, const void *data, size_t length) {
        check(length);
        check_partner(to);
        if (write(data, length, id, kind, to) || refuse(length) != no_room) return true;
        refuse_while_claimed(to);
        return false;
    }
    // Throws if a message sent now would have no receiver. A partner that has left is known by one load. One that was killed is
    // noticed with the next tick of a coarse clock, a few milliseconds at most: asking the kernel each time would cost too much.
    void check_partner(uint64_t to) {
        if (const int64_t tick = system_ns(CLOCK_MONOTONIC_COARSE); tick != tick_) {
            tick_ = tick;
            peer_->repair();
        }
        peer_->refresh();
        if (to == 0 ? !peer_->alone() : peer_->peers().alive(to)) return;
        throw Error(Code::disconnected, where() + (to != 0 ? ": the peer that this goes to is gone"
                                                           : ": every peer that this could go to has left or died; "
                                                             "wait_for_readers waits for the next one"));
    }

    size_t payload_max() const override { return peer_->payload_max(); }
    std::string why_full() const override {
        const uint64_t waiting = peer_->waiting();
        if (waiting == 0 && peer_->peers().readers() == 0) return "nobody is there to receive it";
        return std::to_string(waiting) + " messages wait to be read" +
               (peer_->peers().readers() == 0 ? ", and nobody is there to" : "") +
               (peer_->outgoing().claims() != 0 ? ", and a claim of this publication is open" : "");
    }
    uint64_t position() const override { return peer_->peers().counters().written_position(); }
    int32_t session() const override { return session_of(peer_->peers().id()); }
    uint32_t readers() override {
        peer_->refresh();
        peer_->repair();
        return peer_->peers().readers();
    }
    uint64_t lag() override {
        peer_->refresh();
        return peer_->lag();
    }

  private:
    int64_t at() const { return static_cast<int64_t>(peer_->peers().counters().written_position()); }
    // A message that would be dropped although a reader is there is not dropped before that one has its pipe.
    bool write(const void *data, size_t length, uint64_t id = 0, int32_t kind = 0, uint64_t to = 0) {
        if (peer_->write(data, length, id, kind, to)) return true;
        const bool drops = peer_->peers().when_full() != WhenFull::wait;
        return drops && !peer_->outgoing().any_alive() && peer_->meet() && peer_->write(data, length, id, kind, to);
    }
    int64_t refuse(size_t length) {
        if (peer_->peers().when_full() == WhenFull::wait) {
            peer_->peers().counters().refused();
            return no_room;
        }
        peer_->drop(frame_bytes(length));
        return at();
    }
    void refuse_while_claimed(uint64_t to) const {
        if (peer_->outgoing().all_claimed(to))
            throw Error(Code::busy, where() + ": a claim of this publication is open: commit or abort it first");
    }
    void check(size_t length) const {
        if (length > peer_->payload_max())
            throw Error(Code::too_large, where() + ": a message of " + std::to_string(length) + " bytes; the largest is " +
                                             std::to_string(peer_->payload_max()) +
                                             " here: create the channel with a larger capacity");
    }

    std::shared_ptr<PipePeer> peer_;
    PeerPart part_;
    int64_t tick_ = 0;
};

} // namespace penstock
