// A network publication: its log, the sender over it, a socket. Duty cycles are run by the writer, with try_lock, or by
// the conductor. The log is an ordinary one in shared memory. The sender is one of its subscriptions, so writers are ahead of it
// by the log's window at most. docs/design/network_log.md.
#pragma once

#include "log/log_writer.hpp"
#include "net/io/name_watch.hpp"
#include "net/io/new_file.hpp"
#include "net/io/receive_batch.hpp"
#include "net/io/send_batch.hpp"
#include "net/io/socket_waiter.hpp"
#include "net/io/udp_options.hpp"
#include "net/seal/publication_seal.hpp"
#include "net/send/destinations.hpp"
#include "net/send/ended_log.hpp"
#include "net/send/receiver_rows.hpp"
#include "net/send/sender.hpp"

#include <cstdio>

namespace penstock {

class NetworkPublication final : public Agent {
  public:
    static constexpr int64_t receive_ns = 50'000;    // the socket is read at least this often
    static constexpr int64_t pause_ns = 50'000;      // after this pause of the writer the conductor serves the socket
    static constexpr uint64_t burst_max = 60 * 1024; // bytes that are sent at once, even right after a send
    static constexpr int64_t retry_ns = 1'000'000;   // when the system had no room
    static constexpr int64_t check_ns = 100'000'000; // between two checks for a receiver on another machine, or of addresses
    static constexpr int ticks_max = 16;
    static constexpr int64_t publish_counts_ns = 1'000'000; // between two looks that others get at the counts

    NetworkPublication(const std::string &uri, const std::string &prefix, const UdpWriterOptions &options, int32_t session,
                       NetCalls &calls)
        : options_(options), uri_(uri), session_(session), path_(path_of(prefix, session)), counts_path_(counts_path_of(path_)),
          where_(uri + " (" + path_ + ")"), file_(make_log()), log_(std::make_shared<TermLog>(file_.fd(), where_)),
          map_(log_->mapping()), socket_(options.to, uri),
          seal_(options.keys ? std::make_unique<PublicationSeal>(options.keys) : nullptr),
          out_(socket_, calls, terms_at(), log_->buffer().size(), nullptr, seal_.get()), calls_(calls),
          sender_(terms(), sender_options(), options.start_position, monotonic_ns()), waiter_(calls),
          burst_(std::clamp<uint64_t>(options.window / 4, options.mtu, burst_max)) {
        open_socket(uri, calls);
        const OpenFile counts = make_file(counts_path_, counts_file_size, [](int) {});
        counts_map_ = std::make_unique<Mapping>(counts.fd(), counts_file_size, true);
        log_->attach(Role::subscription, 0, [&] {
            // SYNC -: under the lock; the sender has read nothing yet
            log_->me().reader.position.release(options_.start_position);
        });
        sent_.relaxed(options_.start_position);
        receivers_.relaxed(0);
    }

    int32_t session() const { return session_; }
    const std::string &where() const { return where_; }
    const std::string &path() const { return path_; }
    int fd() const { return file_.fd(); }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    SocketWaiter &waiter() { return waiter_; }
    uint64_t sent() const { return sent_.relaxed(); }
    uint32_t receivers() const { return receivers_.relaxed(); } // that have sent a status message lately
    // The same, after a check for a receiver. The answer of another machine arrives later, if at all, so it is requested only
    // once in a while.
    uint32_t check_receivers(int64_t now) {
        if (receivers() == 0 || !connected_) return receivers();
        const std::lock_guard hold(duty_cycle_mutex_);
        if (removed_ || (!is_loopback_ && now - checked_ns_ < check_ns)) return receivers();
        checked_ns_ = now;
        sender_.request_heartbeat();
        run_duty_cycle_locked(now, true, true); // first, everything that it sent before it died
        run_duty_cycle_locked(now, true, true); // now the system has reported that the port is closed
        return receivers();
    }
    uint64_t burst() const { return burst_; }
    // How long messages may wait for more before the conductor sends them. The time grows while the writer keeps sending by
    // itself.
    int64_t flush_within_ns() const { return std::min(2 * flush_ns_.relaxed(), Conductor::waiter_ns); }
    const std::string &warning() const { return warning_; }

    // One duty cycle, if no other thread runs it now. `receive`: looks at the socket in any case.
    bool run_duty_cycle(int64_t now, bool receive) {
        if (!duty_cycle_mutex_.try_lock()) return false;
        const std::lock_guard hold(duty_cycle_mutex_, std::adopt_lock);
        waiter_.record_duty_cycle(now);
        if (!removed_) run_duty_cycle_locked(now, receive);
        return true;
    }
    // Of a publication with several destinations. False: it is there already; it is not there. `host`: its name, if it has one.
    bool add_destination(const Address &to, const std::string &host = {}) {
        return with_destinations([&](Destinations &d) {
            if (host.empty()) return d.add(to);
            if (find_name(host, to.port) != names_.end() || !d.add(to)) return false;
            names_.emplace_back(host, to, calls_);
            return true;
        });
    }
    bool remove_destination(const Address &to, const std::string &host = {}) {
        return with_destinations([&](Destinations &d) {
            const auto found = host.empty() ? names_.end() : find_name(host, to.port);
            if (found == names_.end()) return d.remove(to);
            const bool removed = d.remove(found->address()); // where it is now
            names_.erase(found);
            return removed;
        });
    }

    // The writer is about to leave. A log without a writer that does not say so is that of a killed one.
    void end_log() { log_->control().session_end.value.relaxed(SessionEnd{SessionEnd::How::closed, log_->tail()}.word()); }
    // The writer has closed. The conductor sends the rest of the log, then the end of the stream.
    void close(int64_t now) {
        const std::lock_guard hold(duty_cycle_mutex_);
        closing_.relaxed(true);
        close_by_ns_ = now + options_.linger_ns;
        sender_.close(now, log_->tail());
        run_duty_cycle_locked(now, true);
        finish_if_done(now); // without `linger` the number of the session is free at once
    }
    // What receivers have read, and whether one of them was replaced by another, which lacks what was not read.
    std::pair<uint64_t, bool> progress() {
        const std::lock_guard hold(duty_cycle_mutex_);
        return {sender_.consumed(), sender_.replaced()};
    }
    UdpCounts counts() { // others see them too, with the receivers as they are now
        const std::lock_guard hold(duty_cycle_mutex_);
        if (!removed_) publish_counts(monotonic_ns());
        return counts_locked();
    }
    // What to tell: once, that a path drops long datagrams, and once an hour for each kind, that datagrams are refused because of
    // a key or of shares. Empty: nothing.
    std::string refusal(int64_t now) {
        const std::lock_guard hold(duty_cycle_mutex_);
        for (const FlowLimit::Entry &one : sender_.receiver_entries()) {
            if (!one.path.limited || reported_path_ == one.path.arrives + 1) continue;
            reported_path_ = one.path.arrives + 1; // once
            return uri_ + ": " + path_text(options_.mtu, one.path.arrives, "at " + text_of(one.report.from));
        }
        const uint64_t refused = seal_ ? seal_->counts().unauthenticated : sealed_;
        if (notice_.is_due(refused, now)) return uri_ + ": " + refusal_text(refused, seal_ != nullptr);
        const SenderCounts &s = sender_.counts();
        if (nak_notice_.is_due(s.naks_refused, now))
            return uri_ + ": " +
                   share_text("NAKs for more than a few times what the receiver has consumed are ignored",
                              sender_.nak_refused_from(), "naks_refused", s.naks_refused);
        if (receiver_notice_.is_due(s.receivers_refused, now))
            return uri_ + ": " +
                   share_text("receivers beyond their host's share are ignored", sender_.receiver_refused_from(),
                              "receivers_refused", s.receivers_refused);
        if (destinations_ && destination_notice_.is_due(destinations_->refused(), now))
            return uri_ + ": " +
                   share_text("receivers that ask for the stream beyond their host's share are refused",
                              destinations_->refused_from(), "destinations_refused", destinations_->refused());
        return "";
    }
    std::string last_error() {
        const std::lock_guard hold(duty_cycle_mutex_);
        return sender_.last_error();
    }
    // When it has to be turned again at the latest.
    int64_t next() {
        const std::lock_guard hold(duty_cycle_mutex_);
        return next_locked();
    }

    Schedule do_work(int64_t now) override {
        Schedule schedule;
        if (!is_closing() && waiter_.has_sleeper(now, schedule)) return schedule;
        if (!is_closing() && waiter_.ran_within(now, pause_ns)) { // the writer serves the socket itself
            schedule.due = now + flush_ns_.relaxed();
            flush_ns_.relaxed(std::min(2 * flush_ns_.relaxed(), Conductor::check_max_ns));
            return schedule;
        }
        flush_ns_.relaxed(pause_ns);
        if (!duty_cycle_mutex_.try_lock()) return {now + pause_ns, false};
        const std::lock_guard hold(duty_cycle_mutex_, std::adopt_lock);
        if (!removed_) run_duty_cycle_locked(now, true);
        if (finish_if_done(now)) return {INT64_MAX, true};
        Conductor::instance().watch(*this, socket());
        schedule.due = has_more_ ? now : next_locked();
        if (is_closing()) schedule.due = std::min(schedule.due, close_by_ns_);
        return schedule;
    }
    int socket() const { return control_ ? control_->fd() : socket_.fd(); }
    bool is_closing() const override { return closing_.relaxed(); }

  private:
    std::vector<NameWatch>::iterator find_name(const std::string &host, uint16_t port) {
        return std::find_if(names_.begin(), names_.end(), [&](const NameWatch &one) { return one.is_of(host, port); });
    }
    void watch_names() {
        for (size_t i = 0; i < options_.names.size(); ++i)
            if (!options_.names[i].empty())
                names_.emplace_back(options_.names[i], i == 0 ? options_.to : options_.destinations[i - 1], calls_);
    }
    // A receiver that is not heard may have another address now, or this machine has.
    void follow_addresses(int64_t now) {
        addresses_checked_ns_ = now;
        for (NameWatch &name : names_) {
            const Address before = name.address();
            const auto at = name.poll(now, destinations_ ? !sender_.hears(before) : sender_.readers() == 0);
            if (!at) continue;
            if (destinations_) {
                destinations_->remove(before);
                destinations_->add(*at);
            } else connect_again(*at);
        }
        if (!connected_ || sender_.readers() != 0) {
            silent_since_ns_ = now;
            return;
        }
        if (now - silent_since_ns_ < NameWatch::interval_ns) return;
        silent_since_ns_ = now;
        if (UdpSocket::source_to(to_) != socket_.bound().host) connect_again(to_);
    }
    void connect_again(const Address &to) {
        to_ = to;
        socket_.connect_again(to); // if there is no way there now, datagrams fail, and the next check tries again
        is_loopback_ = is_loopback(to) || socket_.bound().host == to.host;
    }
    template <class Do> bool with_destinations(Do &&change) {
        const std::lock_guard hold(duty_cycle_mutex_);
        if (!destinations_ || options_.control)
            throw Error(Code::unsupported, where_ + ": open the publication with destinations=, to add and remove some");
        return change(*destinations_);
    }
    static std::string path_of(const std::string &prefix, int32_t session) {
        char name[16];
        std::snprintf(name, sizeof name, "%08x.log", static_cast<uint32_t>(session));
        return prefix + name;
    }
    static std::string counts_path_of(const std::string &log) { return log.substr(0, log.size() - 3) + "counts"; }
    LogGeometry geometry() const {
        LogGeometry g;
        g.term_length = options_.term_length;
        g.window = options_.capacity == 0 ? options_.term_length / 2 : options_.capacity;
        g.slot_count = options_.slot_count;
        g.initial_term_id = options_.initial_term_id;
        g.stream = options_.stream;
        g.start_position = options_.start_position;
        g.epoch = NetRandom()();
        g.max_frame = std::min(options_.mtu, options_.term_length / 4);
        return g;
    }
    OpenFile make_log() const {
        if (options_.mtu <= header_length || options_.mtu > wire::datagram_max || options_.mtu % frame_alignment != 0)
            throw Error(Code::invalid,
                        "mtu is " + std::to_string(options_.mtu) + ": it must be a multiple of 32 from 64 to 65504");
        if (options_.keys && options_.mtu > wire::sealed_mtu_max)
            throw Error(Code::invalid, "mtu is " + std::to_string(options_.mtu) + ": with a key it is at most " +
                                           std::to_string(wire::sealed_mtu_max));
        const LogGeometry g = geometry();
        check_geometry(g, Code::invalid);
        return make_file(path_, log_file_size(g.slot_count, g.term_length), [&](int fd) {
            const uint8_t boot[16] = {};
            format_log(fd, g, options_.metadata, boot, system_ns(CLOCK_REALTIME));
            const Mapping map(fd, size_of_file(fd), true);
            auto *control = reinterpret_cast<Control *>(map.bytes() + control_offset);
            control->sessions.value.relaxed(static_cast<uint32_t>(session_)); // the one publication's
        });
    }
    uint8_t *terms_at() const { return map_->bytes() + terms_offset(log_->geometry().slot_count); }
    Terms terms() const { return {terms_at(), options_.term_length, options_.mtu, options_.initial_term_id, options_.stream}; }
    SenderOptions sender_options() const {
        SenderOptions made;
        made.session = session_;
        made.stream = options_.stream;
        made.mtu = options_.mtu;
        made.ttl = is_multicast(options_.to) ? options_.ttl : 0;
        made.flow_control = options_.flow_control;
        made.group_tag = options_.group_tag;
        made.description = options_.description;
        made.window = options_.window;
        made.linger_ns = options_.linger_ns;
        return made;
    }
    void open_socket(const std::string &uri, NetCalls &calls) {
        const uint32_t requested = options_.send_buffer != 0 ? options_.send_buffer : std::max(2 * options_.window, 256u * 1024);
        if (const uint32_t granted = socket_.send_buffer(requested); granted < requested && options_.send_buffer != 0)
            warning_ = "the system grants a send buffer of " + std::to_string(granted) + " bytes, not " +
                       std::to_string(requested) + "; raise net.core.wmem_max";
        if (is_multicast(options_.to)) {
            socket_.multicast(options_.interface, options_.ttl);
            control_ = std::make_unique<UdpSocket>(options_.to, uri);
            control_->join(control_group(options_.to), options_.interface);
        }
        if (options_.control || options_.multi_destination) open_destinations();
        else if (socket_.connect(options_.to); !is_multicast(options_.to)) {
            connected_ = true;
            is_loopback_ = is_loopback(options_.to) || socket_.bound().host == options_.to.host;
        }
        if (!options_.control && !is_multicast(options_.to)) watch_names();
        const UdpSocket &source = control_ ? *control_ : socket_;
        in_ = std::make_unique<ReceiveBatch>(source, calls);
    }

    // Whether a closed publication has finished: then its files are removed.
    bool finish_if_done(int64_t now) {
        if (!is_closing() || (sender_.state() != Sender::State::closed && now < close_by_ns_)) return false;
        if (!removed_ && options_.linger_ns != 0 && sender_.position() < log_->tail())
            Conductor::instance().report_unsent(uri_, log_->tail() - sender_.position());
        if (!removed_) leave_for_recorders(path_);
        remove_files(); // first: without a slot in the log its name is another's to remove
        log_->detach();
        return true;
    }
    void remove_files() { // once: the number of the session may be another publication's by now
        if (std::exchange(removed_, true)) return;
        ::unlink(counts_path_.c_str()); // first: the log's name keeps the number until both are gone
        ::unlink(path_.c_str());
    }
    // Shows the publication's counts to other processes.
    void publish_counts(int64_t now) {
        counts_published_ns_ = now;
        const UdpCounts counts = counts_locked();
        const auto *words = reinterpret_cast<const uint64_t *>(&counts);
        for (size_t i = 0; i < counts_words; ++i) published_counts()[i].relaxed(words[i]);
        auto &table = *reinterpret_cast<ReceiverTable *>(counts_map_->bytes() + receiver_table_offset);
        write_receivers(table, sender_.receiver_entries(), options_.mtu);
    }
    Atomic<uint64_t> *published_counts() const { return reinterpret_cast<Atomic<uint64_t> *>(counts_map_->bytes()); }

    void open_destinations() {
        if (is_multicast(options_.to))
            throw Error(Code::invalid, "a multicast group has receivers of its own: no control address");
        if (options_.control) {
            try {
                socket_.bind(*options_.control);
                if (is_any(*options_.control)) socket_.show_local();
            } catch (const Error &error) {
                throw name_port_owner(error, *options_.control);
            }
        }
        destinations_ = std::make_unique<Destinations>(socket_, calls_, options_.control.has_value(), terms_at(),
                                                       log_->buffer().size(), seal_.get());
        if (options_.control) return;
        destinations_->add(options_.to);
        for (const Address &to : options_.destinations) destinations_->add(to);
    }
    // Call it before handling a datagram: a receiver that sends something afterwards exists.
    void check_unreachable() {
        const uint64_t unreachable = out_.counts().unreachable + in_->counts().unreachable;
        if (std::exchange(unreachable_, unreachable) != unreachable) sender_.on_unreachable();
    }
    void on_datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length) {
        check_unreachable();
        if (seal_) {
            const std::span<const uint8_t> frames = seal_->open(now, from, bytes, length);
            if (frames.empty()) return;
            bytes = frames.data();
            length = frames.size();
        } else if (wire::is_sealed(bytes, length)) {
            ++sealed_;
            return;
        }
        const auto handled = destinations_ ? destinations_->on_datagram(now, from, bytes, length, session_, options_.stream)
                                           : Destinations::Handled::pass_on;
        if (handled == Destinations::Handled::setup_request) {
            sender_.request_setup();
            return;
        }
        if (handled == Destinations::Handled::refused) return;
        if (wire::has_noun(bytes, length, wire::extension_clock_request)) [[unlikely]]
            sender_.set_wall_clock(system_ns(CLOCK_REALTIME));
        sender_.datagram(now, from, bytes, length);
        if (handled == Destinations::Handled::verified) sender_.schedule_description(now);
    }

    // At once, and to receivers that are no destinations yet, too. A lost answer is asked for again.
    void answer_challenges(int64_t now) {
        const bool any = seal_->send_answers([&](const Address &to, const uint8_t *bytes, size_t length) {
            iovec piece{const_cast<uint8_t *>(bytes), length};
            sockaddr_storage at;
            mmsghdr message{};
            message.msg_hdr.msg_iov = &piece;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = &at;
            message.msg_hdr.msg_namelen = fill(at, is_multicast(options_.to) ? options_.to : to, socket_.family());
            Ancillary from{};
            if (to.local != std::array<uint8_t, 16>{}) {
                message.msg_hdr.msg_controllen = write_local(from.bytes, to.local, socket_.family());
                message.msg_hdr.msg_control = from.bytes;
            }
            calls_.send(socket_.fd(), &message, 1);
        });
        if (any) sender_.introduce(now);
    }

    void run_duty_cycle_locked(int64_t now, bool receive, bool all = false) {
        bool received = false;
        if (receive || now - last_receive_ns_ >= receive_ns || sender_.limit() - sender_.position() < options_.window / 2) {
            last_receive_ns_ = now;
            received = in_->receive(
                64 * 1024,
                [&](const Address &from, const uint8_t *bytes, size_t length) { on_datagram(now, from, bytes, length); }, all);
            if (seal_) answer_challenges(now);
        }
        if (now - addresses_checked_ns_ >= check_ns) follow_addresses(now);
        if (destinations_) destinations_->forget(now);
        has_more_ = true;
        if (destinations_) send_due(now, *destinations_);
        else send_due(now, out_);
        check_unreachable();
        publish_progress(now, received);
        if (now - counts_published_ns_ >= publish_counts_ns) publish_counts(now);
    }
    template <class Out> void send_due(int64_t now, Out &out) {
        bool flowing = out.flush();
        for (int i = 0; i < ticks_max && flowing && has_more_; ++i) {
            has_more_ = sender_.tick(now, out);
            flowing = out.flush();
        }
    }
    // Lets writers continue, and wakes waits for receivers.
    void publish_progress(int64_t now, bool received) {
        const uint64_t position = sender_.position();
        const uint32_t receivers = sender_.readers();
        const bool moved = position != sent_.relaxed(), others = receivers != receivers_.relaxed();
        if (moved) {
            if (is_closing()) close_by_ns_ = now + options_.linger_ns; // receivers make progress, if slowly
            sent_.relaxed(position);
            // SYNC 3: pairs with LogRoom::position_limit; forbids the position being visible before the frames below it were read
            log_->me().reader.position.release(position);
        }
        if (others) receivers_.relaxed(receivers);
        if (!moved && !others && !received) return;
        event_notify(log_->control().space.value);
        waiter_.wake_sleepers();
    }
    int64_t next_locked() const {
        return (destinations_ ? destinations_->empty() : out_.empty()) ? sender_.next() : monotonic_ns() + retry_ns;
    }

    UdpCounts counts_locked() const {
        const SenderCounts &s = sender_.counts();
        const SendCounts o = destinations_ ? destinations_->counts() : out_.counts();
        const ReceiveCounts &i = in_->counts();
        UdpCounts c;
        c.datagrams_sent = o.datagrams;
        c.bytes_sent = o.bytes;
        c.segmented = o.segmented;
        c.send_refused = o.refused;
        c.send_failed = o.failed;
        c.datagrams_received = i.datagrams;
        c.bytes_received = i.bytes;
        c.coalesced = i.coalesced;
        c.receive_failed = i.failed;
        c.truncated = i.truncated;
        c.setups = s.setups;
        c.heartbeats = s.heartbeats;
        c.statuses = s.statuses;
        c.naks_received = s.naks;
        c.retransmitted = s.retransmits;
        c.retransmitted_bytes = s.retransmitted_bytes;
        c.setup_requests = s.setup_requests;
        c.malformed = s.malformed;
        c.rejected = s.rejected + s.statuses_refused;
        c.receivers_refused = s.receivers_refused;
        c.naks_refused = s.naks_refused;
        c.destinations_refused = destinations_ ? destinations_->refused() : 0;
        c.destinations_displaced = destinations_ ? destinations_->displaced() : 0;
        c.held = s.naks_ignored;
        c.sessions = 1;
        c.unauthenticated = seal_ ? seal_->counts().unauthenticated : sealed_;
        c.replayed = seal_ ? seal_->counts().replayed : 0;
        return c;
    }

    // The files of an owner that could be made go with it, also if the rest of it could not be made. A forked child leaves them.
    class Files {
      public:
        explicit Files(NetworkPublication &owner) : owner_(owner) {}
        ~Files() {
            if (generation_ == ForkGuard::generation()) owner_.remove_files();
        }
        Files(const Files &) = delete;
        Files &operator=(const Files &) = delete;

      private:
        NetworkPublication &owner_;
        const uint32_t generation_ = ForkGuard::generation();
    };

    const UdpWriterOptions options_;
    const std::string uri_;
    const int32_t session_;
    const std::string path_, counts_path_, where_;
    bool removed_ = false;
    const OpenFile file_;
    const Files files_{*this}; // from here on there is a log to remove
    const std::shared_ptr<TermLog> log_;
    const std::shared_ptr<Mapping> map_;
    std::unique_ptr<Mapping> counts_map_;
    UdpSocket socket_;
    const std::unique_ptr<PublicationSeal> seal_;
    std::unique_ptr<UdpSocket> control_; // multicast: where receivers' messages arrive
    std::unique_ptr<ReceiveBatch> in_;
    SendBatch out_;
    std::unique_ptr<Destinations> destinations_; // instead of `out_`
    NetCalls &calls_;
    Sender sender_;
    SocketWaiter waiter_;
    const uint64_t burst_;
    std::mutex duty_cycle_mutex_;
    bool has_more_ = false;
    bool connected_ = false, is_loopback_ = false; // the socket has one destination; it is this machine
    Address to_ = options_.to;                     // which is here
    std::vector<NameWatch> names_;                 // of it, or of destinations
    int64_t addresses_checked_ns_ = 0, silent_since_ns_ = 0;
    int64_t last_receive_ns_ = 0, counts_published_ns_ = 0, checked_ns_ = 0;
    uint64_t unreachable_ = 0;
    uint32_t reported_path_ = 0; // bytes that arrive, and 1
    uint64_t sealed_ = 0;        // datagrams, where there is no key
    RefusalNotice notice_, nak_notice_, receiver_notice_, destination_notice_;
    Atomic<int64_t> flush_ns_{
        pause_ns}; // until the conductor looks again at a writer that does not pause; the conductor stores it
    int64_t close_by_ns_ = INT64_MAX;
    // Stored under the lock. Without it the conductor may see it late: after close() it is woken, by a system call, and looks
    // again.
    Atomic<bool> closing_{false};
    Atomic<uint64_t> sent_;
    Atomic<uint32_t> receivers_;
    std::string warning_;
};

} // namespace penstock
