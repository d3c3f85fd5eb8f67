// The network log's scenarios in which everybody lives: insertion against readers, cleaning, the list of images.
#include "udp_stage.hpp"

namespace penstock::model {
namespace {

struct Parts {
    Owner &owner;
    Subscription &reader;
};
// A session that is there, its owner as thread 0, a subscription as thread 1.
Parts one_session(uint64_t join = 0) {
    Subscription &reader = subscription(1);
    Owner &first = owner(0);
    first.run_duty_cycle({setup(1, join)});
    reader.sessions().refresh();
    return {first, reader};
}

void in_order() {
    UdpStage stage;
    const Parts parts = one_session();
    World::thread([parts] {
        parts.owner.run_duty_cycle({data(1, 0)});
        parts.owner.run_duty_cycle({data(1, 64)});
    });
    World::thread([parts] { parts.reader.read(2); });
}

void as_a_run() {
    UdpStage stage;
    const Parts parts = one_session();
    World::thread([parts] { parts.owner.run_duty_cycle({data(1, 0, 2)}); });
    World::thread([parts] { parts.reader.read(2); });
}

void out_of_order() {
    UdpStage stage;
    const Parts parts = one_session();
    World::thread([parts] {
        parts.owner.run_duty_cycle({data(1, 64)});
        parts.owner.run_duty_cycle({data(1, 0)});
    });
    World::thread([parts] { parts.reader.read(2); });
}

void over_what_is_there() { // a run whose second frame has come already, and is being read
    UdpStage stage;
    const Parts parts = one_session();
    World::thread([parts] {
        parts.owner.run_duty_cycle({data(1, 64)});
        parts.owner.run_duty_cycle({data(1, 0)});
        parts.owner.run_duty_cycle({data(1, 0, 2)});
    });
    World::thread([parts] { parts.reader.read(2); });
}

void asleep() {
    UdpStage stage;
    const Parts parts = one_session();
    World::thread([parts] {
        parts.owner.run_duty_cycle({data(1, 0)});
        parts.owner.run_duty_cycle({data(1, 64)});
    });
    World::thread([parts] { parts.reader.read_asleep(2); });
}

void cleaned() { // the memory of the first frame is cleaned for a later term; padding makes the way there short
    UdpStage stage;
    const Parts parts = one_session();
    World::thread([parts] {
        Owner &h = parts.owner;
        h.run_duty_cycle({data(1, 0), pad(1, 64, 192)});
        for (uint64_t term = 256; term <= 768; term += 256) {
            h.turn_until([&] { return h.image().status_position() >= term; });
            if (term < 768) h.run_duty_cycle({pad(1, term, 256)});
        }
        EXPECT(h.image().clean() > 768 + 64);
    });
    World::thread([parts] {
        parts.reader.read(1);
        while (parts.reader.sessions().position() < 768)
            if (!parts.reader.one()) spin_pause();
        parts.reader.sessions().show_positions();
    });
}

void made() { // a session comes while a subscription looks; it ends only when all of it is read
    UdpStage stage;
    Subscription &reader = subscription(1);
    Owner &first = owner(0);
    World::thread([&first] {
        first.run_duty_cycle({setup(1)});
        first.run_duty_cycle({data(1, 0), end_of_stream(1, 64)});
    });
    World::thread([&reader] {
        reader.read_to_the_end();
        EXPECT(reader.total == 1);
    });
}

void made_asleep() {
    UdpStage stage;
    Subscription &reader = subscription(1);
    Owner &first = owner(0);
    World::thread([&first] { first.run_duty_cycle({setup(1), data(1, 0)}); });
    World::thread([&reader] { reader.read_asleep(1); });
}

// The padding where a gap was given up ends a term; behind it is memory of the first one, cleaned for its next use.
void lost() {
    UdpStage stage;
    Subscription &reader = subscription(1);
    Owner &first = owner(0, true, false);
    first.run_duty_cycle({setup(1)});
    first.run_duty_cycle({data(1, 0)});
    reader.read(1);
    for (uint64_t to = 128; to <= 640; to += 128) {
        first.run_duty_cycle({heartbeat(1, to)});
        first.run_duty_cycle();
        EXPECT(!reader.one() && reader.sessions().position() == to);
        reader.sessions().show_positions();
        if (to != 640) first.run_duty_cycle();
    }
    World::thread([&first] {
        first.run_duty_cycle(); // the sender is told, and memory is cleaned for it
        EXPECT(first.image().clean() > 768);
        first.run_duty_cycle({heartbeat(1, 768)});
        first.run_duty_cycle();
        EXPECT(first.image().rebuilt() == 768);
    });
    World::thread([&reader] {
        while (reader.sessions().position() < 768) {
            EXPECT(!reader.one());
            spin_pause();
        }
        EXPECT(reader.sessions().lost() == 768 - 64);
    });
}

// The words that a process shows of a session: a source that has moved, a text that has come.
void described() {
    UdpStage stage;
    const Parts parts = one_session();
    static const Address elsewhere = [] {
        Address address;
        address.host.fill(7);
        address.scope = 7;
        address.port = 7;
        return address;
    }();
    World::thread([parts] {
        parts.owner.pass(2'000'000'000);
        parts.owner.turn_from(elsewhere, {setup(1), description(1, "text")});
    });
    World::thread([] {
        const ImageEntry &entry = UdpStage::file->entry(0);
        const Address source = read_source(entry);
        EXPECT(source == Address{} || source == elsewhere);
        const std::string text = read_description(entry);
        EXPECT(text.empty() || text == "text");
    });
}

// Nothing counts as consumed before every subscription has its slot in the image.
void not_consumed_unseen() {
    UdpStage stage;
    Subscription &reader = subscription(1);
    Owner &first = owner(0);
    uint64_t *consumed = new uint64_t(0), *seen = new uint64_t(0);
    World::thread([&first, consumed] {
        first.run_duty_cycle({setup(1)});
        first.run_duty_cycle({data(1, 0)});
        first.run_duty_cycle();
        *consumed = first.image().consumed();
    });
    World::thread([&reader, seen] {
        reader.sessions().peek();
        *seen = reader.sessions().position();
    });
    World::finally([consumed, seen] { EXPECT(*consumed <= *seen); });
}

template <Start::From from> void joined_meanwhile() {
    UdpStage stage;
    subscription(-1); // an endpoint that nobody uses has no images; it lives, and reads nothing
    Owner &first = owner(0);
    first.run_duty_cycle({setup(1)});
    World::thread([&first] {
        first.run_duty_cycle({data(1, 0)});
        first.run_duty_cycle({data(1, 64)});
        first.run_duty_cycle();
    });
    World::thread([] {
        auto &reader = *new Subscription({from, 0});
        reader.begin_anywhere();
        reader.join();
        while (reader.sessions().position() < 128)
            if (!reader.one()) spin_pause();
        EXPECT(from != Start::From::earliest || reader.total == 2);
        reader.sessions().leave();
    });
}

void left_meanwhile() { // the other one goes: what only it had not read is consumed
    UdpStage stage;
    const Parts parts = one_session();
    Subscription &other = subscription(2);
    World::thread([parts] {
        parts.owner.run_duty_cycle({data(1, 0, 2)});
        parts.owner.turn_until([&] { return parts.owner.image().consumed() == 128; });
    });
    World::thread([parts] {
        parts.reader.read(2);
        parts.reader.sessions().show_positions();
    });
    World::thread([&other] { other.sessions().leave(); });
}

void two_sessions() {
    UdpStage stage;
    Subscription &reader = subscription(1);
    Owner &first = owner(0);
    World::thread([&first] {
        first.run_duty_cycle({setup(1), setup(2)});
        first.run_duty_cycle({data(2, 0), data(1, 0)});
    });
    World::thread([&reader] { reader.read(2); });
}

void say_farewell(Owner &owner) {
    owner.turn_until([&] {
        return owner.images().receiver().images().empty() || !owner.image().end() ||
               owner.image().state() == Image::State::lingering;
    });
    for (int farewell = 0; farewell < 8; ++farewell) {
        owner.pass(200'000'000);
        owner.run_duty_cycle();
    }
    EXPECT(owner.images().receiver().images().empty());
    EXPECT(UdpStage::file->entry(0).number.relaxed() == 0);
}

void ended_asleep() { // a subscription lets go of a session that has ended, though nothing else comes
    UdpStage stage;
    const Parts parts = one_session();
    World::thread([parts] {
        parts.owner.run_duty_cycle({end_of_stream(1, 0)});
        say_farewell(parts.owner);
    });
    World::thread([parts] { parts.reader.sleep_until([parts] { return parts.reader.sessions().all().empty(); }); });
}

void entry_used_again() { // a session ends, another one gets its entry in the list
    UdpStage stage;
    Subscription &reader = subscription(1);
    Owner &first = owner(0);
    first.run_duty_cycle({setup(1)});
    reader.sessions().refresh();
    first.run_duty_cycle({data(1, 0)});
    reader.read(1);
    World::thread([&first] {
        first.run_duty_cycle({end_of_stream(1, 64)});
        say_farewell(first);
        first.run_duty_cycle({setup(2)});
        first.run_duty_cycle({data(2, 0)});
    });
    World::thread([&reader] {
        reader.sessions().show_positions();
        reader.read(2);
    });
}

} // namespace

const std::vector<Scenario> &udp_scenarios() {
    static const std::vector<Scenario> all = {
        {"udp_in_order", "datagrams are inserted while a subscription reads", in_order},
        {"udp_as_a_run", "two frames of one datagram", as_a_run},
        {"udp_out_of_order", "the second comes first", out_of_order},
        {"udp_over_what_is_there", "a datagram over a frame that is being read", over_what_is_there},
        {"udp_asleep", "the subscription sleeps in between", asleep},
        {"udp_cleaned", "memory is cleaned behind a subscription", cleaned, true},
        {"udp_made", "a session comes and ends", made, true},
        {"udp_made_asleep", "a session comes while a subscription sleeps", made_asleep},
        {"udp_lost", "memory is cleaned behind a gap that is given up", lost},
        {"udp_described", "a session moves and says what it is, while a process looks", described},
        {"udp_not_consumed_unseen", "nothing is consumed before a subscription has joined", not_consumed_unseen},
        {"udp_joined_from_the_start", "a subscription comes", joined_meanwhile<Start::From::earliest>, true, true},
        {"udp_joined_at_the_end", "and begins with what is new", joined_meanwhile<Start::From::newest>, true, true},
        {"udp_left_meanwhile", "a subscription goes", left_meanwhile, true, true},
        {"udp_two_sessions", "two sessions come", two_sessions, true, true},
        {"udp_ended_asleep", "a session ends while a subscription sleeps", ended_asleep, true},
        {"udp_entry_used_again", "a session ends, another takes its place", entry_used_again, true, true},
    };
    return all;
}

} // namespace penstock::model
