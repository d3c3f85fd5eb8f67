// Kills a process that decides, joins, leaves or names options for an open channel, wherever its memory or its file's size
// changed and at further random instructions. Then somebody else must be able to decide it, otherwise than the dead one would
// have, and a subscription that was there all along must get everything from the first message on, through the whole of the
// memory.
#include "../tests/support.hpp"
#include "stepper.hpp"

#include "pipe/pipe_peer.hpp"

using namespace penstock;
using namespace penstock::test;
using namespace penstock::kill_room;

namespace {

constexpr uint32_t T = 64 * 1024;
constexpr uint32_t open_slots = 24; // more pages of slots than the table will have
const uint8_t boot[16] = {1};
const std::string json = "{\"codec\": 1}";

// The operations of one kind. `shape` 0: the victim's wishes; 1: those of the process after it.
struct LogCase {
    static constexpr KindLayout kind = log_kind;
    using Early = TermLog;
    static std::shared_ptr<Early> join(int fd, std::shared_ptr<Mapping> map, const OpenPart &part) {
        auto log = std::make_shared<TermLog>(fd, "early", std::move(map), part);
        log->attach(Role::subscription, 0, [&] { log->me().reader.position.relaxed(0); });
        return log;
    }
    static void leave(Early &log) { log.detach(); }
    static void decide(int fd, OpenHold &hold, int shape) {
        LogGeometry g;
        g.term_length = g.window = shape == 0 ? 2 * T : T;
        g.slot_count = shape == 0 ? 20 : 4;
        g.start_position = shape == 0 ? 2 * T : 7 * T;
        decide_file(fd, "early", hold.locks(), kind, g.slot_count, log_file_size(g.slot_count, g.term_length), true,
                    [&](const Mapping &map, const OpenPart &part) { decide_log(map, part, g, json, boot, 77); });
    }
    static std::string flow(int fd, Early &early, std::shared_ptr<Mapping> map) {
        OpenedLog opened = read_header(map->bytes(), map->size(), "early");
        if (opened.metadata != json) return "the metadata is " + opened.metadata;
        auto whole = std::make_shared<TermLog>(std::move(early), map, std::move(opened));
        LogReader reader(whole, LogReader::Early{}, 0, "");
        LogWriter writer(std::make_shared<TermLog>(fd, "early", map), false, nullptr);
        return exchange(
            5 * whole->geometry().term_length, [&](const void *data, size_t size) { return writer.offer(data, size) != no_room; },
            [&] { return reader.peek(); },
            [&] {
                reader.consume();
                reader.show_position();
            });
    }
    template <class Offer, class Look, class Take>
    static std::string exchange(uint64_t bytes, Offer &&offer, Look &&peek, Take &&consume) {
        std::vector<uint8_t> body(3000);
        for (uint64_t done = 0, number = 0; done < bytes; done += body.size(), ++number) {
            std::memcpy(body.data(), &number, sizeof number);
            bool sent = false;
            for (int i = 0; i < 1000 && !(sent = offer(body.data(), body.size())); ++i)
                usleep(100); // the dead are found once a ms
            if (!sent) return "a living publication never finds room";
            const Message *message = peek();
            if (message == nullptr) return "message " + std::to_string(number) + " is missing";
            uint64_t found;
            std::memcpy(&found, message->data, sizeof found);
            if (found != number || message->length != body.size()) return "message " + std::to_string(found) + " came instead";
            consume();
        }
        return peek() == nullptr ? "" : "there is a message that nobody sent";
    }
};

struct RingCase {
    static constexpr KindLayout kind = ring_kind;
    using Early = Ring;
    static std::shared_ptr<Early> join(int fd, std::shared_ptr<Mapping> map, const OpenPart &part) {
        const OpenedRing opened = Ring::while_open(part);
        auto ring = std::make_shared<Ring>(fd, "early", std::move(map), &opened);
        ring->attach_reader([&] { ring->me().reader.position.relaxed(0); });
        return ring;
    }
    static void leave(Early &ring) { ring.detach(); }
    static void decide(int fd, OpenHold &hold, int shape) {
        const uint32_t capacity = shape == 0 ? 2 * T : T;
        const RingGeometry g{capacity, shape == 0 ? 20u : 3u, uint64_t{shape == 0 ? 2u : 7u} * T, 9, 0};
        decide_file(fd, "early", hold.locks(), kind, g.slot_count, ring_file_size(g.slot_count, g.capacity), false,
                    [&](const Mapping &map, const OpenPart &part) { decide_ring(map, part, g, json, boot, 77); });
    }
    static std::string flow(int fd, Early &early, std::shared_ptr<Mapping> map) {
        const OpenedRing opened = read_ring_header(map->bytes(), map->size(), "early");
        auto whole = std::make_shared<Ring>(std::move(early), map, opened);
        RingReader reader(whole, false, RingReader::Early{});
        RingWriter writer(std::make_shared<Ring>(fd, "early", map), nullptr);
        if (writer.ring().readers() != 1) return "its readers are " + std::to_string(writer.ring().readers());
        const std::string wrong = LogCase::exchange(
            3 * opened.geometry.capacity,
            [&](const void *data, size_t size) {
                writer.offer(data, size);
                return true;
            },
            [&] { return reader.peek(); }, [&] { reader.consume(); });
        return wrong.empty() && reader.lost_messages() != 0 ? "messages were lost" : wrong;
    }
};

struct PipeCase {
    static constexpr KindLayout kind = pipe_kind;
    using Early = PipePeer;
    static std::shared_ptr<Early> join(int fd, std::shared_ptr<Mapping> map, const OpenPart &part) {
        return std::make_shared<PipePeer>(fd, "early", PeerRole::pull, "who", WhenFull::wait, std::move(map), part);
    }
    static void leave(Early &peer) { peer.detach(); }
    static void decide(int fd, OpenHold &hold, int shape) {
        PipeGeometry g;
        g.capacity = shape == 0 ? 2 * T : T;
        g.max_members = shape == 0 ? 20 : 4;
        g.max_pipes = 4;
        g.start_position = uint64_t{shape == 0 ? 2u : 7u} * 2 * T;
        decide_file(fd, "early", hold.locks(), kind, g.max_members, g.file_size(), true,
                    [&](const Mapping &map, const OpenPart &part) { decide_pipe(map, part, g, json, boot, 77); });
    }
    static std::string flow(int fd, Early &early, std::shared_ptr<Mapping> map) {
        const OpenedPipe opened = read_pipe_header(map->bytes(), map->size(), "early");
        PipePeer reader(std::move(early), map, opened);
        PipePeer writer(fd, "early", PeerRole::push, "writer", WhenFull::wait, nullptr, map);
        return LogCase::exchange(
            3 * opened.geometry.capacity, [&](const void *data, size_t size) { return writer.write(data, size); },
            [&] {
                reader.repair();
                return reader.peek();
            },
            [&] {
                reader.consume();
                reader.acknowledge();
            });
    }
};

// One open channel with one participant that was there all along, after others that joined and left.
template <class Case> struct Open {
    Open() : fd(memfd_create("early", MFD_CLOEXEC)), size(open_file_size(Case::kind, open_slots)) {
        CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(size)) == 0);
        format_open(fd, Case::kind, open_slots, "{}", boot, 0);
        map = std::make_shared<Mapping>(fd, size, true);
        bystander = join();
        for (int i = 0; i < 2; ++i) {
            const auto first = join(), second = join(), third = join();
            for (const auto &each : {first, second, third}) Case::leave(*each);
        }
    }
    ~Open() { ::close(fd); }
    Open(const Open &) = delete;
    Open &operator=(const Open &) = delete;
    OpenPart part() const { return read_open_part(map->bytes(), size_of_file(fd), "early", Case::kind); }
    std::shared_ptr<typename Case::Early> join() const { return Case::join(fd, map, part()); }
    const Header *header() const { return reinterpret_cast<const Header *>(map->bytes()); }

    const int fd;
    const uint64_t size;
    std::shared_ptr<Mapping> map;
    std::shared_ptr<typename Case::Early> bystander;
};

template <class Case> struct Operation {
    const char *name;
    void (*act)(const Open<Case> &);
};
template <class Case>
const Operation<Case> operations[] = {
    {"decide",
     [](const Open<Case> &open) {
         OpenHold hold(open.fd, "early", 1'000'000'000);
         if (still_open(open.header(), "early")) Case::decide(open.fd, hold, 0);
     }},
    {"join",
     [](const Open<Case> &open) {
         OpenHold hold(open.fd, "early", 1'000'000'000);
         static std::shared_ptr<typename Case::Early> kept;
         kept = open.join();
     }},
    {"join and leave",
     [](const Open<Case> &open) {
         OpenHold hold(open.fd, "early", 1'000'000'000);
         const auto joined = open.join();
         Case::leave(*joined);
     }},
    {"name",
     [](const Open<Case> &open) {
         OpenHold hold(open.fd, "early", 1'000'000'000);
         write_notes(*open.map, "{\"options\": {}}");
     }},
};

// The living continue.
template <class Case> std::string go_on(Open<Case> &open) {
    {
        OpenHold hold(open.fd, "early", 1'000'000'000);
        if (!hold.held()) return "the open byte is held by a dead process";
        if (still_open(open.header(), "early")) {
            const std::string notes = read_notes(notes_of(*open.map), "early");
            if (notes != "{}" && notes != "{\"options\": {}}") return "the notes are " + notes;
            std::vector<std::shared_ptr<typename Case::Early>> all; // every slot can be had again
            for (uint32_t i = 1; i < open_slots; ++i) all.push_back(open.join());
            for (const auto &each : all) Case::leave(*each);
            Case::decide(open.fd, hold, 1);
        }
    }
    if (still_open(open.header(), "early")) return "it is not decided";
    return Case::flow(open.fd, *open.bystander, std::make_shared<Mapping>(open.fd, size_of_file(open.fd), true));
}

// Walks a victim through an operation; notes where memory or the file's size changed.
template <class Case>
void step_through(const Operation<Case> &op, Result &result, std::vector<uint64_t> &changes, std::vector<Place> &places) {
    Open<Case> open;
    Victim child([] {}, [&] { op.act(open); });
    uint64_t size = 0;
    std::unordered_map<uint64_t, uint64_t> met;
    std::vector<uint8_t> last(open.map->bytes(), open.map->bytes() + open.size);
    for (uint64_t step = 0;; ++step) {
        const uint64_t address = child.place();
        places.push_back({address, met[address]++});
        const uint64_t now = size_of_file(open.fd);
        if (size != now || std::memcmp(last.data(), open.map->bytes(), last.size()) != 0) {
            size = now;
            std::memcpy(last.data(), open.map->bytes(), last.size());
            changes.push_back(step);
        }
        if (!child.step()) break;
        ++result.steps;
    }
    result.states = changes.size();
}

template <class Case> uint64_t kill_all(const std::string &kind, const Options &options, std::mt19937_64 &random) {
    uint64_t failures = 0;
    for (const Operation<Case> &op : operations<Case>) {
        const std::string what = std::string(op.name) + " an open " + kind;
        if (!options.wants(what)) continue;
        failures += account(what, [&](Result &result) {
            examine_case(
                what, options.kills * options.rounds, 8, random, result,
                [&](std::vector<uint64_t> &changes, std::vector<Place> &places) { step_through(op, result, changes, places); },
                [&](uint64_t step, const std::vector<Place> &places) {
                    Open<Case> open;
                    kill_victim([] {}, [&] { op.act(open); }, step, places);
                    return go_on(open);
                });
        });
    }
    return failures;
}

} // namespace

int main(int argc, char **argv) {
    const Options options(argc, argv);
    std::mt19937_64 random(options.seed);
    uint64_t failures = 0;
    if (0 % options.parts == options.part) failures += kill_all<LogCase>("log", options, random);
    if (1 % options.parts == options.part) failures += kill_all<RingCase>("ring", options, random);
    if (2 % options.parts == options.part) failures += kill_all<PipeCase>("pipe", options, random);
    return failures == 0 ? 0 : 1;
}
