// An endpoint as one process has it: all subscriptions of the process to one stream share it. One process owns the socket and
// receives into the images. Ownership is a kernel lock that ends with the process; every other process is ready to take it.
// Streams of one port share its socket, so the process that has the port also owns its other streams. Duty cycles are run by
// readers that find nothing, with try_lock, and by the conductor. docs/design/network_log.md.
#pragma once

#include "net/receive/endpoint_registry.hpp"
#include "net/receive/owner_watch.hpp"
#include "net/receive/stream_receiver.hpp"

namespace penstock {

class Endpoint final : public Agent, public std::enable_shared_from_this<Endpoint> {
  public:
    static constexpr int64_t owner_retry_ns = 1'000'000;      // between a caller's attempts to take ownership
    static constexpr int64_t sleep_max_ns = 1'000'000'000;    // of a caller at a time
    static constexpr int64_t owner_check_ns = 20'000'000;     // between the conductor's attempts
    static constexpr int64_t listen_ns = 2'000'000'000;       // for the answer of the process that has the port
    static constexpr int64_t foreign_check_ns = 20'000'000;   // between checks whether a foreign stream has subscriptions
    static constexpr int64_t foreign_reap_ns = 1'000'000'000; // and whether its subscriptions live

    // This process's endpoint for the file; its first subscription makes it. `keys`: null: its datagrams are clear.
    static std::shared_ptr<Endpoint> for_file(int fd, const std::string &path, const Keys &keys = {},
                                              NetCalls &calls = NetCalls::system()) {
        return find(fd, path, keys, calls, 1);
    }

    // From within find() of the registry.
    Endpoint(int fd, const std::string &path, const Keys &keys, NetCalls &calls)
        : file_(fd, path), members_(fd, file_), locks_(fd, path), calls_(calls), shared_(port(file_, keys, calls)) {
        members_.attach(MemberRole::host, [] {});
    }
    ~Endpoint() override {
        if (!members_.forked()) return;
        if (receiver_) receiver_->images().hand_over(); // its socket is closed, its lock its parent's
        members_.forget();
    }
    // A subscription leaves. The last one of the process releases ownership: another process may take it.
    void leave() {
        if (members_.forked()) return;
        if (!remove_user()) return;
        const std::shared_ptr<SharedPort> shared = shared_;
        const std::lock_guard hold(shared->duty_cycle_mutex);
        next_attempt_ns_ = 0;
        left_ = members_.subscriptions() == 0;
        if (receiver_ && left_) receiver_->images().set_left();
        if (!receiver_ && left_) run_duty_cycle_locked(monotonic_ns()); // senders hear that everything was read
        leave_locked();
        std::erase_if(shared->foreign, [&](const auto &foreign) { return foreign.get() == this; });
        const auto has_users = [](const Endpoint *one) { return one->has_users(); };
        if (!std::any_of(shared->owned.begin(), shared->owned.end(), has_users))
            release_foreign([](Endpoint &) { return true; }); // the port is for another process
    }

    // The host of the control address, if it is a name. The first one that is given counts.
    void watch_control(const std::string &host) {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        if (!control_host_.empty() || host.empty()) return;
        control_host_ = host;
        if (receiver_) receiver_->watch_control(host, calls_);
    }

    const EndpointFile &file() const { return file_; }
    SocketWaiter &waiter() { return shared_->waiter; }
    bool owns_socket() const { return owns_socket_.relaxed(); }

    // Runs a duty cycle if this process owns the socket, or can take ownership, and no other thread runs one. True if it was
    // done. `all`: every datagram leaves the socket.
    bool run_duty_cycle(int64_t now, bool all = false) {
        if (!shared_->duty_cycle_mutex.try_lock()) return false;
        const std::lock_guard hold(shared_->duty_cycle_mutex, std::adopt_lock);
        shared_->waiter.record_duty_cycle(now);
        return run_duty_cycle_locked(now, all);
    }
    // The same for the first subscription. If the process cannot listen, it throws.
    void listen() {
        std::unique_lock hold(shared_->duty_cycle_mutex);
        Atomic<uint32_t> &event = file_.control().event.value;
        for (const int64_t until = monotonic_ns() + listen_ns;;) {
            next_attempt_ns_ = 0;
            if (receiver_) receiver_->images().recount();
            const uint32_t ticket = event_prepare(event);
            if (run_duty_cycle_locked(monotonic_ns())) break;
            if (!failed_ && locks_.taken_by_other(lock_byte::socket)) break; // another process receives
            if (failed_ && failed_->number == EADDRINUSE) check_port_owner_key();
            if (failed_ && !ask_port_owner(file_, *failed_)) throw name_port_owner(*failed_, file_.options().at);
            if (monotonic_ns() > until)
                throw Error(Code::busy, file_.uri() + ": the process that has " + text_of(file_.options().at) +
                                            " for other streams does not take this one on (stopped?)");
            hold.unlock();
            event_sleep(event, ticket, owner_retry_ns);
            hold.lock();
        }
        hold.unlock();
        start_agent(); // not earlier: an opening that fails starts no thread
    }
    // A subscription of this process has joined all images. Senders hear of it at once; from another process, within 20 ms.
    void joined() {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        if (!receiver_) return;
        receiver_->images().recount();
        run_duty_cycle_locked(monotonic_ns());
    }
    int64_t next_duty_cycle() {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        return receiver_ ? next() : next_attempt_ns_;
    }
    int socket_fd() const { // the socket; -1 without ownership
        // SYNC 38: pairs with Endpoint::take_ownership; forbids sleeping as the socket owner without its socket
        return owns_socket_.acquire() ? shared_->port.socket_fd() : -1;
    }
    Takeover takeover() {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        Takeover found = owner_watch_.takeover;
        if (receiver_) found.first_ns = receiver_->first_ns();
        return found;
    }
    UdpCounts counts() {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        UdpCounts counts;
        auto *words = reinterpret_cast<uint64_t *>(&counts);
        for (size_t i = 0; i < counts_words; ++i) words[i] = file_.control().counts.words[i].relaxed();
        return counts;
    }
    std::string warning() {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        return warning_;
    }
    // Datagrams that a key refused, by all owners of the socket.
    uint64_t unauthenticated() const {
        return file_.control().counts.words[offsetof(UdpCounts, unauthenticated) / sizeof(uint64_t)].relaxed();
    }
    // Of all owners of the socket.
    uint64_t sessions_refused() const {
        return file_.control().counts.words[offsetof(UdpCounts, sessions_refused) / sizeof(uint64_t)].relaxed();
    }
    uint64_t sessions_displaced() const {
        return file_.control().counts.words[offsetof(UdpCounts, sessions_displaced) / sizeof(uint64_t)].relaxed();
    }
    // The last source of which a session was refused, or gave way; only the socket's owner knows.
    Address refused_from() {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        return receiver_ ? receiver_->images().receiver().refused_from() : Address{};
    }
    Address displaced_from() {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        return receiver_ ? receiver_->images().receiver().displaced_from() : Address{};
    }
    // The number of sessions that could not be received, and the reason for the last one.
    uint64_t refusals() const { return refusals_.relaxed(); }
    std::string refusal() {
        const std::lock_guard hold(shared_->duty_cycle_mutex);
        if (!receiver_) return "";
        const ImageStore::Refusal &one = receiver_->images().store().refusal();
        return file_.uri() + ": session " + std::to_string(one.session) + " from " + text_of(one.source) +
               " cannot be received: " + one.why + ". It is tried again every second";
    }

    Schedule do_work(int64_t now) override {
        Schedule schedule;
        if (owns_socket() && shared_->waiter.busy(now, schedule)) return schedule;
        if (!shared_->duty_cycle_mutex.try_lock()) return {now + Conductor::waiter_ns, false};
        const std::lock_guard hold(shared_->duty_cycle_mutex, std::adopt_lock);
        if (!members_.attached()) return {INT64_MAX, true};
        if (!receiver_) {
            next_attempt_ns_ = 0;
            if (owner_watch_.takeover.noticed_ns == 0 && owner_watch_.has_died()) owner_watch_.takeover.noticed_ns = now;
        }
        run_duty_cycle_locked(now);
        if (!members_.attached()) return {INT64_MAX, true}; // a foreign stream that was released
        // Ownership is free, but another process has the port, or the last owner's socket is not closed yet.
        if (!receiver_ && failed_) return {now + (ask_port_owner(file_, *failed_) ? owner_check_ns : owner_retry_ns), false};
        const bool dead = !receiver_ && !owner_watch_.watch(file_.control().rare.owner_pid.relaxed());
        if (dead) return {now + owner_retry_ns, false}; // the owner has died, and no process has replaced it
        Conductor::instance().watch(*this, receiver_ ? shared_->port.socket_fd() : owner_watch_.descriptor());
        return {receiver_ ? next() : now + owner_check_ns, false};
    }

  private:
    // The conductor's reference: an endpoint ends with its last subscription.
    class WeakAgent final : public Agent {
      public:
        explicit WeakAgent(std::weak_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}
        Schedule do_work(int64_t now) override {
            const std::shared_ptr<Endpoint> endpoint = endpoint_.lock();
            return endpoint ? endpoint->do_work(now) : Schedule{INT64_MAX, true};
        }

      private:
        const std::weak_ptr<Endpoint> endpoint_;
    };
    bool has_users() const { return users_.relaxed() != 0; } // subscriptions of this process read it
    // When the owner's next duty cycle is due. A foreign stream needs one even if no datagram arrives.
    int64_t next() const {
        const int64_t due = shared_->port.next();
        return has_users() ? due : std::min(due, next_foreign_check_ns_ + foreign_reap_ns);
    }

    // `users`: subscriptions to add.
    static std::shared_ptr<Endpoint> find(int fd, const std::string &path, const Keys &keys, NetCalls &calls, int users) {
        return EndpointRegistry::instance().find(fd, path, [&](std::shared_ptr<Endpoint> &found) {
            if (!found) found = std::make_shared<Endpoint>(fd, path, keys, calls);
            else EndpointRegistry::check_keys(*found->shared_, found->file_, keys);
            found->users_.increment(users);
            found->shared_->users.increment(users);
        });
    }
    static std::shared_ptr<SharedPort> port(const EndpointFile &file, const Keys &keys, NetCalls &calls) {
        if (file.options().sealed != (keys != nullptr))
            throw Error(Code::mismatch, file.uri() + ": the subscriptions that are there have " + (keys ? "no key" : "a key") +
                                            ", and all of a machine have the same one");
        if (keys) compare_keys(file, *keys);
        return EndpointRegistry::instance().port_of(file, keys, calls);
    }
    // All processes of a machine have a key in common: each may be the next owner of the socket.
    static void compare_keys(const EndpointFile &file, const Keyring &keys) {
        auto &there = file.control().rare.keys;
        if (there[0].relaxed() != 0 && !keys.has(there[0].relaxed()) && !keys.has(there[1].relaxed()))
            throw Error(Code::mismatch,
                        file.uri() +
                            ": the subscriptions that are there have another key, and all of a machine have the same one");
        for (size_t i = 0; i < 2; ++i) there[i].relaxed(i < keys.all().size() ? keys.all()[i].fingerprint : 0);
    }
    // The process that has the port for other streams must have a key in common, too.
    void check_port_owner_key() const {
        const Keys &keys = shared_->port.keys();
        for (const PortFile &other : other_streams_of_port(file_)) {
            const auto [first, second] = other.keys;
            if (!other.owned || (keys ? keys->has(first) || keys->has(second) : first == 0)) continue;
            throw Error(Code::mismatch, file_.uri() + ": the process that has " + text_of(file_.options().at) +
                                            " for other streams receives " + (first != 0 ? "with another key" : "without a key") +
                                            ", and all streams of a port have the same one");
        }
    }
    void start_agent() {                       // once
        if (has_agent_.exchange(true)) return; // SYNC -: only its value counts: one thread adds it
        try {
            Conductor::instance().add(std::make_shared<WeakAgent>(weak_from_this()));
        } catch (...) {
            has_agent_.relaxed(false);
            throw;
        }
    }
    // Removes a subscription. True if the registry has forgotten this endpoint.
    bool remove_user() {
        return EndpointRegistry::instance().forget(this, [&] {
            users_.increment(-1);
            shared_->users.increment(-1);
            return !has_users();
        });
    }
    void leave_locked() {
        if (receiver_) release_ownership();
        members_.detach([&] { // the last one removes everything
            members_.reap();
            if (members_.subscriptions() == 0) forget_images(file_, NetRandom()());
        });
        next_attempt_ns_ = INT64_MAX;
    }

    bool run_duty_cycle_locked(int64_t now, bool all = false) {
        if (!members_.attached()) return false;
        if (!receiver_ && !take_ownership(now)) return false;
        if (shared_->port.run_duty_cycle(now, all)) shared_->waiter.wake_sleepers();
        for (Endpoint *one : shared_->owned) one->refusals_.relaxed(one->receiver_->images().store().refusals());
        if (!shared_->foreign.empty()) release_foreign([&](Endpoint &foreign) { return !foreign.has_subscriptions(now); });
        if (shared_->port.should_search(now)) adopt_foreign(now);
        return true;
    }

    // ---- other streams of the port ----

    // Takes over streams whose subscriptions are in other processes, which cannot have the port.
    void adopt_foreign(int64_t now) {
        for (const PortFile &other : other_streams_of_port(file_)) {
            if (shared_->port.receives(other.stream)) continue;
            const OpenFile file = open_file(EndpointFile::file_of(other.path));
            if (file.fd() < 0) continue;
            try {
                const std::shared_ptr<Endpoint> foreign = find(file.fd(), other.path, shared_->port.keys(), calls_, 0);
                if (foreign->shared_ != shared_ || foreign->receiver_) continue;
                foreign->next_attempt_ns_ = 0;
                const bool taken = foreign->take_ownership(now);
                if (foreign->has_users()) continue;
                shared_->foreign.push_back(foreign);
                if (taken) foreign->start_agent();
                if (!taken) release_foreign([&](Endpoint &one) { return &one == foreign.get(); });
            } catch (const Error &) { // it is being removed, or is full; its subscriptions ask again
            }
        }
    }
    template <class Go> void release_foreign(Go &&go) {
        std::erase_if(shared_->foreign, [&](const std::shared_ptr<Endpoint> &one) {
            Endpoint &foreign = *one;
            if (!go(foreign)) return false;
            if (EndpointRegistry::instance().forget(&foreign, [&] { return !foreign.has_users(); })) foreign.leave_locked();
            return true;
        });
    }
    // Whether a foreign stream still has the subscriptions for which it was adopted. (New ones start their own receiver.)
    bool has_subscriptions(int64_t now) {
        if (file_.control().rare.receiver.relaxed() != receiver_id_) return false;
        if (now < next_foreign_check_ns_) return true;
        next_foreign_check_ns_ = now + foreign_check_ns;
        if (now >= reap_at_ && members_.acquire_lock(members_.lock(), EndpointMembers::patience_to_work_ns)) {
            reap_at_ = now + foreign_reap_ns;
            const RobustLockGuard held(members_.lock());
            members_.reap();
        }
        return members_.subscriptions() != 0;
    }
    // ---- ownership of the socket ----

    bool take_ownership(int64_t now) {
        if (now < next_attempt_ns_) return false;
        next_attempt_ns_ = now + owner_retry_ns;
        failed_.reset();
        owner_watch_.takeover.tries += owner_watch_.takeover.noticed_ns != 0;
        if (!locks_.try_take(lock_byte::owner)) return false;
        try {
            start_receiving(now);
        } catch (const Error &error) { // the last owner's socket may not be closed yet
            if (receiver_) receiver_->images().hand_over();
            release_receiver();
            locks_.give_back(lock_byte::owner);
            failed_ = error;
            return false;
        }
        locks_.try_take(lock_byte::socket); // for other processes: the first lock alone may be given back at once
        // SYNC 38: pairs with Endpoint::socket_fd; forbids a reader seeing ownership before the socket
        owns_socket_.release(true);
        owner_watch_.stop();
        owner_watch_.takeover.owned_ns = monotonic_ns();
        return true;
    }
    void start_receiving(int64_t now) {
        const UdpEndpointOptions &o = file_.options();
        EndpointControl &control = file_.control();
        const uint32_t asked = StreamReceiver::buffer(o);
        const ReceiveWindow window = StreamReceiver::window(o, shared_->port.open(o, asked, file_.uri()));
        warning_ = window.warning;
        ReceiverOptions options;
        options.stream = o.stream;
        receiver_id_ = control.rare.receiver.relaxed();
        options.receiver = static_cast<int64_t>(receiver_id_);
        options.group_tag = o.group_tag;
        options.window = window.bytes;
        options.reliable = o.reliable;
        options.sessions_max = o.sessions_max;
        options.memory_max = o.memory_max;
        options.control = o.control;
        options.authentic = o.sealed;
        if (is_multicast(o.at)) options.loss.spread_ns = 1'000'000;
        if (!o.reliable) options.loss.delay_ns = 100'000; // a datagram that was overtaken may still arrive
        const uint64_t takeovers = control.rare.owner_pid.relaxed() != 0;
        receiver_ = std::make_unique<StreamReceiver>(file_, members_, options, shared_->port, now, takeovers);
        receiver_->watch_control(control_host_, calls_);
        shared_->port.attach(o.stream, asked, *receiver_);
        shared_->owned.push_back(this);
        control.rare.takeovers.increment(takeovers);
        control.rare.owner_pid.relaxed(static_cast<uint32_t>(getpid()));
        control.rare.window.relaxed(window.bytes);
        receiver_->images().adopt();
        if (left_) receiver_->images().set_left();
    }
    void release_receiver() {
        shared_->port.detach(receiver_.get());
        std::erase(shared_->owned, this);
        receiver_.reset();
    }
    void release_ownership() {
        if (shared_->port.run_duty_cycle(monotonic_ns(), true)) shared_->waiter.wake_sleepers();
        receiver_->images().hand_over();
        owns_socket_.relaxed(false);
        release_receiver();
        locks_.leave();
        event_interrupt(file_.control().event.value); // a sleeper takes it
    }

    const EndpointFile file_;
    EndpointMembers members_;
    ByteLocks locks_;
    NetCalls &calls_;
    const std::shared_ptr<SharedPort> shared_;
    bool left_ = false;   // the last subscription of all has left, and it was this process's
    Atomic<int> users_{}; // subscriptions of this process; 0: a foreign stream. Changed under the registry's lock
    std::unique_ptr<StreamReceiver> receiver_; // with ownership
    OwnerWatch owner_watch_;                   // without it
    Atomic<bool> owns_socket_{};               // stored under the port's lock
    Atomic<bool> has_agent_{};
    Atomic<uint64_t> refusals_{};
    std::optional<Error> failed_;
    std::string warning_, control_host_;
    uint64_t receiver_id_ = 0;
    int64_t next_foreign_check_ns_ = 0, reap_at_ = 0;
    int64_t next_attempt_ns_ = 0;
};

} // namespace penstock
