// Promises about the sources of sessions: what one may draw before it has proved itself, when a session moves, what is refused.
#pragma once

#include "net_promises.hpp"

namespace penstock::test {

// The bytes that a source may draw before it has proved that it receives them.
inline void replies_are_bounded() {
    Random random(6);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box box;
    hand(receiver, 0, setup_bytes);
    int64_t now = 0;
    for (; now < 9'000 * ms; now += ms) receiver.tick(now, box, random);
    size_t bytes = 0;
    for (const Bytes &sent : box.sent) bytes += sent.size();
    CHECK(bytes != 0 && bytes <= setup_bytes.size() && receiver.images()[0]->counts().held != 0);
    Bytes answer = box.sent[0]; // RTTM
    answer[5] = 0;
    Bytes guess = answer;
    guess[16] ^= 1;
    hand(receiver, now, guess);
    hand(receiver, now, answer, 2);
    CHECK(!receiver.images()[0]->source_verified());
    hand(receiver, now, answer);
    CHECK(receiver.images()[0]->source_verified() && receiver.images()[0]->round_trip_ns() > 0);
}

// A SETUP that moves a session to a source that has proved nothing draws that image's answers, and no challenge besides.
inline void a_datagram_pays_for_one_answer() {
    Random random(8);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box box;
    hand(receiver, 0, setup_bytes);
    receiver.tick(0, box, random);
    box.sent.clear();
    hand(receiver, 1'500 * ms, setup_bytes, 2);
    CHECK(receiver.images()[0]->source() == address(2) && !receiver.images()[0]->source_verified());
    for (int64_t now = 1'500 * ms; now < 4'000 * ms; now += 100 * ms) receiver.tick(now, box, random);
    size_t bytes = 0;
    for (const Bytes &sent : box.sent) bytes += sent.size();
    CHECK(bytes != 0 && bytes <= setup_bytes.size(), "%zu bytes", bytes);
}

// Requests, measurements and status messages to a source that has proved nothing wait for room; those to one that has do not.
inline void unproved_answers_wait_for_room() {
    Random random(7);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box box;
    box.unproved_room = false;
    hand(receiver, 0, heartbeat_bytes); // of a session that is not known
    int64_t now = 0;
    for (; now < 500 * ms; now += ms) receiver.tick(now, box, random);
    hand(receiver, now, setup_bytes);
    for (; now < 1'500 * ms; now += ms) receiver.tick(now, box, random);
    CHECK(box.sent.empty() && receiver.images().size() == 1);
    box.unproved_room = true;
    for (; now < 3'000 * ms; now += ms) receiver.tick(now, box, random);
    CHECK(!box.sent.empty(), "it is answered once there is room");
    Bytes answer = box.sent[0]; // RTTM
    answer[5] = 0;
    hand(receiver, now, answer);
    box.unproved_room = false;
    box.sent.clear();
    for (const int64_t until = now + 1'000 * ms; now < until; now += ms) receiver.tick(now, box, random);
    CHECK(!box.sent.empty() && receiver.images()[0]->source_verified());
}

// A gap at the end of what was sent, and the first measurements lost: NAKs, which are many and short, leave room for the proof
// that ends the limit, and for the status messages without which the sender forgets its receiver and ignores every NAK.
inline void naks_leave_room_for_the_proof() {
    Random random(16);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box box;
    Bytes beat = heartbeat_bytes;
    beat[9] = 1; // at 256: all before it is missing
    hand(receiver, 0, setup_bytes);
    std::array<size_t, 3> last{}; // status messages, measurements, NAKs of the last two seconds
    for (int64_t now = 0; now < 5'000 * ms; now += ms) {
        if (now % (97 * ms) == 0) hand(receiver, now, beat); // not when a status message is due
        receiver.tick(now, box, random);
        while (!box.sent.empty()) {
            const Bytes sent = box.consume();
            const auto type = static_cast<wire::Type>(sent[6] | sent[7] << 8);
            if (now < 3'000 * ms) continue;
            ++last[type == wire::Type::status ? 0 : type == wire::Type::rtt ? 1 : 2];
        }
    }
    CHECK(last[0] >= 6 && last[1] >= 1 && last[2] >= 1, "%zu status messages, %zu measurements, %zu NAKs", last[0], last[1],
          last[2]);
}

// SETUP from elsewhere moves a session that was silent, but its source takes it back with a word until the new one has proved
// itself.
inline void a_session_returns_to_a_source_that_was_proved() {
    for (const bool proves : {false, true}) {
        Random random(17);
        Place place;
        Receiver<Place> receiver(receiver_options(), place, 0);
        Box box;
        const auto prove = [&](int64_t now, uint16_t port) {
            box.sent.clear();
            receiver.tick(now, box, random);
            for (Bytes sent : std::exchange(box.sent, {})) {
                if (sent[6] != static_cast<uint8_t>(wire::Type::rtt)) continue;
                sent[5] = 0;
                hand(receiver, now, sent, port);
            }
            CHECK(receiver.images()[0]->source_verified());
        };
        hand(receiver, 0, setup_bytes);
        prove(0, 1);
        hand(receiver, 2'000 * ms, setup_bytes, 2);
        CHECK(receiver.images()[0]->source() == address(2) && !receiver.images()[0]->source_verified());
        if (proves) prove(2'000 * ms, 2);
        hand(receiver, 2'001 * ms, heartbeat_bytes);
        CHECK(receiver.images()[0]->source() == address(proves ? 2 : 1) && receiver.images()[0]->source_verified());
    }
}

inline void caps_hold() {
    Random random(7);
    Place place;
    ReceiverOptions options = receiver_options();
    options.sessions_max = 3;
    options.memory_max = 3 * 65536 * 5 / 2;
    Receiver<Place> receiver(options, place, 0);
    Box box;
    Bytes setup = setup_bytes, beat = heartbeat_bytes;
    for (uint8_t i = 0; i < 200; ++i) {
        setup[12] = beat[12] = i;
        hand(receiver, i, setup);
        hand(receiver, i, beat);
    }
    CHECK(place.memories.size() == 2 && receiver.counts().sessions_challenged == 198 && receiver.memory() == 6 * 65536);
    CHECK(receiver.coming_ns() == 199, "an end waits for sources that were asked");
    for (int64_t now : {10'000 * ms, 10'001 * ms, 10'002 * ms}) receiver.tick(now, box, random);
    CHECK(receiver.images().empty() && place.closed == 2 && receiver.memory() == 0, "silent for 10 s");
    setup[12] = 0;
    hand(receiver, 10'003 * ms, setup);
    CHECK(receiver.images().size() == 1 && receiver.counts().cooled == 0, "it was silent, and speaks again");
}

} // namespace penstock::test
