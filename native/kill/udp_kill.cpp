// Operations of an endpoint's processes, stepped through instruction by instruction: making an image, insertion, cleaning, the
// end of a session, taking ownership over, handing it over, coming and going as a subscription. Another owner goes on
// from a copy of the files that they leave; and at the same places the operation's process is killed for good, another one takes
// ownership, and a subscription that was there all along reads every message once, in order. The sockets are left out: the
// kernel closes them.
//   udp_kill [--seed S] [--rounds N] [--kills K] [--part P --parts Q] [--operation NAME]
#include "../tests/check.hpp"
#include "net/receive/images/image_set.hpp"
#include "net/receive/images/session_readers.hpp"
#include "stepper.hpp"

#include <filesystem>
#include <optional>

using namespace penstock;
using namespace penstock::kill_room;

namespace {

constexpr uint32_t T = 64 * 1024, window = 4096, mtu = 1408, slots = 6;
constexpr size_t all_frames = 24;

struct Case {
    uint64_t start = 0; // of the term in which the session is joined
    uint32_t length = 100;
    bool near_end = false; // a term ends, and another begins, within what is sent
};

// ---- the sender's stream ----

struct Frame {
    uint64_t position, room;
    int64_t number; // -1: padding
};
struct Stream {
    int32_t session = 7;
    uint64_t join;
    std::vector<Frame> frames;
    explicit Stream(const Case &at, int32_t session_) : session(session_) {
        const uint64_t each = align_frame(uint64_t{at.length} + header_length);
        uint64_t position = join = at.start + (at.near_end ? T - 6 * each - 32 : 0);
        for (int64_t number = 0; frames.size() < all_frames;) {
            const uint64_t left = T - position % T;
            const bool pads = left < each;
            frames.push_back({position, pads ? left : each, pads ? -1 : number++});
            position += frames.back().room;
        }
    }
    uint64_t end() const { return frames.back().position + frames.back().room; }
    uint32_t messages() const { return static_cast<uint32_t>(frames.back().number + 1); }
};
std::vector<uint8_t> spell(int32_t session, int64_t number, uint32_t length) {
    std::vector<uint8_t> text(length);
    std::memcpy(text.data(), &number, sizeof number);
    for (size_t i = sizeof number; i < length; ++i)
        text[i] = static_cast<uint8_t>(static_cast<uint32_t>(session) * 31 + static_cast<uint64_t>(number) * 7 + i);
    return text;
}
using Bytes = std::vector<uint8_t>;
template <class Words> Bytes bytes_in(const Words &frame) {
    const auto *first = reinterpret_cast<const uint8_t *>(&frame);
    return Bytes(first, first + sizeof frame);
}
wire::DataHeader header_of(const Stream &s, uint64_t position, int32_t length, uint8_t flags, wire::Type type) {
    wire::DataHeader header{};
    header.start = {length, 0, flags, static_cast<uint16_t>(type)};
    header.term_offset = static_cast<int32_t>(position % T);
    header.session = s.session;
    header.stream = 1;
    header.term_id = static_cast<int32_t>(static_cast<uint32_t>(position / T));
    return header;
}
Bytes setup(const Stream &s) {
    auto frame = wire::make<wire::SetupFrame>(wire::Type::setup);
    frame.session = s.session;
    frame.stream = 1;
    frame.active_term_id = static_cast<int32_t>(static_cast<uint32_t>(s.join / T));
    frame.term_offset = static_cast<int32_t>(s.join % T);
    frame.term_length = T;
    frame.mtu = mtu;
    return bytes_in(frame);
}
// A run of frames, as far as they stand in one term and fit a datagram.
Bytes data(const Case &at, const Stream &s, size_t first, size_t count = 1) {
    Bytes datagram;
    for (size_t i = first; i < first + count && i < s.frames.size(); ++i) {
        const Frame &f = s.frames[i];
        const bool pads = f.number < 0;
        const size_t wire = pads ? header_length : f.room;
        if (i != first && (datagram.size() + wire > mtu || f.position % T == 0)) break;
        const int32_t length = static_cast<int32_t>(pads ? f.room : at.length + header_length);
        const Bytes header = bytes_in(header_of(s, f.position, length, flags_whole, pads ? wire::Type::pad : wire::Type::data));
        Bytes frame(wire);
        std::copy(header.begin(), header.end(), frame.begin());
        if (!pads) {
            const Bytes text = spell(s.session, f.number, at.length);
            std::copy(text.begin(), text.end(), frame.begin() + header_length);
        }
        datagram.insert(datagram.end(), frame.begin(), frame.end());
        if (pads) break;
    }
    return datagram;
}
Bytes end_of_stream(const Stream &s) { return bytes_in(header_of(s, s.end(), 0, wire::flag_end_of_stream, wire::Type::data)); }

// ---- an endpoint, in a folder of its own ----

class Ground {
  public:
    Ground() {
        std::string name = "/dev/shm/penstock-kill-" + std::string(6, 'X');
        CHECK(mkdtemp(name.data()) != nullptr);
        folder = name;
        path = folder / "e";
        UdpEndpointOptions options;
        options.slot_count = slots;
        const OpenFile file = make_file(path, endpoint_file_size(slots), [&](int fd) {
            const uint8_t boot[16] = {};
            format_endpoint(fd, options, "{}", boot, 0);
        });
        open();
    }
    explicit Ground(const Ground &from) : Ground() { copy(from); }
    ~Ground() {
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
    }
    Ground &operator=(const Ground &) = delete;
    void copy(const Ground &from) {
        file.reset();
        for (const auto &old : std::filesystem::directory_iterator(folder)) std::filesystem::remove(old);
        for (const auto &one : std::filesystem::directory_iterator(from.folder))
            std::filesystem::copy_file(one.path(), folder / one.path().filename());
        open();
    }
    void open() {
        const OpenFile opened = open_file(path);
        file = std::make_unique<EndpointFile>(opened.fd(), path);
    }
    std::string left_over() const { // beside the endpoint's own file
        for (const auto &one : std::filesystem::directory_iterator(folder))
            if (one.path() != path) return one.path().filename();
        return {};
    }
    std::filesystem::path folder;
    std::string path;
    std::unique_ptr<EndpointFile> file;
};

struct Way {
    bool send(const Address &, const uint8_t *, size_t) { return true; }
};

// A process that owns the socket, or wants to.
class Owner {
  public:
    explicit Owner(const Ground &ground)
        : ground_(ground), opened_(open_file(ground.path)), file_(opened_.fd(), ground.path), members_(opened_.fd(), file_),
          locks_(opened_.fd(), ground.path) {
        members_.attach(MemberRole::host, [] {});
    }
    bool consume() {
        if (!locks_.try_take(lock_byte::owner)) return false;
        try {
            ReceiverOptions options;
            options.stream = 1;
            options.window = window;
            images.emplace(file_, members_, options, now_);
            images->adopt();
            return true;
        } catch (const Error &error) {
            if (error.code != Code::busy) throw;
            images.reset();
            locks_.give_back(lock_byte::owner);
            return false;
        }
    }
    void take_surely() {
        for (int tries = 0; !consume(); ++tries) {
            if (tries == 10'000) throw std::runtime_error("nobody can take ownership");
            usleep(100);
        }
    }
    void run_duty_cycle(std::initializer_list<Bytes> came = {}) {
        now_ += 10'000'000;
        for (const Bytes &one : came) images->receiver().datagram(now_, from_, one.data(), one.size());
        images->consume(now_);
        Way way;
        images->receiver().tick(now_, way, [] { return uint64_t{7}; });
        images->publish([](bool) {});
    }
    const Image *image(const Stream &s) const { return images->receiver().image(s.session); }
    // The sender goes on up to frame `count`. `read` is called in between.
    template <class Read> void feed(const Case &at, const Stream &s, size_t count, Read &&read) {
        for (int tries = 0;; ++tries) {
            const Image *there = image(s);
            size_t next = 0;
            while (there != nullptr && next < count && s.frames[next].position + s.frames[next].room <= there->rebuilt()) ++next;
            if (there != nullptr && next >= count) return;
            run_duty_cycle({there == nullptr ? setup(s) : data(at, s, next, 3)});
            read();
            if (tries > 2000) throw std::runtime_error("the stream stands still at frame " + std::to_string(next));
            if (tries > 200) usleep(100);
        }
    }
    void feed(const Case &at, const Stream &s, size_t count) {
        feed(at, s, count, [] {});
    }
    void pass(int64_t ns) { now_ += ns; }
    void give_up() {
        images->hand_over();
        images.reset();
        locks_.give_back(lock_byte::owner);
    }

  private:
    const Ground &ground_;
    const OpenFile opened_;
    const EndpointFile file_;
    EndpointMembers members_;
    ByteLocks locks_;
    int64_t now_ = 1'000'000'000;
    const Address from_{};

  public:
    std::optional<ImageSet> images; // gone before all that it uses
};

// A subscription that was there all along: each message once, in order, and whole.
class Reader {
  public:
    Reader(const Ground &ground, const Case &at) : at_(at), opened_(open_file(ground.path)), file_(opened_.fd(), ground.path) {
        sessions.join(opened_.fd(), file_, 7);
        sessions.refresh();
    }
    void read() {
        while (const Message *message = sessions.peek()) {
            const int64_t due = next_[message->session]++;
            const Bytes right = spell(message->session, due, at_.length);
            if (message->length != right.size() || std::memcmp(message->data, right.data(), right.size()) != 0)
                throw std::runtime_error("message " + std::to_string(due) + " is another or torn");
            sessions.consume();
        }
        sessions.show_positions();
    }
    int64_t got(int32_t session) { return next_[session]; }
    SessionReaders sessions{Start{Start::From::earliest, 0}, 0};

  private:
    const Case at_;
    const OpenFile opened_;
    const EndpointFile file_;
    std::unordered_map<int32_t, int64_t> next_;
};

// ---- operations ----

struct Hands {
    const Ground &ground;
    const Case &at;
    const Stream stream;
    std::unique_ptr<Owner> owner;
    std::unique_ptr<Reader> reader;
    void hold(size_t frames) {
        owner = std::make_unique<Owner>(ground);
        owner->take_surely();
        if (frames != 0) owner->feed(at, stream, frames);
    }
};
struct Operation {
    const char *name;
    void (*prepare)(Hands &);
    void (*act)(Hands &);
    bool after_another = false; // another owner has died before, with bytes behind a gap
    bool subscribes = false;    // no socket owner
};

const Operation operations[] = {
    {"insert", [](Hands &h) { h.hold(3); }, [](Hands &h) { h.owner->run_duty_cycle({data(h.at, h.stream, 3)}); }},
    {"insert a run", [](Hands &h) { h.hold(3); }, [](Hands &h) { h.owner->run_duty_cycle({data(h.at, h.stream, 3, 3)}); }},
    {"insert behind a gap", [](Hands &h) { h.hold(3); },
     [](Hands &h) {
         h.owner->run_duty_cycle({data(h.at, h.stream, 4)});
         h.owner->run_duty_cycle({data(h.at, h.stream, 3)});
     }},
    {"insert over what is there",
     [](Hands &h) {
         h.hold(3);
         h.owner->run_duty_cycle({data(h.at, h.stream, 4)});
     },
     [](Hands &h) { h.owner->run_duty_cycle({data(h.at, h.stream, 3, 3)}); }},
    {"consume and clean", [](Hands &h) { h.hold(12); }, [](Hands &h) { h.owner->run_duty_cycle(); }},
    {"make an image", [](Hands &h) { h.hold(0); }, [](Hands &h) { h.owner->run_duty_cycle({setup(h.stream)}); }},
    {"end a session",
     [](Hands &h) {
         h.hold(3);
         Stream short_one = h.stream;
         short_one.frames.resize(3);
         h.owner->run_duty_cycle({end_of_stream(short_one)});
     },
     [](Hands &h) {
         for (uint32_t i = 0; i < Image::eos_status_messages + 3; ++i) {
             h.owner->pass(200'000'000);
             h.owner->run_duty_cycle();
         }
     }},
    {"take over", [](Hands &h) { h.owner = std::make_unique<Owner>(h.ground); },
     [](Hands &h) {
         h.owner->consume();
         if (h.owner->images) h.owner->run_duty_cycle();
     },
     true},
    {"hand over", [](Hands &h) { h.hold(3); }, [](Hands &h) { h.owner->give_up(); }},
    {"subscribe", [](Hands &) {}, [](Hands &h) { h.reader = std::make_unique<Reader>(h.ground, h.at); }, true, true},
    {"unsubscribe", [](Hands &h) { h.reader = std::make_unique<Reader>(h.ground, h.at); },
     [](Hands &h) { h.reader->sessions.leave(); }, true, true},
};

// ---- what must be true afterwards ----

// Another process takes ownership, the sender repeats what is missing, and the subscription reads to the end. Nothing is
// left.
std::string go_on(const Ground &ground, const Case &at, const Operation &op, Reader &reader) {
    Stream stream(at, 7);
    if (std::string(op.name) == "end a session") stream.frames.resize(3);
    Stream later(at, 8);
    {
        Owner owner(ground);
        owner.take_surely();
        const auto read = [&] { reader.read(); };
        const auto finish = [&](const Stream &s) -> std::string {
            for (int tries = 0; reader.got(s.session) < s.messages(); ++tries) {
                owner.run_duty_cycle();
                reader.read();
                if (tries == 1000) return "only " + std::to_string(reader.got(s.session)) + " messages";
            }
            owner.run_duty_cycle({end_of_stream(s)});
            for (int tries = 0; owner.image(s) != nullptr; ++tries) {
                owner.pass(200'000'000);
                owner.run_duty_cycle();
                reader.read();
                if (tries > 50) usleep(200);
                if (tries == 1000) return "a session does not end";
            }
            reader.read();
            return reader.got(s.session) == s.messages() ? "" : "a message came twice";
        };
        const bool over = std::string(op.name) == "end a session" && owner.image(stream) == nullptr;
        if (!over) owner.feed(at, stream, stream.frames.size(), read);
        else reader.read();
        if (std::string wrong = over ? "" : finish(stream); !wrong.empty()) return wrong;
        if (reader.got(7) != stream.messages()) return "session 7: " + std::to_string(reader.got(7)) + " messages";
        if (!reader.sessions.ended()) return "the subscription does not see the end";
        owner.feed(at, later, later.frames.size(), read);
        if (std::string wrong = finish(later); !wrong.empty()) return wrong;
        if (reader.sessions.lost() != 0) return "something was lost";
        owner.give_up();
    }
    if (const std::string left = ground.left_over(); !left.empty()) return "left behind: " + left;
    std::vector<std::unique_ptr<Owner>> all;
    try {
        while (all.size() + 2 < slots) all.push_back(std::make_unique<Owner>(ground));
    } catch (const Error &error) {
        return std::string("a slot is lost: ") + error.what();
    }
    return {};
}

// On a copy everybody is dead. The next owner keeps whole frames only, and goes on; a log reader reads them.
std::string recover(const Ground &ground, const Case &at) {
    const Stream stream(at, 7);
    Owner owner(ground);
    owner.take_surely();
    const Image *image = owner.image(stream);
    if (image == nullptr || image->end()) return {}; // it had not begun, or is over
    const uint64_t number = ground.file->control().rare.last_number.relaxed();
    const OpenFile file = open_file(ground.file->image_file(number));
    if (file.fd() < 0) return "the image's file is gone";
    LogReader reader(std::make_shared<TermLog>(file.fd(), ground.path), Start{Start::From::earliest, 0}, 0);
    bool first = true;
    for (int64_t due = 0;; ++due) {
        const Message *message = reader.peek();
        if (message == nullptr) break;
        if (first && message->position != stream.join) std::memcpy(&due, message->data, sizeof due); // older ones may be gone
        first = false;
        const Bytes right = spell(7, due, at.length);
        if (message->length != right.size() || std::memcmp(message->data, right.data(), right.size()) != 0)
            return "message " + std::to_string(due) + " is another or torn";
        reader.consume();
    }
    if (reader.position() != image->rebuilt())
        return "read up to " + std::to_string(reader.position()) + ", rebuilt is " + std::to_string(image->rebuilt());
    const Terms &terms = image->terms();
    for (uint64_t place = image->rebuilt(); place < image->clean(); place += frame_alignment)
        if (terms.frame(place)->word0.relaxed() != 0) return "memory is not clean at " + std::to_string(place);
    return {};
}

// The state before: a subscription, and for some operations an owner that was killed with bytes behind a gap.
void lay_out(const Ground &ground, const Case &at, const Operation &op, Reader &reader) {
    if (op.after_another) {
        Hands hands{ground, at, Stream(at, 7), nullptr, nullptr};
        Victim first(
            [&] {
                hands.hold(3);
                hands.owner->run_duty_cycle({data(at, hands.stream, 5)});
            },
            [] {});
        first.end();
    }
    reader.read();
}

void examine(const Operation &op, const Case &at, uint64_t kills, std::mt19937_64 &random, Result &result) {
    const std::string what = std::string(op.name) + " --start " + std::to_string(at.start) + " --length " +
                             std::to_string(at.length) + (at.near_end ? " --near-end 1" : "");
    const auto step_through = [&](std::vector<uint64_t> &changes, std::vector<Place> &places) {
        const Ground ground;
        Ground copy;
        Reader reader(ground, at);
        lay_out(ground, at, op, reader);
        Hands hands{ground, at, Stream(at, 7), nullptr, nullptr};
        Victim child([&] { op.prepare(hands); }, [&] { op.act(hands); });
        reader.read();
        // The endpoint's control page, slots and first entry, and the image, if it is there: side by side, to be compared at
        // once.
        const uint64_t list = entries_offset(slots) + 4096;
        const OpenFile endpoint = open_file(ground.path), image = open_file(ground.file->image_file(1));
        const uint64_t size = list + (image.fd() < 0 ? 0 : log_file_size(slots, T));
        auto *watched = static_cast<uint8_t *>(mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        CHECK(mmap(watched, list, PROT_READ, MAP_SHARED | MAP_FIXED, endpoint.fd(), 0) != MAP_FAILED);
        if (image.fd() >= 0)
            CHECK(mmap(watched + list, size - list, PROT_READ, MAP_SHARED | MAP_FIXED, image.fd(), 0) != MAP_FAILED);
        uint64_t looked = 0;
        walk(child, watched, size, result, changes, places, [&](uint64_t step, const std::vector<uint8_t> &) {
            if (places.size() > 1 && places[step].earlier >= 20 && ++looked % 16 != 0) return; // deep in a loop that copies
            copy.copy(ground);
            const std::string wrong = judged([&] { return recover(copy, at); });
            if (!wrong.empty()) fail(result, what, step, wrong);
        });
        munmap(watched, size);
    };
    const auto kill_at = [&](uint64_t step, const std::vector<Place> &places) {
        const Ground ground;
        Reader reader(ground, at);
        lay_out(ground, at, op, reader);
        Hands hands{ground, at, Stream(at, 7), nullptr, nullptr};
        {
            Victim child([&] { op.prepare(hands); }, [&] { op.act(hands); });
            reader.read();
            go_to(child, step, places);
            child.end();
        }
        return go_on(ground, at, op, reader);
    };
    examine_case(what, kills, 4, random, result, step_through, kill_at);
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t edges[] = {0, (uint64_t{1} << 31) - T, (uint64_t{1} << 32) - T, (uint64_t{1} << 40) - T};
    const uint32_t lengths[] = {8, 100, 1000};
    const auto shape = [&](const Operation &, int number, std::mt19937_64 &random) {
        Case at;
        at.start = edges[random() % 4];
        at.length = lengths[random() % 3];
        at.near_end = (number & 1) != 0;
        return at;
    };
    return campaign(Options(argc, argv), "udp: ", operations, 2, shape, examine) == 0 ? 0 : 1;
}
