// The network log's datagrams against bytes captured from a real driver, and single promises of its state machines.
#include "net_shares.hpp"
#include "net_silent.hpp"
#include "net_sources.hpp"

using namespace penstock;
using namespace penstock::test;

namespace {

void captured_bytes_are_understood() {
    wire::SetupFrame setup;
    CHECK(wire::parse(setup_bytes.data(), setup_bytes.size(), setup));
    CHECK(setup.session == session && setup.stream == stream && setup.initial_term_id == 7 && setup.active_term_id == 7);
    CHECK(setup.term_length == 65536 && setup.mtu == 1408 && setup.ttl == 0 && setup.term_offset == 0);

    wire::DataRun run;
    CHECK(wire::parse(heartbeat_bytes.data(), 32, 65536, run) && run.room == 0 && !run.end_of_stream && run.term_id == 7);
    CHECK(wire::parse(end_bytes.data(), 32, 65536, run) && run.room == 0 && run.end_of_stream);
    CHECK(run.term_id == 9 && run.term_offset == 0x4200);
    CHECK(wire::parse(pad_bytes.data(), 32, 65536, run) && run.room == 64 && run.term_offset == 0xffc0);
    Bytes data = data_header;
    data.resize(1056, 'x');
    CHECK(wire::parse(data.data(), data.size(), 65536, run) && run.room == 1056 && run.session == session);

    wire::StatusFrame status;
    bool tagged;
    CHECK(wire::parse(status_setup_bytes.data(), status_setup_bytes.size(), status, tagged) && tagged);
    CHECK(status.start.flags == wire::flag_send_setup && status.group_tag == 99 && status.receiver == receiver_id);
    CHECK(wire::parse(status_bytes.data(), status_bytes.size(), status, tagged) && tagged);
    CHECK(status.term_id == 7 && status.term_offset == 0x4f60 && status.window == 0x3700);

    wire::RttFrame rtt;
    CHECK(wire::parse(rtt_bytes.data(), rtt_bytes.size(), rtt) && rtt.start.flags == wire::flag_reply);
    CHECK(rtt.echo == 0x0807060504030201 && rtt.receiver == receiver_id);
    wire::NakFrame nak;
    CHECK(wire::parse(nak_bytes.data(), nak_bytes.size(), nak) && nak.term_offset == 0xd540 && nak.length == 0x220);
}

// A shorter or longer datagram, and one with any byte of its first eight changed to what it never is, is refused.
void anything_else_is_refused() {
    const auto parses = [](const Bytes &bytes) {
        wire::SetupFrame setup;
        wire::StatusFrame status;
        wire::NakFrame nak;
        wire::RttFrame rtt;
        wire::DataRun run;
        bool tagged;
        const auto copy = std::make_unique<uint8_t[]>(bytes.size()); // of its exact size, for the sanitizer
        std::copy(bytes.begin(), bytes.end(), copy.get());
        const uint8_t *at = copy.get();
        return wire::parse(at, bytes.size(), setup) || wire::parse(at, bytes.size(), status, tagged) ||
               wire::parse(at, bytes.size(), nak) || wire::parse(at, bytes.size(), rtt) ||
               wire::parse(at, bytes.size(), 65536, run);
    };
    Bytes data = data_header;
    data.resize(1056, 'x');
    for (const Bytes &good : {setup_bytes, heartbeat_bytes, data, pad_bytes, end_bytes, status_bytes, rtt_bytes, nak_bytes}) {
        CHECK(parses(good));
        for (size_t length = 0; length < good.size(); ++length)
            CHECK(!parses(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(length))), "%zu of %zu bytes", length,
                  good.size());
        Bytes longer = good;
        longer.push_back(0);
        CHECK(!parses(longer));
        for (const size_t place : {size_t{3}, size_t{4}, size_t{6}, size_t{7}}) { // length, version, type
            Bytes changed = good;
            changed[place] ^= 0x70;
            CHECK(!parses(changed), "byte %zu of %zu", place, good.size());
        }
    }
    Bytes beyond = pad_bytes; // padding that leaves its term
    beyond[0] = 0x60;
    CHECK(!parses(beyond));
    Bytes two = pad_bytes; // a frame behind a pad
    two.insert(two.end(), pad_bytes.begin(), pad_bytes.end());
    CHECK(!parses(two));
}

// SETUP, data, padding, heartbeat and end of stream, byte for byte as they were captured.
void a_sender_sends_what_was_captured() {
    Random random(1);
    Log log(65536, 7, 0, session, stream, 1408);
    Sender sender(log.memory.terms, sender_options(), 0, 0);
    Box box;
    sender.tick(0, box);
    CHECK(box.consume() == setup_bytes);
    log.write(random, 1000, flags_whole);
    sender.tick(50 * ms, box);
    CHECK(box.sent.empty(), "data, or another SETUP, before anybody was heard");
    sender.tick(100 * ms, box);
    CHECK(box.consume() == setup_bytes);
    hand(sender, 101 * ms, status_at(log.memory.terms, 0, 32768));
    sender.tick(101 * ms, box);
    Bytes data = box.consume();
    CHECK(data.size() == 1056 && data[0] == 0x08 && data[1] == 0x04 &&
          std::memcmp(data.data() + 4, data_header.data() + 4, 20) == 0);
    sender.tick(200 * ms, box);
    CHECK(box.sent.empty());
    sender.tick(201 * ms, box);
    Bytes beat = box.consume();
    CHECK(beat[8] == 0x20 && beat[9] == 0x04, "the sender's position, 1056");
    beat[8] = beat[9] = 0;
    CHECK(beat == heartbeat_bytes);
}

void a_sender_keeps_to_the_limit_and_pads() {
    Random random(2);
    Log log(65536, 7, 0xffc0 - 1056, session, stream, 1408);
    const Terms &terms = log.memory.terms;
    Sender sender(terms, sender_options(), log.tail, 0);
    Box box;
    sender.tick(0, box);
    box.consume();
    log.write(random, 1000, flags_whole);
    log.abort(random, 64);
    log.write(random, 1000, flags_whole);
    hand(sender, 1, status_at(terms, log.start, 1056 + 64 + 1024));
    sender.tick(1, box);
    CHECK(box.sent.size() == 1 && box.sent[0].size() == 1056 + 32, "whole frames in one datagram, a pad's header at its end");
    Bytes pad(box.sent[0].begin() + 1056, box.sent[0].end());
    std::fill(pad.begin() + 24, pad.end(), uint8_t{0}); // the reserved value
    CHECK(pad == pad_bytes);
    CHECK(sender.position() == 65536, "the frame after it does not fit the window");
    hand(sender, 2, status_at(terms, 65536, 32769));         // wider than half a term
    hand(sender, 2, status_at(terms, 65536 * 2 + 32, 1056)); // further than anything sent
    CHECK(sender.counts().statuses_refused == 2 && sender.limit() == 65536 + 1024);
    CHECK(sender.consumed() == log.start && !sender.replaced());
    hand(sender, 3, status_at(terms, 65536, 1056));
    CHECK(sender.consumed() == 65536, "what was read, not what may be sent");
    box.full = true;
    sender.tick(3, box);
    CHECK(sender.position() == 65536 && sender.counts().no_room == 1, "a datagram without room is sent later");
    box.full = false;
    sender.tick(4, box);
    CHECK(sender.position() == log.tail);
}

// A pad is sent as its header, so a sender may stand further beyond a receiver than the window. When the two have not heard of
// each other for a while, the receiver begins again where it was.
void a_receiver_behind_a_pad_is_heard_again() {
    Random random(7);
    Log log(65536, 7, 28672, session, stream, 1408);
    const Terms &terms = log.memory.terms;
    Sender sender(terms, sender_options(), log.tail, 0);
    Box box;
    sender.tick(0, box);
    for (int i = 0; i < 31; ++i) log.write(random, 992, flags_whole);
    log.abort(random, 5120);
    hand(sender, 1, status_at(terms, log.start, 32768));
    for (int64_t now = 1; now < 10; ++now) sender.tick(now, box);
    CHECK(sender.position() == 65536 && sender.position() > log.start + 32768);
    for (int64_t now = 1; now < 70; ++now) sender.tick(now * 100 * ms, box);
    CHECK(!sender.connected(), "nothing was heard of it for five seconds");
    box.sent.clear();
    hand(sender, 7001 * ms, status_at(terms, log.start, 32768));
    CHECK(sender.counts().statuses_refused == 0 && sender.connected());
    wire::NakFrame frame = wire::make<wire::NakFrame>(wire::Type::nak);
    frame.session = session;
    frame.stream = stream;
    frame.term_id = 7;
    frame.term_offset = 28672;
    frame.length = 1024;
    hand(sender, 7002 * ms, copy_of(frame));
    sender.tick(7002 * ms, box);
    CHECK(sender.counts().retransmits == 1, "what the receiver may still ask for");
    hand(sender, 7003 * ms, status_at(terms, 65536 - 40960 - 32, 32768));
    CHECK(sender.counts().statuses_refused == 1, "further back than anything that is kept");
}

void a_sender_ends_its_stream() {
    Random random(3);
    Log log(65536, 7, 2 * 65536 + 0x4200 - 64, session, stream, 1408);
    Sender sender(log.memory.terms, sender_options(), log.tail, 0);
    Box box;
    sender.tick(0, box);
    log.write(random, 32, flags_whole);
    hand(sender, 1, status_at(log.memory.terms, log.start, 4096));
    sender.tick(1, box);
    box.sent.clear();
    sender.close(2, log.tail);
    sender.tick(2, box);
    sender.tick(3, box);
    CHECK(sender.state() == Sender::State::lingering && box.consume() == end_bytes);
    sender.tick(100 * ms, box);
    CHECK(box.sent.empty());
    sender.tick(103 * ms, box);
    CHECK(box.consume() == end_bytes);
    hand(sender, 104 * ms, status_at(log.memory.terms, log.tail, 4096, wire::flag_status_eos));
    sender.tick(104 * ms, box);
    CHECK(sender.state() == Sender::State::closed && sender.next() == INT64_MAX);
}

// Frames that were written before the first receiver came go to it, also after the publication has closed.
void a_sender_that_closes_waits_for_its_first_receiver() {
    Random random(12);
    for (const bool comes : {true, false}) {
        Log log(65536, 7, 0, session, stream, 1408);
        Box box;
        Sender other(log.memory.terms, sender_options(), 0, 0);
        log.write(random, 100, flags_whole);
        other.close(1, log.tail);
        other.tick(1, box);
        if (comes) hand(other, 4'000 * ms, status_at(log.memory.terms, 0, 4096));
        other.tick(4'000 * ms, box);
        CHECK(other.position() == (comes ? log.tail : 0));
        other.tick(5'002 * ms, box);
        CHECK(other.state() == (comes ? Sender::State::lingering : Sender::State::closed));
    }
}

// A receiver that is not heard for a while, as on a busy machine, gets the rest when it is heard again. The end of the stream is
// not told before all of it was sent.
void a_sender_that_closes_waits_for_a_receiver_that_is_silent() {
    Random random(16);
    for (const bool comes : {true, false}) {
        Log log(65536, 7, 0, session, stream, 1408);
        Box box;
        Sender other(log.memory.terms, sender_options(), 0, 0);
        hand(other, 1, status_at(log.memory.terms, 0, 4096));
        for (int i = 0; i < 8; ++i) log.write(random, 1000, flags_whole);
        other.tick(1, box);
        other.close(2, log.tail);
        for (int64_t now = 2; now < 9'000 * ms; now += 50 * ms) other.tick(now, box);
        CHECK(other.receivers() == 0 && other.state() == Sender::State::draining);
        for (const Bytes &sent : box.sent) CHECK((sent[5] & wire::flag_end_of_stream) == 0, "this is not the end of the stream");
        if (comes) hand(other, 9'000 * ms, status_at(log.memory.terms, 3168, 32768));
        for (int64_t now = 9'000 * ms; now < 11'000 * ms; now += 50 * ms) other.tick(now, box);
        CHECK(other.position() == (comes ? log.tail : 3168));
        CHECK(other.state() == (comes ? Sender::State::lingering : Sender::State::closed));
    }
}

void a_sender_sends_again_but_not_too_often() {
    Random random(4);
    Log log(65536, 7, 0, session, stream, 1408);
    const Terms &terms = log.memory.terms;
    Sender sender(terms, sender_options(), 0, 0);
    Box box;
    hand(sender, 1, status_at(terms, 0, 32768));
    for (int i = 0; i < 10; ++i) log.write(random, 1000, flags_whole);
    sender.tick(1, box);
    CHECK(sender.position() == log.tail);
    box.sent.clear();
    wire::NakFrame frame = wire::make<wire::NakFrame>(wire::Type::nak);
    frame.session = session;
    frame.stream = stream;
    frame.term_id = 7;
    frame.term_offset = 1056;
    frame.length = 2 * 1056;
    hand(sender, 2, copy_of(frame), 2);
    sender.tick(2, box);
    CHECK(box.sent.empty() && sender.counts().naks_ignored == 1, "from a receiver that has sent no status message");
    hand(sender, 3, copy_of(frame));
    sender.tick(3, box);
    CHECK(box.sent.size() == 2 && std::memcmp(box.sent[1].data(), log.written(2112), 1056) == 0);
    for (int64_t now : {4, 5, 6}) hand(sender, now, copy_of(frame));
    sender.tick(9 * ms, box);
    CHECK(box.sent.size() == 2 && sender.counts().naks_ignored == 4, "asked again within 10 ms");
    hand(sender, 11 * ms, copy_of(frame));
    sender.tick(11 * ms, box);
    CHECK(box.sent.size() == 4);
    for (const auto &[offset, length] :
         {std::pair{1088, 32}, std::pair{10560, 32}, std::pair{65504, 64}}) { // no frame, not yet sent
        frame.term_offset = offset;
        frame.length = length;
        hand(sender, 40 * ms, copy_of(frame));
        sender.tick(40 * ms, box);
    }
    CHECK(box.sent.size() == 4);
}

// The request for SETUP, the answer to it, and a NAK, as they were captured.
void a_receiver_sends_what_was_captured() {
    Random random(5);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box box;
    hand(receiver, 1, heartbeat_bytes);
    hand(receiver, 1, heartbeat_bytes);
    receiver.tick(1, box, random);
    CHECK(box.consume() == status_setup_bytes && box.sent.empty(), "one request for a session");
    hand(receiver, 2, setup_bytes);
    receiver.tick(2, box, random);
    Bytes rtt = box.consume();
    CHECK(box.sent.empty(), "more than has come");
    Bytes answer = rtt;
    answer[5] = 0;
    hand(receiver, 2, answer);
    std::memcpy(rtt.data() + 16, rtt_bytes.data() + 16, 8);
    CHECK(rtt == rtt_bytes);
    receiver.tick(2, box, random);
    Bytes status = box.consume();
    CHECK(status.size() == 44 && std::memcmp(status.data() + 28, status_bytes.data() + 28, 16) == 0 && status[24] == 0 &&
          status[25] == 0x80);
    box.sent.clear(); // the round trip that it measured

    Log log(65536, 7, 0, session, stream, 1408);
    log.write(random, 1000, flags_whole);
    log.write(random, 100, flags_whole);
    const Bytes second(log.written(1056), log.written(1056) + 160);
    hand(receiver, 3, second);
    receiver.tick(3, box, random);
    CHECK(box.consume() == hex("1c000000 00000200 78563412 e9030000 07000000 00000000 20040000"));
    receiver.tick(100'002, box, random);
    CHECK(box.sent.empty(), "a gap is asked for again too soon");
    receiver.tick(100'003, box, random);
    CHECK(box.sent.size() == 1);
    Image &image = *receiver.image(session);
    CHECK(image.rebuilt() == 0 && image.high() == 1216);
    hand(receiver, 101'005, Bytes(log.written(0), log.written(0) + 1056));
    hand(receiver, 101'005, second);
    CHECK(image.rebuilt() == 1216 && image.counts().duplicates == 1 && image.counts().naks == 2);
    hand(receiver, 101'006, setup_bytes, 2);
    CHECK(image.source() == address(1) && image.counts().rejected == 1, "somebody else's SETUP");
}

// The requests for a gap that stays for two seconds, where an answer takes `trip`.
size_t naks_over(int64_t trip) {
    Random random(6);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box box;
    std::deque<std::pair<int64_t, Bytes>> answers;
    Log log(65536, 7, 0, session, stream, 1408);
    log.write(random, 1000, flags_whole);
    log.write(random, 100, flags_whole);
    hand(receiver, 1, setup_bytes);
    for (int64_t now = 2; now < 4'000 * ms; now += ms / 20) {
        if (now % (100 * ms) == 2) hand(receiver, now, heartbeat_bytes);
        if (now == 2'000 * ms + 2) hand(receiver, now, Bytes(log.written(1056), log.written(1056) + 160));
        for (; !answers.empty() && answers.front().first <= now; answers.pop_front()) hand(receiver, now, answers.front().second);
        receiver.tick(now, box, random);
        for (Bytes &sent : box.sent) {
            if (sent[6] != static_cast<uint8_t>(wire::Type::rtt)) continue;
            sent[5] = 0;
            answers.emplace_back(now + trip, sent);
        }
        box.sent.clear();
    }
    CHECK(receiver.image(session)->round_trip_ns() / ms == trip / ms, "measured");
    return receiver.image(session)->counts().naks;
}
void a_slow_path_is_asked_less_often() {
    const size_t near = naks_over(0), far = naks_over(400 * ms);
    CHECK(near >= 64 && near <= 120);
    CHECK(far >= 18 && far <= 21, "every 100 ms");
    CHECK(naks_over(3'000 * ms) < near, "measured during the gap");
}

void late_datagrams_of_a_session_that_has_ended_make_no_image() {
    Random random(13);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box box;
    Bytes end = heartbeat_bytes;
    end[5] |= wire::flag_end_of_stream;
    hand(receiver, 0, setup_bytes);
    hand(receiver, 1, end);
    int64_t now = 2;
    for (; !receiver.images().empty(); now += 100 * ms) receiver.tick(now, box, random);
    hand(receiver, now, setup_bytes);
    CHECK(receiver.images().empty() && receiver.counts().cooled == 1);
    Bytes other = setup_bytes; // another publication that has the number now: it begins at another term
    other[offsetof(wire::SetupFrame, initial_term_id)] ^= 1;
    other[offsetof(wire::SetupFrame, active_term_id)] ^= 1;
    hand(receiver, now + 100 * ms, other);
    CHECK(receiver.images().size() == 1 && receiver.counts().cooled == 1);
    now += 11'000 * ms;
    for (; !receiver.images().empty(); now += 1'000 * ms) receiver.tick(now, box, random);
    hand(receiver, now + 11'000 * ms, setup_bytes);
    receiver.tick(now + 11'000 * ms, box, random);
    hand(receiver, now + 11'001 * ms, setup_bytes);
    CHECK(receiver.images().size() == 1);
}

// A session of which something was received has not ended because its receiver fell behind, wherever that something is.
void a_session_that_falls_behind_is_lost() {
    Random random(14);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box box;
    hand(receiver, 0, setup_bytes);
    Log log(65536, 7, 0, session, stream, 1408);
    for (int i = 0; i < 3; ++i) log.write(random, 1000, flags_whole);
    hand(receiver, 1, Bytes(log.written(2112), log.written(2112) + 1056)); // what is before it is missing
    Bytes ahead = setup_bytes;
    const int32_t offset = 50'016;
    std::memcpy(ahead.data() + 8, &offset, sizeof offset);
    Image &image = *receiver.image(session);
    hand(receiver, 2, ahead);
    CHECK(image.overrun() && image.stopped() && image.lost());
    image.consume(image.rebuilt());
    for (int64_t now = 3; !receiver.images().empty(); ++now) receiver.tick(now, box, random);

    // The next image of the session: nothing arrives but its SETUP, and the first one still has not ended.
    hand(receiver, 2000 * ms, ahead);
    CHECK(receiver.images().size() == 1);
    receiver.tick(13'000 * ms, box, random);
    CHECK(receiver.images().empty() && receiver.counts().sessions_lost == 1 && receiver.counts().sessions_closed == 0);
}

void an_unreliable_image_counts_what_it_skips() {
    Random random(8);
    Place place;
    ReceiverOptions options = receiver_options();
    options.reliable = false;
    Receiver<Place> receiver(options, place, 0);
    Box box;
    hand(receiver, 0, setup_bytes);
    Log log(65536, 7, 0, session, stream, 1408);
    for (int i = 0; i < 3; ++i) log.write(random, 1000, flags_whole);
    hand(receiver, 1, Bytes(log.written(2112), log.written(2112) + 1056));
    receiver.tick(1, box, random);
    receiver.tick(2'000, box, random);
    Image &image = *receiver.image(session);
    CHECK(image.rebuilt() == 3168 && image.counts().losses == 1 && image.counts().bytes_lost == 2112 && image.counts().naks == 0);
    Reader reader(log, image);
    reader.read(image, 10);
    CHECK(reader.lost() == 2112 && reader.frames() == 1);
}

// Over multicast the slowest counts, or the slowest of the group.
void flow_control_follows_the_slowest() {
    for (const FlowControl how : {FlowControl::max, FlowControl::min, FlowControl::tagged}) {
        FlowLimit limit(how, 1000);
        CHECK(limit.on_status(0, {address(1), 1, 100, false, false}) && limit.on_status(0, {address(2), 2, 200, true, false}));
        CHECK(limit.on_status(0, {address(3), 3, 300, true, false}));
        CHECK(limit.limit(50) == (how == FlowControl::max ? 300 : how == FlowControl::min ? 100 : 200));
        CHECK(limit.limit(400) == 400, "never back");
        CHECK(limit.on_status(900, {address(3), 3, 500, true, false}));
        limit.forget(1000);
        CHECK(limit.size() == 1 && limit.limit(0) == 500 && limit.knows(address(3)) && !limit.knows(address(1)));
    }
    FlowLimit one(FlowControl::max, 1000);
    CHECK(one.on_status(0, {address(1), 1, 100, false, false, 60}) && one.consumed(0) == 60 && !one.replaced());
    CHECK(one.on_status(1, {address(1), 1, 200, false, false, 160}) && one.consumed(0) == 160 && one.consumed(170) == 170);
    CHECK(one.on_status(2, {address(2), 2, 100, false, false, 60}) && !one.replaced(), "beside it, not in its place");
    CHECK(one.on_status(3, {address(1), 3, 300, false, false, 260}) && one.replaced());
    FlowLimit limit(FlowControl::min, 1000);
    for (size_t i = 0; i < FlowLimit::receivers_max; ++i)
        CHECK(limit.on_status(0, {address(1), static_cast<int64_t>(i), 1, false, false}));
    CHECK(!limit.on_status(0, {address(1), -1, 1, false, false}));
}

// A receiver tells how many read there; one that tells nothing counts as one.
void readers_are_told() {
    Random random(11);
    Log log(65536, 7, 0, session, stream, 1408);
    Sender sender(log.memory.terms, sender_options(), 0, 0);
    Place place;
    Receiver<Place> receiver(receiver_options(), place, 0);
    Box out, back;
    const auto exchange = [&](int64_t now) {
        sender.tick(now, out);
        for (const Bytes &bytes : std::exchange(out.sent, {})) hand(receiver, now, bytes);
        receiver.tick(now, back, random);
        for (const Bytes &bytes : std::exchange(back.sent, {})) sender.datagram(now, address(1), bytes.data(), bytes.size());
    };
    exchange(0);
    for (const uint32_t readers : {3u, 1u, 2u, 0u, 1u}) { // 0: the last one has left, and one came again
        receiver.image(session)->set_readers(readers);
        exchange(readers * ms);
        CHECK(sender.readers() == readers && sender.receivers() == 1 && sender.counts().rejected == 0);
    }
}

void ranges_join_and_are_bounded() {
    Random random(10);
    for (int life = 0; life < 200; ++life) {
        Ranges ranges(0);
        std::vector<bool> model(300);
        for (int i = 0; i < 200; ++i) {
            const uint64_t from = between(random, 0, 290), to = from + between(random, 1, 9);
            const bool free = std::none_of(model.begin() + static_cast<ptrdiff_t>(from),
                                           model.begin() + static_cast<ptrdiff_t>(to), [](bool there) { return there; });
            CHECK(ranges.is_free(from, to) == free);
            if (!free) continue;
            CHECK(ranges.add(from, to));
            std::fill(model.begin() + static_cast<ptrdiff_t>(from), model.begin() + static_cast<ptrdiff_t>(to), true);
            const auto first_gap = static_cast<uint64_t>(std::find(model.begin(), model.end(), false) - model.begin());
            CHECK(ranges.floor() == first_gap);
            std::vector<bool> seen(300, true);
            ranges.gaps(300, [&](uint64_t begin, uint64_t end) {
                std::fill(seen.begin() + static_cast<ptrdiff_t>(begin), seen.begin() + static_cast<ptrdiff_t>(end), false);
                return true;
            });
            CHECK(seen == model);
        }
    }
    Ranges ranges(0);
    for (uint64_t i = 1; i <= Ranges::ranges_max; ++i) CHECK(ranges.add(2 * i, 2 * i + 1));
    CHECK(!ranges.add(2 * Ranges::ranges_max + 2, 2 * Ranges::ranges_max + 3) && ranges.add(0, 2));
}

} // namespace

int main() {
    captured_bytes_are_understood();
    anything_else_is_refused();
    a_sender_sends_what_was_captured();
    a_sender_keeps_to_the_limit_and_pads();
    a_receiver_behind_a_pad_is_heard_again();
    a_sender_ends_its_stream();
    a_sender_that_closes_waits_for_its_first_receiver();
    a_sender_that_closes_waits_for_a_receiver_that_is_silent();
    a_sender_sends_again_but_not_too_often();
    a_receiver_sends_what_was_captured();
    a_slow_path_is_asked_less_often();
    replies_are_bounded();
    a_datagram_pays_for_one_answer();
    naks_leave_room_for_the_proof();
    unproved_answers_wait_for_room();
    a_session_returns_to_a_source_that_was_proved();
    caps_hold();
    an_image_that_fell_behind_begins_again_at_a_frame();
    late_datagrams_of_a_session_that_has_ended_make_no_image();
    a_session_that_was_silent_goes_on_where_it_was();
    silence_is_no_end();
    a_number_is_used_again_with_other_options();
    a_session_that_falls_behind_is_lost();
    an_unreliable_image_counts_what_it_skips();
    flow_control_follows_the_slowest();
    readers_are_told();
    ranges_join_and_are_bounded();
    a_host_is_an_ipv4_address_or_a_network_of_ipv6();
    places_are_shared_between_hosts();
    memory_is_shared_and_nothing_gives_way_in_vain();
    a_proof_is_of_one_address_session_and_time();
    answers_are_shared();
    a_flood_of_sessions_keeps_nobody_out();
    sessions_that_are_held_give_way();
    a_forged_term_costs_nothing_before_the_proof();
    a_number_is_not_kept_from_a_source_that_proves_itself();
    receivers_are_shared_between_hosts();
    naks_have_a_budget();
    std::printf("net_check: 35 promises\n");
}
