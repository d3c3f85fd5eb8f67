// The members that joined and left last, with their names. A member that joined and left between two looks is named, too. It is
// a separate table in a sync queue's file: the holder of the log's lock writes it, and any process reads it without the lock.
// docs/design/sync_queue.md.
#pragma once

#include "ground/cache_line.hpp"
#include "ground/members/member_name.hpp"
#include "log/files/log_layout.hpp"

#include <algorithm>

namespace penstock {

inline MemberEvents &events_of(const Mapping &map, uint64_t slot_count, uint64_t term_length) {
    return *reinterpret_cast<MemberEvents *>(map.bytes() + events_offset(slot_count, term_length));
}

// The content of an event's words.
struct MemberChange {
    uint64_t joined_ns; // with the slot, tells members apart
    uint32_t pid;
    uint16_t slot;
    uint16_t came; // 0: it left or died
    char name[name_max];
};
static_assert(sizeof(MemberChange) == sizeof(MemberEvent) && slot_count_max <= UINT16_MAX);

// Under the lock, while the slot's words are its owner's.
template <uint32_t N> void add_event(MemberEventTable<N> &events, bool came, uint32_t slot, const Slot::Identity &identity) {
    const uint64_t number = events.count.value.relaxed();
    MemberChange change{identity.joined_ns.relaxed(), identity.pid.relaxed(), static_cast<uint16_t>(slot), came, {}};
    copy_words_out(change.name, identity.name, sizeof change.name);
    release_fence(); // SYNC 33: pairs with read_events; forbids a word of this event being visible before the count of those
                     // before
    copy_words_in(events.last[number % N].words, &change, sizeof change);
    // SYNC 34: pairs with read_events; forbids the count being visible before the event's words
    events.count.value.release(number + 1);
}

// Visits the events from number `since` on, oldest first; the number of the next one. `missed`: how many were overwritten before.
template <uint32_t N, class Visit>
uint64_t read_events(const MemberEventTable<N> &events, uint64_t since, uint64_t &missed, Visit &&visit) {
    // SYNC 34: pairs with add_event; forbids reading an event's words before the count that has it
    const uint64_t end = events.count.value.acquire();
    since = std::min(since, end);
    uint64_t at = end - std::min(end - since, uint64_t{N});
    missed = at - since;
    for (; at < end; ++at) {
        MemberChange change;
        copy_words_out(&change, events.last[at % N].words, sizeof change);
        acquire_fence(); // SYNC 33: pairs with add_event; forbids looking at the count again before the words were read
        if (events.count.value.relaxed() - at >= N) ++missed; // the next event may be written here just now
        else visit(change);
    }
    return end;
}

} // namespace penstock
