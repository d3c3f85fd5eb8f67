// Who is on a pipe channel, and which pipes there are between them: the table in its file, changed and read under one robust
// lock, which alone orders it (SYNC 6), by those who come, go, or find somebody dead. Who looks without the lock only guesses.
// pipe_peer.hpp reads and writes the pipes. docs/design/patterns.md.
#pragma once

#include "clock.hpp"
#include "counts.hpp"
#include "liveness.hpp"
#include "member_name.hpp"
#include "pipe_layout.hpp"
#include "robust_lock.hpp"

#include <algorithm>
#include <memory>

namespace penstock {

enum class WhenFull : uint32_t { wait = 0, drop_newest = 1, drop_oldest = 2 };

class PipeTable {
  public:
    PipeTable(int fd, std::string path, PeerRole role, std::string name, WhenFull when_full, std::shared_ptr<Mapping> map)
        : seat_(fd, std::move(path)), map_(map ? std::move(map) : std::make_shared<Mapping>(fd, size_of_file(fd), true)),
          opened_(read_pipe_header(map_->bytes(), map_->size(), seat_.path())), geometry_(opened_.geometry),
          control_(reinterpret_cast<PipeControl *>(map_->bytes() + control_offset)), role_(role), when_full_(when_full),
          name_(std::move(name)) {}
    PipeTable(const PipeTable &) = delete;
    PipeTable &operator=(const PipeTable &) = delete;

    const PipeGeometry &geometry() const { return geometry_; }
    const std::string &path() const { return seat_.path(); }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    uint64_t id() const { return id_; }
    PeerSlot &slot(uint32_t index) const {
        return *reinterpret_cast<PeerSlot *>(map_->bytes() + slots_offset + size_t{index} * sizeof(PeerSlot));
    }
    PipeLink &link(uint32_t index) const {
        return *reinterpret_cast<PipeLink *>(map_->bytes() + geometry_.links_offset() + size_t{index} * sizeof(PipeLink));
    }
    PipeControl &control() const { return *control_; }
    PeerSlot &me() const { return slot(mine_); }
    Atomic<uint32_t> &bell() const { return me().bell.event; }

    WhenFull when_full() const { return when_full_; }
    uint32_t seen_changes() const { return seen_changes_; }
    bool alive(uint64_t id) const {
        if (id == 0) return false;
        const uint64_t index = (id & 0xffffffff) - 1;
        if (index >= geometry_.peers) return false;
        const PeerSlot::Identity &identity = slot(static_cast<uint32_t>(index)).identity;
        return identity.state.relaxed() == 1 && identity.generation.relaxed() == id >> 32;
    }
    std::string name_of(uint64_t id) const {
        const uint64_t index = (id & 0xffffffff) - 1;
        if (index >= geometry_.peers) return {};
        const PeerSlot::Identity &identity = slot(static_cast<uint32_t>(index)).identity;
        const std::string name = read_name(identity);
        return identity.generation.relaxed() == id >> 32 ? name : std::string();
    }

  protected:
    class Held {
      public:
        explicit Held(PipeTable &table) : table_(table) {}
        ~Held() { release_robust_lock(table_.control_->lock.value); }
        Held(const Held &) = delete;
        Held &operator=(const Held &) = delete;

      private:
        PipeTable &table_;
    };

    // Takes a place and lays its pipes; `then` runs under the same lock.
    template <class Then> void enter(Then &&then) {
        take_any_slot();
        if (!lock(1'000'000'000)) {
            seat_.give_back(slot_byte(mine_));
            throw Error(Code::busy, path() + ": a peer holds the channel's lock and does not run (stopped?)");
        }
        const Held held(*this);
        try {
            reap();
            introduce();
            attached_ = true;
            connect();
        } catch (...) {
            attached_ = false;
            retire(mine_);
            announce();
            seat_.give_back(slot_byte(mine_));
            throw;
        }
        announce();
        then();
    }

    // Gives the place back, for others to inherit what is unread. `first`: what this peer does while it is still there.
    template <class First> void depart(First &&first) {
        if (!attached_) return;
        attached_ = false;
        if (fork_generation_ != ForkGuard::generation()) return; // the slot is the parent's
        first();
        if (lock(1'000'000'000)) {
            const Held held(*this);
            retire(mine_);
            tend();
            announce();
        } // else the kernel frees the byte and the living repair the rest
        seat_.leave();
    }

    static uint64_t slot_byte(uint32_t index) { return slots_offset + uint64_t{index} * sizeof(PeerSlot); }
    uint8_t *bytes_of(uint32_t index) const {
        return map_->bytes() + geometry_.data_offset() + uint64_t{index} * geometry_.capacity;
    }

    bool lock(int64_t patience_ns) {
        return acquire_robust_lock(control_->lock.value, id_, patience_ns, [&](uint64_t holder) {
            const uint64_t index = (holder & 0xffffffff) - 1;
            if (index >= geometry_.peers || index == mine_) return false; // not written by us, or by my predecessor
            if (slot(static_cast<uint32_t>(index)).identity.generation.relaxed() != holder >> 32) return false;
            return seat_.taken_by_other(slot_byte(static_cast<uint32_t>(index)));
        });
    }

    void take_any_slot() {
        for (uint32_t i = 0; i < geometry_.peers; ++i) {
            if (!seat_.try_take(slot_byte(i))) continue;
            mine_ = i;
            const uint32_t generation = slot(i).identity.generation.relaxed() + 1;
            slot(i).identity.generation.relaxed(generation);
            id_ = peer_id(generation, i);
            fork_generation_ = ForkGuard::generation();
            return;
        }
        throw Error(Code::busy,
                    path() + ": all " + std::to_string(geometry_.peers) + " places are taken: make the channel with more peers");
    }

    // Under the lock from here on: the table's changes. Each may be begun again by another if its author dies.

    void introduce() {
        PeerSlot::Identity &identity = me().identity;
        if (identity.state.relaxed() == 1) control_->totals.reaped.bump(1); // the owner before died
        retire(mine_);
        write_name(identity, name_, static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
        identity.pid.relaxed(static_cast<uint32_t>(getpid()));
        identity.role.relaxed(static_cast<uint32_t>(role_));
        identity.lossy.relaxed(role_ == PeerRole::tap ? when_full_ != WhenFull::wait : when_full_ == WhenFull::drop_oldest);
        uint32_t pairs = 0;
        for (uint32_t i = 0; i < geometry_.peers; ++i) {
            if (i == mine_ || slot(i).identity.state.relaxed() != 1) continue;
            const auto role = static_cast<PeerRole>(slot(i).identity.role.relaxed());
            if (!belong(role_, role))
                throw Error(Code::invalid, path() + ": a " + role_name(role_) + " has nothing to do with the " + role_name(role) +
                                               " that is there");
            pairs += role == PeerRole::pair;
        }
        if (pairs > 1) throw Error(Code::busy, path() + ": two are a pair already");
        identity.state.relaxed(1);
    }
    void retire(uint32_t index) {
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
        counts.redelivered.relaxed(0);
        s.identity.state.relaxed(0);
    }

    // Slots of the dead become free.
    bool reap() {
        bool found = false;
        for (uint32_t i = 0; i < geometry_.peers; ++i) {
            if (i == mine_ || slot(i).identity.state.relaxed() != 1 || !seat_.try_take(slot_byte(i))) continue;
            retire(i);
            control_->totals.reaped.bump(1);
            seat_.give_back(slot_byte(i));
            found = true;
        }
        return found;
    }

    // A pipe to and from everybody that this role talks to; one to nobody yet if a pusher finds nobody.
    void connect() {
        tend();
        bool any = false;
        for (uint32_t i = 0; i < geometry_.peers; ++i) {
            if (i == mine_ || slot(i).identity.state.relaxed() != 1) continue;
            const auto role = static_cast<PeerRole>(slot(i).identity.role.relaxed());
            const uint64_t other = peer_id(slot(i).identity.generation.relaxed(), i);
            if (sends_to(role_, role)) {
                lay(id_, role == PeerRole::tap ? role : role_, other);
                any |= role != PeerRole::tap;
            }
            if (sends_to(role, role_)) lay(other, role_ == PeerRole::tap ? role_ : role, id_);
        }
        if (role_ == PeerRole::push && !any) lay(id_, role_, 0);
    }

    void lay(uint64_t from, PeerRole pattern, uint64_t to) {
        uint32_t free = geometry_.links;
        for (uint32_t i = 0; i < geometry_.links; ++i) {
            PipeLink &l = link(i);
            if (l.ends.state.relaxed() != 1) free = std::min(free, i);
            else if (l.ends.from.relaxed() == from && l.ends.to.relaxed() == to && l.writer.closed.relaxed() == 0)
                return; // inherited
        }
        if (free == geometry_.links)
            throw Error(Code::busy, path() + ": all " + std::to_string(geometry_.links) +
                                        " pipes are in use: make the channel with more pipes");
        PipeLink &l = link(free);
        const uint64_t start = geometry_.start_position;
        l.ends.pattern.relaxed(static_cast<uint32_t>(pattern));
        l.ends.from.relaxed(from);
        l.ends.to.relaxed(to);
        l.ends.held.relaxed(0);
        const PeerSlot::Identity &writer = slot(static_cast<uint32_t>((from & 0xffffffff) - 1)).identity;
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
    // What the dead and departed left: inherited, or free again. True if anything changed.
    bool tend() {
        bool changed = false;
        for (uint32_t i = 0; i < geometry_.links; ++i) {
            PipeLink &l = link(i);
            if (l.ends.state.relaxed() != 1) continue;
            const uint64_t from = l.ends.from.relaxed(), to = l.ends.to.relaxed();
            const bool pushed = l.ends.pattern.relaxed() == static_cast<uint32_t>(PeerRole::push);
            const bool tapped = l.ends.pattern.relaxed() == static_cast<uint32_t>(PeerRole::tap);
            const bool written = alive(from) && l.writer.closed.acquire() == 0; // SYNC 18: pairs with PipeWriter::close
            const bool is_read = alive(to);
            const bool empty = l.writer.tail.relaxed() == l.reader.acked.relaxed();
            const bool reads = role_ == PeerRole::pull && attached_;
            if (pushed && !is_read && reads && (!empty || (written && !reads_from(from, i)))) {
                const uint64_t read = l.reader.read.relaxed();
                if (read != l.reader.acked.relaxed()) control_->totals.returned.bump(1);
                l.ends.held.relaxed(std::max(l.ends.held.relaxed(), read)); // also what an heir left that took nothing
                l.ends.to.relaxed(id_);
                changed = true;
            } else if (pushed && to == id_ && reads && written && empty && reads_from(from, i)) {
                l.ends.to.relaxed(0); // inherited, and read empty: the next one who comes can have it
                changed = true;
            } else if (!written && (empty || (!pushed && !is_read))) { // also while its reader has not noticed (look_for_more)
                if (!empty && !tapped)                                 // copies are not missed
                    control_->totals.messages_lost.bump(l.writer.messages.relaxed() - l.reader.messages.relaxed());
                l.ends.state.relaxed(0);
                changed = true;
            } else if (!pushed && !is_read && from == id_) { // nobody will ever read it
                if (!tapped) control_->totals.messages_lost.bump(l.writer.messages.relaxed() - l.reader.messages.relaxed());
                l.ends.state.relaxed(0);
                changed = true;
            }
        }
        return changed;
    }

    // Whether this peer reads another pipe of that writer's.
    bool reads_from(uint64_t from, uint32_t except) const {
        for (uint32_t i = 0; i < geometry_.links; ++i)
            if (i != except && link(i).ends.state.relaxed() == 1 && link(i).ends.from.relaxed() == from &&
                link(i).ends.to.relaxed() == id_)
                return true;
        return false;
    }

    // Everybody looks at the table again.
    void announce() {
        control_->changes.value.add(1); // only a hint: who sees it takes the lock
        for (uint32_t i = 0; i < geometry_.peers; ++i)
            if (slot(i).identity.state.relaxed() == 1) event_notify(slot(i).bell.event);
    }

    // Wakes a peer that is named only behind the fence.
    template <class Whom> void ring(Whom &&whom) {
        light_fence(); // SYNC 7: pairs with event_announced
        const uint64_t index = (whom() & 0xffffffff) - 1;
        if (index < geometry_.peers) event_notify_fenced(slot(static_cast<uint32_t>(index)).bell.event);
    }

    Seat seat_;
    std::shared_ptr<Mapping> map_;
    const OpenedPipe opened_;
    const PipeGeometry geometry_;
    PipeControl *control_;
    const PeerRole role_;
    const WhenFull when_full_;
    const std::string name_;
    uint64_t id_ = 0;
    uint32_t mine_ = ~0u - 1, seen_changes_ = 0, fork_generation_ = 0;
    bool attached_ = false;
};

} // namespace penstock
