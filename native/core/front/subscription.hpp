// A subscription of C++: a kind's reading end, its waits and what it lends. One thread at a time. Knows bytes; penstock.hpp has
// the types over them.
#pragma once

#include "front/publication.hpp"

#include "ends/early_ends.hpp"

#include <array>
#include <vector>

namespace penstock {

inline constexpr Start from_newest{}, from_earliest{Start::From::earliest, 0};
constexpr Start from_position(uint64_t position) { return {Start::From::position, position}; }
constexpr Start from_last(uint64_t count) { return {Start::From::last, count}; } // of the messages that are kept

// What a subscription asks for. Options of the channel name what its first publication is to make; `mismatch` if it has others.
struct SubscriptionOptions {
    Start start{};                          // log, sync; ring: the newest, a position, or the last messages
    bool conflate = false;                  // ring: only the newest message
    bool until_end = false;                 // `end_of_stream` once every publication has closed or died, and all was read
    std::chrono::nanoseconds drop_after{0}; // log, sync: dropped when it makes writers wait for longer; 0: never
    bool manual_acknowledge = false;        // pipe: only acknowledge() acknowledges
    std::string name{};                     // pipe: a name that no other living peer has
    std::chrono::nanoseconds spin{20'000};  // looks for so long before it sleeps; forever: never sleeps
    std::optional<int64_t> capacity{}, max_members{};   // as in PublicationOptions
    std::optional<int64_t> term_length{}, stream_id{};  // log
    std::optional<int64_t> max_messages{}, max_pipes{}; // pipe
    std::string codec{};                                // of bytes: "json" or "msgpack", which the program reads itself
};

// Of the message received last. time_ns: since 1970, by the sender's clock. sender, type: of a sync queue's message.
struct Received {
    uint64_t position = 0;
    int64_t time_ns = 0;
    int32_t session = 0;
    std::string sender{}, type{};
};

class OpenSubscription : public OpenEnd<ReaderEnd> {
  public:
    OpenSubscription(std::shared_ptr<ReaderEnd> end, int64_t spin_ns, bool until_end, bool manual)
        : OpenEnd(std::move(end)), spin_ns_(spin_ns), opened_ns_(system_ns(CLOCK_REALTIME)), until_end_(until_end),
          manual_(manual) {}
    ~OpenSubscription() override {
        quietly([&] { close(); });
    }

    // Asks for the next message. `room(length)`: where to copy it; null: it is none of the type. False when the timeout passed.
    template <class Room> bool receive(int64_t timeout, Room &&room) {
        source().begin_call();
        return take(room, false) || wait(timeout, [&] { return take(room, false); });
    }
    // The next one of a batch, without waiting. One that is none of the type is left for the next call.
    template <class Room> bool receive_next(bool first, Room &&room) {
        if (first) source().begin_call();
        else source().continue_batch();
        return take(room, !first);
    }
    bool has_news() {
        ReaderEnd &reader = source();
        return reader.peek_allowed() != nullptr || (until_end_ && reader.ended());
    }
    template <class Attempt> bool wait(int64_t timeout, Attempt &&attempt) {
        return wait_as<PlainHost>(timeout, MessageTarget<EndTarget, OpenSubscription>(*this, timeout), attempt);
    }
    // The next message, its bytes lent; null when the timeout passed.
    const Message *find(int64_t timeout) {
        source().begin_call();
        const Message *found = nullptr;
        const auto attempt = [&] { return (found = look()) != nullptr; };
        return attempt() || wait(timeout, attempt) ? found : nullptr;
    }
    void lend(const Message &message) {
        took(message);
        source().lender().lend(message);
    }

    Received last() {
        const Envelope envelope = source().envelope();
        return {last_.position, last_.time_ns, last_.session, std::string(envelope.sender), std::string(envelope.type)};
    }
    // For what only a pipe has. Throws `unsupported` elsewhere.
    void need_pipe(const char *what) {
        if (ready().where().substr(0, 5) != "pipe:")
            throw Error(Code::unsupported, end().where() + ": " + what + " is for pipes");
    }
    void acknowledge_pipe() {
        if (PipeReaderEnd *reader = pipe(); reader != nullptr) reader->peer().acknowledge();
    }
    void close() { // messages of a pipe that were received are done with, unless the program says so itself
        if (usable() && requeues_) requeue_pipe();
        else if (usable() && !manual_) acknowledge_pipe();
        OpenEnd::close();
    }
    void requeue_on_close() { requeues_ = true; }
    bool redelivered() {
        PipeReaderEnd *reader = pipe();
        return reader != nullptr && reader->peer().acknowledger().redelivered();
    }

    bool is_calm() { return platform::registered_for_fences && !until_end_ && end().settled(); }
    int64_t spin_ns() const { return spin_ns_; }
    bool worth_spinning() { return spin_ns_ == for_ever || spin_habit_.worth(ready().event()); }
    void spun(bool found) { spin_habit_.spun(found); }

    // The end that messages are taken from. Once the channel is decided, no early end stands in between.
    ReaderEnd &source() {
        ReaderEnd &reader = ready();
        if (source_ == nullptr) {
            source_ = reader.resolved();
            if (source_ == nullptr) return reader;
            latency_.begin(source_->latency(), opened_ns_);
        }
        return *source_;
    }

  private:
    PipeReaderEnd *pipe() { return dynamic_cast<PipeReaderEnd *>(&source()); } // null: elsewhere, and before it is decided
    void requeue_pipe() {
        if (PipeReaderEnd *reader = pipe(); reader != nullptr) reader->peer().acknowledger().requeue_on_close();
    }
    const Message *look() {
        ReaderEnd &reader = source();
        const Message *message = reader.peek_allowed();
        if (message == nullptr) nothing(reader);
        return message;
    }

  protected:
    // There was no message: looks for the dead now and then, and says so if there will never be more.
    void nothing(ReaderEnd &reader) {
        latency_.on_empty();
        if (++empties_ % empties_between_checks == 0) {
            const int64_t now = monotonic_ns();
            if (now - checked_ns_ >= 1'000'000) {
                checked_ns_ = now;
                reader.repair();
            }
        }
        if (until_end_ && reader.ended()) throw Error(Code::end_of_stream, reader.where() + ": " + reader.why_ended());
    }
    void took(const Message &message) {
        last_ = message;
        latency_.on_message(message.time_ns, [] { return int64_t{0}; });
        spin_habit_.took();
    }

  private:
    template <class Room> bool take(Room &&room, bool leave_wrong) {
        for (;;) {
            const Message *message = look();
            if (message == nullptr) return false;
            void *to = room(message->length);
            if (to == nullptr) {
                if (leave_wrong) return false;
                throw_undecodable(*message);
            }
            if (!source().copy(to, *message)) continue; // overwritten meanwhile: looks again
            took(*message);
            source().consume();
            return true;
        }
    }
    [[noreturn]] void throw_undecodable(const Message &message) {
        const std::string what = source().where() + ": the message at position " + std::to_string(message.position) + " has " +
                                 std::to_string(message.length) +
                                 " bytes, which are no message of this type. The next call continues behind it";
        last_ = message;
        source().consume();
        throw Error(Code::undecodable, what);
    }
    void forked() override {
        source_ = nullptr;
        latency_.end();
    }

    static constexpr uint32_t empties_between_checks = 32;
    ReaderEnd *source_ = nullptr;
    Message last_;
    const int64_t spin_ns_, opened_ns_;
    const bool until_end_, manual_;
    bool requeues_ = false;
    SpinHabit spin_habit_;
    LatencyMeter latency_;
    int64_t checked_ns_ = 0;
    uint32_t empties_ = 0;
};

// What every handle that reads says of its channel.
class SubscriptionHandle {
  public:
    // Whether there is a message within `timeout`, or, with until_end, the end.
    bool wait(std::chrono::nanoseconds timeout = forever) {
        return open_->has_news() || open_->wait(timeout.count(), [&] { return open_->has_news(); });
    }
    Received last() { return open_->last(); } // of the message received last
    uint64_t position() { return open_->source().position(); }
    uint64_t lag() { return open_->source().lag(); }                    // bytes yet to read
    uint64_t lost() { return open_->source().lost(); }                  // bytes that it was too slow for
    int64_t lost_messages() { return open_->source().lost_messages(); } // the same in messages; -1: not known
    uint64_t conflated() { return open_->source().conflated(); }        // messages passed over on purpose
    bool decided() { return open_->ready().decided(); }                 // whether there was a publication, ever
    ChannelStatus statistics() { return read_status(open_->ready()); }  // of the whole channel, at this moment
    const std::string &channel() const { return open_->end().where(); }
    bool closed() const { return open_->closed(); }
    void close() { open_->close(); }

  protected:
    explicit SubscriptionHandle(std::shared_ptr<OpenSubscription> open) : open_(std::move(open)) {}
    std::shared_ptr<OpenSubscription> open_;
};

// A message read in place. Its bytes stay as they are while this lives; those of a ring may be overwritten, which intact() says.
class Borrow {
  public:
    Borrow(std::shared_ptr<OpenSubscription> owner, const Message &found) : owner_(std::move(owner)), message_(found) {
        ReaderEnd &reader = owner_->source();
        map_ = reader.mapping();
        if (found.assembled) {
            copy_.assign(found.data, found.data + found.length);
            bytes_ = copy_.data();
        } else bytes_ = reader.lender().readable_bytes(found, map_);
        owner_->lend(message_);
    }
    Borrow(Borrow &&other) noexcept
        : owner_(std::move(other.owner_)), map_(std::move(other.map_)), copy_(std::move(other.copy_)), message_(other.message_),
          bytes_(other.bytes_), holding_(std::exchange(other.holding_, false)), checked_(other.checked_) {}
    ~Borrow() {
        if (!std::exchange(holding_, false) || !owner_->usable()) return;
        quietly([&] { // if it was dropped meanwhile, the next call says so
            Lender &lender = owner_->source().lender();
            if (!checked_ && !lender.lends_stable_bytes()) lender.intact(message_); // counted
            lender.give_back(message_);
        });
    }

    std::span<const std::byte> bytes() const { return {reinterpret_cast<const std::byte *>(bytes_), message_.length}; }
    std::string_view text() const { return {reinterpret_cast<const char *>(bytes_), message_.length}; }
    // A copy of it as a struct. Throws `undecodable` for a message of another length.
    template <Described T> T as() const {
        T value;
        Room<T> room(value);
        void *to = room(message_.length);
        if (to == nullptr)
            throw Error(Code::undecodable, owner_->end().where() + ": the message at position " +
                                               std::to_string(message_.position) + " has " + std::to_string(message_.length) +
                                               " bytes, which are no " + StructFields<T>::name);
        copy_bytes(to, bytes_, message_.length);
        room.finish();
        return value;
    }
    uint64_t position() const { return message_.position; }
    int64_t time_ns() const { return message_.time_ns; }
    // Whether what was read so far is what was sent; false at most for a ring. Ask behind the last look. Throws `too_slow` where
    // writers have dropped this subscription.
    bool intact() {
        if (message_.assembled) return true;
        checked_ = true;
        return owner_->source().lender().intact(message_);
    }

  private:
    std::shared_ptr<OpenSubscription> owner_;
    std::shared_ptr<Mapping> map_;
    std::vector<uint8_t> copy_;
    Message message_;
    const uint8_t *bytes_ = nullptr;
    bool holding_ = true, checked_ = false;
};

inline void check_subscription(std::string_view uri, std::string_view kind, const SubscriptionOptions &given) {
    const auto refuse = [&](Code code, const char *why) { throw Error(code, std::string(uri) + ": " + why); };
    if (kind == "frames") refuse(Code::unsupported, "frames have a subscription of their own: FrameSubscription");
    if (given.conflate && kind != "ring") refuse(Code::invalid, "conflate is for rings and frames");
    if (given.drop_after.count() < 0 || (given.drop_after.count() != 0 && kind != "log" && kind != "sync"))
        refuse(Code::invalid, "drop_after is for log and sync channels, and not below 0");
    if (given.manual_acknowledge && kind != "pipe") refuse(Code::invalid, "manual_acknowledge is for pipes");
    if (!given.name.empty() && kind != "pipe") refuse(Code::invalid, "a subscription's name is for pipes");
    if (given.name.size() > name_max || given.name.find('\0') != std::string::npos)
        refuse(Code::invalid, "a name takes 1 to 64 bytes, none of them 0");
    if (kind == "pipe" && given.start.from != Start::From::newest)
        refuse(Code::unsupported, "a pipe keeps no message that was read: leave start out; a log keeps its messages");
    if (kind == "ring" && given.start.from == Start::From::earliest)
        refuse(Code::unsupported, "a ring keeps nothing to begin with: start with the newest, a position, or the last messages");
    if (given.conflate && given.start.from == Start::From::last && given.start.position > 1)
        refuse(Code::invalid, "conflate reads only the newest message, and start asks for several: give one of them");
}

inline std::shared_ptr<OpenSubscription> open_subscription(std::string_view uri, const SubscriptionOptions &given, Codec codec) {
    const ChannelRequest request = stream_request(uri, given, std::move(codec));
    const std::string_view kind = request.channel.kind;
    check_subscription(uri, kind, given);
    const double drop_after = static_cast<double>(given.drop_after.count()) / 1e9;
    const MemberName name = MemberName::own(given.name);
    const bool by_hand = given.manual_acknowledge;
    const auto make = [&](int fd, const std::string &place) -> std::shared_ptr<ReaderEnd> {
        if (kind == "log") return std::make_shared<LogReaderEnd>(fd, place, given.start, drop_after);
        if (kind == "ring") return std::make_shared<RingReaderEnd>(fd, place, given.start, given.conflate);
        if (kind == "sync")
            return guard_sync(fd, [&]() -> std::shared_ptr<ReaderEnd> {
                return std::make_shared<SyncReaderEnd>(fd, place, given.start, drop_after, MemberName());
            });
        return std::make_shared<PipeReaderEnd>(std::make_shared<PipePeer>(fd, place, PeerRole::pull, name), by_hand);
    };
    const auto early = [&](int fd, const std::string &place, const OpenChannel &file) -> std::shared_ptr<ReaderEnd> {
        if (given.start.from == Start::From::position && given.start.position != 0)
            throw Error(Code::invalid, place + ": nothing was published yet, so no position but 0 is kept");
        const auto member = [&]() -> std::unique_ptr<EarlyMember> {
            if (kind == "log") return std::make_unique<EarlyLog<LogReaderEnd>>(fd, place, file.map, file.part, drop_after, "");
            if (kind == "sync") return std::make_unique<EarlyLog<SyncReaderEnd>>(fd, place, file.map, file.part, drop_after, "");
            if (kind == "ring") return std::make_unique<EarlyRing>(fd, place, file.map, file.part, given.conflate);
            return std::make_unique<EarlyPipe>(fd, place, file.map, file.part,
                                               EarlyPipe::PeerOptions{PeerRole::pull, name, WhenFull::wait, by_hand, 0});
        };
        const auto join = [&]() -> std::shared_ptr<ReaderEnd> { return std::make_shared<EarlyReaderEnd>(file.map, member()); };
        return kind == "sync" ? guard_sync(fd, join) : join();
    };
    std::string its_codec;
    auto end = until_open([&] { return open_reader(request, its_codec, make, early); });
    return std::make_shared<OpenSubscription>(std::move(end), given.spin.count(), given.until_end, by_hand);
}

} // namespace penstock
