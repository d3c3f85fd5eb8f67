// A member of a sync queue in C++: it writes messages with a type, reads those of the other members, and lets no writer wait
// while it writes itself. The last member removes the queue.
#pragma once

#include "front/subscription.hpp"

namespace penstock {

// What a member asks for. Options of a new queue that were not given get defaults; `mismatch` if the queue has others.
struct MemberOptions {
    std::string name{};                               // one that no other living member has; drawn if it is empty
    bool own = false;                                 // whether it receives its own messages, too
    Start start{};                                    // where it begins to read
    std::chrono::nanoseconds drop_after{0};           // dropped when it makes writers wait for longer; 0: never
    std::chrono::nanoseconds spin{20'000};            // looks for so long before it sleeps
    size_t spill_limit = 64 << 20;                    // bytes of unread messages that it keeps itself while it waits for room
    std::optional<int64_t> capacity{}, max_members{}; // bytes; members at once
    std::string codec{};                              // of bytes: "json" or "msgpack"
};

class OpenMember {
  public:
    OpenMember(std::string_view uri, const MemberOptions &given, Codec codec)
        : request_(make_request(uri, {{"capacity", given.capacity}, {"max_members", given.max_members}}, std::move(codec))),
          spill_limit_(given.spill_limit) {
        if (request_.channel.kind != "sync")
            throw Error(Code::unsupported,
                        std::string(uri) + ": members are of sync: channels; use Publication and Subscription");
        if (given.name.size() > name_max || given.name.find('\0') != std::string::npos)
            throw Error(Code::invalid, std::string(uri) + ": a name takes 1 to 64 bytes, none of them 0");
        if (given.drop_after.count() < 0) throw Error(Code::invalid, std::string(uri) + ": drop_after is not below 0");
        const MemberName name = MemberName::own(given.name);
        const double drop_after = static_cast<double>(given.drop_after.count()) / 1e9;
        reader_ = std::make_shared<OpenSubscription>(open<ReaderEnd>([&](int fd, const std::string &place) {
                                                         return std::make_shared<SyncReaderEnd>(fd, place, given.start,
                                                                                                drop_after, name);
                                                     }),
                                                     given.spin.count(), false, true);
        writer_ = std::make_shared<OpenPublication>(open<WriterEnd>(
            [&](int fd, const std::string &place) { return std::make_shared<SyncWriterEnd>(fd, place, nullptr, name); }));
        struct stat about;
        if (fstat(writer_->end().locks().descriptor(), &about) == 0) file_ = {about.st_dev, about.st_ino};
        if (!given.own) reading().screen({writer_->ready().session(), {}, {}});
    }
    OpenMember(const OpenMember &) = delete;
    OpenMember &operator=(const OpenMember &) = delete;
    ~OpenMember() {
        quietly([&] { close(); });
    }

    OpenSubscription &subscription() { return *reader_; }
    OpenPublication &publication() { return *writer_; }

    // The position behind the message. Throws `timed_out`, and `busy` beyond the spill limit.
    int64_t send(std::string_view type, const void *data, size_t length, int64_t timeout) {
        const std::string prefix = prefix_of(type);
        PendingSend sending{static_cast<const uint8_t *>(data), length};
        const bool whole = length <= writing().writer().payload_max(prefix);
        const auto attempt = [&] {
            if (whole) return (sending.position = writing().writer().offer(prefix, data, length)) != no_room;
            if (!sending.begun) writing().begin(sending, prefix);
            return writing().advance(sending);
        };
        const auto give_up = [&] {
            if (writer_->usable() && sending.begun) writing().give_up(sending);
        };
        try {
            if (attempt() || wait_as<PlainHost>(timeout, RoomTarget(*this), [&] {
                    return attempt_or_spill(writing().log(), reading(), prefix.size() + length, spill_limit_, attempt);
                }))
                return sending.position;
        } catch (...) {
            give_up();
            throw;
        }
        give_up();
        throw Error(Code::timed_out, writing().where() + ": no room within the timeout: " + writing().why_full());
    }
    SpinHabit &room_spin_habit() { return room_spin_habit_; }

    void close() {
        if (writer_->closed()) return;
        const bool mine = writer_->usable();
        reader_->close();
        writer_->close();
        if (mine) remove_if_last();
    }

  private:
    // Sleeps on room and on data: see core's RoomOrData.
    class RoomTarget : public Target {
      public:
        static constexpr WaitsFor what = WaitsFor::room;
        explicit RoomTarget(OpenMember &member) : member_(member) {}
        void failed() {
            watched_.clear();
            member_.writing().add_watches(watched_);
            member_.reader_->ready().add_watches(watched_);
        }
        bool changed() const { return watched_.changed(); }
        int64_t spin_ns() { return member_.room_spin_habit().due() ? room_spin_ns : 0; }
        void spun(bool found) { member_.room_spin_habit().spun(found); }
        static constexpr bool often = false;
        int64_t slice_ns() const { return first_slice_ns; }
        void prepare() { events_.announce(member_.writing().log()); }
        void note(uint64_t word) { note_wait(member_.writing(), word); }
        void sleep(int64_t ns) { event_sleep_many(events_.entries, 2, ns); }

      private:
        OpenMember &member_;
        RoomOrData events_;
        WatchSet watched_;
    };

    template <class End, class Make> std::shared_ptr<End> open(Make &&make) {
        std::string its_codec;
        return until_open([&] {
            return open_end(request_, its_codec, [&](int fd, const std::string &place) -> std::shared_ptr<End> {
                return guard_sync(fd, [&]() -> std::shared_ptr<End> { return make(fd, place); });
            });
        });
    }
    SyncReader &reading() { return static_cast<SyncReaderEnd &>(reader_->ready()).reader(); }
    SyncWriterEnd &writing() { return static_cast<SyncWriterEnd &>(writer_->ready()); }
    std::string prefix_of(std::string_view type) {
        const std::string &untyped = writing().untyped();
        if (type.empty()) return untyped;
        return with_place(request_.channel, [&] {
            return sync_prefix(read_sync(reinterpret_cast<const uint8_t *>(untyped.data()), untyped.size()).sender, type);
        });
    }
    // Removes the queue if it has no member, and no process is about to join. Another queue that was given its name stays.
    void remove_if_last() {
        try {
            const FileDescriptor fd = open_existing(request_.channel);
            struct stat about;
            if (!fd || fstat(fd.number(), &about) != 0 || std::pair(about.st_dev, about.st_ino) != file_) return;
            const FileDescriptor guard(::open(("/proc/self/fd/" + std::to_string(fd.number())).c_str(), O_RDWR | O_CLOEXEC));
            struct flock range = whole_byte(lock_byte::life, F_WRLCK);
            if (fcntl(guard.number(), F_OFD_SETLK, &range) != 0) return; // a process is joining
            if (fstat(fd.number(), &about) != 0 || about.st_nlink == 0) return;
            const Mapping map(fd.number(), size_of_file(fd.number()), false);
            const uint32_t slots =
                read_header(map.bytes(), map.size(), place_of(request_.channel), Kind::sync).geometry.slot_count;
            for (uint32_t i = 0; i < slots; ++i)
                if (holds_member(fd.number(), slots_offset + uint64_t{i} * sizeof(Slot))) return;
            unlinkat(open_folder(false).number(), request_.channel.file().c_str(), 0);
        } catch (const Error &) { // it is no longer this process' to remove
        }
    }

    ChannelRequest request_;
    const size_t spill_limit_;
    std::shared_ptr<OpenSubscription> reader_;
    std::shared_ptr<OpenPublication> writer_;
    std::pair<dev_t, ino_t> file_{};
    SpinHabit room_spin_habit_;
};

// A message of a sync queue.
template <class T> struct MemberMessage {
    std::string sender, type;
    T body{};
    uint64_t position = 0;
    int64_t time_ns = 0;
};

// Of a sync queue: it reads the messages of the others, and a message stays until all members that were there have read it.
template <class T = std::string> class Member {
  public:
    using Given = std::conditional_t<Described<T>, const T &, std::string_view>;

    explicit Member(std::string_view uri, const MemberOptions &options = {})
        : open_(std::make_shared<OpenMember>(uri, options, codec_of<T>(uri, options.codec))) {}

    // The stream position behind the message. Waits for room; throws `timed_out`.
    int64_t send(Given body, std::string_view type = {}, std::chrono::nanoseconds timeout = forever) {
        return with_bytes<T>(body,
                             [&](const void *data, size_t length) { return open_->send(type, data, length, timeout.count()); });
    }
    // The next message of the others; none if `timeout` passed. Throws `too_slow`, `undecodable`.
    std::optional<MemberMessage<T>> recv(std::chrono::nanoseconds timeout = forever) {
        std::optional<MemberMessage<T>> found(std::in_place);
        Room<T> room(found->body);
        if (!open_->subscription().receive(timeout.count(), room)) return std::nullopt;
        room.finish();
        Received last = open_->subscription().last();
        found->sender = std::move(last.sender);
        found->type = std::move(last.type);
        found->position = last.position;
        found->time_ns = last.time_ns;
        return found;
    }
    void wait_for_readers(uint32_t count = 1, std::chrono::nanoseconds timeout = forever) { // itself included
        open_->publication().wait_for_readers(count, timeout.count());
    }
    uint32_t readers() { return open_->publication().ready().readers(); }
    uint64_t lag() { return open_->subscription().source().lag(); }
    ChannelStatus statistics() { return read_status(open_->publication().ready()); } // of the whole queue, at this moment
    const std::string &channel() const { return open_->publication().end().where(); }
    void close() { open_->close(); } // the last member removes the queue

  private:
    std::shared_ptr<OpenMember> open_;
};

} // namespace penstock
