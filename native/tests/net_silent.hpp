// Promises about sessions that fell silent or behind: where the next image begins, and what is counted.
#pragma once

#include "net_promises.hpp"

namespace penstock::test {

// A publication was stopped for more than 10 s: its session goes on where it was received, and the receiver asks for all that was
// sent meanwhile, also from another address. Bytes that the sender has dropped are counted. Another publication with its number
// begins where that one is.
inline void a_session_that_was_silent_goes_on_where_it_was() {
    Random random(14);
    const auto status_of = [](Receiver<Place> &receiver) { return receiver.image(session)->rebuilt(); };
    for (const int what : {0, 1, 2, 3}) {
        const uint16_t port = what >= 2 ? 2 : 1; // where it speaks again
        const bool goes_on = what == 0 || what == 3;
        Place place;
        Receiver<Place> receiver(receiver_options(), place, 0);
        Box box;
        Log log(65536, 7, 0, session, stream, 1408);
        const uint64_t frames = what == 1 ? 60 : 3; // more than 5/8 of a term
        for (uint64_t i = 0; i < frames; ++i) log.write(random, 1000, flags_whole);
        hand(receiver, 0, setup_bytes);
        hand(receiver, 1, Bytes(log.written(0), log.written(0) + 1056));
        receiver.tick(2, box, random);
        receiver.image(session)->consume(1056);
        for (const int64_t now : {10'001 * ms, 10'002 * ms}) receiver.tick(now, box, random);
        CHECK(receiver.images().empty());
        Bytes setup = setup_bytes;
        const auto at = static_cast<uint32_t>(what == 2 ? 32 : frames * 1056);
        std::memcpy(setup.data() + 8, &at, sizeof at);
        hand(receiver, 10'500 * ms, setup_bytes); // it was long on its way: what it announces was received
        CHECK(receiver.images().empty() && receiver.counts().cooled == 1);
        hand(receiver, 20'000 * ms, setup, port);
        CHECK(status_of(receiver) == (goes_on ? 1056 : at), "%lu", static_cast<unsigned long>(status_of(receiver)));
        CHECK(receiver.counts().bytes_skipped == (what == 1 ? at - 1056 : 0) && receiver.counts().skips == (what == 1));
        box.sent.clear();
        receiver.tick(20'001 * ms, box, random);
        for (int i = 0; i < 6; ++i)
            hand(receiver, 20'002 * ms, heartbeat_bytes, port); // a gap is asked for once the source has sent enough for that
        receiver.tick(20'002 * ms, box, random);
        CHECK((receiver.image(session)->counts().naks != 0) == goes_on);
        if (!goes_on) continue;
        hand(receiver, 20'003 * ms, Bytes(log.written(1056), log.written(1056) + 1056), port);
        hand(receiver, 20'003 * ms, Bytes(log.written(2112), log.written(2112) + 1056), port);
        CHECK(status_of(receiver) == log.tail);
        Reader reader(log, *receiver.image(session));
        reader.read(*receiver.image(session), 10);
        CHECK(reader.frames() == 2 && reader.lost() == 0);
    }
}

// Closed is a session whose sender said so and of which everything is there. One that falls silent before is lost; if its source
// never proved itself and sent nothing, it may be forged, and is neither.
inline void silence_is_no_end() {
    Random random(19);
    enum class Case { closed, open, incomplete, forged };
    for (const Case what : {Case::closed, Case::open, Case::incomplete, Case::forged}) {
        Place place;
        Receiver<Place> receiver(receiver_options(), place, 0);
        Box box;
        Log log(65536, 7, 0, session, stream, 1408);
        for (int i = 0; i < 2; ++i) log.write(random, 1000, flags_whole);
        hand(receiver, 0, setup_bytes);
        if (what != Case::forged) hand(receiver, 1, Bytes(log.written(0), log.written(0) + 1056));
        Bytes end = heartbeat_bytes;
        end[5] |= wire::flag_end_of_stream;
        const uint32_t at = what == Case::closed ? 1056 : 2112;
        std::memcpy(end.data() + 8, &at, sizeof at);
        if (what == Case::closed || what == Case::incomplete) hand(receiver, 2, end);
        receiver.tick(3, box, random);
        CHECK(!receiver.image(session)->lost() && !receiver.image(session)->stopped());
        receiver.tick(10'010 * ms, box, random);
        const Image *image = receiver.image(session); // gone if nothing of it is left to read
        CHECK((image == nullptr) == (what == Case::forged), "%d", static_cast<int>(what));
        CHECK((image == nullptr ? place.closed_lost != 0 : image->lost()) == (what == Case::open || what == Case::incomplete));
        CHECK(image == nullptr || image->rebuilt() == (what == Case::incomplete ? 2112 : 1056));
    }
}

// The next publication with a number that was used may have other datagrams and terms.
inline void a_number_is_used_again_with_other_options() {
    Random random(15);
    for (const uint16_t port : {1, 2}) {          // the next publication's; one with an address of its own has the last one's
        for (const size_t field : {20, 28, 32}) { // initial term, term length, MTU
            Place place;
            Receiver<Place> receiver(receiver_options(), place, 0);
            Box box;
            Bytes other = setup_bytes;
            other[field] = 0;
            other[field + 1] = static_cast<uint8_t>(field == 28 ? 0 : 2);
            other[field + 2] = static_cast<uint8_t>(field == 28 ? 2 : 0);
            if (field == 20) std::copy_n(other.begin() + 20, 4, other.begin() + 24);
            const auto is_other = [&] { // from the initial term to the MTU
                return std::memcmp(&receiver.images()[0]->setup().initial_term_id, other.data() + 20, 16) == 0;
            };
            hand(receiver, 0, setup_bytes);
            hand(receiver, 500 * ms, other, port);
            receiver.tick(500 * ms, box, random);
            CHECK(receiver.images().size() == 1 && !is_other(), "the first one lives");
            hand(receiver, 1'500 * ms, other, port);
            receiver.tick(1'500 * ms, box, random);
            hand(receiver, 1'600 * ms, other, port);
            CHECK(receiver.images().size() == 1 && is_other(), "it waits for the first one");
        }
    }
}

// The sender went on beyond the memory that is clean here. Where that ends is no frame's end: the sender would send nothing again
// from there, and an image that began there would wait for ever.
inline void an_image_that_fell_behind_begins_again_at_a_frame() {
    Random random(18);
    const auto at = [](Bytes bytes, uint16_t offset) {
        std::memcpy(bytes.data() + 8, &offset, sizeof offset);
        return bytes;
    };
    constexpr uint16_t edge = 32'768, beyond = 40'000, far = 50'016; // half a term is clean
    for (const bool silent : {false, true}) {                        // or too far behind
        Place place;
        Receiver<Place> receiver(receiver_options(), place, 0);
        Box box;
        int64_t now = 1;
        const auto mine = [&]() -> const Image & { return *receiver.image(session); };
        hand(receiver, now, setup_bytes);
        receiver.tick(now, box, random);
        hand(receiver, now, at(heartbeat_bytes, beyond));
        CHECK(mine().high() == edge, "asked for up to the edge");
        if (silent) now += 10'001 * ms;
        else hand(receiver, now, at(setup_bytes, far));
        receiver.tick(now, box, random);
        CHECK(mine().rebuilt() == beyond && mine().counts().bytes_lost == beyond, "lost, and counted");
        CHECK(mine().terms().frame(beyond)->word0.acquire() == 0, "clean behind the padding");
        receiver.image(session)->consume(beyond);
        receiver.tick(++now, box, random);
        CHECK(receiver.images().empty());
        hand(receiver, ++now, at(setup_bytes, far));
        CHECK(mine().join() == beyond && receiver.counts().bytes_skipped == 0, "the sender still keeps what came behind");
    }
}

} // namespace penstock::test
