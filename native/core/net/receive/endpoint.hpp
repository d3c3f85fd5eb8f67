// An endpoint as one process has it: all subscriptions of the process to one stream share it. The process that holds the seat, a
// kernel lock that dies with it, receives into the images; any other is ready to take the seat. Streams of one port share its
// socket, so the process that has the port takes the seats of its other streams, too. Turned by callers that find nothing, under
// a lock that is only ever tried, and by the keeper. docs/design/network_log.md.
#pragma once

#include "net/io/port.hpp"
#include "net/receive/held_images.hpp"
#include "net/receive/port_files.hpp"

#include <map>
#include <poll.h>

namespace penstock {

// How this process came to hold the seat after another one's death, for measurements: monotonic times.
struct Takeover {
    int64_t noticed_ns = 0;              // the keeper knows of the death; 0: a caller took the seat before that
    int64_t seated_ns = 0, first_ns = 0; // the images are gone on with; the first datagram has come
    uint32_t tries = 0;                  // of the seat, since the death was noticed
};

class Endpoint final : public Kept, public Port::Stream, public std::enable_shared_from_this<Endpoint> {
    struct All;

  public:
    static constexpr int64_t seat_look_ns = 1'000'000;     // between a caller's looks whether the seat is free
    static constexpr int64_t sleep_max_ns = 1'000'000'000; // of a caller at a time
    static constexpr int64_t seat_keep_ns = 20'000'000;    // between the keeper's
    static constexpr uint32_t dead_looks_max = 50; // of the keeper, `seat_look_ns` apart, while nobody takes a dead holder's seat
    static constexpr int64_t listen_ns = 2'000'000'000;     // for the answer of the process that has the port
    static constexpr int64_t guest_look_ns = 20'000'000;    // between looks whether a guest is still wanted
    static constexpr int64_t guest_reap_ns = 1'000'000'000; // and whether its subscriptions live

    // The process's own for this file; made by its first subscription.
    static std::shared_ptr<Endpoint> of(int fd, const std::string &path, NetCalls &calls = NetCalls::system()) {
        return find(fd, path, calls, 1);
    }

    Endpoint(int fd, const std::string &path, NetCalls &calls, All &all)
        : file_(fd, path), members_(fd, file_), seat_(fd, path), calls_(calls), port_(port_of(all, file_.options(), calls)) {
        members_.attach(MemberRole::host, [] {});
    }
    ~Endpoint() override {
        if (!members_.forked()) return;
        if (images_) images_->hand_over(); // its socket is closed, its lock its parent's
        members_.forget();
    }
    // A subscription leaves. The last one of the process takes the rest with it: another process may have the seat.
    void leave() {
        if (members_.forked()) return;
        if (!last_goes()) return;
        const std::shared_ptr<Port> port = port_;
        const std::lock_guard hold(port->turning);
        seat_at_ = 0;
        if (!images_ && members_.subscriptions() == 0) turn_held(monotonic_ns()); // senders hear that all has been read
        leave_held();
        std::erase_if(port->guests, [&](const auto &guest) { return guest.get() == this; });
        if (!port->has_own()) let_guests_go([](Endpoint &) { return true; }); // the port is for another process
    }

    const EndpointFile &file() const { return file_; }
    Caller &caller() { return port_->caller; }
    bool holds_seat() const { return held_; }

    // One duty cycle, if this process has the seat, or can take it, and nobody else turns. True if it was done. `all`: every
    // datagram leaves the socket.
    bool turn(int64_t now, bool all = false) {
        if (!port_->turning.try_lock()) return false;
        const std::lock_guard hold(port_->turning, std::adopt_lock);
        port_->caller.turned(now);
        return turn_held(now, all);
    }
    // The same for the first subscription: what keeps it from listening is an error of its own.
    void listen() {
        std::unique_lock hold(port_->turning);
        Atomic<uint32_t> &event = file_.control().event.value;
        for (const int64_t until = monotonic_ns() + listen_ns;;) {
            seat_at_ = 0;
            if (images_) images_->recount();
            const uint32_t ticket = event_prepare(event);
            if (turn_held(monotonic_ns())) break;
            if (!failed_ && seat_.taken_by_other(lock_byte::socket)) break; // another process receives
            if (failed_ && !ask_holder()) throw told_who(*failed_, file_.options().at);
            if (monotonic_ns() > until)
                throw Error(Code::busy, file_.uri() + ": the process that has " + text_of(file_.options().at) +
                                            " for other streams does not take this one on (stopped?)");
            hold.unlock();
            event_sleep(event, ticket, seat_look_ns);
            hold.lock();
        }
        hold.unlock();
        be_kept(); // not before: an opening that fails starts no thread
    }
    // A subscription of this process has joined all images: senders hear of it at once. Another holder counts every 20 ms.
    void joined() {
        const std::lock_guard hold(port_->turning);
        if (!images_) return;
        images_->recount();
        turn_held(monotonic_ns());
    }
    int64_t next_turn() {
        const std::lock_guard hold(port_->turning);
        return images_ ? port_->next() : seat_at_;
    }
    int receives() const { return held_ ? port_->receives() : -1; } // the socket; -1 without the seat
    Takeover takeover() {
        const std::lock_guard hold(port_->turning);
        return takeover_;
    }
    UdpCounts counts() {
        const std::lock_guard hold(port_->turning);
        UdpCounts counts;
        auto *words = reinterpret_cast<uint64_t *>(&counts);
        for (size_t i = 0; i < counts_words; ++i) words[i] = file_.control().counts.words[i].relaxed();
        return counts;
    }
    std::string warning() {
        const std::lock_guard hold(port_->turning);
        return warning_;
    }
    // Sessions that could not be received, and why the last one could not.
    uint64_t refusals() const { return refusals_; }
    std::string refusal() {
        const std::lock_guard hold(port_->turning);
        if (!images_) return "";
        const ImageStore::Refusal &one = images_->place().refusal();
        return file_.uri() + ": session " + std::to_string(one.session) + " from " + text_of(one.source) +
               " cannot be received: " + one.why + ". It is tried again every second";
    }

    Visit keep(int64_t now) override {
        Visit visit;
        if (held_ && port_->caller.busy(now, visit)) return visit;
        if (!port_->turning.try_lock()) return {now + Keeper::caller_ns, false};
        const std::lock_guard hold(port_->turning, std::adopt_lock);
        if (!members_.attached()) return {INT64_MAX, true};
        if (!images_) {
            seat_at_ = 0;
            if (takeover_.noticed_ns == 0 && has_ended(holder_)) takeover_.noticed_ns = now;
        }
        turn_held(now);
        if (!members_.attached()) return {INT64_MAX, true}; // a guest that was let go
        // The seat is free, but the port is another process's; or not yet all is free that goes with the seat.
        if (!images_ && failed_) return {now + (ask_holder() ? seat_keep_ns : seat_look_ns), false};
        if (!images_ && !watch_holder()) return {now + seat_look_ns, false}; // it has died, and nobody has its seat yet
        Keeper::instance().watch(*this, images_ ? port_->receives() : holder_.load());
        return {images_ ? port_->next() : now + seat_keep_ns, false};
    }

    // ---- as a stream of its port ----

    bool own() const override { return users_ != 0; }
    void datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length) override {
        came_ = true;
        if (takeover_.first_ns == 0) takeover_.first_ns = now;
        ++own_.datagrams_received;
        own_.bytes_received += length;
        images_->receiver().datagram(now, from, bytes, length);
    }
    bool work(int64_t now) override {
        images_->consume(now);
        images_->receiver().tick(now, *this, random_);
        refusals_ = images_->place().refusals();
        return images_->show([&](bool news) {
            if (std::exchange(came_, false) || news) show_counts();
        });
    }
    int64_t next() const override { // a guest is looked after without datagrams, too
        return own() ? images_->next() : std::min(images_->next(), wanted_at_ + guest_reap_ns);
    }
    bool send(const Address &to, const uint8_t *bytes, size_t length) { // for the receiver
        if (!port_->send(to, bytes, length)) return false;
        ++own_.datagrams_sent;
        own_.bytes_sent += length;
        return true;
    }

  private:
    // The keeper's reference: an endpoint ends with its last subscription.
    class Keeping final : public Kept {
      public:
        explicit Keeping(std::weak_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}
        Visit keep(int64_t now) override {
            const std::shared_ptr<Endpoint> endpoint = endpoint_.lock();
            return endpoint ? endpoint->keep(now) : Visit{INT64_MAX, true};
        }

      private:
        const std::weak_ptr<Endpoint> endpoint_;
    };
    struct All {
        std::mutex mutex;
        uint32_t generation = 0;
        std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Endpoint>> endpoints;
        std::vector<std::pair<Address, std::weak_ptr<Port>>> ports;
    };
    static All &everything() {
        static All *all = new All;
        return *all;
    }
    // `users`: how many subscriptions it has from now on beside those that it had.
    static std::shared_ptr<Endpoint> find(int fd, const std::string &path, NetCalls &calls, int users) {
        struct stat about;
        if (fstat(fd, &about) != 0) fail_system("cannot read " + path);
        const std::pair<dev_t, ino_t> key{about.st_dev, about.st_ino};
        All &all = everything();
        const std::lock_guard hold(all.mutex);
        if (all.generation != ForkGuard::generation()) { // a child's are its own
            all.generation = ForkGuard::generation();
            all.endpoints.clear();
            all.ports.clear();
        }
        std::shared_ptr<Endpoint> found = all.endpoints[key].lock();
        if (!found) {
            found = std::make_shared<Endpoint>(fd, path, calls, all);
            all.endpoints[key] = found;
        }
        found->users_ += users;
        return found;
    }
    void be_kept() { // once
        if (kept_.exchange(true)) return;
        try {
            Keeper::instance().add(std::make_shared<Keeping>(weak_from_this()));
        } catch (...) {
            kept_ = false;
            throw;
        }
    }
    static std::shared_ptr<Port> port_of(All &all, const UdpEndpointOptions &o, NetCalls &calls) {
        std::erase_if(all.ports, [](const auto &one) { return one.second.expired(); });
        if (shares_port(o))
            for (const auto &[at, port] : all.ports)
                if (at == o.at)
                    if (auto found = port.lock()) return found;
        auto made = std::make_shared<Port>(calls);
        if (shares_port(o)) all.ports.emplace_back(o.at, made);
        return made;
    }
    // One subscription less; true if nobody finds this endpoint from now on.
    bool last_goes() {
        return goes([&] { return --users_ == 0; });
    }
    template <class Last> bool goes(Last &&last) {
        All &all = everything();
        const std::lock_guard hold(all.mutex);
        if (!last()) return false;
        std::erase_if(all.endpoints, [&](const auto &one) { return one.second.lock().get() == this; });
        return true;
    }
    void leave_held() {
        if (images_) give_up_seat();
        members_.detach([&] { // the last one leaves nothing behind
            members_.reap();
            if (members_.subscriptions() == 0) forget_images(file_, random_());
        });
        seat_at_ = INT64_MAX;
    }

    bool turn_held(int64_t now, bool all = false) {
        if (!members_.attached()) return false;
        if (!images_ && !take_seat(now)) return false;
        port_->turn(now, all);
        if (!port_->guests.empty()) let_guests_go([&](Endpoint &guest) { return !guest.wanted(now); });
        if (port_->should_look(now)) look_for_guests(now);
        return true;
    }

    // ---- other streams of the port ----

    // Streams whose subscriptions are in other processes, which cannot have the port.
    void look_for_guests(int64_t now) {
        for (const PortFile &other : others_of_port(file_)) {
            if (port_->receives(other.stream)) continue;
            const OpenFile file = open_file(EndpointFile::file_of(other.path));
            if (file.fd() < 0) continue;
            try {
                const std::shared_ptr<Endpoint> guest = find(file.fd(), other.path, calls_, 0);
                if (guest->port_ != port_ || guest->images_) continue;
                guest->seat_at_ = 0;
                const bool taken = guest->take_seat(now);
                if (guest->own()) continue;
                port_->guests.push_back(guest);
                if (taken) guest->be_kept();
                if (!taken) let_guests_go([&](Endpoint &one) { return &one == guest.get(); });
            } catch (const Error &) { // it goes just now, or is full; its subscriptions ask again
            }
        }
    }
    template <class Go> void let_guests_go(Go &&go) {
        std::erase_if(port_->guests, [&](const std::shared_ptr<Port::Stream> &one) {
            auto &guest = static_cast<Endpoint &>(*one);
            if (!go(guest)) return false;
            if (guest.goes([&] { return !guest.own(); })) guest.leave_held();
            return true;
        });
    }
    // Whether a guest still has subscriptions, the same that it was taken on for. (If all of them have gone, others begin again.)
    bool wanted(int64_t now) {
        if (file_.control().rare.receiver.relaxed() != receiver_) return false;
        if (now < wanted_at_) return true;
        wanted_at_ = now + guest_look_ns;
        if (now >= reap_at_ && members_.acquire_lock(members_.lock(), EndpointMembers::patience_to_work_ns)) {
            reap_at_ = now + guest_reap_ns;
            const RobustLockGuard held(members_.lock());
            members_.reap();
        }
        return members_.subscriptions() != 0;
    }
    // Tells the process that has the port of this stream: a datagram of a stream that it does not know makes it look. False: no
    // process of this library has it for a stream.
    bool ask_holder() const {
        const auto others = others_of_port(file_);
        const bool held = std::any_of(others.begin(), others.end(), [](const PortFile &other) { return other.held; });
        if (failed_->number != EADDRINUSE || !held) return false;
        const UdpEndpointOptions &o = file_.options();
        Address to = o.at;
        if (is_v4(o.at) && o.at.host[12] == 0) to = parse_address("127.0.0.1", o.at.port);
        else if (is_unset(o.at)) to = parse_address("::1", o.at.port);
        try {
            UdpSocket socket(to, file_.uri());
            socket.connect(to);
            const std::string frame = wire::write_question(o.stream);
            [[maybe_unused]] const auto sent = ::send(socket.fd(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        } catch (const Error &) { // it asks again
        }
        return true;
    }

    // ---- the seat ----

    // The death of the holder's process wakes the keeper at once, where the kernel tells of it. The seat's lock decides. False:
    // it has died, and the seat is worth another look soon.
    bool watch_holder() {
        const uint32_t pid = file_.control().rare.holder_pid.relaxed();
        if (pid == 0) return true;
        if (pid != holder_pid_) {
            dead_looks_ = 0;
            takeover_ = {};
        }
        bool ended = has_ended(holder_);
        if (pid != holder_pid_ || holder_ < 0) {
            holder_pid_ = pid;
            watched_ = std::make_unique<Descriptor>(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
            ended = watched_->get() < 0 ? errno == ESRCH : has_ended(watched_->get());
            holder_ = watched_->get();
        }
        return !ended || ++dead_looks_ > dead_looks_max; // in another namespace of processes every number seems dead
    }
    static bool has_ended(int process) {
        pollfd about{process, POLLIN, 0};
        return process >= 0 && ::poll(&about, 1, 0) == 1;
    }

    bool take_seat(int64_t now) {
        if (now < seat_at_) return false;
        seat_at_ = now + seat_look_ns;
        failed_.reset();
        takeover_.tries += takeover_.noticed_ns != 0;
        if (!seat_.try_take(lock_byte::writer)) return false;
        try {
            hold_seat(now);
        } catch (const Error &error) { // perhaps the last holder's socket is not closed yet
            if (images_) images_->hand_over();
            port_->remove(*this);
            images_.reset();
            seat_.give_back(lock_byte::writer);
            failed_ = error;
            return false;
        }
        seat_.try_take(lock_byte::socket); // others look at it: the seat alone may be given back at once
        held_ = true;
        holder_ = -1;
        watched_.reset();
        takeover_.seated_ns = monotonic_ns();
        takeover_.first_ns = 0;
        return true;
    }
    void hold_seat(int64_t now) {
        const UdpEndpointOptions &o = file_.options();
        EndpointControl &control = file_.control();
        const uint32_t window = take_part_in_port();
        ReceiverOptions options;
        options.stream = o.stream;
        receiver_ = control.rare.receiver.relaxed();
        options.receiver = static_cast<int64_t>(receiver_);
        options.group_tag = o.group_tag;
        options.window = window;
        options.reliable = o.reliable;
        options.sessions_max = o.sessions_max;
        options.memory_max = o.memory_max;
        options.control = o.control;
        if (is_multicast(o.at)) options.loss.spread_ns = 1'000'000;
        if (!o.reliable) options.loss.delay_ns = 100'000; // a datagram that was overtaken may still come
        images_ = std::make_unique<ImageSet>(file_, members_, options, now);
        own_ = {};
        base_ = port_->counts();
        for (size_t i = 0; i < counts_words; ++i) counted_[i] = control.counts.words[i].relaxed();
        takeovers_ = control.rare.holder_pid.relaxed() != 0;
        control.rare.takeovers.increment(takeovers_);
        control.rare.holder_pid.relaxed(static_cast<uint32_t>(getpid()));
        control.rare.window.relaxed(window);
        images_->adopt();
    }
    // The window that the socket's buffer holds, however small the datagrams are that fill it.
    uint32_t take_part_in_port() {
        const UdpEndpointOptions &o = file_.options();
        const uint32_t asked = o.receive_buffer != 0
                                   ? o.receive_buffer
                                   : static_cast<uint32_t>(std::min<uint64_t>(uint64_t{4} * o.window, 1u << 30));
        const uint32_t granted = port_->add(*this, o, asked, file_.uri());
        const uint32_t window = std::min(o.window, std::max<uint32_t>(granted / 4 & ~(frame_alignment - 1), 4096));
        warning_.clear();
        if (window < o.window) {
            const std::string buffer = "a receive buffer of " + std::to_string(granted) + " bytes";
            const std::string lowered = "from " + std::to_string(o.window) + " to " + std::to_string(window) + " bytes. ";
            warning_ = granted < asked ? "the system grants " + buffer + ", not " + std::to_string(asked) +
                                             "; the window is lowered " + lowered + "Raise net.core.rmem_max"
                                       : buffer + " is too small for the window, which is lowered " + lowered +
                                             "Give a larger receive_buffer";
            warning_ += ", or ask for a smaller window";
        }
        return window;
    }
    void give_up_seat() {
        port_->turn(monotonic_ns(), true);
        images_->hand_over();
        held_ = false;
        port_->remove(*this);
        images_.reset();
        seat_.leave();
        event_interrupt(file_.control().event.value); // a sleeper takes it
    }

    void show_counts() {
        const UdpCounts now = own_counts();
        const auto *words = reinterpret_cast<const uint64_t *>(&now);
        for (size_t i = 0; i < counts_words; ++i) file_.control().counts.words[i].relaxed(counted_[i] + words[i]);
    }
    UdpCounts own_counts() {
        const ReceiverCounts &r = images_->receiver().counts();
        const Port::Counts all = port_->counts(); // of the socket, which streams share
        UdpCounts c = own_;
        c.coalesced = all.coalesced - base_.coalesced;
        c.truncated = all.truncated - base_.truncated;
        c.receive_failed = all.receive_failed - base_.receive_failed;
        c.segmented = all.segmented - base_.segmented;
        c.send_refused = all.send_refused - base_.send_refused;
        c.send_failed = all.send_failed - base_.send_failed;
        c.sessions = r.images;
        c.sessions_refused = r.sessions_refused;
        c.takeovers = takeovers_;
        ImageCounts sum = images_->receiver().past();
        for (const auto &image : images_->receiver().images()) add(sum, image->counts());
        c.heartbeats = sum.heartbeats;
        c.statuses = sum.statuses;
        c.naks_sent = sum.naks;
        c.duplicates = sum.duplicates + r.cooled;
        c.overruns = sum.overruns;
        c.overlaps = sum.overlaps;
        c.losses = sum.losses + r.skips;
        c.bytes_lost = sum.bytes_lost + r.bytes_skipped;
        c.setup_requests = sum.setup_requests + r.setup_requests;
        c.malformed = sum.malformed + r.malformed;
        c.strange = sum.strange + r.strange;
        c.held = sum.held;
        return c;
    }
    const EndpointFile file_;
    EndpointMembers members_;
    Seat seat_;
    NetCalls &calls_;
    const std::shared_ptr<Port> port_;
    std::atomic<int> users_{0};        // subscriptions of this process; 0: a guest
    std::unique_ptr<ImageSet> images_; // with the seat
    std::atomic<bool> held_{false}, kept_{false};
    std::atomic<int> holder_{-1};
    std::atomic<uint64_t> refusals_{0};
    std::unique_ptr<Descriptor> watched_; // the holder's process
    uint32_t holder_pid_ = 0, dead_looks_ = 0;
    Takeover takeover_;
    NetRandom random_;
    std::optional<Error> failed_;
    std::string warning_;
    std::array<uint64_t, counts_words> counted_{}; // by the holders before
    UdpCounts own_;                                // datagrams and bytes of this stream
    Port::Counts base_;                            // of the port, when this stream came
    bool came_ = false;
    uint64_t takeovers_ = 0, receiver_ = 0;
    int64_t wanted_at_ = 0, reap_at_ = 0;
    int64_t seat_at_ = 0;
};

} // namespace penstock
