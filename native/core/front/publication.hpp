// A publication of C++: a kind's writing end, its waits and its claims. One thread at a time; what other threads need, they open
// for themselves. Knows bytes; penstock.hpp has the types over them.
#pragma once

#include "front/opening.hpp"

#include "ends/pipe_ends.hpp"
#include "ends/ring_ends.hpp"
#include "ends/sync_ends.hpp"
#include "ends/targets.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>

namespace penstock {

inline constexpr std::chrono::nanoseconds forever{for_ever};

// For destructors: what fails there is left to the living to repair, as after a death.
template <class Work> void quietly(Work &&work) noexcept {
    try {
        work();
    } catch (const std::exception &) { // nobody can catch it
    }
}

// The end behind a handle: open or closed, and of this process: a forked child joins for itself.
template <class End> class OpenEnd {
  public:
    explicit OpenEnd(std::shared_ptr<End> end) : end_(std::move(end)), generation_(ForkGuard::generation()) {}
    OpenEnd(const OpenEnd &) = delete;
    OpenEnd &operator=(const OpenEnd &) = delete;
    virtual ~OpenEnd() {
        quietly([&] { close(); });
    }

    End &end() const { return *end_; }
    End &ready() {
        if (closed_) throw Error(Code::closed, end_->where() + ": the handle is closed");
        if (generation_ != ForkGuard::generation()) {
            forked();
            end_->rejoin();
            generation_ = ForkGuard::generation();
        }
        return *end_;
    }
    bool closed() const { return closed_; }
    bool usable() const { return !closed_ && generation_ == ForkGuard::generation(); }
    void close() {
        if (!std::exchange(closed_, true)) end_->leave();
    }

  protected:
    virtual void forked() {}

  private:
    const std::shared_ptr<End> end_;
    uint32_t generation_;
    bool closed_ = false;
};

// Retries where the last member of a sync queue has removed the file meanwhile. `make`: what to make under the guard.
template <class Make> auto guard_sync(int fd, Make &&make) -> decltype(make()) {
    const FileDescriptor guard(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC));
    if (!guard) fail_system("cannot open a queue's file again");
    struct flock range = whole_byte(lock_byte::life, F_RDLCK);
    while (fcntl(guard.number(), F_OFD_SETLK, &range) != 0) {
        if (errno != EAGAIN && errno != EACCES) fail_system("cannot lock a queue's file");
        platform::nap(500'000);
    }
    struct stat about;
    if (fstat(fd, &about) != 0 || about.st_nlink == 0) return {};
    return make();
}
template <class Open> auto until_open(Open &&open) {
    for (;;)
        if (auto made = open()) return made;
}

using GivenOptions = std::initializer_list<std::pair<const char *, std::optional<int64_t>>>;

inline ChannelRequest make_request(std::string_view uri, GivenOptions given, Codec codec) {
    ChannelRequest request{parse_uri(uri), nullptr, {}, std::move(codec)};
    request.kind = &kind_named(request.channel.kind);
    for (const auto &[name, value] : given) {
        if (!value) continue;
        const auto &known = request.kind->options;
        if (std::find(known.begin(), known.end(), name) == known.end())
            throw Error(Code::invalid, std::string(uri) + ": channels of kind " + request.kind->name + " have no option " + name);
        request.options.emplace(name, *value);
    }
    return request;
}
// Of a log, ring, pipe or sync channel, from the options of a publication or a subscription.
template <class Options> ChannelRequest stream_request(std::string_view uri, const Options &given, Codec codec) {
    return make_request(uri,
                        {{"capacity", given.capacity},
                         {"max_members", given.max_members},
                         {"term_length", given.term_length},
                         {"stream_id", given.stream_id},
                         {"max_messages", given.max_messages},
                         {"max_pipes", given.max_pipes}},
                        std::move(codec));
}

// What a publication asks for. Options of a new channel that were not given get defaults; `mismatch` if the channel has others.
struct PublicationOptions {
    std::optional<int64_t> capacity{}, max_members{};   // bytes; participants at once
    std::optional<int64_t> term_length{}, stream_id{};  // log
    std::optional<int64_t> max_messages{}, max_pipes{}; // pipe
    bool exclusive = false;                             // log: no other publication beside it
    std::string name{};                                 // pipe, sync: a name that no other living peer has
    std::string when_full = "wait";                     // pipe: "wait", "drop_newest" or "drop_oldest"
    std::string codec{};                                // of bytes: "json" or "msgpack", which the program writes itself
};

class OpenPublication : public OpenEnd<WriterEnd> {
  public:
    explicit OpenPublication(std::shared_ptr<WriterEnd> end) : OpenEnd(std::move(end)) {}

    // The position behind the message. Throws `timed_out`.
    int64_t send(const void *data, size_t length, int64_t timeout) {
        WriterEnd &writer = ready();
        if (length <= writer.payload_max() && length < large_copy) {
            const int64_t position = writer.offer(data, length);
            if (position != no_room) return position;
        }
        if (length > writer.message_max()) throw_too_large(length, writer.message_max());
        PendingSend sending{static_cast<const uint8_t *>(data), length};
        try {
            if (wait_for_room(timeout, [&] { return ready().advance(sending); })) return sending.position;
        } catch (...) {
            if (usable()) end().give_up(sending);
            throw;
        }
        end().give_up(sending);
        throw_timed_out("no room");
    }
    ClaimedRange claim(size_t length, int64_t timeout) {
        ClaimedRange range;
        const auto attempt = [&] { return try_claim(length, range); };
        if (!attempt() && !wait_for_room(timeout, attempt)) throw_timed_out("no room for the claim");
        return range;
    }
    bool try_claim(size_t length, ClaimedRange &range) { // without waiting
        WriterEnd &writer = ready();
        if (length > writer.payload_max()) throw_too_large(length, writer.payload_max());
        return writer.claim(length, range);
    }
    void wait_for_readers(uint32_t count, int64_t timeout) {
        if (!wait_as<PlainHost>(timeout, MembersTarget<EndTarget, OpenPublication>(*this),
                                [&] { return ready().readers() >= count; }))
            throw Error(Code::timed_out, end().where() + ": fewer than " + std::to_string(count) +
                                             " subscriptions came within the timeout" + end().why_no_readers());
    }
    SpinHabit &room_spin_habit() { return room_spin_habit_; }

  private:
    template <class Attempt> bool wait_for_room(int64_t timeout, Attempt &&attempt) {
        return wait_as<PlainHost>(timeout, RoomTarget<EndTarget, OpenPublication>(*this), attempt);
    }
    [[noreturn]] void throw_too_large(size_t length, size_t most) const {
        throw Error(Code::too_large, end().where() + ": a message of " + std::to_string(length) + " bytes; the largest is " +
                                         std::to_string(most) + " here: create the channel with a larger capacity");
    }
    [[noreturn]] void throw_timed_out(const char *what) const {
        throw Error(Code::timed_out, end().where() + ": " + what + " within the timeout: " + end().why_full());
    }

    SpinHabit room_spin_habit_;
};

// What every handle that writes says of its channel.
class PublicationHandle {
  public:
    // Waits until at least `count` subscriptions are there. Throws `timed_out`.
    void wait_for_readers(uint32_t count = 1, std::chrono::nanoseconds timeout = forever) {
        open_->wait_for_readers(count, timeout.count());
    }
    uint32_t readers() { return open_->ready().readers(); }
    uint64_t position() { return open_->ready().position(); } // where the next message goes
    uint64_t lag() { return open_->ready().lag(); }           // bytes by which the slowest subscription is behind
    int32_t session() { return open_->ready().session(); }
    size_t max_payload() { return open_->ready().payload_max(); }      // that offer and claim take
    ChannelStatus statistics() { return read_status(open_->ready()); } // of the whole channel, at this moment
    const std::string &channel() const { return open_->end().where(); }
    bool closed() const { return open_->closed(); }
    void close() { open_->close(); } // gives the slot back; claims that are open are given up

  protected:
    explicit PublicationHandle(std::shared_ptr<OpenPublication> open) : open_(std::move(open)) {}
    std::shared_ptr<OpenPublication> open_;
};

// Room for one message, to be written in place. Destroyed without a commit, it is given up, and readers skip it.
class Claim {
  public:
    Claim(std::shared_ptr<OpenPublication> owner, const ClaimedRange &range, size_t length)
        : owner_(std::move(owner)), range_(range), length_(length) {}
    Claim(Claim &&other) noexcept
        : owner_(std::move(other.owner_)), range_(other.range_), length_(other.length_),
          open_(std::exchange(other.open_, false)) {}
    ~Claim() {
        quietly([&] { abort(); });
    }

    std::span<std::byte> bytes() const { return {reinterpret_cast<std::byte *>(range_.payload), length_}; }
    // Makes the message visible; the position behind it.
    int64_t commit() {
        if (!open_ || !owner_->usable())
            throw Error(Code::closed, owner_ == nullptr ? "the claim has ended already"
                                                        : owner_->end().where() + ": the claim has ended already");
        open_ = false;
        return owner_->ready().commit(range_);
    }
    void abort() {
        if (std::exchange(open_, false) && owner_->usable()) owner_->ready().abort(range_);
    }

  protected:
    std::shared_ptr<OpenPublication> owner_;
    ClaimedRange range_;
    size_t length_;
    bool open_ = true;
};

inline std::shared_ptr<OpenPublication> open_publication(std::string_view uri, const PublicationOptions &given, Codec codec) {
    const ChannelRequest request = stream_request(uri, given, std::move(codec));
    const std::string_view kind = request.channel.kind;
    static constexpr std::string_view full[] = {"wait", "drop_newest", "drop_oldest"};
    const auto when_full = std::find(std::begin(full), std::end(full), given.when_full);
    if (when_full == std::end(full) || (when_full != std::begin(full) && kind != "pipe"))
        throw Error(Code::invalid, std::string(uri) + ": when_full is '" + given.when_full +
                                       "': it is 'wait', or for a pipe 'drop_newest' or 'drop_oldest'");
    if (given.exclusive && kind != "log") throw Error(Code::invalid, std::string(uri) + ": exclusive is for logs");
    if (given.name.size() > name_max || given.name.find('\0') != std::string::npos ||
        (!given.name.empty() && kind != "pipe" && kind != "sync"))
        throw Error(Code::invalid,
                    std::string(uri) + ": a name is for pipe and sync channels and takes 1 to 64 bytes, none of them 0");
    if (kind == "frames")
        throw Error(Code::unsupported, std::string(uri) + ": frames have a publication of their own: FramePublication");
    std::string its_codec;
    const auto make = [&](int fd, const std::string &place) -> std::shared_ptr<WriterEnd> {
        if (kind == "log") {
            auto log = std::make_shared<TermLog>(fd, place);
            if (log->geometry().last.keys != 0)
                throw Error(Code::unsupported, place + " keeps the last value of each key: publish to it from Python");
            return std::make_shared<LogWriterEnd>(std::move(log), given.exclusive, nullptr);
        }
        if (kind == "ring") return std::make_shared<RingWriterEnd>(fd, place, nullptr);
        if (kind == "sync")
            return guard_sync(fd, [&]() -> std::shared_ptr<WriterEnd> {
                return std::make_shared<SyncWriterEnd>(fd, place, nullptr, MemberName::own(given.name));
            });
        return std::make_shared<PipeWriterEnd>(std::make_shared<PipePeer>(fd, place, PeerRole::push, MemberName::own(given.name),
                                                                          static_cast<WhenFull>(when_full - std::begin(full))));
    };
    return std::make_shared<OpenPublication>(until_open([&] { return open_end(request, its_codec, make); }));
}

} // namespace penstock
