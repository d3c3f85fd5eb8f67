// Shared by the network log's scenarios: one endpoint with its images, its socket owners that are fed with datagrams, and
// subscriptions that check what they read. Terms are 256 bytes, frames 64, the window is half a term. Everything but the sockets
// is the library's.
#pragma once

#include "pristine.hpp"

#include "net/receive/images/image_set.hpp"
#include "net/receive/images/session_readers.hpp"

#include <optional>

namespace penstock::model {

// ---- datagrams, as a sender makes them ----

struct Sent {
    uint8_t bytes[192];
    size_t length;
};

inline wire::SetupFrame setup_frame(int32_t session, uint64_t position) {
    auto frame = wire::make<wire::SetupFrame>(wire::Type::setup);
    frame.session = session;
    frame.stream = 1;
    frame.initial_term_id = 0;
    frame.active_term_id = static_cast<int32_t>(position / 256);
    frame.term_offset = static_cast<int32_t>(position % 256);
    frame.term_length = 256;
    frame.mtu = 192;
    return frame;
}
inline Sent setup(int32_t session, uint64_t position = 0) {
    const wire::SetupFrame frame = setup_frame(session, position);
    Sent sent{};
    sent.length = sizeof frame;
    std::memcpy(sent.bytes, &frame, sizeof frame);
    return sent;
}
inline wire::DataHeader header_at(int32_t session, uint64_t position, int32_t length, uint8_t flags, wire::Type type) {
    wire::DataHeader header{};
    header.start = {length, 0, flags, static_cast<uint16_t>(type)};
    header.term_offset = static_cast<int32_t>(position % 256);
    header.session = session;
    header.stream = 1;
    header.term_id = static_cast<int32_t>(position / 256);
    return header;
}
// `count` messages of 8 bytes, each in a frame of 64, numbered from `position` on.
inline Sent data(int32_t session, uint64_t position, uint32_t count = 1) {
    Sent sent{};
    for (uint32_t i = 0; i < count; ++i, position += 64, sent.length += 64) {
        const auto header = header_at(session, position, 40, flags_whole, wire::Type::data);
        const uint64_t number = position;
        std::memcpy(sent.bytes + sent.length, &header, sizeof header);
        std::memcpy(sent.bytes + sent.length + sizeof header, &number, sizeof number);
    }
    return sent;
}
inline Sent pad(int32_t session, uint64_t position, int32_t room) {
    Sent sent{};
    const auto header = header_at(session, position, room, flags_whole, wire::Type::pad);
    sent.length = sizeof header;
    std::memcpy(sent.bytes, &header, sizeof header);
    return sent;
}
inline Sent heartbeat(int32_t session, uint64_t position, uint8_t flags = flags_whole) {
    Sent sent{};
    const auto header = header_at(session, position, 0, flags, wire::Type::data);
    sent.length = sizeof header;
    std::memcpy(sent.bytes, &header, sizeof header);
    return sent;
}
inline Sent end_of_stream(int32_t session, uint64_t position) { return heartbeat(session, position, wire::flag_end_of_stream); }
inline Sent description(int32_t session, const std::string &text) {
    Sent sent{};
    const std::string frame = wire::write_extension(wire::extension_description, session, 1, text);
    sent.length = frame.size();
    std::memcpy(sent.bytes, frame.data(), frame.size());
    return sent;
}

// ---- the endpoint ----

class UdpStage {
  public:
    explicit UdpStage(uint32_t slots = 4) {
        UdpEndpointOptions options;
        options.slot_count = slots;
        options.stream = 1;
        const uint64_t all = endpoint_file_size(slots), used = entries_offset(slots) + images_used * sizeof(ImageEntry);
        const uint64_t image = (log_file_size(slots, 256) + 4095) & ~uint64_t{4095};
        static Pristine arena, formatted;
        const uint64_t size = 4096 + all + (Folder::windows_max - 1) * image;
        const auto &memory = arena.restore_first(slots, size, used + 4096, [](int) {});
        const auto &endpoint = formatted.restore(slots, all, [&](int fd) {
            const uint8_t boot[16] = {};
            format_endpoint(fd, options, "{}", boot, 0);
        });
        folder.named = reinterpret_cast<Atomic<uint32_t> *>(memory->bytes());
        uint8_t *at = memory->bytes() + 4096;
        std::memcpy(at, endpoint->bytes(), used);
        for (int i = 0; i < Folder::windows_max; ++i) {
            folder.bytes[i] = at;
            folder.size[i] = i == 0 ? all : log_file_size(slots, 256);
            folder.made[i] = i == 0;
            if (i != 0) std::memset(at, 0, folder.size[i]);
            at += i == 0 ? all : image;
        }
        World::share(memory->bytes(), size, static_cast<uint64_t>(folder.bytes[1] - memory->bytes()));
        quiet(slots);
        file = std::make_shared<EndpointFile>(Folder::fd_of(0), "udp:test (/udp)");
    }
    static inline std::shared_ptr<EndpointFile> file;

  private:
    static constexpr uint32_t images_used = 2; // entries that a scenario may fill

    // Words that change no behaviour, and entries that stay empty.
    static void quiet(uint32_t slots) {
        uint8_t *endpoint = folder.bytes[0];
        const auto *control = reinterpret_cast<EndpointControl *>(endpoint + control_offset);
        World::quiet(&control->counts, sizeof control->counts);
        World::quiet(&control->rare.takeovers, 16);
        for (uint32_t i = 0; i < slots; ++i) {
            const auto *slot = reinterpret_cast<EndpointSlot *>(endpoint + slots_offset + i * sizeof(EndpointSlot));
            World::quiet(&slot->identity.pid, 12);
            World::quiet(&slot->subscriber.messages, 40);
        }
        const auto *entries = reinterpret_cast<ImageEntry *>(endpoint + entries_offset(slots));
        for (uint32_t i = 0; i < images_max; ++i) {
            if (i >= images_used) World::quiet(entries + i, sizeof(ImageEntry));
            else World::quiet(&entries[i].high, 36); // to `proved`
        }
        for (int window = 1; window < Folder::windows_max; ++window) {
            const auto *log = reinterpret_cast<Control *>(folder.bytes[window] + control_offset);
            World::quiet(&log->totals, sizeof log->totals);
            World::quiet(&log->sessions, sizeof log->sessions);
            for (uint32_t i = 0; i < slots; ++i) {
                const auto *slot = reinterpret_cast<Slot *>(folder.bytes[window] + slots_offset + i * sizeof(Slot));
                World::quiet(&slot->counters, sizeof slot->counters);
                World::quiet(&slot->identity.pid, sizeof slot->identity - 12);
                World::quiet(&slot->writer, sizeof slot->writer); // nothing is claimed in an image
            }
        }
    }
};

// ---- a process that may own the socket ----

struct Way { // where replies go
    bool send(const Address &, const uint8_t *, size_t) { return true; }
};

class Owner {
  public:
    explicit Owner(bool reliable = true)
        : reliable_(reliable), members_(Folder::fd_of(0), *UdpStage::file), locks_(Folder::fd_of(0), "udp:test (/udp)") {
        members_.attach(MemberRole::host, [] {});
    }
    ImageSet &images() { return *images_; }
    // Takes ownership and goes on with the images, as an endpoint does.
    bool consume() {
        if (!locks_.try_take(lock_byte::owner)) return false;
        try {
            ReceiverOptions options;
            options.stream = 1;
            options.window = 128;
            options.reliable = reliable_;
            images_.emplace(*UdpStage::file, members_, options, now_);
            images_->adopt();
        } catch (const Error &error) {
            EXPECT(error.code == Code::busy);
            images_.reset();
            locks_.give_back(lock_byte::owner);
            return false;
        }
        return true;
    }
    void take_surely() {
        while (!consume()) spin_pause();
    }
    // A duty cycle in which these datagrams come.
    void run_duty_cycle(std::initializer_list<Sent> came = {}) { turn_from(Address{}, came); }
    void turn_from(const Address &from, std::initializer_list<Sent> came) {
        now_ += 20'000'000;
        for (const Sent &one : came) images_->receiver().datagram(now_, from, one.bytes, one.length);
        images_->consume(now_);
        Way way;
        images_->receiver().tick(now_, way, [] { return uint64_t{7}; });
        images_->publish([](bool) {});
    }
    // As a sender goes on: SETUP until there is an image, then frame by frame, each until it stands there. True.
    bool feed(int32_t session, uint64_t begin, uint64_t end) {
        run_duty_cycle();
        for (;;) {
            const Image *there = images_->receiver().image(session);
            if (there != nullptr && there->rebuilt() >= end) return true;
            const uint64_t before = there == nullptr ? 0 : there->rebuilt();
            run_duty_cycle({there == nullptr ? setup(session, begin) : data(session, before)});
            const Image *now = images_->receiver().image(session);
            if (now == there && (now == nullptr || now->rebuilt() == before)) spin_pause();
        }
    }
    // Turns until `done`: readers must move on meanwhile.
    template <class Done> void turn_until(Done &&done) {
        for (;;) {
            run_duty_cycle();
            if (done()) return;
            spin_pause();
        }
    }
    const Image &image() { return *images_->receiver().images().front(); }
    // As a process that leaves: the next one goes on.
    void give_up() {
        images_->hand_over();
        images_.reset();
        locks_.give_back(lock_byte::owner);
    }
    void pass(int64_t ns) { now_ += ns; }

  private:
    const bool reliable_;
    EndpointMembers members_;
    ByteLocks locks_;
    std::optional<ImageSet> images_;
    int64_t now_ = 1'000'000'000;
};

inline Owner &owner(int thread, bool takes_ownership = true, bool reliable = true) {
    World::owner(thread);
    auto &made = *new Owner(reliable);
    if (takes_ownership) made.take_surely();
    World::owner(-1);
    return made;
}

// ---- a subscription ----

class Subscription {
  public:
    explicit Subscription(Start start = {Start::From::earliest, 0}) : sessions_(start, 0) {}
    SessionReaders &sessions() { return sessions_; }
    void join() {
        sessions_.join(Folder::fd_of(0), *UdpStage::file, 7);
        sessions_.refresh();
    }
    // Every message of a session comes in order and none is missing.
    bool one() {
        const Message *message = sessions_.peek();
        if (message == nullptr) return false;
        EXPECT(message->length == 8);
        penstock::read(message->data, message->length);
        uint64_t number;
        std::memcpy(&number, message->data, sizeof number);
        EXPECT(message->session == 1 || message->session == 2);
        uint64_t &next = next_[message->session];
        if (next == unknown) next = number;
        EXPECT(number == next);
        EXPECT(message->position == number);
        EXPECT(sessions_.session(message->session) != nullptr); // as the list says
        next += 64;
        ++total;
        sessions_.consume();
        return true;
    }
    void read(uint32_t count) {
        while (total < count)
            if (!one()) spin_pause();
    }
    // As handles wait.
    void read_asleep(uint32_t count) {
        sleep_until([&] { return total >= count; });
    }
    template <class Done> void sleep_until(Done &&done) {
        Atomic<uint32_t> &event = UdpStage::file->control().event.value;
        while (!done()) {
            const uint32_t ticket = event_prepare(event);
            if (!one() && !done()) event_sleep(event, ticket, 1'000'000'000);
        }
    }
    void read_to_the_end() {
        while (one() || !sessions_.ended()) spin_pause();
    }
    static constexpr uint64_t unknown = ~uint64_t{0};
    void begin_anywhere() { next_[1] = next_[2] = unknown; }

    uint32_t total = 0;

  private:
    SessionReaders sessions_;
    uint64_t next_[3] = {};
};

inline Subscription &subscription(int thread, Start start = {Start::From::earliest, 0}) {
    World::owner(thread);
    auto &made = *new Subscription(start);
    made.join();
    World::owner(-1);
    return made;
}

} // namespace penstock::model
