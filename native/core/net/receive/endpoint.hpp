// An endpoint as one process has it: all subscriptions of the process to one stream share it. One process owns the socket and
// receives into the images. Ownership is a kernel lock that ends with the process; every other process is ready to take it.
// Streams of one port share its socket, so the process that has the port also owns its other streams. Duty cycles are run by
// readers that find nothing, with try_lock, and by the conductor. docs/design/network_log.md.
#pragma once

#include "net/receive/endpoint_registry.hpp"
#include "net/receive/holder_watch.hpp"
#include "net/receive/stream_receiver.hpp"

namespace penstock {

class Endpoint final : public Agent, public std::enable_shared_from_this<Endpoint> {
  public:
    static constexpr int64_t owner_look_ns = 1'000'000;       // between a caller's attempts to take ownership
    static constexpr int64_t sleep_max_ns = 1'000'000'000;    // of a caller at a time
    static constexpr int64_t owner_check_ns = 20'000'000;     // between the conductor's attempts
    static constexpr int64_t listen_ns = 2'000'000'000;       // for the answer of the process that has the port
    static constexpr int64_t foreign_look_ns = 20'000'000;    // between looks whether a foreign stream is still wanted
    static constexpr int64_t foreign_reap_ns = 1'000'000'000; // and whether its subscriptions live

    // This process's endpoint for the file; its first subscription makes it.
    static std::shared_ptr<Endpoint> of(int fd, const std::string &path, NetCalls &calls = NetCalls::system()) {
        return find(fd, path, calls, 1);
    }

    // From within find() of the registry.
    Endpoint(int fd, const std::string &path, NetCalls &calls)
        : file_(fd, path), members_(fd, file_), locks_(fd, path), calls_(calls),
          shared_(EndpointRegistry::instance().port_of(file_.options(), calls)) {
        members_.attach(MemberRole::host, [] {});
    }
    ~Endpoint() override {
        if (!members_.forked()) return;
        if (receiver_) receiver_->images().hand_over(); // its socket is closed, its lock its parent's
        members_.forget();
    }
    // A subscription leaves. The last one of the process gives up ownership: another process may take it.
    void leave() {
        if (members_.forked()) return;
        if (!last_goes()) return;
        const std::shared_ptr<SharedPort> shared = shared_;
        const std::lock_guard hold(shared->turning);
        try_at_ = 0;
        if (!receiver_ && members_.subscriptions() == 0) turn_held(monotonic_ns()); // senders hear that everything was read
        leave_held();
        std::erase_if(shared->foreign, [&](const auto &foreign) { return foreign.get() == this; });
        const auto own = [](const Endpoint *one) { return one->own(); };
        if (!std::any_of(shared->owned.begin(), shared->owned.end(), own))
            release_foreign([](Endpoint &) { return true; }); // the port is for another process
    }

    const EndpointFile &file() const { return file_; }
    SocketWaiter &waiter() { return shared_->waiter; }
    bool owns_socket() const { return held_.relaxed(); }

    // Runs a duty cycle if this process owns the socket, or can take ownership, and no other thread runs one. True if it was
    // done. `all`: every datagram leaves the socket.
    bool turn(int64_t now, bool all = false) {
        if (!shared_->turning.try_lock()) return false;
        const std::lock_guard hold(shared_->turning, std::adopt_lock);
        shared_->waiter.turned(now);
        return turn_held(now, all);
    }
    // The same for the first subscription. If the process cannot listen, it throws.
    void listen() {
        std::unique_lock hold(shared_->turning);
        Atomic<uint32_t> &event = file_.control().event.value;
        for (const int64_t until = monotonic_ns() + listen_ns;;) {
            try_at_ = 0;
            if (receiver_) receiver_->images().recount();
            const uint32_t ticket = event_prepare(event);
            if (turn_held(monotonic_ns())) break;
            if (!failed_ && locks_.taken_by_other(lock_byte::socket)) break; // another process receives
            if (failed_ && !ask_port_holder(file_, *failed_)) throw name_port_holder(*failed_, file_.options().at);
            if (monotonic_ns() > until)
                throw Error(Code::busy, file_.uri() + ": the process that has " + text_of(file_.options().at) +
                                            " for other streams does not take this one on (stopped?)");
            hold.unlock();
            event_sleep(event, ticket, owner_look_ns);
            hold.lock();
        }
        hold.unlock();
        start_conducting(); // not earlier: an opening that fails starts no thread
    }
    // A subscription of this process has joined all images. Senders hear of it at once; from another process, within 20 ms.
    void joined() {
        const std::lock_guard hold(shared_->turning);
        if (!receiver_) return;
        receiver_->images().recount();
        turn_held(monotonic_ns());
    }
    int64_t next_turn() {
        const std::lock_guard hold(shared_->turning);
        return receiver_ ? next() : try_at_;
    }
    int receives() const { // the socket; -1 without ownership
        // SYNC 38: pairs with Endpoint::take_ownership; forbids sleeping as the socket owner without its socket
        return held_.acquire() ? shared_->port.receives() : -1;
    }
    Takeover takeover() {
        const std::lock_guard hold(shared_->turning);
        Takeover found = holder_.takeover;
        if (receiver_) found.first_ns = receiver_->first_ns();
        return found;
    }
    UdpCounts counts() {
        const std::lock_guard hold(shared_->turning);
        UdpCounts counts;
        auto *words = reinterpret_cast<uint64_t *>(&counts);
        for (size_t i = 0; i < counts_words; ++i) words[i] = file_.control().counts.words[i].relaxed();
        return counts;
    }
    std::string warning() {
        const std::lock_guard hold(shared_->turning);
        return warning_;
    }
    // The number of sessions that could not be received, and the reason for the last one.
    uint64_t refusals() const { return refusals_.relaxed(); }
    std::string refusal() {
        const std::lock_guard hold(shared_->turning);
        if (!receiver_) return "";
        const ImageStore::Refusal &one = receiver_->images().store().refusal();
        return file_.uri() + ": session " + std::to_string(one.session) + " from " + text_of(one.source) +
               " cannot be received: " + one.why + ". It is tried again every second";
    }

    Schedule do_work(int64_t now) override {
        Schedule schedule;
        if (owns_socket() && shared_->waiter.busy(now, schedule)) return schedule;
        if (!shared_->turning.try_lock()) return {now + Conductor::waiter_ns, false};
        const std::lock_guard hold(shared_->turning, std::adopt_lock);
        if (!members_.attached()) return {INT64_MAX, true};
        if (!receiver_) {
            try_at_ = 0;
            if (holder_.takeover.noticed_ns == 0 && holder_.ended()) holder_.takeover.noticed_ns = now;
        }
        turn_held(now);
        if (!members_.attached()) return {INT64_MAX, true}; // a foreign stream that was released
        // Ownership is free, but another process has the port, or the last owner's socket is not closed yet.
        if (!receiver_ && failed_) return {now + (ask_port_holder(file_, *failed_) ? owner_check_ns : owner_look_ns), false};
        const bool dead = !receiver_ && !holder_.watch(file_.control().rare.holder_pid.relaxed());
        if (dead) return {now + owner_look_ns, false}; // the owner has died, and no process has replaced it
        Conductor::instance().watch(*this, receiver_ ? shared_->port.receives() : holder_.descriptor());
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
    bool own() const { return users_.relaxed() != 0; } // subscriptions of this process read it
    // When the owner's next duty cycle is due. A foreign stream needs one even if no datagram arrives.
    int64_t next() const {
        const int64_t due = shared_->port.next();
        return own() ? due : std::min(due, wanted_at_ + foreign_reap_ns);
    }

    // `users`: subscriptions to add.
    static std::shared_ptr<Endpoint> find(int fd, const std::string &path, NetCalls &calls, int users) {
        return EndpointRegistry::instance().find(fd, path, [&](std::shared_ptr<Endpoint> &found) {
            if (!found) found = std::make_shared<Endpoint>(fd, path, calls);
            found->users_.increment(users);
        });
    }
    void start_conducting() {                  // once
        if (conducted_.exchange(true)) return; // SYNC -: only its value counts: one thread adds it
        try {
            Conductor::instance().add(std::make_shared<WeakAgent>(weak_from_this()));
        } catch (...) {
            conducted_.relaxed(false);
            throw;
        }
    }
    // Removes a subscription. True if the registry has forgotten this endpoint.
    bool last_goes() {
        return EndpointRegistry::instance().forget(this, [&] {
            users_.increment(-1);
            return !own();
        });
    }
    void leave_held() {
        if (receiver_) give_up_ownership();
        members_.detach([&] { // the last one removes everything
            members_.reap();
            if (members_.subscriptions() == 0) forget_images(file_, NetRandom()());
        });
        try_at_ = INT64_MAX;
    }

    bool turn_held(int64_t now, bool all = false) {
        if (!members_.attached()) return false;
        if (!receiver_ && !take_ownership(now)) return false;
        if (shared_->port.turn(now, all)) shared_->waiter.tell();
        for (Endpoint *one : shared_->owned) one->refusals_.relaxed(one->receiver_->images().store().refusals());
        if (!shared_->foreign.empty()) release_foreign([&](Endpoint &foreign) { return !foreign.wanted(now); });
        if (shared_->port.should_look(now)) adopt_foreign(now);
        return true;
    }

    // ---- other streams of the port ----

    // Takes over streams whose subscriptions are in other processes, which cannot have the port.
    void adopt_foreign(int64_t now) {
        for (const PortFile &other : others_of_port(file_)) {
            if (shared_->port.receives(other.stream)) continue;
            const OpenFile file = open_file(EndpointFile::file_of(other.path));
            if (file.fd() < 0) continue;
            try {
                const std::shared_ptr<Endpoint> foreign = find(file.fd(), other.path, calls_, 0);
                if (foreign->shared_ != shared_ || foreign->receiver_) continue;
                foreign->try_at_ = 0;
                const bool taken = foreign->take_ownership(now);
                if (foreign->own()) continue;
                shared_->foreign.push_back(foreign);
                if (taken) foreign->start_conducting();
                if (!taken) release_foreign([&](Endpoint &one) { return &one == foreign.get(); });
            } catch (const Error &) { // it is being removed, or is full; its subscriptions ask again
            }
        }
    }
    template <class Go> void release_foreign(Go &&go) {
        std::erase_if(shared_->foreign, [&](const std::shared_ptr<Endpoint> &one) {
            Endpoint &foreign = *one;
            if (!go(foreign)) return false;
            if (EndpointRegistry::instance().forget(&foreign, [&] { return !foreign.own(); })) foreign.leave_held();
            return true;
        });
    }
    // Whether a foreign stream still has the subscriptions for which it was adopted. (New ones start their own receiver.)
    bool wanted(int64_t now) {
        if (file_.control().rare.receiver.relaxed() != receiver_id_) return false;
        if (now < wanted_at_) return true;
        wanted_at_ = now + foreign_look_ns;
        if (now >= reap_at_ && members_.acquire_lock(members_.lock(), EndpointMembers::patience_to_work_ns)) {
            reap_at_ = now + foreign_reap_ns;
            const RobustLockGuard held(members_.lock());
            members_.reap();
        }
        return members_.subscriptions() != 0;
    }
    // ---- ownership of the socket ----

    bool take_ownership(int64_t now) {
        if (now < try_at_) return false;
        try_at_ = now + owner_look_ns;
        failed_.reset();
        holder_.takeover.tries += holder_.takeover.noticed_ns != 0;
        if (!locks_.try_take(lock_byte::owner)) return false;
        try {
            begin_ownership(now);
        } catch (const Error &error) { // the last owner's socket may not be closed yet
            if (receiver_) receiver_->images().hand_over();
            let_receiver_go();
            locks_.give_back(lock_byte::owner);
            failed_ = error;
            return false;
        }
        locks_.try_take(lock_byte::socket); // for other processes: the first lock alone may be given back at once
        // SYNC 38: pairs with Endpoint::receives; forbids a reader seeing ownership before the socket
        held_.release(true);
        holder_.stop();
        holder_.takeover.owned_ns = monotonic_ns();
        return true;
    }
    void begin_ownership(int64_t now) {
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
        if (is_multicast(o.at)) options.loss.spread_ns = 1'000'000;
        if (!o.reliable) options.loss.delay_ns = 100'000; // a datagram that was overtaken may still arrive
        const uint64_t takeovers = control.rare.holder_pid.relaxed() != 0;
        receiver_ = std::make_unique<StreamReceiver>(file_, members_, options, shared_->port, now, takeovers);
        shared_->port.attach(o.stream, asked, *receiver_);
        shared_->owned.push_back(this);
        control.rare.takeovers.increment(takeovers);
        control.rare.holder_pid.relaxed(static_cast<uint32_t>(getpid()));
        control.rare.window.relaxed(window.bytes);
        receiver_->images().adopt();
    }
    void let_receiver_go() {
        shared_->port.detach(receiver_.get());
        std::erase(shared_->owned, this);
        receiver_.reset();
    }
    void give_up_ownership() {
        if (shared_->port.turn(monotonic_ns(), true)) shared_->waiter.tell();
        receiver_->images().hand_over();
        held_.relaxed(false);
        let_receiver_go();
        locks_.leave();
        event_interrupt(file_.control().event.value); // a sleeper takes it
    }

    const EndpointFile file_;
    EndpointMembers members_;
    ByteLocks locks_;
    NetCalls &calls_;
    const std::shared_ptr<SharedPort> shared_;
    Atomic<int> users_{}; // subscriptions of this process; 0: a foreign stream. Changed under the registry's lock
    std::unique_ptr<StreamReceiver> receiver_; // with ownership
    HolderWatch holder_;                       // without it
    Atomic<bool> held_{};                      // stored under the port's lock
    Atomic<bool> conducted_{};
    Atomic<uint64_t> refusals_{};
    std::optional<Error> failed_;
    std::string warning_;
    uint64_t receiver_id_ = 0;
    int64_t wanted_at_ = 0, reap_at_ = 0;
    int64_t try_at_ = 0;
};

} // namespace penstock
