// A peer of a pipe channel: finds the others by the channel's table, has a pipe to and from each of them that its role talks to,
// sends by its load balancer, and receives by its fair queue. Layout, orders and crash table: docs/design/patterns.md.
#pragma once

#include "pipe/queues/acknowledger.hpp"
#include "pipe/queues/load_balancer.hpp"
#include "pipe/queues/taps.hpp"

#include <utility>

namespace penstock {

class PipePeer : public std::enable_shared_from_this<PipePeer> {
  public:
    static constexpr int64_t repair_interval_ns = 1'000'000;
    static constexpr int64_t patience_to_meet_ns = 20'000'000; // for one living holder of the table's lock

    // Borrows `fd` for the call. `clock`: stamps messages. `map`: a mapping to share with other handles of this process, instead
    // of one of its own. `time`: decides how often dead peers are looked for.
    PipePeer(int fd, const std::string &path, PeerRole role, MemberName name, WhenFull when_full = WhenFull::wait,
             std::shared_ptr<ManualClock> clock = nullptr, std::shared_ptr<Mapping> map = nullptr,
             MonotonicClock time = MonotonicClock())
        : file_(fd, path, std::move(map)), peers_(file_, fd, path, role, std::move(name), when_full), clock_(std::move(clock)),
          time_(std::move(time)) {
        attach();
    }
    // Of a channel that is still open; and the same peer once that is decided.
    PipePeer(int fd, const std::string &path, PeerRole role, MemberName name, WhenFull when_full, std::shared_ptr<Mapping> map,
             const OpenPart &part)
        : file_(std::move(map), part), peers_(file_, fd, path, role, std::move(name), when_full), clock_(nullptr) {
        attach();
    }
    PipePeer(PipePeer &&before, std::shared_ptr<Mapping> map, const OpenedPipe &opened)
        : file_(std::move(map), opened), peers_(file_, std::move(before.peers_)), clock_(nullptr), time_(before.time_) {
        maintain(false);
    }
    ~PipePeer() { detach(); }

    // ---- its parts ----

    PipeFile &file() { return file_; }
    const PeerTable &peers() const { return peers_; }
    const PipeTable &pipes() const { return pipes_; }
    const LoadBalancer &outgoing() const { return balancer_; }
    // A message that was offered found no room and is dropped.
    void drop(uint64_t bytes) {
        peers_.counters().dropped(bytes);
        if (peers_.when_full() == WhenFull::drop_oldest) balancer_.refuse();
    }
    const FairQueue &incoming() const { return queue_; }
    Acknowledger &acknowledger() { return acknowledger_; }

    // ---- attaching and detaching ----

    void attach() {
        begun_ = peers_.role() != PeerRole::pull;
        peers_.attach([&] { pipes_.connect(); }, [&] { update(); });
    }
    // Messages consumed and not acknowledged go to others; written messages stay until they are read.
    void detach() {
        peers_.detach([&] { balancer_.close(); }, [&] { pipes_.repair(false); });
        clear();
    }
    // How many handles work with this peer: a socket has two, and one may be in use while the other closes.
    void add_handle() { ++handles_; }
    void drop_handle() { // the last one detaches
        if (--handles_ == 0) detach();
    }
    void crash_for_test() { // detaches as a killed process would; for tests
        clear();
        peers_.crash_for_test();
    }
    void forget() { // in a forked child: the slot stays its parent's
        peers_.forget();
        clear();
    }
    void return_after_fork() { peers_.return_after_fork(); }
    // In a forked child: becomes a separate peer.
    void reattach() {
        if (!peers_.forked()) return; // by its other end, already
        forget();
        acknowledger_.forget();
        return_after_fork();
        attach();
    }

    // Follows what changed in the table, at the cost of one load if nothing did.
    void refresh() {
        if (peers_.changed()) maintain(false);
    }
    // The same, and looks for the dead, and for messages that idle readers keep: while nothing else happens, at most once a
    // millisecond. True if there was news.
    bool repair() {
        const int64_t now = time_.now_ns();
        if (now - repaired_ns_ < repair_interval_ns) return false;
        repaired_ns_ = now;
        return maintain(true);
    }

    // Makes a pipe to a reader that is there and has none yet: the peer that keeps the table's lock may have lost its core
    // meanwhile. True if there is a reader with a pipe now.
    bool meet() {
        if (peers_.readers() == 0) return false;
        peers_.under_lock(patience_to_meet_ns, [&] { maintain_locked([] { return false; }); });
        return balancer_.any_alive();
    }

    // ---- writing ----

    // Claims room for a message at the next peer in turn that has any; `to`: only there, if it is not 0. False: nowhere, or not
    // at a recorder that is waited for.
    bool claim(uint32_t length, ClaimedRange &room, uint64_t to = 0) {
        LoadBalancer::Pipe *pipe = find_room(length, room, to);
        if (pipe != nullptr) balancer_.begin_claim(*pipe, length);
        return pipe != nullptr;
    }
    // False: the pipe is gone since (its reader died): write again.
    bool commit(const ClaimedRange &room, uint64_t id = 0, int32_t kind = 0) {
        LoadBalancer::Pipe *pipe = balancer_.end_claim(room);
        if (pipe != nullptr) send(*pipe, room, id, kind);
        return pipe != nullptr;
    }
    void abort(const ClaimedRange &room) { balancer_.end_claim(room); }
    bool write(const void *data, size_t length, uint64_t id = 0, int32_t kind = 0, uint64_t to = 0) {
        ClaimedRange room;
        LoadBalancer::Pipe *pipe = find_room(static_cast<uint32_t>(length), room, to); // no other call runs before it is sent
        if (pipe == nullptr) return false;
        copy_in(room.payload, data, length);
        send(*pipe, room, id, kind);
        return true;
    }
    // Messages in order, shared out among the peers that have room. How many found room.
    size_t write_many(const IoVec *pieces, size_t count) {
        if (!refresh_to_write()) return 0;
        const int64_t now = clock_.now_ns();
        return balancer_.share(count, [&](LoadBalancer::Pipe &pipe, size_t first, size_t most) {
            size_t done = 0;
            uint64_t bytes = 0;
            for (; done < most; ++done) {
                const IoVec &piece = pieces[first + done];
                const auto length = static_cast<uint32_t>(piece.length);
                if (!taps_.empty() && !recordable(length)) break;
                if (!pipe.writer.write(piece.data, length, {0, 0, now})) break;
                if (!taps_.empty()) taps_.record(piece.data, length, {0, 0, now});
                bytes += piece.length;
            }
            if (done != 0) publish(pipe, done, bytes);
            return done;
        });
    }
    uint32_t payload_max() const { return file_.geometry().max_frame() - header_length; }
    // Words that go so much further before it is worth looking for room again.
    template <class Each> void room_words(Each &&each) const {
        balancer_.room_words(each);
        taps_.room_words(each);
    }
    // The living peer of that name that this one sends to, or 0.
    uint64_t named(const std::string &name) {
        refresh();
        for (const uint64_t peer : balancer_.alive())
            if (peers_.name_of(peer) == name) return peer;
        return 0;
    }
    // Messages that no peer has acknowledged, and the bytes of the peer that has most of them to read.
    uint64_t waiting() const { return balancer_.waiting() + pipes_.closed_from_me().messages; }
    uint64_t lag() const { return std::max(balancer_.lag(), pipes_.closed_from_me().lag); }
    // Whether there has been a partner and none is left, by the table as it was seen last. Only where a role needs one.
    bool alone() const { return alone_; }

    // ---- reading ----

    // The next message, of whichever peer's turn it is, or null.
    const Message *peek() {
        if (!begun_ && !begin()) [[unlikely]]
            return nullptr;
        refresh();
        return queue_.peek(peers_.counters().read_position());
    }
    // The oldest message by send time, or null.
    const Message *peek_oldest() {
        refresh();
        return queue_.peek_oldest(peers_.counters().read_position());
    }
    // The message of peek() is the caller's; no other peer gets it unless this one dies before it acknowledges.
    void consume() {
        const FairQueue::Pipe &pipe = queue_.consume();
        acknowledger_.consumed(pipe);
        const Message &message = queue_.message();
        peers_.counters().received(1, message.length, pipe.reader.redelivered(), message.next);
    }
    // Consumes messages, a run from each pipe in turn, until `add`, which gets each, has had enough. False: nothing is left.
    template <class Add> bool drain(Add &&add) {
        if (!begun_ && !begin()) [[unlikely]]
            return false;
        refresh();
        PeerCounters counters = peers_.counters();
        return queue_.drain(counters.read_position(), add, [&](const FairQueue::Drained &run) {
            acknowledger_.consumed(run.last_redelivered);
            counters.received(run.messages, run.bytes, run.redelivered, run.position);
        });
    }
    void acknowledge() {
        acknowledger_.acknowledge([&](uint64_t writer) { peers_.notify([&] { return writer; }); });
    }
    // A puller that looks for no message for a while: until it looks again, others that have nothing to read take those that wait
    // for it. Acknowledges what was consumed. Nothing where that cannot be acknowledged yet, or while another peer keeps the
    // lock.
    void pause() {
        if (peers_.role() != PeerRole::pull || !begun_) return;
        acknowledge();
        if (acknowledger_.pending()) return;
        peers_.under_lock([&] {
            queue_.update({}, pipes_); // others may read from these pipes from now on
            begun_ = false;
            peers_.me().identity.begun.relaxed(0);
        });
    }

    // ---- the end of the stream: this peer has had senders, all have left, and no message waits ----

    // After a peek that found nothing. Decided under the table's lock, so that no peer attaches meanwhile. A puller also waits
    // for messages that other living pullers have not read: if one of them dies, its messages are redelivered here.
    bool ended() {
        if (!peers_.ever_written()) return false;
        const int64_t now = time_.now_ns();
        if (now - ended_look_ns_ < end_interval_ns && peers_.has_writer()) return false;
        ended_look_ns_ = now;
        bool end = false;
        peers_.under_lock([&] {
            maintain_locked([&] { return queue_.drained(); }); // takes over unread messages of another reader
            end = !peers_.has_writer() && queue_.drained() && pipes_.other_with_unread() == 0;
        });
        return end;
    }
    // The same as a guess, for any thread; with `check_kernel` also for the dead. Changes nothing.
    bool may_have_ended(bool check_kernel) {
        return peers_.ever_written() && !pipes_.readable() && pipes_.other_with_unread() == 0 &&
               !peers_.may_have_writer(check_kernel);
    }
    // For an error's text: a process that keeps messages from the end of this peer's stream, or 0. A guess.
    uint32_t process_with_unread() {
        if (!peers_.ever_written() || peers_.has_writer()) return 0;
        const uint64_t other = pipes_.other_with_unread();
        return other == 0 ? 0 : peers_.slot(slot_of(other)).identity.pid.relaxed();
    }

  private:
    // A puller's first look: from now on no other one takes the messages that wait for it. False: not yet.
    bool begin() {
        return peers_.under_lock([&] {
            queue_.clear(); // others may have read from these pipes since
            const bool died = peers_.reap(), changed = pipes_.connect();
            peers_.me().identity.begun.relaxed(1);
            begun_ = true;
            if (died || changed) peers_.publish_change();
            update();
        });
    }
    // Looks for the dead, and follows the table. `idle`: this peer may take over messages that another one keeps. True if there
    // was news.
    bool maintain(bool idle) {
        bool news = false;
        peers_.under_lock([&] { news = maintain_locked([&] { return idle && begun_ && queue_.drained(); }); });
        return news;
    }
    template <class Relieve> bool maintain_locked(Relieve &&relieve) {
        const bool died = peers_.reap(), changed = pipes_.repair(relieve());
        if (died || changed) peers_.publish_change();
        if (!peers_.changed()) return false;
        update();
        return true;
    }
    // This peer's ends of the pipes that are its own by the table. Under its lock.
    void update() {
        peers_.mark_changes_seen();
        const PipeEnds ends = pipes_.ends();
        balancer_.update(ends.outgoing, pipes_);
        taps_.update(ends.recorders, pipes_);
        queue_.update(ends.incoming, pipes_);
        alone_ = ends_with_partner(peers_.role()) && !balancer_.any_alive() && peers_.me().identity.met.relaxed() == 1;
    }
    void clear() {
        balancer_.clear();
        taps_.clear();
        queue_.clear();
    }

    // Where there is room for a message, or null.
    [[gnu::always_inline]] LoadBalancer::Pipe *find_room(uint32_t length, ClaimedRange &room, uint64_t to) {
        if (!refresh_to_write()) return nullptr;
        if (!taps_.empty() && !recordable(length)) return nullptr;
        return balancer_.choose(length, room, to, peers_.when_full() == WhenFull::drop_oldest,
                                [&](uint64_t bytes) { peers_.counters().dropped(bytes); });
    }
    // Follows the table before a message is written. False: another peer keeps the lock, and a recorder is there that this peer
    // has no end to yet, so the message would not be recorded. That is as if the recorder's pipe had no room.
    bool refresh_to_write() {
        if (!peers_.changed()) return true;
        maintain(false);
        return !peers_.changed() || !pipes_.has_unknown_recorder([&](uint64_t recorder) { return taps_.has(recorder); });
    }
    bool recordable(uint32_t length) {
        if (peers_.when_full() != WhenFull::wait) return true;
        return taps_.have_room(length, balancer_.claimed_bytes(), balancer_.claims());
    }
    // The message in that room is complete.
    void send(LoadBalancer::Pipe &pipe, const ClaimedRange &room, uint64_t id, int32_t kind) {
        const PipeTag tag{id, kind, clock_.now_ns()};
        if (!taps_.empty()) taps_.record(room.payload, room.length, tag);
        pipe.writer.commit(room, tag);
        balancer_.advance_past(pipe);
        publish(pipe, 1, room.length);
    }
    // Makes the messages visible that were written to that pipe, and wakes those that get them.
    void publish(LoadBalancer::Pipe &pipe, size_t messages, uint64_t bytes) {
        taps_.flush(); // first: whatever was delivered is recorded
        const uint64_t framed = pipe.writer.flush();
        peers_.counters().sent(messages, bytes, framed);
        // The pipe's present reader either sees the message or is woken, also if it took the pipe over at this moment.
        peers_.notify([&] { return pipe.writer.reader(); });
        taps_.each_recorder([&](uint64_t recorder) { peers_.notify([&] { return recorder; }); });
    }

    PipeFile file_;
    PeerTable peers_;
    PipeTable pipes_{file_, peers_};
    LoadBalancer balancer_;
    Taps taps_;
    FairQueue queue_;
    Acknowledger acknowledger_{queue_};
    WallClock clock_;
    MonotonicClock time_;
    int64_t repaired_ns_ = 0, ended_look_ns_ = 0;
    uint32_t handles_ = 0;
    bool begun_ = peers_.role() != PeerRole::pull; // whether this puller has looked for a message; others need not
    bool alone_ = false;
};

} // namespace penstock
