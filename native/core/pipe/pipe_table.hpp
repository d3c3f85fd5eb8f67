// The peers of a pipe channel and the pipes between them: the table in its file. Peers that come, go, or find another one dead
// change it under one robust lock, which alone orders it (SYNC 6). A look without the lock is only a guess.
// pipe_peer.hpp reads and writes the pipes. docs/design/patterns.md.
#pragma once

#include "ground/clock.hpp"
#include "ground/counts.hpp"
#include "ground/member_name.hpp"
#include "ground/open_channel.hpp"
#include "ground/participants.hpp"
#include "pipe/pipe_layout.hpp"

#include <algorithm>
#include <memory>

namespace penstock {

enum class WhenFull : uint32_t { wait = 0, drop_newest = 1, drop_oldest = 2 };
inline constexpr const char *when_full_name[] = {"wait", "drop_newest", "drop_oldest"};

class PipeTable {
  public:
    PipeTable(int fd, const std::string &path, PeerRole role, std::string name, WhenFull when_full, std::shared_ptr<Mapping> map)
        : map_(map ? std::move(map) : std::make_shared<Mapping>(fd, size_of_file(fd), true)),
          opened_(read_pipe_header(map_->bytes(), map_->size(), path)), geometry_(opened_.geometry),
          control_(reinterpret_cast<PipeControl *>(map_->bytes() + control_offset)), role_(role), when_full_(when_full),
          name_(std::move(name)), members_(fd, path, map_->bytes(), geometry_.peers) {}
    // While the channel is open: peers and no pipes. `map`: its short part.
    PipeTable(int fd, const std::string &path, PeerRole role, std::string name, WhenFull when_full, std::shared_ptr<Mapping> map,
              const OpenPart &part)
        : map_(std::move(map)), opened_(), geometry_(while_open(part)),
          control_(reinterpret_cast<PipeControl *>(map_->bytes() + control_offset)), role_(role), when_full_(when_full),
          name_(std::move(name)), members_(fd, path, map_->bytes(), geometry_.peers) {}
    // The same peer, in the same slot, once the channel is decided. `opened`: what `map`, the whole of it, says.
    PipeTable(PipeTable &&before, std::shared_ptr<Mapping> map, const OpenedPipe &opened)
        : map_(std::move(map)), opened_(opened), geometry_(opened_.geometry),
          control_(reinterpret_cast<PipeControl *>(map_->bytes() + control_offset)), role_(before.role_),
          when_full_(before.when_full_), name_(before.name_),
          members_(std::move(before.members_), map_->bytes(), geometry_.peers),
          seen_changes_(control_->changes.value.relaxed() - 1) {}
    PipeTable(const PipeTable &) = delete;
    PipeTable &operator=(const PipeTable &) = delete;

    const PipeGeometry &geometry() const { return geometry_; }
    const std::string &path() const { return members_.path(); }
    const std::string &where() const { return members_.where(); } // for errors
    const Seat &seat() const { return members_.seat(); }
    bool forked() const { return members_.forked(); }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    uint64_t id() const { return members_.id(); }
    uint32_t mine() const { return members_.mine(); }
    PeerSlot &slot(uint32_t index) const { return members_.slot(index); }
    PipeLink &link(uint32_t index) const {
        return *reinterpret_cast<PipeLink *>(map_->bytes() + geometry_.links_offset() + size_t{index} * sizeof(PipeLink));
    }
    PipeControl &control() const { return *control_; }
    PeerSlot &me() const { return members_.me(); }
    Atomic<uint32_t> &bell() const { return me().bell.event; }

    WhenFull when_full() const { return when_full_; }
    uint32_t seen_changes() const { return seen_changes_; }
    // Bytes that stand in pipes to that peer and were not given to its owner. Any thread may ask.
    uint64_t unread_by(uint64_t id) const {
        uint64_t all = 0;
        for (uint32_t i = 0; i < geometry_.links; ++i) all += unread_in(link(i), id);
        return all;
    }
    bool alive(uint64_t id) const {
        const uint32_t index = slot_of(id);
        if (index >= geometry_.peers) return false; // also for 0, which is nobody
        const PeerSlot::Identity &identity = slot(index).identity;
        return identity.state.relaxed() == 1 && identity.generation.relaxed() == generation_of(id);
    }
    std::string name_of(uint64_t id) const {
        const uint32_t index = slot_of(id);
        if (index >= geometry_.peers) return {};
        const PeerSlot::Identity &identity = slot(index).identity;
        const std::string name = read_name(identity);
        return identity.generation.relaxed() == generation_of(id) ? name : std::string();
    }

  protected:
    // Takes a slot and makes its pipes; `then` runs under the same lock.
    template <class Then> void enter(Then &&then) {
        members_.join(control_->lock.value, [&] {
            try {
                reap();
                fill_slot();
                connect();
            } catch (...) {
                clear_slot(members_.mine());
                publish_change();
                throw;
            }
            publish_change();
            then();
        });
    }

    // Gives the slot back; other pullers take over the unread messages. `first` runs before that.
    template <class First> void depart(First &&first) {
        if (!members_.begin_to_leave()) return;
        first();
        members_.leave(control_->lock.value, [&] {
            clear_slot(members_.mine());
            repair_pipes();
            publish_change();
        });
    }

    bool lock() { return members_.acquire_lock(control_->lock.value, members_.patience_to_work_ns); }

    static PipeGeometry while_open(const OpenPart &part) {
        PipeGeometry g;
        g.peers = part.slots;
        g.links = 0;
        return g;
    }
    uint8_t *bytes_of(uint32_t index) const {
        return map_->bytes() + geometry_.data_offset() + uint64_t{index} * geometry_.capacity;
    }

    // From here on under the lock: changes of the table. If the peer that makes one dies, another peer begins it again.

    void fill_slot() {
        PeerSlot::Identity &identity = me().identity;
        if (identity.state.relaxed() == 1) control_->totals.reaped.bump(1); // the owner before died
        clear_slot(members_.mine());
        write_name(identity, name_, static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
        identity.pid.relaxed(static_cast<uint32_t>(getpid()));
        identity.role.relaxed(static_cast<uint32_t>(role_));
        identity.lossy.relaxed(role_ == PeerRole::tap ? when_full_ != WhenFull::wait : when_full_ == WhenFull::drop_oldest);
        uint32_t pairs = 0;
        for (uint32_t i = 0; i < geometry_.peers; ++i) {
            if (i == members_.mine() || slot(i).identity.state.relaxed() != 1) continue;
            const auto role = static_cast<PeerRole>(slot(i).identity.role.relaxed());
            if (!belong(role_, role))
                throw Error(Code::invalid, where() + ": a " + role_name(role_) + " has nothing to do with the " +
                                               role_name(role) + " that is there: use another channel");
            pairs += role == PeerRole::pair;
        }
        if (pairs > 1) throw Error(Code::busy, where() + ": a pair has two peers, and both are here");
        if (role_ == PeerRole::push) control_->pushed.value.relaxed(1);
        identity.state.relaxed(1);
    }
    void clear_slot(uint32_t index) {
        PeerSlot &s = slot(index);
        if (s.identity.state.relaxed() != 1) return;
        PipeControl::Totals &totals = control_->totals;
        PeerSlot::Counters &counts = s.counters;
        move_count(counts.messages_sent, totals.messages_sent);
        move_count(counts.bytes_sent, totals.bytes_sent);
        move_count(counts.messages_received, totals.messages_received);
        move_count(counts.bytes_received, totals.bytes_received);
        move_count(counts.back_pressure, totals.back_pressure);
        move_count(counts.messages_dropped, totals.messages_dropped);
        move_count(counts.redelivered, totals.redelivered);
        move_count(counts.written, totals.written);
        move_count(counts.read, totals.read);
        move_count(counts.bytes_dropped, totals.bytes_dropped);
        s.identity.state.relaxed(0);
    }

    bool pushes(uint32_t index) const {
        const PeerSlot::Identity &identity = slot(index).identity;
        return identity.state.relaxed() == 1 && identity.role.relaxed() == static_cast<uint32_t>(PeerRole::push);
    }
    bool somebody_pushes() {
        if (pushes(pusher_)) return true; // the one found last
        for (uint32_t i = 0; i < geometry_.peers; ++i)
            if (pushes(i)) return pusher_ = i, true;
        return false;
    }

    // Slots of the dead become free. True if there was one.
    bool reap() {
        return members_.reap_all([](const PeerSlot &s) { return s.identity.state.relaxed() == 1; },
                                 [&](uint32_t index) {
                                     clear_slot(index);
                                     control_->totals.reaped.bump(1);
                                 });
    }

    // Makes a pipe to and from every peer that this role talks to. A pusher that finds no puller makes one that nobody reads yet.
    void connect() {
        repair_pipes();
        bool any = false;
        for (uint32_t i = 0; i < geometry_.peers; ++i) {
            if (i == members_.mine() || slot(i).identity.state.relaxed() != 1) continue;
            const auto role = static_cast<PeerRole>(slot(i).identity.role.relaxed());
            const uint64_t other = participant_id(slot(i).identity.generation.relaxed(), i);
            if (sends_to(role_, role)) {
                make_pipe(id(), role == PeerRole::tap ? role : role_, other);
                any |= role != PeerRole::tap;
            }
            if (sends_to(role, role_)) make_pipe(other, role_ == PeerRole::tap ? role_ : role, id());
        }
        if (role_ == PeerRole::push && !any) make_pipe(id(), role_, 0);
    }

    void make_pipe(uint64_t from, PeerRole pattern, uint64_t to) {
        uint32_t free = geometry_.links;
        for (uint32_t i = 0; i < geometry_.links; ++i) {
            PipeLink &l = link(i);
            if (l.ends.state.relaxed() != 1) free = std::min(free, i);
            else if (l.ends.from.relaxed() == from && l.ends.to.relaxed() == to && l.writer.closed.relaxed() == 0)
                return; // taken over from another reader
        }
        if (free == geometry_.links)
            throw Error(Code::busy, where() + ": all " + std::to_string(geometry_.links) +
                                        " pipes are in use: make the channel with a larger max_pipes");
        PipeLink &l = link(free);
        const uint64_t start = geometry_.start_position;
        l.ends.pattern.relaxed(static_cast<uint32_t>(pattern));
        l.ends.from.relaxed(from);
        l.ends.to.relaxed(to);
        l.ends.held.relaxed(0);
        const PeerSlot::Identity &writer = slot(slot_of(from)).identity;
        l.ends.lossy.relaxed(pattern == PeerRole::tap ? 0 : writer.lossy.relaxed());
        l.ends.role.relaxed(writer.role.relaxed());
        for (size_t i = 0; i < std::size(l.ends.name); ++i) l.ends.name[i].relaxed(writer.name[i].relaxed());
        l.writer.tail.relaxed(start);
        l.writer.messages.relaxed(0);
        l.writer.dropped.relaxed(0);
        l.writer.closed.relaxed(0);
        l.reader.acked.relaxed(start);
        l.reader.messages.relaxed(0);
        l.reader.read.relaxed(start);
        l.ends.state.relaxed(1);
    }
    // Repairs the pipes of dead and departed peers: this peer takes them over, or they become free. True if anything changed.
    bool repair_pipes() {
        bool changed = false;
        for (uint32_t i = 0; i < geometry_.links; ++i) {
            PipeLink &l = link(i);
            if (l.ends.state.relaxed() != 1) continue;
            const uint64_t from = l.ends.from.relaxed(), to = l.ends.to.relaxed();
            const bool pushed = l.ends.pattern.relaxed() == static_cast<uint32_t>(PeerRole::push);
            const bool tapped = l.ends.pattern.relaxed() == static_cast<uint32_t>(PeerRole::tap);
            // SYNC 18: pairs with PipeWriter::close; forbids reading the tail before `closed`: a pipe with messages would look
            // empty
            const bool written = alive(from) && l.writer.closed.acquire() == 0;
            const bool is_read = alive(to);
            const bool empty = l.writer.tail.relaxed() == l.reader.acked.relaxed();
            const bool reads = role_ == PeerRole::pull && alive(id()); // not while it leaves
            if (pushed && !is_read && reads && (!empty || (written && !reads_from(from, i)))) {
                const uint64_t read = l.reader.read.relaxed();
                if (read != l.reader.acked.relaxed()) control_->totals.returned.bump(1);
                l.ends.held.relaxed(
                    std::max(l.ends.held.relaxed(), read)); // the last reader may have taken less than the one before it
                l.ends.to.relaxed(id());
                changed = true;
            } else if (pushed && to == id() && reads && written && empty && reads_from(from, i)) {
                l.ends.to.relaxed(0); // taken over and read empty: the next puller can have it
                changed = true;
            } else if (!written && (empty || (!pushed && !is_read))) { // also while its reader has not noticed (look_for_more)
                if (!empty && !tapped) count_lost(l);                  // the messages of a tap's pipe are copies
                l.ends.state.relaxed(0);
                changed = true;
            } else if (!pushed && !is_read && from == id()) { // nobody will ever read it
                if (!tapped) count_lost(l);
                l.ends.state.relaxed(0);
                changed = true;
            }
        }
        return changed;
    }

    void count_lost(const PipeLink &l) {
        control_->totals.messages_lost.bump(l.writer.messages.relaxed() - l.reader.messages.relaxed());
        control_->totals.bytes_lost.bump(l.writer.tail.relaxed() - l.reader.acked.relaxed());
    }

    // Whether this peer reads another pipe that this writer goes on writing to. Of two to one reader it closes one.
    bool reads_from(uint64_t from, uint32_t except) const {
        for (uint32_t i = 0; i < geometry_.links; ++i)
            if (i != except && link(i).ends.state.relaxed() == 1 && link(i).ends.from.relaxed() == from &&
                link(i).ends.to.relaxed() == id() && link(i).writer.closed.relaxed() == 0)
                return true;
        return false;
    }

    // Makes every peer look at the table again.
    void publish_change() {
        control_->changes.value.add(1); // SYNC -: only a hint; a peer that sees it reads the table under its lock
        for (uint32_t i = 0; i < geometry_.peers; ++i)
            if (slot(i).identity.state.relaxed() == 1) event_notify(slot(i).bell.event);
    }

    // Wakes the peer that `whom` names. It is asked behind the fence: a pipe may have another reader by then, and that one must
    // be woken.
    template <class Whom> void notify(Whom &&whom) {
        light_fence(); // SYNC 7: pairs with event_announced; forbids reading the pipe's reader, or its bit, before the tail is
                       // visible
        const uint32_t index = slot_of(whom());
        if (index < geometry_.peers) event_notify_fenced(slot(index).bell.event);
    }

    std::shared_ptr<Mapping> map_;
    const OpenedPipe opened_;
    const PipeGeometry geometry_;
    PipeControl *control_;
    const PeerRole role_;
    const WhenFull when_full_;
    const std::string name_;
    Participants<PeerSlot> members_;
    uint32_t seen_changes_ = 0;
    uint32_t pusher_ = 0; // where one was found last
};

} // namespace penstock
