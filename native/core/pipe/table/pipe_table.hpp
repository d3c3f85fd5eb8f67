// The pipes between the peers of a channel, and the owner of each end. Peers make pipes, repair those of the dead, and take them
// over, under the lock of the peers' table. A look without the lock is only a guess. Reads and writes no message.
// docs/design/patterns.md.
#pragma once

#include "pipe/files/shm_pipe.hpp"
#include "pipe/table/peer_table.hpp"

#include <algorithm>
#include <vector>

namespace penstock {

// The pipes of which one peer has an end, in the table's order.
struct PipeEnds {
    struct NetworkPublication {
        uint32_t index;
        uint64_t to;
        bool alive; // whether its reader is
    };
    struct Recorder {
        uint32_t index;
        uint64_t to;
        bool waited_for; // when it has no room
    };
    struct Incoming {
        uint32_t index;
        uint64_t from;
    };
    std::vector<NetworkPublication> outgoing;
    std::vector<Recorder> recorders;
    std::vector<Incoming> incoming;
};

class PipeTable {
  public:
    PipeTable(const PipeFile &file, const PeerTable &peers) : file_(file), peers_(peers) {}
    PipeTable(const PipeTable &) = delete;
    PipeTable &operator=(const PipeTable &) = delete;

    PipeLink &link(uint32_t index) const { return file_.link(index); }
    PipeWriter writer_of(uint32_t index) const {
        return {link(index), file_.circle(index), file_.geometry().capacity, file_.geometry().max_messages, peers_.where()};
    }
    PipeReader reader_of(uint32_t index) const {
        return {link(index), file_.circle(index), file_.geometry().capacity, peers_.where()};
    }

    // ---- under the table's lock; if the peer that makes a change dies, another peer begins it again ----

    // Makes a pipe to and from every peer that this role talks to. A pusher that finds no puller makes one that no peer reads
    // yet. True if anything changed.
    bool connect() {
        bool changed = repair(false), any = false;
        for (uint32_t i = 0; i < peers_.count(); ++i) {
            if (i == peers_.mine() || !peers_.present(i)) continue;
            const PeerRole mine = peers_.role(), role = peers_.role_of(i);
            const uint64_t other = participant_id(peers_.slot(i).identity.generation.relaxed(), i);
            if (sends_to(mine, role)) {
                changed |= make(me(), role == PeerRole::tap ? role : mine, other);
                any |= role != PeerRole::tap;
            }
            if (sends_to(role, mine)) changed |= make(other, mine == PeerRole::tap ? mine : role, me());
            if (role != PeerRole::tap && mine != PeerRole::tap && (sends_to(mine, role) || sends_to(role, mine))) {
                peers_.slot(i).identity.met.relaxed(1);
                peers_.me().identity.met.relaxed(1);
            }
        }
        if (peers_.role() == PeerRole::push && !any) changed |= make(me(), PeerRole::push, 0);
        return changed;
    }

    // Repairs the pipes of dead and detached peers: this peer takes them over, or they become free. True if anything changed.
    // `relieve`: this puller has nothing to read. So it also takes over one pipe with messages of a reader that lives and has
    // never looked for one: a handle that its process only hands on, say. One pipe at a time leaves the rest to others that wait.
    bool repair(bool relieve) {
        bool changed = false;
        for (uint32_t i = 0; i < file_.geometry().max_pipes; ++i) {
            PipeLink &l = link(i);
            if (!in_use(l)) continue;
            const uint64_t from = l.ends.from.relaxed(), to = l.ends.to.relaxed();
            const bool pushed = has_pattern(l, PeerRole::push);
            // SYNC 18: pairs with PipeWriter::close; forbids reading the tail before `closed`: a pipe with messages would look
            // empty
            const bool written = peers_.alive(from) && l.writer.closed.acquire() == 0;
            const bool is_read = peers_.alive(to);
            const bool empty = is_empty(l);
            const bool reads = peers_.role() == PeerRole::pull && peers_.alive(me()); // not while it detaches
            const bool idle = relieve && is_read && to != me() && !empty && has_never_read(to);
            if (pushed && reads && ((!is_read && (!empty || (written && !reads_from(from, i)))) || idle)) {
                relieve = false; // it has something to read now
                take_over(l);
                changed = true;
            } else if (pushed && to == me() && reads && written && empty && reads_from(from, i)) {
                l.ends.to.relaxed(0); // taken over and read empty: the next puller can have it
                changed = true;
            } else if (!written && (empty || (!pushed && !is_read))) { // also while its reader has not noticed (look_for_more)
                free_pipe(l, !empty);
                changed = true;
            } else if (!pushed && !is_read && from == me()) { // no peer will ever read it
                free_pipe(l, true);
                changed = true;
            }
        }
        return changed;
    }

    // The pipes of which this peer has an end.
    PipeEnds ends() const {
        PipeEnds found;
        for (uint32_t i = 0; i < file_.geometry().max_pipes; ++i) {
            const PipeLink &l = link(i);
            if (!in_use(l)) continue;
            const uint64_t from = l.ends.from.relaxed(), to = l.ends.to.relaxed();
            if (from == me() && has_pattern(l, PeerRole::tap)) {
                if (peers_.alive(to)) found.recorders.push_back({i, to, peers_.slot(slot_of(to)).identity.lossy.relaxed() == 0});
                continue;
            }
            if (from == me() && l.writer.closed.relaxed() == 0) found.outgoing.push_back({i, to, peers_.alive(to)});
            if (to == me()) found.incoming.push_back({i, from});
        }
        return found;
    }

    // ---- guesses, which any thread may make without the lock ----

    // Bytes in pipes to this peer that its owner has not received.
    uint64_t unread() const {
        uint64_t all = 0;
        for (uint32_t i = 0; i < file_.geometry().max_pipes; ++i) all += unread_in(link(i), me());
        return all;
    }
    // Messages and bytes in pipes from this peer that it has closed, of two to the same reader, and that are not acknowledged.
    struct Closed {
        uint64_t messages = 0, lag = 0; // lag: of the one with most
    };
    Closed closed_from_me() const {
        Closed all;
        for (uint32_t i = 0; i < file_.geometry().max_pipes; ++i) {
            const PipeLink &l = link(i);
            const bool mine = in_use(l) && l.ends.from.relaxed() == me() && !has_pattern(l, PeerRole::tap);
            if (!mine || l.writer.closed.relaxed() == 0) continue;
            const uint64_t acked = l.reader.acked.relaxed(), tail = l.writer.tail.relaxed();
            all.messages += unread_messages_in(l);
            all.lag = std::max(all.lag, tail > acked ? tail - acked : 0);
        }
        return all;
    }
    // Whether there is something in a pipe to this peer.
    bool readable() const {
        return any_pipe(
            [&](const PipeLink &l) { return l.ends.to.relaxed() == me() && l.writer.tail.relaxed() != l.reader.read.relaxed(); });
    }
    // Whether messages wait for another reader of pushed messages, which may be dead.
    bool has_unread_elsewhere() const {
        return peers_.role() == PeerRole::pull &&
               any_pipe([&](const PipeLink &l) { return l.ends.to.relaxed() != me() && !is_empty(l); });
    }
    // Whether this peer alone reads what is pushed: no other one can leave messages that it would have to take over.
    bool is_only_reader() const {
        return peers_.role() == PeerRole::pull &&
               !any_pipe([&](const PipeLink &l) { return has_pattern(l, PeerRole::push) && l.ends.to.relaxed() != me(); });
    }
    // A living puller other than this one that has messages which it has not given to its owner, or 0.
    uint64_t other_with_unread() const {
        for (uint32_t i = 0; i < file_.geometry().max_pipes; ++i) {
            const PipeLink &l = link(i);
            const uint64_t to = l.ends.to.relaxed();
            if (has_pattern(l, PeerRole::push) && to != me() && peers_.alive(to) && unread_in(l, to) != 0) return to;
        }
        return 0;
    }
    // Whether a recorder reads a pipe from this peer of which `knows(its id)` is false. One that had attached before the message
    // is seen.
    template <class Knows> bool has_unknown_recorder(Knows &&knows) const {
        return any_pipe([&](const PipeLink &l) {
            if (l.ends.from.relaxed() != me() || !has_pattern(l, PeerRole::tap)) return false;
            const uint64_t to = l.ends.to.relaxed();
            return peers_.alive(to) && !knows(to);
        });
    }

  private:
    uint64_t me() const { return peers_.id(); }
    static bool in_use(const PipeLink &l) { return l.ends.state.relaxed() == 1; }
    static bool has_pattern(const PipeLink &l, PeerRole role) { return l.ends.pattern.relaxed() == static_cast<uint32_t>(role); }
    static bool is_empty(const PipeLink &l) { return l.writer.tail.relaxed() == l.reader.acked.relaxed(); }
    bool has_never_read(uint64_t puller) const { return peers_.slot(slot_of(puller)).identity.begun.relaxed() == 0; }
    template <class Is> bool any_pipe(Is &&is) const {
        for (uint32_t i = 0; i < file_.geometry().max_pipes; ++i)
            if (in_use(link(i)) && is(link(i))) return true;
        return false;
    }

    // False: there is one already.
    bool make(uint64_t from, PeerRole pattern, uint64_t to) {
        const uint32_t max_pipes = file_.geometry().max_pipes;
        uint32_t free = max_pipes;
        for (uint32_t i = 0; i < max_pipes; ++i) {
            const PipeLink &l = link(i);
            if (!in_use(l)) free = std::min(free, i);
            else if (l.ends.from.relaxed() == from && l.ends.to.relaxed() == to && l.writer.closed.relaxed() == 0)
                return false; // taken over from another reader
        }
        if (free == max_pipes)
            throw Error(Code::busy, peers_.where() + ": all " + std::to_string(max_pipes) +
                                        " pipes are in use: make the channel with a larger max_pipes");
        PipeLink &l = link(free);
        const uint64_t start = file_.geometry().start_position;
        l.ends.pattern.relaxed(static_cast<uint32_t>(pattern));
        l.ends.from.relaxed(from);
        l.ends.to.relaxed(to);
        l.ends.held.relaxed(0);
        const PeerSlot::Identity &writer = peers_.slot(slot_of(from)).identity;
        l.ends.lossy.relaxed(pattern == PeerRole::tap ? 0 : writer.lossy.relaxed());
        l.ends.role.relaxed(writer.role.relaxed());
        for (size_t i = 0; i < std::size(l.ends.name); ++i) l.ends.name[i].relaxed(writer.name[i].relaxed());
        l.writer.tail.relaxed(start);
        l.writer.messages.relaxed(0);
        l.writer.dropped.relaxed(0);
        l.writer.closed.relaxed(0);
        l.writer.refused.relaxed(0);
        l.reader.acked.relaxed(start);
        l.reader.messages.relaxed(0);
        l.reader.read.relaxed(start);
        l.ends.state.relaxed(1);
        return true;
    }
    // This puller reads the pipe from now on. It sees as redelivered what an earlier reader was given and did not acknowledge.
    void take_over(PipeLink &l) {
        const uint64_t read = l.reader.read.relaxed();
        if (read != l.reader.acked.relaxed()) file_.control().totals.returned.increment(1);
        l.ends.held.relaxed(std::max(l.ends.held.relaxed(), read)); // the last reader may have taken less than the one before it
        l.ends.to.relaxed(me());
    }
    // `lost`: there are messages in it.
    void free_pipe(PipeLink &l, bool lost) {
        if (lost && !has_pattern(l, PeerRole::tap)) { // the messages of a tap's pipe are copies
            file_.control().totals.messages_lost.increment(l.writer.messages.relaxed() - l.reader.messages.relaxed());
            file_.control().totals.bytes_lost.increment(l.writer.tail.relaxed() - l.reader.acked.relaxed());
        }
        l.ends.state.relaxed(0);
    }
    // Whether this peer reads another pipe to which this writer still writes. Of two pipes to one reader the writer closes one.
    bool reads_from(uint64_t from, uint32_t except) const {
        for (uint32_t i = 0; i < file_.geometry().max_pipes; ++i)
            if (i != except && in_use(link(i)) && link(i).ends.from.relaxed() == from && link(i).ends.to.relaxed() == me() &&
                link(i).writer.closed.relaxed() == 0)
                return true;
        return false;
    }

    const PipeFile &file_;
    const PeerTable &peers_;
};

} // namespace penstock
