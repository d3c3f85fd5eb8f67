// Options and counts of the network log's ends. docs/design/network_log.md.
#pragma once

#include "net/seal/keyring.hpp"
#include "net/wire/flow_control.hpp"
#include "net/wire/wire.hpp"

#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Of a publication.
struct UdpWriterOptions {
    Address to; // a receiver's endpoint, or a multicast group
    int32_t stream = 1;
    std::optional<int32_t> session; // else random, and none of -1 … 1000
    uint32_t mtu = wire::mtu_default;
    uint32_t term_length = 4 << 20;
    uint32_t capacity = 0; // bytes that writers may be ahead of the network; 0: half a term; at most a term
    int32_t initial_term_id = 0;
    uint64_t start_position = 0;  // a multiple of the term length
    uint32_t window = 128 * 1024; // the receivers' usual window
    FlowControl flow_control = FlowControl::max;
    int64_t group_tag = 0;
    int64_t linger_ns = 5'000'000'000; // bounds what close() leaves for the conductor to do
    uint32_t slot_count = 16;          // of its log: the publication, the sender, and local subscriptions ("spies")
    std::string metadata;              // of its log's file
    std::string description;           // sent to receivers; at most 1024 bytes, and what fits the MTU
    Address interface;                 // multicast: where it leaves, by address, or by scope alone; all zero: the system's choice
    uint8_t ttl = 1;                   // multicast
    uint32_t send_buffer = 0, receive_buffer = 0; // bytes; 0: what the windows need
    std::optional<Address> control;               // where receivers ask for the stream: it goes to all that ask, and not to `to`
    std::vector<Address> destinations;            // of a publication that has several, beside `to`
    bool multi_destination = false;               // destinations may be added and removed
    std::vector<std::string> names;               // of `to` and `destinations`, in this order; empty: it is an address
    Keys keys;                                    // null: datagrams are clear
};

// Of an endpoint. They are in its file: the next owner of the socket uses the same ones.
struct UdpEndpointOptions {
    Address at; // where it listens, or a multicast group
    int32_t stream = 1;
    uint32_t window = 128 * 1024; // offered to each session; lowered to what the socket's buffer holds
    bool reliable = true;
    std::optional<int64_t> group_tag;
    uint32_t receive_buffer = 0;             // bytes; 0: what the window needs
    uint32_t sessions_max = 64;              // at most 64
    uint64_t memory_max = uint64_t{1} << 30; // of all images
    uint32_t slot_count = 64;                // subscriptions
    Address interface;
    std::optional<Address> control; // a publication's, which is asked for its stream
    bool sealed = false;            // each process has the keys by itself: they are in no file of a channel
};

// Counted since the object that counts began; an endpoint's outlive the owner of the socket.
struct UdpCounts {
    uint64_t datagrams_sent = 0, bytes_sent = 0, datagrams_received = 0, bytes_received = 0;
    uint64_t setups = 0, heartbeats = 0, statuses = 0;            // sent by a publication, or received by it; see the side
    uint64_t naks_sent = 0, naks_received = 0, retransmitted = 0; // retransmitted: datagrams
    uint64_t retransmitted_bytes = 0;
    uint64_t duplicates = 0, overruns = 0, overlaps = 0;
    uint64_t losses = 0, bytes_lost = 0; // gaps that were given up
    uint64_t setup_requests = 0, malformed = 0, rejected = 0, held = 0;
    uint64_t sessions = 0, sessions_refused = 0; // images ever made; refused by a cap
    uint64_t takeovers = 0;                      // of the socket, from an owner that died or left
    uint64_t send_refused = 0, send_failed = 0;  // system calls: no room now (sent later); an error (dropped)
    uint64_t receive_failed = 0, truncated = 0;
    uint64_t segmented = 0, coalesced = 0;      // datagrams sent and received in runs (GSO, GRO)
    uint64_t unauthenticated = 0, replayed = 0; // with a key: refused
    uint64_t sessions_displaced = 0;            // images that gave way to another source's
    uint64_t sessions_challenged = 0;           // SETUPs whose source was asked first to prove its address
    uint64_t destinations_refused = 0, destinations_displaced = 0;
    uint64_t receivers_refused = 0; // status messages of receivers beyond their host's share
    uint64_t naks_refused = 0;      // beyond the receiver's budget
};

inline constexpr size_t counts_words = sizeof(UdpCounts) / sizeof(uint64_t);

// One remote session as a subscription sees it.
struct UdpSession {
    int32_t session = 0, initial_term_id = 0;
    std::string source;                        // HOST:PORT
    std::string description;                   // sent by its publication; empty: none has arrived
    uint64_t join = 0, position = 0, high = 0; // where it was joined; this subscription's position; the end of what has arrived
    uint64_t lag = 0;
    uint32_t term_length = 0, mtu = 0;
    std::string state; // open; closed: its sender said so; lost: it fell silent before. The last two once all of it was read
};

} // namespace penstock
