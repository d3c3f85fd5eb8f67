// A subscription on the network. Reads the images of all sessions of its endpoint in turn, each in order. Used by one thread at a
// time. Only sleep() waits: "nothing yet" is a value. If it finds nothing, and its process owns the socket, it runs the
// endpoint's duty cycle.
#pragma once

#include "net/receive/endpoint.hpp"
#include "net/receive/images/session_readers.hpp"
#include "net/wire/path_limit.hpp"

namespace penstock {

class UdpReader {
  public:
    // `fd`: of the endpoint's file. `start`: where in sessions that are there already; others are read from where they are
    // joined. `keys`: null: datagrams are clear. `control_host`: of the control address, if it is a name.
    UdpReader(int fd, std::string path, Start start, uint64_t drop_after_ns, Keys keys = {}, std::string control_host = {},
              NetCalls &calls = NetCalls::system())
        : path_(std::move(path)), start_(start), drop_after_ns_(drop_after_ns), keys_(std::move(keys)),
          control_host_(std::move(control_host)), calls_(calls), sessions_(start, drop_after_ns) {
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
    Atomic<uint64_t> &wait_word() const { return sessions_.me().subscriber.wait; }
    Takeover takeover() const { return endpoint_->takeover(); }

    // ---- reading ----

    // The next message, or null. Its frame stays readable until consume(); an assembled one until the next peek().
    const Message *peek() {
        if (const Message *message = sessions_.peek()) return message;
        const int64_t now = monotonic_ns();
        if (now < fresh_until_.relaxed()) return nullptr;
        return endpoint_->run_duty_cycle(now) ? sessions_.peek() : nullptr;
    }
    void consume() {
        consumed_ += sessions_.consume();
        if (consumed_ < show_step_) return;
        consumed_ = 0;
        sessions_.show_position();
        endpoint_->run_duty_cycle(monotonic_ns());
    }
    // Keeps the bytes of a message that peek() returned, until end_hold(), whatever is taken meanwhile.
    void hold(const Message &message) {
        if (SessionReaders::Session *from = sessions_.session(message.session))
            from->reader->hold(message.position), ++from->held;
    }
    void end_hold(const Message &message) {
        for (const auto &one : sessions_.all()) {
            if (one->held == 0 || one->session != message.session) continue;
            one->reader->end_hold(message.position);
            --one->held;
            return;
        }
    }
    void check_not_dropped() {
        for (const auto &one : sessions_.all()) one->reader->check_not_dropped();
    }
    bool droppable() const { return drop_after_ns_ != 0; }
    bool readable() const { return sessions_.readable(); }
    // After a look that found nothing: this subscription has seen a session, and all that it has seen have ended. One that was
    // lost has had the time to come back: a receiver that fell behind is with its sender again after a second. So has one whose
    // source was asked for a proof of its address; strangers delay an end by no more.
    bool ended() {
        const int64_t before = ended_since_;
        ended_since_ = 0;
        if (!sessions_.ended()) return false;
        const int64_t now = monotonic_ns();
        const bool others_come = now - endpoint_->file().control().ended.coming_ns.relaxed() < coming_ns;
        if (!others_come && sessions_.lost_session() == nullptr) return true;
        ended_since_ = before == 0 ? now : before;
        return now - ended_since_ >= return_ns;
    }
    // Of the sessions that have ended, one that fell silent before its end and has not come back. Empty: none.
    std::string lost_session() const {
        const SessionReaders::Publication *lost = sessions_.lost_session();
        return lost == nullptr ? "" : "session " + std::to_string(lost->session) + " of " + text_of(lost->source);
    }
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
            if (one->continued && sessions_.is_finished(*one)) continue; // it is the same session
            const ImageEntry &entry = file().entry(one->index);
            UdpSession s;
            s.session = one->session;
            s.initial_term_id = one->reader->log().geometry().initial_term_id;
            s.source = text_of(read_source(entry));
            s.description = read_description(entry);
            s.join = one->join;
            if (wire::SetupFrame setup; read_setup(entry, setup)) s.join = std::max(s.join, join_position_of(setup));
            s.position = one->reader->position();
            s.high = entry.high.relaxed();
            s.lag = one->reader->lag();
            s.term_length = one->reader->log().geometry().term_length;
            s.mtu = entry.mtu.relaxed();
            s.state = SessionEnd::name_of(sessions_.end_reached(*one));
            all.push_back(std::move(s));
        }
        return all;
    }
    std::vector<SessionReaders::Reached> reached() const { return sessions_.reached(); }
    // By how much latencies of that session's messages are too short, as the clocks differ.
    int64_t clock_correction(int32_t session) const {
        const SessionReaders::Session *one = sessions_.session(session);
        return one == nullptr ? 0 : static_cast<int64_t>(file().entry(one->index).words.clock_correction.relaxed());
    }
    UdpCounts counts() { return endpoint_->counts(); }
    std::string warning() { return endpoint_->warning(); }
    // Once for each session that cannot be received or joined: why; once that its long datagrams do not arrive; and once an
    // hour, whether a key refuses datagrams, or sessions are refused or gave way. Empty: nothing new.
    std::string refusal() {
        if (const uint64_t refused = endpoint_->unauthenticated(); notice_.is_due(refused, monotonic_ns()))
            return where() + ": " + refusal_text(refused, keys_ != nullptr);
        if (const std::string text = share_refusal(); !text.empty()) return text;
        for (const auto &one : sessions_.all()) {
            const ImageEntry &entry = file().entry(one->index);
            const uint32_t arrives = entry.words.path_limit.relaxed();
            if (arrives == 0 || std::exchange(one->reported_path, arrives) == arrives) continue;
            return where() + ": " + path_text(entry.mtu.relaxed(), arrives, "from " + text_of(read_source(entry)));
        }
        const bool failed = sessions_.join_error().has_value();
        if (const bool before = std::exchange(reported_join_error_, failed); failed && !before)
            return where() + ": a session cannot be read: " + sessions_.join_error()->what() + ". It is tried again";
        const uint64_t refusals = endpoint_->refusals();
        return std::exchange(reported_refusals_, refusals) == refusals ? "" : endpoint_->refusal();
    }

    // ---- each session separately, for a recorder ----

    struct Stream {
        uint64_t number = 0; // of its image
        LogReader *reader = nullptr;
        std::string description;
        uint64_t skipped = 0; // bytes before it that were lost while the session was silent
    };
    // The sessions as they are now. Those that are gone are left, once all of them was read.
    std::vector<Stream> streams() {
        run_duty_cycle();
        if (sessions_.has_changes()) sessions_.refresh();
        sessions_.close_ended();
        std::vector<Stream> all;
        for (const auto &one : sessions_.all())
            all.push_back({one->number, one->reader.get(), read_description(file().entry(one->index)), one->skipped});
        return all;
    }
    bool has_changes() const { return sessions_.has_changes(); }
    // The reader of one session, or null once it was left.
    LogReader *stream(uint64_t number) const {
        const SessionReaders::Session *one = sessions_.find(number);
        return one == nullptr ? nullptr : one->reader.get();
    }
    // How a session has ended, once all of it was read; also after it was left.
    SessionEnd::How end_reached(uint64_t number) const { return sessions_.end_reached(number); }
    uint64_t skip_lost(LogReader &reader) { return sessions_.skip_lost(reader); }
    void count(uint64_t messages, uint64_t bytes) {
        sessions_.count(messages, bytes);
        run_duty_cycle();
    }

    // ---- waiting ----

    Atomic<uint32_t> &event() { return file().control().event.value; }
    const Atomic<uint64_t> &activity() const { return file().control().activity.value; }
    uint64_t seen() const { return sessions_.watch()->seen(); }
    std::shared_ptr<UdpWatch> watch() const { return sessions_.watch(); }
    bool run_duty_cycle(bool all = false) { return endpoint_->run_duty_cycle(monotonic_ns(), all); }

    // Call it before the last look. Whatever arrives afterwards ends the next sleep(), which takes the result.
    uint32_t prepare() {
        if (!endpoint_->owns_socket()) return event_prepare(event()); // never 0
        endpoint_->waiter().announce();
        mark_fresh(); // a datagram from now on ends the sleep at once
        return 0;
    }
    // Sleeps until something arrives, for `ns` at most. Any thread may call it, during every other call.
    bool sleep(uint32_t ticket, int64_t ns) {
        const std::shared_ptr<Endpoint> endpoint = endpoint_;
        if (ticket != 0) {
            const bool woken =
                event_sleep(endpoint->file().control().event.value, ticket, std::min(ns, Endpoint::owner_check_ns));
            endpoint->run_duty_cycle(monotonic_ns()); // ownership may be free now
            return woken;
        }
        // Heartbeats and timers are handled here; they do not end the sleep.
        const std::shared_ptr<UdpWatch> watch = sessions_.watch();
        bool over = false;
        int64_t now = monotonic_ns();
        for (const int64_t until = now + std::min(ns, Endpoint::sleep_max_ns); !over && now < until; now = monotonic_ns()) {
            const int64_t due = endpoint->next_duty_cycle();
            const SocketWaiter::Woken woken = endpoint->waiter().sleep(endpoint->socket_fd(), std::min(until, due) - now);
            if (woken == SocketWaiter::Woken::time && due > until) break;
            endpoint->run_duty_cycle(monotonic_ns());
            over = woken == SocketWaiter::Woken::event || watch->readable() || !endpoint->owns_socket();
        }
        mark_fresh();
        if (over) endpoint->waiter().end_wait();
        return true;
    }
    // Runs a duty cycle if this process owns the socket and no other thread runs one. Any thread may call it, during every other
    // call.
    void serve_socket() {
        const std::shared_ptr<Endpoint> endpoint = endpoint_;
        endpoint->run_duty_cycle(monotonic_ns());
    }
    // After the last sleep() of a wait, whatever it brought.
    void end_wait() { endpoint_->waiter().end_wait(); }

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
    // Sessions that were refused, or gave way. The owner of the socket knows whose.
    std::string share_refusal() {
        const uint64_t refused = endpoint_->sessions_refused(), displaced = endpoint_->sessions_displaced();
        if (std::exchange(refused_seen_, refused) != refused)
            if (const Address from = endpoint_->refused_from();
                !is_unset(from) && refused_notice_.is_due(refused, monotonic_ns()))
                return where() + ": " +
                       share_text("sessions are refused: there are too many, or they ask for too much memory", from,
                                  "sessions_refused", refused);
        if (std::exchange(displaced_seen_, displaced) != displaced)
            if (const Address from = endpoint_->displaced_from();
                !is_unset(from) && displaced_notice_.is_due(displaced, monotonic_ns()))
                return where() + ": " + share_text("sessions gave way to others", from, "sessions_displaced", displaced);
        return "";
    }
    // The socket was just read: a look right afterwards skips it.
    void mark_fresh() { fresh_until_.relaxed(monotonic_ns() + fresh_ns); }
    void open(int fd) {
        endpoint_ = Endpoint::for_file(fd, path_, keys_, calls_);
        endpoint_->watch_control(control_host_);
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
        if (start_.from == Start::From::position) require_single_session();
        endpoint_->listen();
        show_step_ = std::max<uint64_t>(std::min<uint64_t>(file().options().window, 1 << 20) / 8, 4096);
        sessions_.refresh();
        if (sessions_.join_error()) throw Error(*sessions_.join_error());
        endpoint_->joined();
    }
    void require_single_session() const {
        uint32_t sessions = 0;
        for (uint32_t index = 0; index < images_max; ++index) sessions += file().entry(index).number.relaxed() != 0;
        if (sessions > 1)
            throw Error(Code::unsupported, where() + ": there are " + std::to_string(sessions) +
                                               " sessions, each with positions of its own; start at 'newest' or 'earliest'");
    }

    static constexpr int64_t fresh_ns = 20'000;
    static constexpr int64_t return_ns = 2'000'000'000, coming_ns = 1'000'000'000;
    const std::string path_;
    const Start start_;
    const uint64_t drop_after_ns_;
    const Keys keys_;
    const std::string control_host_;
    NetCalls &calls_;
    NetRandom random_;
    std::shared_ptr<Endpoint> endpoint_;
    SessionReaders sessions_;
    uint64_t show_step_ = 0, consumed_ = 0;
    int64_t ended_since_ = 0; // with a session that was lost; 0: it has not ended
    Atomic<int64_t> fresh_until_;
    uint64_t reported_refusals_ = 0;
    bool reported_join_error_ = false;
    RefusalNotice notice_, refused_notice_, displaced_notice_;
    uint64_t refused_seen_ = 0, displaced_seen_ = 0; // sessions
};

} // namespace penstock
