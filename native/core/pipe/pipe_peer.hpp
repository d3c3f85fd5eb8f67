// A peer of a pipe channel: finds the others by the channel's table, has a pipe to and from each of them that its role talks to,
// and chooses among them: a living one with room, in turn, to write to; whichever has something, in turn, to read from. If a
// reader of pushed messages dies or leaves, another one takes its pipe over. After ZeroMQ's sockets as sets of pipes (lb_t,
// fq_t). Layout, orders and crash table: docs/design/patterns.md.
#pragma once

#include "pipe/pipe_table.hpp"
#include "pipe/shm_pipe.hpp"

#include <utility>
#include <vector>

namespace penstock {

class PipePeer : public PipeTable, public std::enable_shared_from_this<PipePeer> {
  public:
    static constexpr int64_t repair_interval_ns = 1'000'000;

    // Borrows `fd` for the call. `clock`: stamps messages. `map`: a mapping to share with other handles of this process, instead
    // of one of its own. `time`: says how often the dead are looked for.
    PipePeer(int fd, std::string path, PeerRole role, std::string name, WhenFull when_full = WhenFull::wait,
             std::shared_ptr<ManualClock> clock = nullptr, std::shared_ptr<Mapping> map = nullptr,
             MonotonicClock time = MonotonicClock())
        : PipeTable(fd, std::move(path), role, std::move(name), when_full, std::move(map)), clock_(std::move(clock)),
          time_(std::move(time)) {
        join();
    }
    // Of a channel that is still open; and the same peer once that is decided.
    PipePeer(int fd, std::string path, PeerRole role, std::string name, WhenFull when_full, std::shared_ptr<Mapping> map,
             const OpenPart &part)
        : PipeTable(fd, std::move(path), role, std::move(name), when_full, std::move(map), part), clock_(nullptr) {
        join();
    }
    PipePeer(PipePeer &&before, std::shared_ptr<Mapping> map, const OpenedPipe &opened)
        : PipeTable(std::move(before), std::move(map), opened), clock_(nullptr), time_(before.time_) {
        look_after();
    }
    ~PipePeer() { leave(); }
    // ---- coming and going ----

    void join() {
        enter([&] { rebuild(); });
    }
    // Messages taken and not acknowledged go to others; written messages stay until they are read.
    void leave() {
        depart([&] {
            for (Out &out : outs_) out.writer.close();
        });
        forget_ends();
    }
    void abandon() { // leaves as a killed process would; for tests
        forget_ends();
        members_.abandon();
    }
    void forget() { // in a forked child: the slot stays its parent's
        members_.forget();
        forget_ends();
    }
    void return_after_fork() { members_.return_after_fork(); }
    // In a forked child: a peer of its own.
    void rejoin() {
        if (!forked()) return; // by its other end, already
        forget();
        unacknowledged_ = false;
        lent_ = 0;
        return_after_fork();
        join();
    }

    // Follows what changed in the table, at the cost of one load if nothing did.
    void follow() {
        if (control_->changes.value.relaxed() == seen_changes_) return; // a hint: the table is read under its lock
        look_after();
    }
    // The same, and looks for the dead: while nothing else happens, at most once a millisecond. True if there was news.
    bool repair() {
        const int64_t now = time_.now_ns();
        if (now - repaired_ns_ < repair_interval_ns) return false;
        repaired_ns_ = now;
        return look_after();
    }

    // ---- writing ----

    // Room for a message at the next peer in turn that has any; `to`: only there, if it is not 0. False: nowhere, or not at a
    // recorder that is waited for.
    bool reserve(uint32_t length, Reservation &place, uint64_t to = 0) {
        Out *out = find_room(length, place, to);
        if (out == nullptr) return false;
        out->open = true;
        ++open_messages_;
        open_bytes_ += most_bytes(length);
        return true;
    }
    // False: the pipe is gone since (its reader died): write again.
    bool commit(const Reservation &place, uint64_t id = 0, int32_t kind = 0) {
        Out *out = shut(place);
        if (out != nullptr) send(*out, place, id, kind);
        return out != nullptr;
    }
    void abort(const Reservation &place) { shut(place); }
    bool write(const void *data, size_t length, uint64_t id = 0, int32_t kind = 0, uint64_t to = 0) {
        Reservation place;
        Out *out = find_room(static_cast<uint32_t>(length), place, to); // nobody else calls before it is sent
        if (out == nullptr) return false;
        copy_in(place.payload, data, length);
        send(*out, place, id, kind);
        return true;
    }
    // Messages in order, the run shared out among the peers that have room. How many found room.
    size_t write_many(const Piece *pieces, size_t count) {
        follow();
        size_t done = 0;
        size_t usable = 0;
        for (const Out &out : outs_) usable += out.usable;
        if (usable == 0) return 0;
        const size_t share = (count + usable - 1) / usable;
        const int64_t now = clock_.now_ns();
        for (size_t tried = 0; tried < outs_.size() && done < count; ++tried) {
            Out &out = outs_[next_out_ < outs_.size() ? next_out_ : 0];
            if (!out.usable || out.open) {
                advance_out();
                continue;
            }
            size_t here = 0;
            uint64_t bytes = 0;
            for (; here < share && done + here < count; ++here) {
                const Piece &piece = pieces[done + here];
                const auto length = static_cast<uint32_t>(piece.length);
                if (!taps_.empty() && !recordable(length)) break;
                if (!out.writer.write(piece.data, length, {0, 0, now})) break;
                if (!taps_.empty()) record(piece.data, length, {0, 0, now});
                bytes += piece.length;
            }
            done += here;
            finish(out, here, bytes);
        }
        return done;
    }
    bool claims_open() const { return open_messages_ != 0; } // each keeps its pipe to itself
    uint64_t chosen() const { return chosen_; }              // the peer that the last message was written to
    void count_refused() { me().counters.back_pressure.bump(1); }
    void count_dropped(uint64_t framed) {
        me().counters.messages_dropped.bump(1);
        me().counters.bytes_dropped.bump(framed);
    }
    uint32_t payload_max() const { return geometry_.max_frame() - header_length; }

    // ---- reading ----

    // The next message, of whichever peer's turn it is, or null.
    const Message *look() {
        follow();
        const size_t count = ins_.size();
        for (size_t i = 0; i < count; ++i) {
            const size_t at = next_in_ + i < count ? next_in_ + i : next_in_ + i - count;
            if (!ins_[at].reader.look(message_)) continue;
            next_in_ = at;
            place(message_, read_position(), ins_[at].reader);
            return &message_;
        }
        return nullptr;
    }
    // The same, but of all messages that are there the one sent first. A reply is not taken before the request that caused it,
    // clocks permitting: it is there when all that had nothing are asked once more.
    const Message *look_oldest() {
        follow();
        size_t there = 0, before;
        Message found;
        do {
            before = there;
            there = 0;
            for (size_t i = 0; i < ins_.size(); ++i) {
                if (!ins_[i].reader.look(found)) continue;
                if (there++ != 0 && message_.time_ns <= found.time_ns) continue;
                next_in_ = i;
                message_ = found;
            }
        } while (there != before && there != ins_.size());
        if (there == 0) return nullptr;
        place(message_, read_position(), ins_[next_in_].reader);
        return &message_;
    }
    // The message of look() is the caller's; no other peer gets it unless this one dies before it acknowledges.
    void take() {
        In &in = ins_[next_in_];
        in.reader.take();
        taken_from_ = in.index;
        redelivered_ = in.reader.redelivered();
        PeerSlot::Counters &counts = me().counters;
        counts.messages_received.bump(1);
        counts.bytes_received.bump(message_.length);
        counts.read.relaxed(message_.next);
        if (redelivered_) counts.redelivered.bump(1);
        unacknowledged_ = true;
        next_in_ = next_in_ + 1 < ins_.size() ? next_in_ + 1 : 0;
    }
    // Takes messages, a run from each pipe in turn, until `add`, which gets each, has had enough. False: nothing is left.
    template <class Add> bool drain(Add &&add) {
        follow();
        for (size_t empty = 0; empty < ins_.size();) {
            In &in = ins_[next_in_];
            Message found;
            uint64_t messages = 0, bytes = 0, position = read_position();
            bool enough = false;
            for (; messages < run_of_one_pipe && !enough; ++messages) {
                if (!in.reader.look(found)) break;
                bytes += found.length;
                place(found, position, in.reader);
                position = found.next;
                enough = add(found);
                in.reader.take();
                if (in.reader.redelivered()) me().counters.redelivered.bump(1);
            }
            empty = messages == run_of_one_pipe ? 0 : messages == 0 ? empty + 1 : 1;
            if (messages != 0) {
                redelivered_ = in.reader.redelivered();
                drained_ = found;
                me().counters.messages_received.bump(messages);
                me().counters.bytes_received.bump(bytes);
                me().counters.read.relaxed(position);
                unacknowledged_ = true;
            }
            next_in_ = next_in_ + 1 < ins_.size() ? next_in_ + 1 : 0;
            if (enough) return true;
        }
        return false;
    }
    const Message &drained() const { return drained_; } // the last that drain() took
    // All that was taken is done with, but for what is held back.
    void acknowledge() {
        if (!unacknowledged_ || lent_ != 0) return; // lent bytes must not change
        unacknowledged_ = false;
        for (In &in : ins_) {
            unacknowledged_ |= in.reader.holds_back();
            if (in.reader.acknowledge()) notify([&] { return in.from; });
        }
    }
    // The message that was taken last has not reached its owner: until hand_out() it, and what comes after it in its pipe, is
    // not acknowledged.
    void hold_back() {
        for (In &in : ins_)
            if (in.index == taken_from_) in.reader.hold_back();
    }
    void hand_out() {
        for (In &in : ins_) in.reader.hand_out();
    }
    void lend() { ++lent_; }
    void give_back() { --lent_; }
    void keep() { unacknowledged_ = false; }              // messages taken so far go to others when this peer leaves
    uint64_t from() const { return ins_[next_in_].from; } // the sender of look()'s message
    const PipeLink &source() const { return link(ins_[next_in_].index); } // and the pipe it came by
    const PipeTag &tag() const { return ins_[next_in_].reader.tag(); }
    bool redelivered() const { return redelivered_; }
    uint64_t missing() const { return ins_[next_in_].reader.missing(); } // messages, before what look() gave
    uint64_t missed() const {
        uint64_t all = missed_;
        for (const In &in : ins_) all += in.reader.missed();
        return all;
    }

    uint64_t missed_bytes() const { // of those that the writers of lossy pipes dropped
        uint64_t all = missed_bytes_;
        for (const In &in : ins_) all += in.reader.missed_bytes();
        return all;
    }

    // Whether there is something in a pipe to this peer. Looks at the table alone, so that any thread may ask.
    bool readable() const {
        for (uint32_t i = 0; i < geometry_.links; ++i) {
            const PipeLink &l = link(i);
            if (l.ends.state.relaxed() != 1 || l.ends.to.relaxed() != id()) continue;
            if (l.writer.tail.relaxed() != l.reader.read.relaxed()) return true;
        }
        return false;
    }
    // Whether messages wait for another reader of pushed messages, which may be dead.
    bool others_wait() const {
        if (role_ != PeerRole::pull) return false;
        for (uint32_t i = 0; i < geometry_.links; ++i) {
            const PipeLink &l = link(i);
            if (l.ends.state.relaxed() == 1 && l.ends.to.relaxed() != id() && l.writer.tail.relaxed() != l.reader.acked.relaxed())
                return true;
        }
        return false;
    }
    // ---- the end of the stream: somebody has pushed, nobody who pushes is left, and nothing waits for this peer ----

    // After a look that found nothing. Decided under the table's lock, so that nobody joins meanwhile.
    bool ended() {
        if (control_->pushed.value.relaxed() == 0) return false;
        const int64_t now = time_.now_ns();
        if (now - ended_look_ns_ < end_interval_ns && somebody_pushes()) return false;
        ended_look_ns_ = now;
        if (!lock()) return false;
        const RobustLockGuard held(control_->lock.value);
        const bool died = reap(), changed = repair_pipes(); // takes over unread messages of another reader
        if (died || changed) publish_change();
        if (control_->changes.value.relaxed() != seen_changes_) rebuild();
        return !somebody_pushes() && std::all_of(ins_.begin(), ins_.end(), [](In &in) { return in.reader.drained(); });
    }
    // The same as a guess, for any thread; with `ask_kernel` also for the dead. Changes nothing.
    bool seems_ended(bool ask_kernel) {
        if (control_->pushed.value.relaxed() == 0 || readable()) return false;
        for (uint32_t i = 0; i < geometry_.peers; ++i)
            if (pushes(i) && (!ask_kernel || members_.lives_elsewhere(i))) return false;
        return true;
    }

    // Positions count the bytes of the frames that this peer has read and written, in whichever pipes.
    uint64_t read_position() const { return me().counters.read.relaxed(); }
    uint64_t written_position() const { return me().counters.written.relaxed(); }
    // Words that change when something arrives, with what they were; safe to look at without the GIL.
    template <class Each> void words(Each &&each) const {
        for (const In &in : ins_) each(in.reader.tail_word(), in.reader.seen_tail());
    }

    // Words that go so much further before it is worth looking for room again.
    template <class Each> void room_words(Each &&each) const {
        for (const Out &out : outs_)
            if (out.usable) out.writer.room_words(each);
        for (const Tap &tap : taps_)
            if (tap.waited_for && tap.writer.lag() != 0) tap.writer.room_words(each);
    }

    // ---- the others ----

    uint32_t readers() const { // living ones that this peer sends to
        uint32_t count = 0;
        for (const Out &out : outs_) count += out.alive;
        return count;
    }
    uint64_t lag_out() const {
        uint64_t most = 0;
        for (const Out &out : outs_) most = std::max(most, out.writer.lag());
        return most;
    }
    uint64_t waiting() const { // messages in all pipes from here that nobody has acknowledged
        uint64_t all = 0;
        for (const Out &out : outs_) all += out.writer.waiting();
        return all;
    }
    uint64_t lag_in() const { return unread_by(id()); } // bytes in all pipes to here that were not given out yet
    // The living peer of that name that this one sends to, or 0.
    uint64_t named(const std::string &name) {
        follow();
        for (const Out &out : outs_)
            if (out.alive && name_of(out.to) == name) return out.to;
        return 0;
    }
    std::vector<uint64_t> others() {
        follow();
        std::vector<uint64_t> found;
        for (const Out &out : outs_)
            if (out.alive) found.push_back(out.to);
        return found;
    }

  private:
    struct Out {
        uint32_t index;
        uint64_t to;
        PipeWriter writer;
        bool alive, usable;
        bool open = false; // room in it is reserved
    };
    struct Tap {
        uint32_t index;
        uint64_t to;
        PipeWriter writer;
        bool waited_for;
    };
    struct In {
        uint32_t index;
        uint64_t from;
        PipeReader reader;
    };
    static constexpr uint64_t run_of_one_pipe = 64;

    bool look_after() {
        if (!lock()) return false;
        const RobustLockGuard held(control_->lock.value);
        const bool died = reap();
        const bool changed = repair_pipes();
        if (died || changed) publish_change();
        if (!died && !changed && control_->changes.value.relaxed() == seen_changes_) return false;
        rebuild();
        return true;
    }

    // This peer's ends of the pipes that are its own by the table. Ends that stay keep what they know.
    void rebuild() {
        seen_changes_ = control_->changes.value.relaxed();
        std::vector<Out> outs;
        std::vector<In> ins;
        std::vector<Tap> taps;
        outs.reserve(geometry_.links);
        bool any_alive = false;
        for (uint32_t i = 0; i < geometry_.links; ++i) {
            PipeLink &l = link(i);
            if (l.ends.state.relaxed() != 1) continue;
            const uint64_t from = l.ends.from.relaxed(), to = l.ends.to.relaxed();
            if (from == id() && l.ends.pattern.relaxed() == static_cast<uint32_t>(PeerRole::tap)) {
                if (!alive(to)) continue;
                const auto known =
                    std::find_if(taps_.begin(), taps_.end(), [&](const Tap &tap) { return tap.index == i && tap.to == to; });
                if (known != taps_.end()) taps.push_back(*known);
                else taps.push_back({i, to, writer_of(i), slot(slot_of(to)).identity.lossy.relaxed() == 0});
                continue;
            }
            if (from == id() && l.writer.closed.relaxed() == 0) {
                const bool living = alive(to);
                const bool twice = std::any_of(outs.begin(), outs.end(), [&](const Out &out) { return out.to == to; });
                if (living && twice) { // inherited beside one that was there: it is only read empty
                    l.writer.closed.relaxed(1);
                    continue;
                }
                const auto known = std::find_if(outs_.begin(), outs_.end(), [&](const Out &out) { return out.index == i; });
                any_alive |= living;
                if (known != outs_.end()) outs.push_back({i, to, known->writer, living, true, known->open});
                else outs.push_back({i, to, writer_of(i), living, true});
            }
            if (to == id()) {
                const auto known =
                    std::find_if(ins_.begin(), ins_.end(), [&](const In &in) { return in.index == i && in.from == from; });
                if (known != ins_.end()) ins.push_back(*known);
                else ins.push_back({i, from, PipeReader(l, bytes_of(i), geometry_.capacity, where())});
            }
        }
        for (const In &in : ins_)
            if (std::none_of(ins.begin(), ins.end(), [&](const In &now) { return now.index == in.index && now.from == in.from; }))
                missed_ += in.reader.missed(), missed_bytes_ += in.reader.missed_bytes();
        for (Out &out : outs) out.usable = out.alive || !any_alive;
        outs_ = std::move(outs);
        taps_ = std::move(taps);
        ins_ = std::move(ins);
        if (next_out_ >= outs_.size()) next_out_ = 0;
        if (next_in_ >= ins_.size()) next_in_ = 0;
    }

    // Where there is room for a message, or null.
    [[gnu::always_inline]] Out *find_room(uint32_t length, Reservation &place, uint64_t to) {
        follow();
        if (!taps_.empty() && !recordable(length)) return nullptr;
        const size_t count = outs_.size();
        for (size_t i = 0; i < count; ++i) {
            const size_t at = next_out_ + i < count ? next_out_ + i : next_out_ + i - count;
            Out &out = outs_[at];
            if (!out.usable || out.open || (to != 0 && out.to != to)) continue;
            bool room = out.writer.reserve(length, place);
            while (!room && when_full_ == WhenFull::drop_oldest) {
                const uint64_t dropped = out.writer.drop_oldest();
                if (dropped == 0) break;
                count_dropped(dropped);
                room = out.writer.reserve(length, place);
            }
            if (!room) continue;
            place.index = out.index;
            chosen_ = out.to;
            return &out;
        }
        return nullptr;
    }
    // The message in that room is complete.
    void send(Out &out, const Reservation &place, uint64_t id, int32_t kind) {
        const PipeTag tag{id, kind, clock_.now_ns()};
        if (!taps_.empty()) record(place.payload, place.length, tag);
        out.writer.commit(place, tag);
        finish(out, 1, place.length);
    }
    // A reservation ends; in which pipe it is, or null if that is not this peer's any more.
    Out *shut(const Reservation &place) {
        if (open_messages_ != 0) {
            --open_messages_;
            open_bytes_ -= most_bytes(place.length);
        }
        for (Out &out : outs_)
            if (out.index == place.index) return std::exchange(out.open, false) ? &out : nullptr;
        return nullptr;
    }
    void advance_out() { next_out_ = next_out_ + 1 < outs_.size() ? next_out_ + 1 : 0; }
    // A message stands in one pipe of many. For this peer it stands as far behind `position`, where its reading has come to, as
    // it stands behind the message that was taken last from the same pipe.
    static void place(Message &message, uint64_t position, const PipeReader &reader) {
        message.position = position + (message.position - reader.resumed());
        message.next = position + (message.next - reader.resumed());
    }
    void finish(Out &out, size_t messages, uint64_t bytes) {
        next_out_ = static_cast<size_t>(&out - outs_.data());
        advance_out();
        if (messages == 0) return;
        for (Tap &tap : taps_) tap.writer.flush(); // first: whatever was delivered is recorded
        const uint64_t written = out.writer.flush();
        PeerSlot::Counters &counts = me().counters;
        counts.messages_sent.bump(messages);
        counts.bytes_sent.bump(bytes);
        counts.written.bump(written);
        // The pipe's present reader either sees the message or is woken, also if it took the pipe over at this moment.
        notify([&] { return link(out.index).ends.to.relaxed(); });
        for (const Tap &tap : taps_) notify([&] { return tap.to; });
    }
    PipeWriter writer_of(uint32_t index) {
        return PipeWriter(link(index), bytes_of(index), geometry_.capacity, geometry_.mark, where());
    }

    // ---- recorders: each has a pipe from every peer that writes, and gets a copy of everything ----

    void forget_ends() {
        outs_.clear();
        taps_.clear();
        ins_.clear();
        open_messages_ = 0;
        open_bytes_ = 0;
    }
    static uint64_t most_bytes(uint32_t length) { return 2 * align_frame(uint64_t{length} + header_length); } // with padding
    bool recordable(uint32_t length) {
        if (when_full_ != WhenFull::wait) return true;
        return std::all_of(taps_.begin(), taps_.end(), [&](Tap &tap) {
            return !tap.waited_for ||
                   tap.writer.has_room(length, open_bytes_, open_messages_); // an open reservation will be copied, too
        });
    }
    void record(const void *data, uint32_t length, const PipeTag &tag) {
        for (Tap &tap : taps_)
            if (!tap.writer.write(data, length, tag)) tap.writer.skip();
    }

    WallClock clock_;
    MonotonicClock time_;
    std::vector<Out> outs_;
    std::vector<Tap> taps_;
    std::vector<In> ins_;
    Message message_, drained_;
    uint64_t chosen_ = 0, missed_ = 0, missed_bytes_ = 0;
    int64_t repaired_ns_ = 0, ended_look_ns_ = 0;
    size_t next_out_ = 0, next_in_ = 0;
    uint32_t lent_ = 0, open_messages_ = 0, taken_from_ = ~0u; // the pipe of the message taken last
    uint64_t open_bytes_ = 0;                                  // of what is reserved
    bool unacknowledged_ = false, redelivered_ = false;
};

} // namespace penstock
