// Lives of the network log's state machines: publications that end, die and start again, receivers that come late, pause and
// read slowly, over links that lose, double, reorder and part, with clocks that jump and strangers who forge. Each life ends
// with every message in order, or every loss counted.
#include "net_world.hpp"

#include <csignal>
#include <map>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr int64_t us = 1'000, ms = 1'000'000, s = 1'000'000'000;
constexpr int32_t stream = 1001;
constexpr uint16_t stranger = 999;

uint64_t life_now = 0;

// The conditions of a life.
struct Fate {
    bool rough;  // peers may be given up: long partitions, clocks that jump, kills
    bool forged; // a stranger sends changed datagrams
    bool reliable;
    FlowControl flow_control;
    size_t receivers;
    Faults there, back;
};

struct Peer {
    int64_t paused_until = 0, clock = 0; // its clock is the world's plus this
    int64_t act_at = 0;                  // reading or writing
};

struct Publication : Peer {
    Publication(uint16_t port, uint32_t term_length, int32_t initial, uint64_t start, const SenderOptions &options, int64_t now)
        : port(port), log(term_length, initial, start, options.session, stream, options.mtu),
          sender(log.memory.terms, options, start, now), session(options.session) {}
    const uint16_t port;
    Log log;
    Sender sender;
    const int32_t session;
    uint64_t messages_left = 0, message_max = 0;
    uint64_t done = 0;    // what was sent, received and read
    int64_t moved_at = 0; // when that grew last
    bool begun = false, closed = false, killed = false;
};

struct Seen {
    int32_t session;
    uint64_t begun, position, lost, counted;
    bool at_end;
};

class World;
struct Host : Peer {
    Host(World &world, uint16_t port, const ReceiverOptions &options, int64_t now)
        : world(world), port(port), receiver(options, *this, now) {}
    std::optional<Terms> open(const wire::SetupFrame &setup, const Address &from);
    void close(const Image &image);
    struct Held {
        std::unique_ptr<Memory> memory;
        std::unique_ptr<Reader> reader;
    };
    World &world;
    const uint16_t port;
    std::map<int32_t, Held> held;
    std::vector<Seen> seen;
    Receiver<Host> receiver;
    int64_t starts_at = 0;
};

class World {
  public:
    explicit World(uint64_t seed) : random(seed), link(random) {
        fate.rough = chance(random, 0.3);
        fate.reliable = chance(random, 0.75);
        fate.receivers = chance(random, 0.6) ? 1 : between(random, 2, 3);
        fate.forged = fate.receivers == 1 && chance(random, 0.3);
        fate.flow_control = fate.receivers == 1 ? FlowControl::max : chance(random, 0.5) ? FlowControl::min : FlowControl::tagged;
        if (fate.rough && chance(random, 0.3)) fate.flow_control = FlowControl::max;
        fate.there = faults();
        fate.back = chance(random, 0.5) ? fate.there : faults();
        make();
    }
    void live();
    Publication *publication(int32_t session) {
        for (const auto &one : publications)
            if (one->session == session) return one.get();
        return nullptr;
    }

    Random random;
    Link link;
    Fate fate{};
    int64_t now = 0;
    std::vector<std::unique_ptr<Publication>> publications;
    std::vector<std::unique_ptr<Host>> hosts;

  private:
    Faults faults() {
        Faults made;
        if (chance(random, 0.8)) made.loss = static_cast<double>(between(random, 0, 300)) / 1000;
        if (chance(random, 0.5)) made.doubled = static_cast<double>(between(random, 0, 500)) / 1000;
        made.delay_max_ns = static_cast<int64_t>(between(random, 6, chance(random, 0.2) ? 20'000 : 300)) * us;
        if (chance(random, 0.3)) {
            made.cut_from_ns = static_cast<int64_t>(between(random, 0, 60)) * ms;
            made.cut_to_ns = made.cut_from_ns + static_cast<int64_t>(between(random, 1, fate.rough ? 15'000 : 1'500)) * ms;
        }
        return made;
    }
    void make();
    void add_publication(int32_t session);
    void step();
    void deliver(const Link::Datagram &datagram);
    void write(Publication &one);
    bool listened(Publication &one);
    void tick(Publication &one);
    void tick(Host &host);
    void trouble();
    void check_progress(Publication &one) const;
    void judge(const Host &host) const;
    void tell() const;
    bool over() const;

  public:
    bool told = false;

  private:
    int64_t next() const;

    uint32_t term_length = 0, mtu = 0, window = 0;
    uint64_t stranger_got = 0, stranger_sent = 0;
    int64_t well_at = 0; // the end of the last trouble
};

struct ToReceivers {
    World &world;
    const Publication &from;
    bool send(const uint8_t *bytes, size_t length) const {
        CHECK(length >= 24 && length <= 1500);
        if (chance(world.random, 0.01)) return false; // the socket's buffer is full
        for (const auto &host : world.hosts)
            if (world.now >= host->starts_at) world.link.send(world.now, world.fate.there, from.port, host->port, bytes, length);
        return true;
    }
};
struct ToSource {
    World &world;
    uint16_t from;
    uint64_t &to_stranger;
    bool send(const Address &to, const uint8_t *bytes, size_t length) const {
        if (chance(world.random, 0.01)) return false;
        if (to.port == stranger) to_stranger += length;
        world.link.send(world.now, world.fate.back, from, to.port, bytes, length);
        return true;
    }
};

std::optional<Terms> Host::open(const wire::SetupFrame &setup, const Address &) {
    Held made{std::make_unique<Memory>(static_cast<uint32_t>(setup.term_length), static_cast<uint32_t>(setup.mtu),
                                       setup.initial_term_id, stream),
              nullptr};
    const Terms terms = made.memory->terms;
    held[setup.session] = std::move(made);
    return terms;
}
void Host::close(const Image &image) {
    const Held &mine = held[image.session()];
    CHECK(world.fate.forged || image.lost() || image.end().has_value() || !mine.reader || mine.reader->frames() == 0,
          "an image of session %d ends at %lu: its sender has not closed, and it is not lost", image.session(),
          static_cast<unsigned long>(image.rebuilt()));
    if (mine.reader)
        seen.push_back({image.session(), mine.reader->begun(), mine.reader->position(), mine.reader->lost(),
                        image.counts().bytes_lost, image.end().has_value() && image.rebuilt() == *image.end()});
    held.erase(image.session());
}

void World::make() {
    term_length = 1u << between(random, 12, 14);
    mtu = static_cast<uint32_t>(between(random, 3, term_length / 8 / 32)) * 32;
    mtu = std::min(mtu, 1408u);
    window = static_cast<uint32_t>(between(random, mtu, term_length));
    for (size_t i = 0; i < fate.receivers; ++i) {
        ReceiverOptions options;
        options.stream = stream;
        options.receiver = static_cast<int64_t>(random());
        options.reliable = fate.reliable;
        options.window = window;
        if (fate.flow_control == FlowControl::tagged) options.group_tag = 7;
        if (fate.receivers > 1) options.loss.spread_ns = static_cast<int64_t>(between(random, 0, 2000)) * us;
        hosts.push_back(std::make_unique<Host>(*this, static_cast<uint16_t>(100 + i), options, now));
        if ((fate.rough || fate.receivers == 1) && chance(random, 0.2))
            hosts.back()->starts_at = static_cast<int64_t>(between(random, 1, 30)) * ms;
    }
    add_publication(static_cast<int32_t>(random()));
}

void World::add_publication(int32_t session) {
    SenderOptions options;
    options.session = session;
    options.stream = stream;
    options.mtu = mtu;
    options.window = window;
    options.flow_control = fate.flow_control;
    options.group_tag = 7;
    options.description = chance(random, 0.5) ? "{\"codec\": \"json\"}" : "";
    const int32_t initials[] = {0, 7, INT32_MAX, -1, static_cast<int32_t>(random())};
    const uint64_t firsts[] = {0, 1, (uint64_t{1} << 31) - 1, (uint64_t{1} << 32) - 1, (uint64_t{1} << 32) + 5};
    const uint64_t start = firsts[random() % 5] * term_length + between(random, 0, term_length / 32 - 1) * 32;
    const auto port = static_cast<uint16_t>(1 + publications.size());
    publications.push_back(
        std::make_unique<Publication>(port, term_length, initials[random() % 5], start, options, now + 3 * ms));
    publications.back()->messages_left = between(random, 1, 300);
    publications.back()->message_max = chance(random, 0.5) ? 200 : 3000;
    publications.back()->act_at = now;
}

void World::write(Publication &one) {
    one.act_at = now + static_cast<int64_t>(between(random, 10, 400)) * us;
    for (uint64_t burst = between(random, 1, 12); burst != 0 && one.messages_left != 0; --burst) {
        const auto length = static_cast<uint32_t>(between(random, 0, one.message_max));
        // As a log does: no further ahead of the sender than half a term, whatever the message needs in fragments and padding.
        if (one.log.tail + 2 * length + 4 * mtu > one.sender.position() + term_length + term_length / 2) return;
        if (chance(random, 0.02)) one.log.abort(random, static_cast<uint32_t>(between(random, 32, mtu)));
        one.log.message(random, length);
        --one.messages_left;
    }
    if (one.messages_left != 0) return;
    one.act_at = INT64_MAX;
    one.closed = true;
    one.sender.close(now + one.clock, one.log.tail);
}

// Nobody writes before everybody listens, as wait_for_readers() sees to it. Rough lives are less careful.
bool World::listened(Publication &one) {
    if (!one.begun) one.begun = one.sender.receivers() >= (fate.rough ? 1 : fate.receivers);
    return one.begun;
}

void World::tick(Publication &one) {
    if (one.killed || now < one.paused_until) return;
    if (now >= one.act_at && !one.closed && listened(one)) write(one);
    ToReceivers out{*this, one};
    one.sender.tick(now + one.clock, out);
}

void World::tick(Host &host) {
    if (now < host.paused_until || now < host.starts_at) return;
    ToSource out{*this, host.port, stranger_sent};
    if (now >= host.act_at) {
        host.act_at = now + static_cast<int64_t>(between(random, 5, chance(random, 0.01) ? 50'000 : 500)) * us;
        for (const auto &image : host.receiver.images()) {
            Host::Held &mine = host.held[image->session()];
            const Publication *from = publication(image->session());
            if (from == nullptr) continue; // forged: nobody reads it
            if (!mine.reader) {
                mine.reader = std::make_unique<Reader>(from->log, *image);
                const uint64_t begun = mine.reader->begun(); // a sender sends nothing again from within a frame
                CHECK(from->log.begins(begun) || fate.forged || !fate.reliable, "an image begins at %lu, within a frame",
                      static_cast<unsigned long>(begun));
            }
            mine.reader->read(*image, between(random, 0, 200));
        }
    }
    host.receiver.tick(now + host.clock, out, random);
    CHECK(stranger_sent <= stranger_got, "%lu bytes to a stranger for %lu of its own", static_cast<unsigned long>(stranger_sent),
          static_cast<unsigned long>(stranger_got));
}

void World::deliver(const Link::Datagram &datagram) {
    for (const auto &one : publications)
        if (one->port == datagram.to && !one->killed && (now >= one->paused_until || chance(random, 0.5)))
            one->sender.datagram(now + one->clock, address(datagram.from), datagram.bytes.data(), datagram.bytes.size());
    for (const auto &host : hosts) {
        if (host->port != datagram.to || now < host->starts_at || (now < host->paused_until && chance(random, 0.5))) continue;
        host->receiver.datagram(now + host->clock, address(datagram.from), datagram.bytes.data(), datagram.bytes.size());
        const bool known = !host->receiver.images().empty() && publication(host->receiver.images()[0]->session()) != nullptr;
        if (!fate.forged || !known || !chance(random, 0.05) || datagram.bytes.size() < 24) continue;
        std::vector<uint8_t> changed = datagram.bytes;
        for (uint64_t edits = between(random, 0, 3); edits != 0; --edits)
            changed[random() % std::min<size_t>(changed.size(), 48)] = static_cast<uint8_t>(random());
        stranger_got += changed.size();
        host->receiver.datagram(now + host->clock, address(stranger), changed.data(), changed.size());
    }
}

// Pauses, jumps of clocks, kills. They end some day: with a tiny window each of them may cost more time than was won since the
// last.
void World::trouble() {
    if (now > 200 * s || !chance(random, 0.002)) return;
    Peer &peer = chance(random, 0.5) ? static_cast<Peer &>(*publications.back()) : *hosts[random() % hosts.size()];
    const uint64_t which = random() % (fate.rough ? 4 : 2);
    if (which == 0) peer.paused_until = now + static_cast<int64_t>(between(random, 1, fate.rough ? 8'000 : 300)) * ms;
    else if (which == 1) peer.clock -= static_cast<int64_t>(between(random, 0, 50)) * ms;
    else if (which == 2) peer.clock += static_cast<int64_t>(between(random, 0, 12'000)) * ms;
    else if (publications.size() < 3 && !publications.back()->closed) {
        publications.back()->killed = true;
        add_publication(static_cast<int32_t>(random()));
    }
    well_at = std::max({well_at, now, peer.paused_until});
}

// Whatever has been: where all is well for longer than silence and its consequences last, a session gets on.
void World::check_progress(Publication &one) const {
    const Sender::State state = one.sender.state();
    if (one.killed || fate.forged || state == Sender::State::lingering || state == Sender::State::closed) return;
    uint64_t done = one.sender.position() + one.log.tail;
    for (const auto &host : hosts)
        if (const Image *image = host->receiver.image(one.session)) done += image->rebuilt() + image->consumed();
    if (std::exchange(one.done, done) != done) one.moved_at = now;
    const int64_t well = std::max({one.moved_at, well_at, fate.there.cut_to_ns, fate.back.cut_to_ns});
    CHECK(now - well < 40 * s, "session %d does not get on", one.session);
}

bool World::over() const {
    for (const auto &one : publications)
        if (!one->killed && one->sender.state() != Sender::State::closed) return false;
    for (const auto &host : hosts)
        for (const auto &image : host->receiver.images())
            if (image->state() != Image::State::done) return false;
    return true;
}

int64_t World::next() const {
    int64_t next = link.next();
    const auto sooner = [&](const Peer &peer, int64_t due) {
        next = std::min(next, std::max(due == INT64_MAX ? due : std::max(due, now), peer.paused_until));
    };
    for (const auto &one : publications) {
        if (one->killed || one->sender.state() == Sender::State::closed) continue;
        const int64_t due = one->sender.next();
        sooner(*one, due == INT64_MAX ? due : due - one->clock);
        if (one->sender.state() != Sender::State::unconnected) sooner(*one, one->act_at);
    }
    for (const auto &host : hosts) {
        const int64_t due = host->receiver.next();
        sooner(*host, due == INT64_MAX ? due : due - host->clock);
        if (!host->receiver.images().empty() || now < host->starts_at) sooner(*host, std::max(host->act_at, host->starts_at));
    }
    return next;
}

void World::step() {
    const int64_t at = next();
    CHECK(at != INT64_MAX, "everybody waits for ever");
    now = std::max(now + 1, at);
    while (link.next() <= now) deliver(link.consume());
    trouble();
    for (const auto &one : publications) tick(*one);
    for (const auto &host : hosts) tick(*host);
    for (const auto &one : publications) check_progress(*one);
}

void World::judge(const Host &host) const {
    for (const Seen &seen : host.seen) {
        CHECK(seen.lost <= seen.counted, "%lu bytes lost, %lu counted", static_cast<unsigned long>(seen.lost),
              static_cast<unsigned long>(seen.counted));
    }
    // Between two images of a publication nothing is missing that is not counted.
    std::map<int32_t, uint64_t> reached;
    uint64_t skipped = 0;
    for (const Seen &seen : host.seen) {
        if (const auto before = reached.find(seen.session); before != reached.end()) skipped += seen.begun - before->second;
        reached[seen.session] = seen.position;
    }
    CHECK(skipped <= host.receiver.counts().bytes_skipped, "%lu bytes between images, %lu counted",
          static_cast<unsigned long>(skipped), static_cast<unsigned long>(host.receiver.counts().bytes_skipped));
    if (fate.rough) return;
    CHECK(host.seen.size() == 1, "%zu images of one session", host.seen.size());
    const Seen &seen = host.seen[0];
    CHECK(seen.at_end && seen.position == publications[0]->log.tail, "ended at %lu, not at %lu",
          static_cast<unsigned long>(seen.position), static_cast<unsigned long>(publications[0]->log.tail));
    CHECK(!fate.reliable || (seen.lost == 0 && seen.counted == 0));
}

void World::tell() const {
    const auto number = [](auto value) { return static_cast<long long>(value); };
    std::fprintf(stderr,
                 "at %lld us: rough %d, forged %d, reliable %d, flow control %d; loss %.3f %.3f, term %u, MTU %u, window %u\n",
                 number(now / us), fate.rough, fate.forged, fate.reliable, static_cast<int>(fate.flow_control), fate.there.loss,
                 fate.back.loss, term_length, mtu, window);
    for (const auto &one : publications)
        std::fprintf(stderr,
                     "  publication %d: tail %lld, sent %lld, limit %lld, state %d, receivers %zu, naks %lld, ignored %lld\n",
                     one->session, number(one->log.tail), number(one->sender.position()), number(one->sender.limit()),
                     static_cast<int>(one->sender.state()), one->sender.receivers(), number(one->sender.counts().naks),
                     number(one->sender.counts().naks_ignored));
    for (const auto &host : hosts)
        for (const auto &image : host->receiver.images())
            std::fprintf(stderr,
                         "  image %d of %u from %u: join %lld, rebuilt %lld, high %lld, consumed %lld, state %d, end %lld\n",
                         image->session(), host->port, image->source().port, number(image->join()), number(image->rebuilt()),
                         number(image->high()), number(image->consumed()), static_cast<int>(image->state()),
                         number(image->end().value_or(0)));
}

void World::live() {
    uint64_t steps = 0;
    do {
        if (told && steps % 1000 == 0) tell();
        step();
        CHECK(++steps < 4'000'000 && now < 600 * s, "no end: %lu steps", static_cast<unsigned long>(steps));
    } while (!over());
    if (told) tell();
    for (const auto &host : hosts) judge(*host);
}

} // namespace

int main(int argc, char **argv) {
    std::signal(SIGABRT, [](int) { // a check has failed
        std::fprintf(stderr, "reproduce: net_sim --seed %lu --lives 1 --tell 1\n", static_cast<unsigned long>(life_now));
    });
    const uint64_t seed = argument(argc, argv, "--seed", 1), lives = argument(argc, argv, "--lives", 200);
    uint64_t images = 0, frames = 0, lost = 0;
    for (uint64_t life = seed; life < seed + lives; ++life) {
        life_now = life;
        World world(life);
        world.told = argument(argc, argv, "--tell", 0) != 0;
        world.live();
        for (const auto &host : world.hosts) {
            images += host->seen.size();
            for (const Seen &seen : host->seen) lost += seen.lost;
        }
        for (const auto &one : world.publications) frames += one->sender.counts().datagrams;
    }
    std::printf("%lu lives from --seed %lu: %lu images, %lu datagrams, %lu bytes lost and counted\n",
                static_cast<unsigned long>(lives), static_cast<unsigned long>(seed), static_cast<unsigned long>(images),
                static_cast<unsigned long>(frames), static_cast<unsigned long>(lost));
}
