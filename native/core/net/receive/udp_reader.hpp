// A subscription on the network. Reads the images of all sessions of its endpoint in turn, each in order. Used by one thread at a
// time. Only sleep() waits: "nothing yet" is a value. If it finds nothing, and its process owns the socket, it runs the
// endpoint's duty cycle.
#pragma once

#include "net/receive/endpoint.hpp"
#include "net/receive/images/session_readers.hpp"

namespace penstock {

class UdpReader {
  public:
    // `fd`: of the endpoint's file. `start`: where in sessions that are there already; others are read from where they are
    // joined.
    UdpReader(int fd, std::string path, Start start, uint64_t drop_after_ns, NetCalls &calls = NetCalls::system())
        : path_(std::move(path)), start_(start), drop_after_ns_(drop_after_ns), calls_(calls), sessions_(start, drop_after_ns) {
        fresh_until_.relaxed(0);
        open(fd);
    }
    ~UdpReader() { leave(); }

    const EndpointFile &file() const { return endpoint_->file(); }
    std::string where() const { return file().uri(); }
    const std::shared_ptr<Mapping> &mapping() const { return file().mapping(); }
    const ByteLocks &locks() const { return sessions_.locks(); }
    bool owns_socket() const { return endpoint_->owns_socket(); }
    uint32_t slot() const { return sessions_.mine(); }
    Takeover takeover() const { return endpoint_->takeover(); }

    // ---- reading ----

    // The next message, or null. Its frame stays readable until consume(); an assembled one until the next peek().
    const Message *peek() {
        if (const Message *message = sessions_.peek()) return message;
        const int64_t now = monotonic_ns();
        if (now < fresh_until_.relaxed()) return nullptr;
        return endpoint_->turn(now) ? sessions_.peek() : nullptr;
    }
    void consume() {
        taken_ += sessions_.consume();
        if (taken_ < show_step_) return;
        taken_ = 0;
        sessions_.show_position();
        endpoint_->turn(monotonic_ns());
    }
    // Keeps the bytes of a message that peek() returned, until let_go(), whatever is taken meanwhile.
    void hold(const Message &message) {
        if (SessionReaders::Open *from = sessions_.session(message.session)) from->reader->hold(message.position), ++from->held;
    }
    void let_go(const Message &message) {
        for (const auto &one : sessions_.all()) {
            if (one->held == 0 || one->session != message.session) continue;
            one->reader->let_go(message.position);
            --one->held;
            return;
        }
    }
    void still_mine() {
        for (const auto &one : sessions_.all()) one->reader->still_mine();
    }
    bool droppable() const { return drop_after_ns_ != 0; }
    bool readable() const { return sessions_.readable(); }
    // After a look that found nothing: this subscription has seen a session, and all that it has seen have ended.
    bool ended() const { return sessions_.ended(); }
    void show_position() { sessions_.show_positions(); }

    // Of the only session, or of the one that was read last.
    uint64_t position() const { return sessions_.position(); }
    uint64_t lag() const {
        uint64_t sum = 0;
        for (const auto &one : sessions_.all()) sum += one->reader->lag();
        return sum;
    }
    uint64_t lost() const { return sessions_.lost(); }
    uint64_t incomplete() const { return sessions_.incomplete(); }
    std::vector<UdpSession> sessions() const {
        std::vector<UdpSession> all;
        for (const auto &one : sessions_.all()) {
            const ImageEntry &entry = file().entry(one->index);
            UdpSession s;
            s.session = one->session;
            s.source = text_of(read_source(entry));
            s.description = read_description(entry);
            s.join = one->join;
            s.position = one->reader->position();
            s.high = entry.high.relaxed();
            s.lag = one->reader->lag();
            s.term_length = one->reader->log().geometry().term_length;
            s.mtu = entry.mtu.relaxed();
            s.ended = sessions_.is_over(*one);
            all.push_back(std::move(s));
        }
        return all;
    }
    UdpCounts counts() { return endpoint_->counts(); }
    std::string warning() { return endpoint_->warning(); }
    // Once for each session that cannot be received or joined: why. Empty: nothing new.
    std::string refusal() {
        const bool trouble = sessions_.trouble().has_value();
        if (const bool before = std::exchange(told_trouble_, trouble); trouble && !before)
            return where() + ": a session cannot be read: " + sessions_.trouble()->what() + ". It is tried again";
        const uint64_t refusals = endpoint_->refusals();
        return std::exchange(told_refusals_, refusals) == refusals ? "" : endpoint_->refusal();
    }

    // ---- each session separately, for a recorder ----

    struct Stream {
        uint64_t number = 0; // of its image
        LogReader *reader = nullptr;
        std::string description;
        uint64_t skipped = 0; // bytes before it that were lost while the session was silent
    };
    // The sessions as they are now.
    std::vector<Stream> streams() {
        turn();
        if (sessions_.has_news()) sessions_.refresh();
        std::vector<Stream> all;
        for (const auto &one : sessions_.all())
            all.push_back({one->number, one->reader.get(), read_description(file().entry(one->index)), one->skipped});
        return all;
    }
    bool has_news() const { return sessions_.has_news(); }
    // The reader of one session, or null once it was left.
    LogReader *stream(uint64_t number) const {
        const SessionReaders::Open *one = sessions_.find(number);
        return one == nullptr ? nullptr : one->reader.get();
    }
    uint64_t pass_lost(LogReader &reader) { return sessions_.pass_lost(reader); }
    void took(uint64_t messages, uint64_t bytes) {
        sessions_.count(messages, bytes);
        turn();
    }

    // ---- waiting ----

    Atomic<uint32_t> &event() { return file().control().event.value; }
    const Atomic<uint64_t> &activity() const { return file().control().activity.value; }
    uint64_t seen() const { return sessions_.watch()->seen(); }
    std::shared_ptr<UdpWatch> watch() const { return sessions_.watch(); }
    bool turn(bool all = false) { return endpoint_->turn(monotonic_ns(), all); }

    // Call it before the last look. Whatever arrives afterwards ends the next sleep(), which takes the result.
    uint32_t prepare() {
        if (!endpoint_->owns_socket()) return event_prepare(event()); // never 0
        endpoint_->waiter().announce();
        freshen(); // a datagram from now on ends the sleep at once
        return 0;
    }
    // Sleeps until something arrives, for `ns` at most. Any thread may call it, during every other call.
    bool sleep(uint32_t ticket, int64_t ns) {
        const std::shared_ptr<Endpoint> endpoint = endpoint_;
        if (ticket != 0) {
            const bool woken =
                event_sleep(endpoint->file().control().event.value, ticket, std::min(ns, Endpoint::owner_check_ns));
            endpoint->turn(monotonic_ns()); // ownership may be free now
            return woken;
        }
        // Heartbeats and timers are handled here; they do not end the sleep.
        const std::shared_ptr<UdpWatch> watch = sessions_.watch();
        bool over = false;
        int64_t now = monotonic_ns();
        for (const int64_t until = now + std::min(ns, Endpoint::sleep_max_ns); !over && now < until; now = monotonic_ns()) {
            const int64_t due = endpoint->next_turn();
            const SocketWaiter::Woken woken = endpoint->waiter().sleep(endpoint->receives(), std::min(until, due) - now);
            if (woken == SocketWaiter::Woken::time && due > until) break;
            endpoint->turn(monotonic_ns());
            over = woken == SocketWaiter::Woken::told || watch->readable() || !endpoint->owns_socket();
        }
        freshen();
        if (over) endpoint->waiter().done();
        return true;
    }
    // Runs a duty cycle if this process owns the socket and no other thread runs one. Any thread may call it, during every other
    // call.
    void bring_in() {
        const std::shared_ptr<Endpoint> endpoint = endpoint_;
        endpoint->turn(monotonic_ns());
    }
    // After the last sleep() of a wait, whatever it brought.
    void waited() { endpoint_->waiter().done(); }

    // ---- joining and leaving ----

    void rejoin() { // in a forked child
        const OpenFile again = open_file(file().file());
        if (again.fd() < 0) fail_system(where() + " is gone since the fork");
        sessions_.forget();
        endpoint_.reset();
        open(again.fd());
    }
    void leave() {
        if (!sessions_.attached()) return;
        if (sessions_.forked()) return sessions_.forget();
        sessions_.leave();
        endpoint_->leave();
        event_interrupt(event());
    }
    void interrupt() {
        event_interrupt(event());
        endpoint_->waiter().interrupt();
    }

  private:
    // The socket was just read: a look right afterwards skips it.
    void freshen() { fresh_until_.relaxed(monotonic_ns() + fresh_ns); }
    void open(int fd) {
        endpoint_ = Endpoint::of(fd, path_, calls_);
        try {
            join(fd);
        } catch (...) { // the subscription was not made
            sessions_.give_up();
            endpoint_->leave();
            throw;
        }
    }
    void join(int fd) {
        sessions_.join(fd, file(), random_());
        if (start_.from == Start::From::position) check_one_session();
        endpoint_->listen();
        show_step_ = std::max<uint64_t>(std::min<uint64_t>(file().options().window, 1 << 20) / 8, 4096);
        sessions_.refresh();
        if (sessions_.trouble()) throw Error(*sessions_.trouble());
        endpoint_->joined();
    }
    void check_one_session() const {
        uint32_t sessions = 0;
        for (uint32_t index = 0; index < images_max; ++index) sessions += file().entry(index).number.relaxed() != 0;
        if (sessions > 1)
            throw Error(Code::unsupported, where() + ": there are " + std::to_string(sessions) +
                                               " sessions, each with positions of its own; start at 'newest' or 'earliest'");
    }

    static constexpr int64_t fresh_ns = 20'000;
    const std::string path_;
    const Start start_;
    const uint64_t drop_after_ns_;
    NetCalls &calls_;
    NetRandom random_;
    std::shared_ptr<Endpoint> endpoint_;
    SessionReaders sessions_;
    uint64_t show_step_ = 0, taken_ = 0;
    Atomic<int64_t> fresh_until_;
    uint64_t told_refusals_ = 0;
    bool told_trouble_ = false;
};

} // namespace penstock
