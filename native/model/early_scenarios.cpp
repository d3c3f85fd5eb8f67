// Open channels: deciding one while others join it, leave it and sleep on it; deaths of the decider.
#include "stage.hpp"

#include "ring/ring_reader.hpp"
#include "ring/ring_writer.hpp"

namespace penstock::model {
namespace {

constexpr uint32_t open_slots = 4;
constexpr uint64_t begin = 1024; // not where an undecided channel's zeros would lead
const uint8_t boot[16] = {};

// An open channel for all executions, in a file that is large enough already: growing it is the kernel's affair.
template <KindLayout kind> class OpenStage {
  public:
    OpenStage() {
        static Pristine file;
        const uint64_t size = open_file_size(kind, open_slots), full = size + (kind.number == Kind::ring ? 512 : 3 * 512);
        mapping = file.restore(0, full, [&](int fd) {
            if (ftruncate(fd, static_cast<off_t>(size)) != 0) std::abort();
            format_open(fd, kind, open_slots, "{}", boot, 0);
            if (ftruncate(fd, static_cast<off_t>(full)) != 0) std::abort();
        });
        World::share(mapping->bytes(), mapping->size(), open_file_size(kind, open_slots));
        if (kind.number == Kind::ring) return;
        const auto *control = reinterpret_cast<Control *>(mapping->bytes() + control_offset);
        World::quiet(&control->totals, sizeof control->totals);
        World::quiet(&control->sessions, sizeof control->sessions);
        for (uint32_t i = 0; i < open_slots; ++i) {
            const auto *slot = reinterpret_cast<Slot *>(mapping->bytes() + slots_offset + i * sizeof(Slot));
            World::quiet(&slot->counters, sizeof slot->counters);
            World::quiet(&slot->identity.pid, 20);
            World::quiet(&slot->identity.name, sizeof slot->identity.name);
        }
    }
    static const Header *header() { return reinterpret_cast<const Header *>(mapping->bytes()); }
    static OpenPart part() { return read_open_part(mapping->bytes(), mapping->size(), "open", kind); }

    static inline std::shared_ptr<Mapping> mapping;
};

// ---- logs ----

using Log = OpenStage<log_kind>;

LogGeometry geometry(uint32_t slots) {
    LogGeometry g;
    g.term_length = 512;
    g.window = 256;
    g.slot_count = slots;
    g.start_position = begin;
    return g;
}

// Decides, unless somebody was faster. False: there are too few slots for the participants.
bool decide(uint32_t slots = open_slots) {
    OpenHold hold(-1, "open", 1'000'000'000);
    EXPECT(hold.held());
    if (!still_open(Log::header(), "open")) return true;
    try {
        check_room(hold.locks(), Log::part(), slots, true, "open");
    } catch (const Error &error) {
        EXPECT(error.code == Code::busy);
        return false;
    }
    decide_log(*Log::mapping, Log::part(), geometry(slots), "{}", boot, 0);
    return true;
}
void publish(uint32_t who, uint32_t count) {
    LogWriter &writer = *new LogWriter(std::make_shared<TermLog>(-1, "log", Log::mapping), false, nullptr);
    for (uint32_t i = 0; i < count; ++i) offer_surely(writer, who, i);
}

// A subscription's slot while the channel is open; null if it is decided by now.
std::shared_ptr<TermLog> join_early() {
    OpenHold hold(-1, "open", 1'000'000'000);
    EXPECT(hold.held());
    if (!still_open(Log::header(), "open")) return nullptr;
    auto log = std::make_shared<TermLog>(-1, "log", Log::mapping, Log::part());
    log->attach(Role::subscription, 0, [&] { log->me().reader.position.relaxed(0); });
    return log;
}
LogReader &become(TermLog &early) {
    OpenedLog opened = read_header(Log::mapping->bytes(), Log::mapping->size(), "log");
    auto whole = std::make_shared<TermLog>(std::move(early), Log::mapping, std::move(opened));
    return *new LogReader(whole, LogReader::Early{}, 0, "");
}
LogReader &await_decision(TermLog &early) {
    while (still_open(Log::header(), "open")) spin_pause();
    return become(early);
}
TermLog &early_of(int thread) {
    World::owner(thread);
    auto &made = *new std::shared_ptr<TermLog>(join_early());
    World::owner(-1);
    return *made;
}

void waits() { // one that was there reads everything, from the first message on
    Log stage;
    TermLog &early = early_of(1);
    World::thread([] {
        EXPECT(decide());
        publish(1, 2);
    });
    World::thread([&] {
        Seen seen;
        read_count(await_decision(early), seen, 2);
        EXPECT(seen.last_position == begin + 64);
    });
}

void sleeps() { // one that sleeps is woken by the decision alone
    Log stage;
    TermLog &early = early_of(1);
    World::thread([] { EXPECT(decide()); });
    World::thread([&] {
        Atomic<uint32_t> &event = early.control().data.value;
        for (;;) {
            const uint32_t expected = event_prepare(event);
            if (!still_open(Log::header(), "open")) break;
            event_sleep(event, expected, 1);
        }
        EXPECT(become(early).peek() == nullptr);
    });
}

void joins() { // one that comes at that moment is early and misses nothing, or comes later as anybody
    Log stage;
    World::thread([] {
        EXPECT(decide());
        publish(1, 2);
    });
    World::thread([] {
        const std::shared_ptr<TermLog> early = join_early();
        if (early == nullptr) {
            new LogReader(std::make_shared<TermLog>(-1, "log", Log::mapping), Start{}, 0);
            return;
        }
        Seen seen;
        read_count(await_decision(*early), seen, 2);
    });
}

void too_few_slots() { // one takes the last slot while the others' table becomes too small for it
    Log stage;
    TermLog &first = early_of(2), &second = early_of(2);
    static int done;
    done = -1;
    World::thread([] {
        done = decide(3) ? 1 : 0;
        if (done == 1) publish(1, 1);
    });
    World::thread([] {
        const std::shared_ptr<TermLog> early = join_early();
        if (early != nullptr && !still_open(Log::header(), "open")) {
            Seen seen;
            read_count(become(*early), seen, 1);
        }
    });
    World::finally([&] { EXPECT(done >= 0 && first.attached() && second.attached()); });
}

void leaves() { // one leaves, another stays
    Log stage;
    TermLog &going = early_of(1), &staying = early_of(2);
    World::thread([] {
        EXPECT(decide());
        publish(1, 2);
    });
    World::thread([&] {
        OpenHold hold(-1, "open", 1'000'000'000);
        if (still_open(Log::header(), "open")) going.detach();
        else become(going).log().detach();
    });
    World::thread([&] {
        Seen seen;
        read_count(await_decision(staying), seen, 2);
    });
}

void two_decide() { // of two publications one decides, both write
    Log stage;
    TermLog &early = early_of(2);
    for (uint32_t who = 1; who <= 2; ++who)
        World::thread([who] {
            EXPECT(decide());
            publish(who, 1);
        });
    World::thread([&] {
        Seen seen;
        read_count(await_decision(early), seen, 2);
        EXPECT(seen.next[1] == 1 && seen.next[2] == 1);
    });
}

void decider_dies() { // wherever: the next one decides
    Log stage;
    TermLog &early = early_of(1);
    World::thread([] { decide(); }, true);
    World::thread([&] {
        Seen seen;
        LogReader &reader = await_decision(early);
        read_past_the_dead(reader, seen, 2, 1);
        EXPECT(reader.position() == begin + 64);
    });
    World::thread([] {
        EXPECT(decide());
        publish(2, 1);
    });
}

// ---- rings ----

using Circle = OpenStage<ring_kind>;

Ring &early_ring_of(int thread) {
    World::owner(thread);
    const OpenedRing opened = Ring::while_open(Circle::part());
    auto &early = *new Ring(-1, "ring", Circle::mapping, &opened);
    early.attach_reader([&] { early.me().reader.position.relaxed(0); });
    World::owner(-1);
    return early;
}
void decide_circle() {
    OpenHold hold(-1, "open", 1'000'000'000);
    const RingGeometry g{512, open_slots, begin, 7, 0};
    decide_ring(*Circle::mapping, Circle::part(), g, "{}", boot, 0);
}

void ring_sleeps() { // nobody writes: the decision alone wakes
    Circle stage;
    Ring &early = early_ring_of(1);
    World::thread(decide_circle);
    World::thread([&] {
        Atomic<uint32_t> &event = early.control().data.value;
        for (;;) {
            const uint32_t expected = event_prepare(event);
            if (!still_open(Circle::header(), "open")) return;
            event_sleep(event, expected, 1);
        }
    });
}

void ring_waits() {
    Circle stage;
    Ring &early = early_ring_of(1);
    World::thread([] {
        decide_circle();
        RingWriter &writer = *new RingWriter(std::make_shared<Ring>(-1, "ring", Circle::mapping), nullptr);
        EXPECT(writer.ring().readers() == 1);
        for (uint32_t i = 0; i < 2; ++i) writer.offer(&i, sizeof i);
    });
    World::thread([&] {
        while (still_open(Circle::header(), "open")) spin_pause();
        const OpenedRing whole = read_ring_header(Circle::mapping->bytes(), Circle::mapping->size(), "ring");
        RingReader &reader =
            *new RingReader(std::make_shared<Ring>(std::move(early), Circle::mapping, whole), false, RingReader::Early{});
        EXPECT(reader.position() == begin);
        for (uint32_t i = 0; i < 2;) {
            if (reader.peek() == nullptr) {
                spin_pause();
                continue;
            }
            EXPECT(reader.peeked() == 7 + i);
            reader.consume();
            ++i;
        }
    });
}

} // namespace

const std::vector<Scenario> &early_scenarios() {
    static const std::vector<Scenario> all = {
        {"early_waits", "a subscription is older than the first publication", waits},
        {"early_sleeps", "and sleeps until the channel is decided", sleeps},
        {"early_joins", "one joins while the channel is decided", joins},
        {"early_too_few_slots", "and takes a slot that the publication did not ask for", too_few_slots},
        {"early_leaves", "one leaves while the channel is decided", leaves, true},
        {"early_two_decide", "two publications come first", two_decide, true},
        {"early_decider_dies", "the first publication dies while it decides", decider_dies, true},
        {"early_ring_sleeps", "a ring is decided while its subscription sleeps", ring_sleeps},
        {"early_ring_waits", "and has all of its messages", ring_waits},
    };
    return all;
}

} // namespace penstock::model
