// Frames that the state machines of the network log exchange beside Aeron's protocol, and a receiver's questions at a control
// address: single promises.
#include "net_world.hpp"

#include "net/receive/session/receiver.hpp"
#include "net/send/sender.hpp"

#include <utility>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr int64_t us = 1'000, ms = 1'000'000;
constexpr int32_t session = 0x12345678, stream = 1001;

using Bytes = std::vector<uint8_t>;

struct Box {
    bool send(const uint8_t *bytes, size_t length) {
        sent.emplace_back(bytes, bytes + length);
        return true;
    }
    bool send(const Address &where, const uint8_t *bytes, size_t length) {
        to = where;
        return send(bytes, length);
    }
    std::vector<Bytes> consume() { return std::exchange(sent, {}); }
    std::vector<Bytes> sent;
    Address to;
};
struct Place {
    std::optional<Terms> open(const wire::SetupFrame &setup, const Address &) {
        memory = std::make_unique<Memory>(static_cast<uint32_t>(setup.term_length), 1408, setup.initial_term_id, stream);
        return memory->terms;
    }
    void close(const Image &) {}
    std::unique_ptr<Memory> memory;
};

uint16_t type_of(const Bytes &bytes) { return static_cast<uint16_t>(bytes[6] | bytes[7] << 8); }

// A sender and a receiver with a link between them that takes `way` there and as long back.
struct Pair {
    explicit Pair(bool reliable = true) : receiver(receives(reliable), place, 0) {}
    static SenderOptions sends() {
        SenderOptions options;
        options.session = session;
        options.stream = stream;
        options.description = "{\"codec\":\"json\"}";
        options.probe_ns = 6'000 * ms;
        return options;
    }
    static ReceiverOptions receives(bool reliable) {
        ReceiverOptions options;
        options.stream = stream;
        options.reliable = reliable;
        return options;
    }
    // The frames that `lost` names do not arrive.
    template <class Lost> std::vector<Bytes> exchange(int64_t now, Lost &&lost, int64_t way = 0) {
        sender.tick(now, out);
        std::vector<Bytes> sent = out.consume();
        for (const Bytes &bytes : sent)
            if (!lost(bytes)) receiver.datagram(now + way, address(1), bytes.data(), bytes.size());
        receiver.tick(now + way, back, random);
        asked = back.consume();
        for (const Bytes &bytes : asked)
            if (tells || type_of(bytes) != static_cast<uint16_t>(wire::Type::extension))
                sender.datagram(now + 2 * way, address(1), bytes.data(), bytes.size());
        return sent;
    }
    Random random{12};
    Log log{65536, 7, 0, session, stream, 1408};
    Sender sender{log.memory.terms, sends(), 0, 0};
    Place place;
    Receiver<Place> receiver;
    Box out, back;
    std::vector<Bytes> asked; // what the receiver sent last
    bool tells = true;        // as a peer of this library does
};
bool nothing(const Bytes &) { return false; }
bool description(const Bytes &bytes) { return wire::has_noun(bytes.data(), bytes.size(), wire::extension_description); }
bool data(const Bytes &bytes) { return type_of(bytes) == static_cast<uint16_t>(wire::Type::data); }

// Also where the SETUP that it went with was the last one.
void a_description_that_is_lost_is_told_again() {
    Pair pair;
    pair.exchange(0, description);
    CHECK(pair.receiver.image(session) != nullptr && pair.receiver.image(session)->description().empty());
    for (const int64_t now : {200 * ms, 1'200 * ms}) {
        CHECK(pair.sender.next() <= now);
        const std::vector<Bytes> sent = pair.exchange(now, nothing);
        CHECK(std::count_if(sent.begin(), sent.end(), description) == 1);
        CHECK(pair.receiver.image(session)->description() == Pair::sends().description && pair.receiver.counts().rejected == 0);
    }
}

// Until it is told, what was sent again is not sent a third time for 10 ms.
void what_is_lost_again_is_sent_again_after_the_round_trip_that_was_told() {
    for (const bool tells : {false, true}) {
        Pair pair;
        pair.tells = tells;
        for (int64_t now = 0; now <= 5 * ms; now += 1 * ms) pair.exchange(now, nothing, 20 * us);
        CHECK(pair.receiver.image(session)->round_trip_ns() > 0);
        for (int i = 0; i < 3; ++i) pair.log.write(pair.random, 1300, flags_whole);
        int times = 0;
        int64_t now = 10 * ms;
        for (; times < 3 && now < 100 * ms; now += 50 * us) {
            pair.exchange(now, [&](const Bytes &bytes) {
                if (!data(bytes) || bytes.size() == header_length) return false;
                int32_t offset;
                std::memcpy(&offset, bytes.data() + 8, sizeof offset);
                return offset == 0 && ++times < 3; // the first datagram, twice
            });
        }
        CHECK(times == 3 && pair.receiver.image(session)->rebuilt() != 0);
        CHECK(tells ? now < 15 * ms : now >= 20 * ms, "filled after %g ms", static_cast<double>(now) / 1e6 - 10);
    }
}

// Padding says that it stands for what was lost, and only a receiver says so.
void padding_for_what_was_lost_is_marked() {
    Pair pair(false);
    pair.exchange(0, nothing);
    for (int i = 0; i < 3; ++i) pair.log.write(pair.random, 1300, flags_whole);
    int times = 0;
    pair.exchange(1 * ms, [&](const Bytes &bytes) { return data(bytes) && ++times == 1; });
    pair.exchange(2 * ms, nothing);
    Image &image = *pair.receiver.image(session);
    CHECK(image.counts().losses == 1 && image.rebuilt() > image.counts().bytes_lost);
    const uint64_t word0 = image.terms().frame(0)->word0.acquire();
    CHECK(frame_type(word0) == static_cast<uint16_t>(FrameType::pad) && (frame_flags(word0) & flag_lost) != 0);
    Bytes pad(header_length);
    std::memcpy(pad.data(), image.terms().frame(0), pad.size());
    wire::DataRun run;
    CHECK(!wire::parse(pad.data(), pad.size(), 65536, run));
    pad[5] = flags_whole;
    CHECK(wire::parse(pad.data(), pad.size(), 65536, run));
}

// Of session and stream 0, as Aeron's senders want it; again while it has no image, and seldom afterwards.
// A publication that was killed starts again with the same session's number, from the beginning, at another port.
void a_session_that_begins_again_is_a_new_image() {
    Pair pair;
    pair.exchange(0, nothing);
    pair.log.write(pair.random, 1300, flags_whole);
    for (int i = 1; i < 4; ++i) pair.exchange(i * ms, nothing);
    const Image *old = pair.receiver.image(session);
    CHECK(old != nullptr && old->rebuilt() == pair.log.tail && old->rebuilt() != 0);
    auto setup = wire::make<wire::SetupFrame>(wire::Type::setup);
    setup.session = session;
    setup.stream = stream;
    setup.initial_term_id = old->setup().initial_term_id;
    setup.active_term_id = setup.initial_term_id;
    setup.term_length = old->setup().term_length;
    setup.mtu = old->setup().mtu;
    const auto again = [&](int64_t now) {
        pair.receiver.datagram(now, address(2), wire::bytes_of(setup), sizeof setup);
        pair.receiver.tick(now, pair.back, pair.random);
    };
    again(500 * ms);
    CHECK(pair.receiver.image(session) == old && old->state() == Image::State::active, "the old one may still live");
    again(1100 * ms);
    CHECK(pair.receiver.image(session) == old && old->state() == Image::State::draining, "readers take its messages first");
    pair.receiver.images().front()->consume(pair.log.tail);
    again(1200 * ms);
    again(1300 * ms);
    CHECK(pair.receiver.image(session) != nullptr && pair.receiver.image(session)->rebuilt() == 0);
    CHECK(pair.receiver.image(session)->source() == address(2) && pair.receiver.counts().images == 2);
}

void a_receiver_asks_at_the_control_address() {
    Pair pair;
    ReceiverOptions options = Pair::receives(true);
    options.control = address(40);
    Receiver<Place> receiver(options, pair.place, 0);
    Box box;
    for (const int64_t now : {int64_t{0}, 200 * ms}) {
        CHECK(receiver.next() <= now);
        receiver.tick(now, box, pair.random);
        const std::vector<Bytes> sent = box.consume();
        wire::StatusFrame frame;
        bool tagged;
        CHECK(sent.size() == 1 && box.to == address(40) && wire::parse(sent[0].data(), sent[0].size(), frame, tagged));
        CHECK(frame.session == 0 && frame.stream == 0 && frame.start.flags == wire::flag_send_setup);
    }
    pair.sender.tick(0, pair.out);
    const Bytes setup = pair.out.consume().front();
    receiver.datagram(300 * ms, address(41), setup.data(), setup.size());
    size_t asked = 0;
    for (int64_t now = 400 * ms; now < 2'400 * ms; now += 10 * ms) {
        receiver.tick(now, box, pair.random);
        for (const Bytes &bytes : box.consume())
            asked += type_of(bytes) == static_cast<uint16_t>(wire::Type::status) && bytes[5] == wire::flag_send_setup;
    }
    CHECK(asked == 2, "%zu requests in two seconds", asked);
}

// The clock of the sender is ahead, or behind, by any amount; half of the round trip bounds the error.
void a_clock_that_differs_is_measured() {
    for (const int64_t ahead : {13 * ms, -int64_t{3'600'000} * ms, int64_t{0}}) {
        Pair pair;
        const int64_t wall = int64_t{1'700'000'000'000} * ms, way = 40 * us;
        for (int64_t now = 0; now < 2'000 * ms; now += 10 * ms) {
            pair.sender.set_wall_clock(wall + now + 2 * way + ahead);
            pair.receiver.set_clock(now + way, wall + now + way);
            pair.exchange(now, nothing, way);
        }
        const ClockOffset &clock = pair.receiver.image(session)->clock();
        CHECK(clock.known() && std::abs(clock.offset_ns() - ahead) <= clock.error_ns(), "%ld is not %ld within %ld",
              clock.offset_ns(), ahead, clock.error_ns());
        CHECK(clock.correction_ns() == (ahead == 0 ? 0 : clock.offset_ns()));
    }
    ClockOffset clock;
    clock.on_request(0, 7);
    CHECK(!clock.on_answer(2 * ms, 1, 8, 1) && !clock.known());  // of no request
    CHECK(clock.on_answer(20 * ms, 1'020 * ms, 7, 5'010 * ms));  // ± 10 ms
    CHECK(!clock.on_answer(21 * ms, 1'021 * ms, 7, 5'010 * ms)); // doubled on the way
    CHECK(clock.offset_ns() == 4'000 * ms && clock.error_ns() / ms == 10);
    clock.on_request(30 * ms, 9);
    CHECK(clock.on_answer(32 * ms, 1'032 * ms, 9, 5'032 * ms) && clock.error_ns() / ms == 1); // the surer one counts
    clock.on_request(50 * ms, 11);
    CHECK(clock.on_answer(150 * ms, 1'150 * ms, 11, 5'000 * ms) && clock.offset_ns() == 4'001 * ms);
}

// Of a peer that has not said what the stream is, nobody asks for a clock.
void other_drivers_are_asked_for_no_clock() {
    Pair pair;
    for (int64_t now = 0; now < 2'000 * ms; now += 10 * ms) {
        pair.exchange(now, description);
        for (const Bytes &bytes : pair.asked) CHECK(!wire::has_noun(bytes.data(), bytes.size(), wire::extension_clock_request));
    }
    CHECK(pair.receiver.image(session)->source_verified());
}

// The path takes datagrams of 1300 bytes at most.
struct Narrow : Pair {
    explicit Narrow(uint32_t payload, bool told = true) {
        tells = told;
        for (int64_t now = 0; now < 500 * ms; now += 10 * ms) exchange(now, nothing);
        for (int i = 0; i < 30; ++i) log.write(random, payload, flags_whole);
    }
    void run(int64_t from, int64_t to, size_t most) {
        for (int64_t now = from; now < to; now += 200 * us) {
            const auto lost = [&](const Bytes &bytes) { return bytes.size() > most; };
            for (const Bytes &bytes : exchange(now, lost)) {
                longest = std::max(longest, data(bytes) ? bytes.size() : 0);
                probes += wire::has_noun(bytes.data(), bytes.size(), wire::extension_probe);
            }
            receiver.image(session)->consume(receiver.image(session)->rebuilt());
        }
    }
    const FlowLimit::Entry &entry() const { return sender.receiver_entries().at(0); }
    size_t longest = 0, probes = 0;
};

// Short messages go on by themselves, in shorter datagrams.
void short_messages_pass_a_path_that_drops_long_datagrams() {
    Narrow narrow(64);
    narrow.run(500 * ms, 2'000 * ms, 1300);
    CHECK(narrow.receiver.image(session)->rebuilt() == narrow.sender.position());
    CHECK(narrow.entry().path.limited && narrow.entry().path.arrives == 1280);
    narrow.longest = 0;
    for (int i = 0; i < 30; ++i) narrow.log.write(narrow.random, 64, flags_whole);
    narrow.run(2'000 * ms, 2'100 * ms, 1300);
    CHECK(narrow.longest <= 1280 && narrow.receiver.image(session)->rebuilt() == narrow.sender.position());
}

// Long ones cannot: both sides name it, nobody floods the network, and all goes on once the path is whole.
void a_path_that_drops_long_messages_is_named() {
    Narrow narrow(1300);
    const Image &image = *narrow.receiver.image(session);
    narrow.run(500 * ms, 1'500 * ms, 1300);
    CHECK(image.rebuilt() == 0 && image.path_limit(1'500 * ms) == 1280);
    CHECK(narrow.entry().path.limited && narrow.entry().path.arrives == 1280 && narrow.entry().naks != 0);
    const uint64_t sent = narrow.sender.counts().retransmits, asked = image.counts().naks;
    narrow.run(1'500 * ms, 2'500 * ms, 1300);
    CHECK(narrow.sender.counts().retransmits - sent <= 6 * 30, "%lu", narrow.sender.counts().retransmits - sent);
    CHECK(image.counts().naks - asked <= 200, "%lu", image.counts().naks - asked);
    narrow.run(2'500 * ms, 3'000 * ms, 65504);
    CHECK(image.rebuilt() == narrow.sender.position() && image.counts().repaired != 0);
    narrow.run(3'000 * ms, 9'000 * ms, 65504); // it looks again
    CHECK(!narrow.entry().path.limited && image.path_limit(9'000 * ms) == 0);
}

// A driver that would echo nothing is sent no probes; nobody knows what arrives there.
void other_drivers_have_long_datagrams_named_alone() {
    Narrow narrow(1300, false);
    narrow.run(500 * ms, 1'500 * ms, 1300);
    CHECK(narrow.entry().path.limited && narrow.entry().path.arrives == 0 && narrow.probes == 0);
    narrow.run(1'500 * ms, 2'000 * ms, 65504);
    CHECK(narrow.receiver.image(session)->rebuilt() == narrow.sender.position());
}

} // namespace

int main() {
    a_description_that_is_lost_is_told_again();
    what_is_lost_again_is_sent_again_after_the_round_trip_that_was_told();
    padding_for_what_was_lost_is_marked();
    a_session_that_begins_again_is_a_new_image();
    a_receiver_asks_at_the_control_address();
    a_clock_that_differs_is_measured();
    other_drivers_are_asked_for_no_clock();
    short_messages_pass_a_path_that_drops_long_datagrams();
    a_path_that_drops_long_messages_is_named();
    other_drivers_have_long_datagrams_named_alone();
    std::printf("net_extensions: 10 promises\n");
}
