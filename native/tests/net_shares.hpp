// Promises about strangers: which share of sessions, memory, receivers and retransmissions a source has, who gives way to whom,
// and what an address draws that has not proved itself.
#pragma once

#include "net/wire/answer_queue.hpp"
#include "net/wire/source_proof.hpp"
#include "net_promises.hpp"

namespace penstock::test {

// An IPv4 address 127.0.HIGH.LOW.
inline Address host_at(uint32_t host, uint16_t port) {
    Address made = address(port);
    made.host = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, static_cast<uint8_t>(host >> 8), static_cast<uint8_t>(host)};
    return made;
}

inline void a_host_is_an_ipv4_address_or_a_network_of_ipv6() {
    CHECK(host_of(host_at(1, 2)) == host_of(host_at(1, 3)) && host_of(host_at(1, 2)) != host_of(host_at(2, 2)));
    Address one, other;
    one.host = other.host = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 1};
    other.host[15] = 9;
    CHECK(host_of(one) == host_of(other));
    other.host[7] = 2;
    CHECK(host_of(one) != host_of(other));
}

inline void places_are_shared_between_hosts() {
    constexpr int64_t s = 1'000'000'000;
    constexpr uint64_t capacity = 8;
    std::vector<Shareholder> full;
    for (uint16_t i = 0; i < capacity; ++i) full.push_back({host_at(1, i), 1, true, 10 * s});
    const Shareholder other{host_at(2, 1), 1, true, 10 * s}, mine{host_at(1, 99), 1, true, 10 * s};
    CHECK(Shares::choose(10 * s, full, mine, capacity, 1)->empty(), "a free place is anybody's");
    CHECK(!Shares::choose(10 * s, full, mine, capacity, 0), "every source of this host has as much");
    full[3].active_ns = 5 * s;
    CHECK(Shares::choose_one(10 * s, full, other, capacity) == 3u, "the one that brings nothing");
    CHECK(Shares::choose_one(10 * s, full, mine, capacity) == 3u, "within a host, too, where it has no place yet");
    // Another host takes places until both have half.
    for (uint64_t taken = 0; taken < capacity; ++taken) {
        const auto found = Shares::choose_one(10 * s, full, other, capacity);
        CHECK(found.has_value() == (taken < capacity / 2), "%lu", static_cast<unsigned long>(taken));
        if (!found) break;
        CHECK(full[*found].from.host == host_at(1, 0).host);
        full[*found] = other;
    }
    const auto idle = Shares::choose_one(20 * s, full, mine, capacity);
    CHECK(idle && full[*idle].from.host == mine.from.host, "it has its half, however idle the others are");
    // A source that has not proved itself gives way first, and takes nothing.
    full[0].proved = false;
    CHECK(Shares::choose_one(10 * s, full, mine, capacity) == 0u);
    full[0].active_ns = 20 * s;
    CHECK(Shares::choose_one(20 * s, full, {host_at(3, 1), 1, false, 0}, capacity).value_or(0) == 0, "a place of a proved one");
    // A hundred hosts with one place each: an idle one gives way, an active one does not.
    std::vector<Shareholder> many;
    for (uint32_t i = 0; i < capacity; ++i) many.push_back({host_at(10 + i, 1), 1, true, 10 * s});
    CHECK(!Shares::choose_one(10 * s, many, other, capacity));
    many[5].active_ns = 9 * s;
    CHECK(Shares::choose_one(10 * s, many, other, capacity) == 5u);
    // One source that has many, on the newcomer's own host.
    std::vector<Shareholder> own(capacity, {host_at(1, 7), 1, true, 10 * s});
    CHECK(Shares::choose_one(10 * s, own, mine, capacity).has_value());
    CHECK(!Shares::choose_one(10 * s, own, own[0], capacity));
}

inline void memory_is_shared_and_nothing_gives_way_in_vain() {
    const std::vector<Shareholder> holders{{host_at(1, 1), 300, true, 0}, {host_at(1, 2), 300, true, 0}};
    const auto found = Shares::choose(1, holders, {host_at(2, 1), 250, true, 0}, 600, 0);
    CHECK(found && found->size() == 1);
    CHECK(!Shares::choose(1, holders, {host_at(2, 1), 400, true, 0}, 600, 0), "more than a half");
    CHECK(Shares::choose(1, holders, {host_at(2, 1), 250, true, 0}, 900, 300)->empty());
}

inline void a_proof_is_of_one_address_session_and_time() {
    SourceProof proof, other;
    constexpr int64_t s = 1'000'000'000;
    CHECK(!proof.proves(0, host_at(1, 1), 5, proof.number(0, host_at(1, 1), 5)), "a secret that nobody has set");
    proof.set_secret(1, 2);
    other.set_secret(1, 3);
    const int64_t number = proof.number(10 * s, host_at(1, 1), 5);
    CHECK(number != 0 && proof.proves(11 * s, host_at(1, 1), 5, number) && proof.proves(12 * s, host_at(1, 1), 5, number));
    CHECK(!proof.proves(16 * s, host_at(1, 1), 5, number), "an old one");
    CHECK(!proof.proves(10 * s, host_at(2, 1), 5, number) && !proof.proves(10 * s, host_at(1, 2), 5, number));
    CHECK(!proof.proves(10 * s, host_at(1, 1), 6, number) && !proof.proves(10 * s, host_at(1, 1), 5, number ^ 2));
    CHECK(other.number(10 * s, host_at(1, 1), 5) != number);
}

inline void answers_are_shared() {
    struct Item {
        Address from;
    };
    AnswerQueue<Item> queue;
    for (int i = 0; i < 100; ++i) queue.add({host_at(1, 1)});
    CHECK(queue.items().size() == AnswerQueue<Item>::items_of_host_max);
    CHECK(queue.add({host_at(2, 1)}) && queue.add({host_at(1, 2)}), "another host, another source of that host");
    CHECK(queue.items().size() == AnswerQueue<Item>::items_of_host_max + 1);
    for (uint32_t i = 0; i < 5'000; ++i) queue.add({host_at(i, 3)});
    CHECK(queue.items().size() == AnswerQueue<Item>::items_max);
}

// A stream of sources that ask for sessions, and may answer.
struct Crowd {
    struct Way {
        Crowd &crowd;
        bool send(const Address &to, const uint8_t *bytes, size_t length) {
            crowd.drawn += length;
            crowd.replies.emplace_back(to, Bytes(bytes, bytes + length));
            return true;
        }
    };
    explicit Crowd(const ReceiverOptions &options) : receiver(options, place, 0) {}
    void setup(const Address &from, uint32_t number, uint32_t term_length = 65536) {
        Bytes bytes = setup_bytes;
        std::memcpy(bytes.data() + 12, &number, 4);
        std::memcpy(bytes.data() + 28, &term_length, 4);
        sent += bytes.size();
        receiver.datagram(now, from, bytes.data(), bytes.size());
    }
    // `answers`: sources that `who` names send measurements back.
    template <class Who> void turn(Who &&who) {
        Way way{*this};
        receiver.tick(now, way, random);
        for (auto &[to, bytes] : std::exchange(replies, {})) {
            if (bytes[6] != static_cast<uint8_t>(wire::Type::rtt) || !who(to)) continue;
            bytes[5] = 0;
            receiver.datagram(now, to, bytes.data(), bytes.size());
        }
        receiver.tick(now, way, random);
    }
    Image *image(uint32_t number) { return receiver.image(static_cast<int32_t>(number)); }
    Random random{21};
    Place place;
    Receiver<Place> receiver;
    std::vector<std::pair<Address, Bytes>> replies;
    uint64_t sent = 0, drawn = 0;
    int64_t now = 1'000 * ms;
};
inline bool nobody(const Address &) { return false; }
inline bool everybody(const Address &) { return true; }

// Also one that shares the host with the flood, as behind one NAT.
inline void a_flood_of_sessions_keeps_nobody_out() {
    for (const uint32_t where : {1u, 2u}) {
        Crowd crowd(receiver_options());
        const Address honest = host_at(where, 99);
        for (uint32_t i = 0; i < 5'000; ++i) crowd.setup(host_at(1, 1), 1'000 + i);
        crowd.turn(nobody);
        CHECK(crowd.receiver.images().size() == crowd.receiver.options().unproved_max && crowd.drawn <= crowd.sent);
        int rounds = 0;
        for (; crowd.image(7) == nullptr; ++rounds) {
            CHECK(rounds < 3, "SETUP is sent ten times a second");
            for (uint32_t i = 0; i < 500; ++i) crowd.setup(host_at(1, 1), 10'000 + i);
            crowd.setup(honest, 7);
            crowd.turn([&](const Address &to) { return to == honest; });
            crowd.now += 100 * ms;
        }
        CHECK(crowd.image(7)->source_verified());
        for (uint32_t i = 0; i < 500; ++i) crowd.setup(host_at(1, 1), 20'000 + i);
        CHECK(crowd.image(7) != nullptr && crowd.receiver.counts().sessions_challenged != 0);
    }
}

inline void sessions_that_are_held_give_way() {
    for (const bool many : {false, true}) { // one source that answers, or a hundred hosts
        Crowd crowd(receiver_options());
        const auto stranger = [&](uint32_t i) { return many ? host_at(100 + i, 1) : host_at(1, 1); };
        for (int round = 0; round < 30; ++round, crowd.now += 100 * ms) {
            for (uint32_t i = 0; i < 100; ++i) crowd.setup(stranger(i), 1'000 + i);
            crowd.turn(everybody);
        }
        CHECK(crowd.receiver.images().size() == 64);
        const Address honest = host_at(many ? 1 : 2, 1);
        int rounds = 0;
        for (; crowd.image(7) == nullptr; ++rounds, crowd.now += 100 * ms) {
            CHECK(rounds < 10);
            crowd.setup(honest, 7);
            crowd.turn(everybody);
        }
        CHECK(crowd.receiver.counts().sessions_displaced != 0);
        for (uint32_t i = 0; i < 100; ++i) crowd.setup(stranger(i), 5'000 + i);
        crowd.turn(everybody);
        CHECK(crowd.image(7) != nullptr, "it has come just now");
    }
}

inline void a_forged_term_costs_nothing_before_the_proof() {
    Crowd crowd(receiver_options());
    for (uint32_t i = 0; i < 100; ++i) crowd.setup(host_at(1 + i, 1), i, 1u << 28);
    crowd.turn(nobody);
    CHECK(crowd.place.memories.empty() && crowd.receiver.memory() == 0 && crowd.drawn <= crowd.sent);
}

inline void a_number_is_not_kept_from_a_source_that_proves_itself() {
    Crowd crowd(receiver_options());
    crowd.setup(host_at(1, 1), 7);
    for (int round = 0; round < 3; ++round, crowd.now += 100 * ms) {
        crowd.setup(host_at(1, 1), 7);
        crowd.setup(host_at(2, 1), 7);
        crowd.turn([](const Address &to) { return to == host_at(2, 1); });
    }
    CHECK(crowd.image(7)->source() == host_at(2, 1) && crowd.image(7)->source_verified());
    for (int round = 0; round < 3; ++round, crowd.now += 100 * ms) {
        crowd.setup(host_at(3, 1), 7);
        crowd.turn(everybody);
    }
    CHECK(crowd.image(7)->source() == host_at(2, 1), "a proved source keeps it");
}

inline void receivers_are_shared_between_hosts() {
    FlowLimit limit(FlowControl::max, 5'000 * ms);
    for (int64_t i = 0; i < 1'000; ++i) limit.on_status(1, {host_at(1, 1), i, 1, false, false});
    CHECK(limit.size() == FlowLimit::receivers_max);
    CHECK(limit.on_status(2, {host_at(2, 1), 1, 5, false, false}) && limit.knows(host_at(2, 1)) && limit.limit(0) == 5);
    CHECK(limit.size() == FlowLimit::receivers_max && !limit.on_status(3, {host_at(1, 1), 5'000, 1, false, false}));
}

// What NAKs draw: a few windows, and then a window per second and a few times what is consumed.
inline void naks_have_a_budget() {
    Random random(22);
    constexpr uint32_t term = 1 << 20;
    Log log(term, 7, 0, session, stream, 1408);
    SenderOptions options = sender_options();
    options.window = 32'768;
    Sender sender(log.memory.terms, options, 0, 0);
    Box box;
    wire::NakFrame nak = wire::make<wire::NakFrame>(wire::Type::nak);
    nak.session = session;
    nak.stream = stream;
    nak.term_id = 7;
    nak.term_offset = 0;
    nak.length = 65'536;
    const auto status = [&](int64_t now, uint64_t position, int64_t receiver) {
        hand(sender, now, status_at(log.memory.terms, position, 131'072, 0, receiver), 1);
    };
    status(1, 0, receiver_id);
    for (int i = 0; i < 100; ++i) log.write(random, 1'000, flags_whole);
    for (int i = 0; i < 3; ++i) sender.tick(1, box);
    CHECK(sender.position() == log.tail);
    const auto flood = [&](int64_t from_ms, int64_t to_ms) {
        const uint64_t before = sender.counts().retransmitted_bytes;
        for (int64_t at = from_ms; at < to_ms; at += 11) {
            if (at % 1'000 < 11) status(at * ms, 0, at);                 // each time as another receiver
            nak.term_offset = static_cast<int32_t>(at / 11 % 30 * 1056); // what is asked for again and again comes ever later
            hand(sender, at * ms, copy_of(nak));
            sender.tick(at * ms, box);
            box.sent.clear();
        }
        return sender.counts().retransmitted_bytes - before;
    };
    const uint64_t first = flood(100, 2'000), later = flood(2'000, 12'000);
    CHECK(first >= 4 * options.window && first <= 8 * options.window, "%lu", static_cast<unsigned long>(first));
    CHECK(later >= 8 * options.window && later <= 13 * options.window, "%lu", static_cast<unsigned long>(later));
    CHECK(sender.counts().naks_refused != 0 && sender.nak_refused_from() == address(1));
    // What was consumed earns more; it counts once, whatever number of receivers say so.
    for (int i = 0; i < 100; ++i) log.write(random, 1'000, flags_whole);
    for (int64_t receiver = 1; receiver < 50; ++receiver) status(12'000 * ms, 100 * 1056, receiver);
    for (int i = 0; i < 3; ++i) sender.tick(12'000 * ms, box);
    for (int64_t receiver = 1; receiver < 50; ++receiver) status(12'000 * ms, 200 * 1056, receiver);
    const uint64_t earned = flood(12'000, 13'000);
    CHECK(earned >= 3 * 100 * 1056 && earned <= 5 * 100 * 1056 + 2 * options.window, "%lu", static_cast<unsigned long>(earned));
}

} // namespace penstock::test
