// Byte layout of an endpoint's file: its words of the header, control words, a slot for each member, an entry for each image.
// Every offset is asserted here. docs/design/network_log.md.
#pragma once

#include "ground/cache_line.hpp"
#include "ground/files/channel_header.hpp"
#include "ground/files/latency.hpp"
#include "ground/members/deaths.hpp"
#include "net/io/udp_options.hpp"

namespace penstock {

//     page 0       Header, with EndpointWords
//     4096         EndpointControl
//     8192         EndpointSlot × slot_count
//     next page    ImageEntry × images_max
//     behind them  LatencySlot × slot_count
// Each image is a file of its own, an ordinary log: FILE.NUMBER.image

inline constexpr uint32_t images_max = 64;
inline constexpr uint32_t description_max = 1024;

// ---- the header's own words; the maker ----
struct EndpointWords {
    uint8_t host[16];           // 0: where it listens
    uint32_t scope;             // 16
    uint16_t port;              // 20
    uint16_t flags;             // 22: endpoint_reliable, endpoint_tagged, endpoint_sealed
    int32_t stream;             // 24
    uint32_t window;            // 28
    int64_t group_tag;          // 32
    uint64_t memory_max;        // 40
    uint32_t receive_buffer;    // 48
    uint32_t sessions_max;      // 52
    uint8_t interface_host[16]; // 56
    uint32_t interface_scope;   // 72
    uint16_t control_port;      // 76: 0: none
    uint16_t spare;             // 78
    uint8_t control_host[16];   // 80: a publication's, which is asked for its stream
    uint32_t control_scope;     // 96
    uint32_t spare2;            // 100
};
static_assert(sizeof(EndpointWords) == 104 && offsetof(EndpointWords, stream) == 24 && offsetof(EndpointWords, memory_max) == 40);
static_assert(offsetof(EndpointWords, interface_host) == 56 && offsetof(EndpointWords, interface_scope) == 72);
static_assert(offsetof(EndpointWords, control_port) == 76 && offsetof(EndpointWords, control_host) == 80);
inline constexpr uint16_t endpoint_reliable = 1, endpoint_tagged = 2, endpoint_sealed = 4;

// ---- page 1. "Owner": the process that owns the socket ----
struct EndpointControl {
    Paired<Atomic<uint64_t>> lock;     // 0: generation << 32 | slot + 1 of its holder, or 0
    Paired<Atomic<uint32_t>> event;    // 128: event: something arrived, or the list or the owner changed
    Paired<Atomic<uint64_t>> activity; // 256: grows with everything that readers may want to see; the owner
    Paired<Atomic<uint64_t>> changes;  // 384: grows with each change of the list of images; the holder of `lock`
    struct alignas(cache_pair) Rare {  // 512
        Atomic<uint64_t> last_number;  // 0: of the image made last; the holder of `lock`
        Atomic<uint64_t> receiver;     // 8: id; random, each time that the endpoint begins to be used
        Atomic<uint64_t> takeovers;    // 16: the owner
        Atomic<uint32_t> owner_pid;    // 24: the owner
        Atomic<uint32_t> window;       // 28: as the socket's buffer allows; the owner
        Atomic<uint64_t> sessions;     // 32: images that were ever listed; the holder of `lock`
        Atomic<uint64_t> keys[2];      // 40: fingerprints of the keys of the last subscription that opened; 0: none
    } rare;
    struct alignas(cache_pair) Counts { // 640: UdpCounts, word for word; the owner
        Atomic<uint64_t> words[counts_words];
    } counts;
    struct alignas(cache_pair) Totals { // 1024: of subscriptions that have left or died; the holder of `lock`
        Atomic<uint64_t> messages, bytes, bytes_lost;
    } totals;
    struct alignas(cache_pair) Ended { // 1152: sessions that have ended, counted once they were read; the owner
        Atomic<uint64_t> closed, lost;
        Atomic<int64_t> coming_ns; // 16: when a source without an image was asked for a proof, or gave one; 0: never
    } ended;
};
static_assert(offsetof(EndpointControl, event) == 128 && offsetof(EndpointControl, activity) == 256);
static_assert(offsetof(EndpointControl, changes) == 384 && offsetof(EndpointControl, rare) == 512);
static_assert(offsetof(EndpointControl, counts) == 640 && offsetof(EndpointControl, totals) == 1024 &&
              offsetof(EndpointControl, ended) == 1152 && sizeof(EndpointControl) <= 4096);

// ---- a member: a subscription, or a process that may hold the socket ----
enum class MemberRole : uint32_t { none = 0, subscription = 1, host = 2 };
struct EndpointSlot {
    struct alignas(cache_pair) Identity { // 0: the owner on joining; `state` also the holder of `lock`
        Atomic<uint32_t> state;           // 1: taken
        Atomic<uint32_t> role;
        Atomic<uint32_t> generation;
        Atomic<uint32_t> pid;
        Atomic<uint64_t> joined_ns;
    } identity;
    struct alignas(cache_pair) Subscriber { // 128: the owner
        Atomic<uint64_t> seen;              // the newest image that it has joined, or passed over
        Atomic<uint64_t> messages, bytes, bytes_lost;
        Deaths deaths;          // of all subscriptions; the holder of the slot's byte
        Atomic<uint64_t> reads; // 1: it has joined all images that were there before it
        Atomic<uint64_t> wait;  // a WaitNote
    } subscriber;
    uint8_t spare[256]; // 256
};
static_assert(sizeof(EndpointSlot) == 512 && offsetof(EndpointSlot, subscriber) == 128 &&
              offsetof(EndpointSlot, subscriber.wait) == 176);
namespace lock_byte {
inline constexpr uint64_t owner = control_offset; // endpoint: the socket's owner
inline constexpr uint64_t socket = owner + 1;     // endpoint: the same, once it has the socket
} // namespace lock_byte

// ---- an image: what must outlive the process that receives for it ----
struct SourceWords {
    Atomic<uint64_t> host[2]; // 0
    Atomic<uint32_t> scope;   // 16
    Atomic<uint32_t> port;    // 20
};
// How a session's datagrams arrive: for people and for the figures of readers. Counts are of all owners.
struct SessionWords {
    Atomic<uint64_t> datagrams, bytes;      // 0
    Atomic<uint64_t> naks, repaired;        // 16: requests; bytes that arrived after they were asked for
    Atomic<uint64_t> losses, duplicates;    // 32: gaps that were given up; datagrams with nothing new
    Atomic<uint64_t> round_trip;            // 48: ns; 0: not measured
    Atomic<uint64_t> clock_offset;          // 56: ns, signed: above 0 the source's clock is ahead
    Atomic<uint64_t> clock_error;           // 64: ns; 0: not measured
    Atomic<uint64_t> clock_correction;      // 72: ns, signed: for latencies; 0 where the clocks may be the same one
    Atomic<uint64_t> heard;                 // 80: of the last datagram, by the monotonic clock
    Atomic<uint64_t> consumed;              // 88: all subscriptions have read up to here
    Atomic<uint32_t> window, path_limit;    // 96: datagrams of the MTU do not arrive, this is the longest that does; 0: they do
    Atomic<uint32_t> state, spare;          // 104: SessionEnd::How
    static constexpr size_t counts_max = 6; // the words that are counts
};
static_assert(sizeof(SessionWords) == 112 && offsetof(SessionWords, round_trip) == 48 && offsetof(SessionWords, heard) == 80);
struct ImageEntry {
    Atomic<uint64_t> number;                           // 0: names its file; 0: none; the holder of `lock`
    uint64_t spare0;                                   // 8
    Atomic<uint64_t> status;                           // 16: position of the last status message; the owner
    Atomic<uint64_t> clean;                            // 24: memory behind the rebuilt frames is zero up to here; the owner
    Atomic<uint64_t> high;                             // 32: the highest position seen; the owner
    Atomic<uint64_t> received, replied;                // 40: bytes from and to the source; the owner
    Atomic<uint64_t> bytes_lost;                       // 56: the owner
    Atomic<uint32_t> source_verified;                  // 64: the owner
    Atomic<uint32_t> which;                            // 68: the valid copy of the source; the owner
    SourceWords source[2];                             // 72
    Atomic<uint32_t> session, initial_term_id;         // 120: of SETUP, as the six that follow; its maker
    Atomic<uint32_t> active_term_id, term_offset;      // 128
    Atomic<uint32_t> term_length, mtu;                 // 136
    Atomic<uint32_t> ttl, stream;                      // 144
    Atomic<uint32_t> description_length;               // 152: last; the owner
    uint32_t spare;                                    // 156
    Atomic<uint64_t> description[description_max / 8]; // 160
    SessionWords words;                                // 1184: the owner
    uint8_t filler[2048 - 1184 - sizeof(SessionWords)];
};
static_assert(sizeof(SourceWords) == 24 && sizeof(ImageEntry) == 2048 && offsetof(ImageEntry, source) == 72);
static_assert(offsetof(ImageEntry, session) == 120 && offsetof(ImageEntry, ttl) == 144);
static_assert(offsetof(ImageEntry, description) == 160 && offsetof(ImageEntry, words) == 1184);

constexpr uint64_t entries_offset(uint64_t slot_count) {
    return (slots_offset + slot_count * sizeof(EndpointSlot) + 4095) & ~uint64_t{4095};
}
constexpr uint64_t endpoint_file_size(uint64_t slot_count) {
    return entries_offset(slot_count) + images_max * sizeof(ImageEntry) + latency_size(slot_count);
}

} // namespace penstock
