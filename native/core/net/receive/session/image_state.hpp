// An image's options, its counts, and the part of it that outlives the process that receives for it.
#pragma once

#include "net/receive/session/loss_scan.hpp"
#include "net/wire/address.hpp"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <type_traits>

namespace penstock {

struct ReceiverOptions {
    int32_t stream = 0;
    int64_t receiver = 0; // id, random per endpoint
    std::optional<int64_t> group_tag;
    uint32_t window = 128 * 1024; // less if the term or the socket's buffer holds less
    bool reliable = true;         // false: gaps become padding, and counted loss
    LossOptions loss;
    int64_t status_ns = 200'000'000;
    int64_t liveness_ns = 10'000'000'000;
    int64_t round_trip_ns = 100'000'000; // between two measurements of the round trip, while something is missing
    int64_t clock_ns = 1'000'000'000;    // between two measurements of the source's clock
    int64_t cool_down_ns = 10'000'000'000;
    int64_t pending_ns = 1'000'000'000; // between two requests for the SETUP of one session
    int64_t moved_ns = 1'000'000'000;   // after this silence another source may have replaced it
    size_t sessions_max = 64;
    uint64_t memory_max = uint64_t{1} << 30; // of all images' terms
    // Of these, images of sources that have not proved that they receive at their addresses. Others prove it before they get one.
    size_t unproved_max = 8;
    uint64_t unproved_memory_max = 32 << 20;
    bool authentic = false;         // a key has proved every source
    std::optional<Address> control; // of a publication that sends to all that ask there
    int64_t control_request_ns = 200'000'000,
            control_repeat_ns = 1'000'000'000; // between two requests there: without, and with an image
};

// Whether an answer may go to a source that has proved nothing. `Out` may limit those together: to a half of its room, or one
// `part`th.
template <class Out> bool has_unproved_room(Out &out, uint32_t part = 2) {
    if constexpr (requires { out.has_unproved_room(part); }) return out.has_unproved_room(part);
    else return true;
}

// The part of an image that outlives the process that receives for it.
struct ImageState {
    uint64_t rebuilt = 0; // everything below it is there; nothing is behind it
    uint64_t status = 0;  // the position of the last status message
    uint64_t clean = 0;   // memory is zero from `rebuilt` up to here
    uint64_t received = 0, replied = 0;
    bool source_verified = false;
    std::optional<uint64_t> end;
    bool lost = false; // it fell silent before its end: nothing more is taken
};

// All of them grow only.
struct ImageCounts {
    uint64_t datagrams = 0, bytes = 0, heartbeats = 0;
    uint64_t duplicates = 0, overruns = 0; // datagrams with nothing new, or beyond the window
    uint64_t overlaps = 0;                 // frames that contradict what is there: forged
    uint64_t malformed = 0;
    uint64_t rejected = 0; // from another source than the session's
    uint64_t statuses = 0, naks = 0, rtt_requests = 0, setup_requests = 0;
    uint64_t held = 0; // replies not sent to a source that has not proved itself
    uint64_t losses = 0, bytes_lost = 0;
    uint64_t no_room = 0;
    uint64_t repaired = 0; // bytes of the stream that arrived after they were asked for
};

static_assert(std::is_trivially_copyable_v<ImageCounts> && sizeof(ImageCounts) % sizeof(uint64_t) == 0);
inline void add(ImageCounts &sum, const ImageCounts &more) {
    uint64_t words[sizeof(ImageCounts) / sizeof(uint64_t)], other[sizeof(ImageCounts) / sizeof(uint64_t)];
    std::memcpy(words, &sum, sizeof words);
    std::memcpy(other, &more, sizeof other);
    for (size_t i = 0; i < std::size(words); ++i) words[i] += other[i];
    std::memcpy(&sum, words, sizeof words);
}

} // namespace penstock
