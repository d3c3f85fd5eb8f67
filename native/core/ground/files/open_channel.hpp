// A channel with subscriptions and no first publication yet: making, joining and deciding it. Its file grows in place, so its
// members keep their slots and locks. Knows the header and the open byte; the bytes behind the slots are the kind's.
// Argument, orders and crash table: docs/design/open_channels.md.
#pragma once

#include "ground/clock.hpp"
#include "ground/files/channel_file.hpp"
#include "ground/liveness.hpp"
#include "ground/waiting.hpp"

#include <algorithm>
#include <fcntl.h>
#include <memory>
#include <utility>

namespace penstock {

// ---- at the end of page 1, in no kind's way: options and codec named while the channel is open; the holder of the open byte
// ----
struct Notes {
    Atomic<uint32_t> which; // 0: the copy that is valid
    uint32_t length[2];     // 4
    uint32_t unused;        // 12
    char text[2][1536];     // 16: UTF-8 JSON
};
inline constexpr size_t notes_max = sizeof(Notes::text) / 2;
inline constexpr size_t notes_offset = slots_offset - sizeof(Notes);
static_assert(sizeof(Notes) == 3088 && notes_offset == control_offset + 1008);
constexpr uint64_t open_file_size(const KindLayout &kind, uint64_t slots) {
    return (slots_offset + slots * kind.slot_size + 4095) & ~uint64_t{4095};
}

// The short part of an open channel, checked.
struct OpenPart {
    KindLayout kind;
    uint32_t slots = 0; // that may be taken
    uint64_t size = 0;
};

inline OpenPart read_open_part(const uint8_t *bytes, uint64_t size, const std::string &where, const KindLayout &kind) {
    const Header *header = find_header(bytes, size, where, kind.number);
    const OpenPart part{kind, header->open_slots, header->open_size};
    if (part.slots < 1 || part.slots > slot_count_max || part.size > size || part.size % 4096 != 0 ||
        part.size < open_file_size(kind, part.slots))
        throw Error(Code::corrupt, where + ": its header is damaged: it is open with " + std::to_string(part.slots) +
                                       " slots in " + std::to_string(part.size) + " of " + std::to_string(size) + " bytes");
    return part;
}

// The short part of an open channel, mapped, as it is now.
struct OpenChannel {
    OpenChannel(int fd, const std::string &where, const KindLayout &kind, bool writable)
        : part([&] {
              const Mapping head(fd, slots_offset, false);
              return read_open_part(head.bytes(), size_of_file(fd), where, kind);
          }()),
          map(std::make_shared<Mapping>(fd, part.size, writable)) {}
    OpenPart part;
    std::shared_ptr<Mapping> map;
};

// Whether the channel waits for its first publication.
inline bool is_open(int fd, const std::string &where, const KindLayout &kind) {
    if (size_of_file(fd) < slots_offset) throw Error(Code::corrupt, where + " is too short for a channel");
    const Mapping head(fd, slots_offset, false);
    return still_open(find_header(head.bytes(), slots_offset, where, kind.number), where);
}

// ---- options and codec named so far ----

inline Notes &notes_of(const Mapping &map) { return *reinterpret_cast<Notes *>(map.bytes() + notes_offset); }

// Only the holder of the open byte calls it.
inline std::string read_notes(const Notes &notes, const std::string &where) {
    // SYNC 20: pairs with write_notes; forbids reading a copy before the word that says which one is valid
    const uint32_t which = notes.which.acquire() & 1, length = notes.length[which];
    if (length > notes_max) throw Error(Code::corrupt, where + ": its header is damaged: notes of " + std::to_string(length));
    return {notes.text[which], length};
}
inline void write_notes(const Mapping &map, const std::string &text) {
    if (text.size() > notes_max)
        throw Error(Code::invalid, "the options and the codec named for the channel take " + std::to_string(text.size()) +
                                       " bytes; before the first publication at most " + std::to_string(notes_max) + " fit");
    Notes &notes = notes_of(map);
    const uint32_t other = (notes.which.relaxed() & 1) ^ 1;
    std::memcpy(notes.text[other], text.data(), text.size());
    notes.length[other] = static_cast<uint32_t>(text.size());
    // SYNC 20: pairs with read_notes; forbids the copy becoming the valid one before it is whole: a process killed in between
    // would leave half a text. The lock on the open byte would not repair that
    notes.which.release(other);
}
// Fewer slots may be taken from now on.
inline void limit_slots(const Mapping &map, uint32_t slots) {
    auto *header = reinterpret_cast<Header *>(map.bytes());
    header->open_slots = std::min(header->open_slots, slots);
}

// ---- making one ----

// Fills a new file that no other process can open yet, of open_file_size.
inline void format_open(int fd, const KindLayout &kind, uint32_t slots, const std::string &notes, const uint8_t boot_id[16],
                        int64_t created_ns) {
    if (slots < 1 || slots > slot_count_max)
        throw Error(Code::invalid, "max_members is " + std::to_string(slots) + ": it must be from 1 to 1024");
    const uint64_t size = open_file_size(kind, slots);
    if (size_of_file(fd) != size) throw Error(Code::invalid, "the new file has the wrong size");
    const Mapping map(fd, size, true);
    Header *header = begin_header(map, kind.number, {}, boot_id, created_ns);
    header->open_slots = slots;
    header->open_size = size;
    write_notes(map, notes);
    header->state.relaxed(static_cast<uint32_t>(ChannelState::open));
    header->magic.release(magic); // SYNC 0: pairs with find_header; forbids the magic being visible before the rest
}

// ---- the open byte ----

// Holds the open byte. Its holder looks at the state again before anything else.
class OpenHold {
  public:
    OpenHold(int fd, const std::string &path, int64_t patience_ns) : locks_(fd, path) {
        // The machine's time, never a test's: this thread really waits for another process's lock.
        const int64_t deadline = monotonic_ns() + patience_ns;
        while (!try_again() && monotonic_ns() < deadline) platform::nap(500'000);
    }
    OpenHold(const OpenHold &) = delete;
    OpenHold &operator=(const OpenHold &) = delete;
    bool held() const { return held_; }
    // For one that is not held. Never waits.
    bool try_again() {
        held_ = locks_.try_take(lock_byte::opening);
        if (!held_ && errno != EAGAIN && errno != EACCES)
            fail_system(locks_.path() + ": cannot lock the byte that orders joining");
        return held_;
    }
    ByteLocks &locks() { return locks_; }
    void release() {
        held_ = false;
        locks_.leave();
    }

  private:
    ByteLocks locks_;
    bool held_ = false;
};

// ---- deciding: all of it under the open byte ----

// Throws if a table of `slots` has no room for the present members and the decider.
inline void check_room(ByteLocks &locks, const OpenPart &part, uint32_t slots, bool takes_one, const std::string &where) {
    uint32_t there = 0, need = 0;
    const uint32_t table = static_cast<uint32_t>((part.size - slots_offset) / part.kind.slot_size);
    for (uint32_t i = 0; i < table; ++i)
        if (locks.taken_by_other(slots_offset + i * part.kind.slot_size)) {
            ++there;
            need = i + 1;
        }
    need = std::max(need, there + (takes_one ? 1 : 0));
    const uint32_t each = part.kind.slots_per_member;
    if (need > slots)
        throw Error(Code::busy, where + ": " + std::to_string(there) + " readers are here already, and max_members=" +
                                    std::to_string(slots / each) + " leaves them no room: ask for " +
                                    std::to_string((need + each - 1) / each) + " at least, or let some of them close first");
}

// Gives the file its full size and allocates its memory. All bytes behind the slots become zero: a decider that was killed
// may have left something there. On failure the file is short again.
inline void grow_file(int fd, const OpenPart &part, uint64_t full) {
    if (ftruncate(fd, static_cast<off_t>(part.size)) != 0) fail_system("cannot cut a channel's file");
    int failed;
    do failed = posix_fallocate(fd, 0, static_cast<off_t>(full));
    while (failed == EINTR);
    if (failed == 0) return;
    [[maybe_unused]] const int cut = ftruncate(fd, static_cast<off_t>(part.size));
    fail_system("cannot allocate " + std::to_string(full) + " bytes", failed);
}

// Zeroes the file behind the new table of slots.
inline void clear_behind(const Mapping &map, const OpenPart &part, uint32_t slots) {
    const uint64_t end = slots_offset + slots * part.kind.slot_size;
    if (end < part.size) zero(map.bytes() + end, part.size - end);
}

// Everything is in place: early subscriptions may read it.
inline void decided(const Mapping &map) {
    auto *header = reinterpret_cast<Header *>(map.bytes());
    wrote(&header->file_size, offsetof(Header, metadata) - offsetof(Header, file_size));
    // SYNC 24: pairs with still_open; forbids the new state being visible before header, slots and zeros
    header->state.release(static_cast<uint32_t>(ChannelState::decided));
}

// Decides an open channel: `slots` in the table, `full` bytes in the file. `takes_one`: the decider will need a slot. `write`
// calls decide_log, decide_ring or decide_pipe. `locks` holds the open byte.
template <class Write>
void decide_file(int fd, const std::string &where, ByteLocks &locks, const KindLayout &kind, uint32_t slots, uint64_t full,
                 bool takes_one, Write &&write) {
    const OpenPart part = [&] {
        const Mapping head(fd, slots_offset, false);
        return read_open_part(head.bytes(), size_of_file(fd), where, kind);
    }();
    check_room(locks, part, slots, takes_one, where);
    grow_file(fd, part, full);
    const Mapping map(fd, full, true);
    write(map, part);
}

} // namespace penstock
