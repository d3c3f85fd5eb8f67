// Threads that serve descriptors, timers and commands, and the objects that live on them. An io thread is a poller and a mailbox;
// shutting all of them down drains what the objects have under way, for as long as they are given, and never hangs. After
// ZeroMQ's io_thread_t and ctx_t. docs/design/io_thread.md.
#pragma once

#include "command.hpp"
#include "liveness.hpp"
#include "mailbox.hpp"
#include "poller.hpp"

#include <condition_variable>
#include <csignal>
#include <map>
#include <thread>

namespace penstock {

class IoThread final : public Home, Poller::Events {
  public:
    IoThread() {
        inbox_ = poller_.add(mailbox_.fd(), *this);
        poller_.watch_readable(inbox_, true);
    }
    ~IoThread() override { poller_.remove(inbox_); }

    void post(Command command) override {
        std::unique_lock hold(lock_);
        if (!over_) {
            mailbox_.send(std::move(command));
            return;
        }
        if (command.kind == Command::Kind::call) return; // nobody is left to do it
        late_.push_back(std::move(command));
        work_off(hold);
    }
    void alarm(Object &object, int64_t when_ns) override {
        Alarm &made = alarms_.try_emplace(&object, *this, object).first->second;
        poller_.add_timer(when_ns, made, 0);
    }
    void cancel_alarms(Object &object) override {
        const auto found = alarms_.find(&object);
        if (found == alarms_.end()) return;
        poller_.cancel_timers(found->second);
        alarms_.erase(found);
    }
    Poller &poller() { return poller_; } // for objects that live here
    uint32_t load() const { return poller_.load(); }

    // The thread's work, until stop().
    void run() {
        while (!stop_) poller_.turn(-1);
        std::unique_lock hold(lock_);
        over_ = busy_ = true;
        hold.unlock();
        for (Command command; mailbox_.try_recv(command);) Object::process(command);
        hold.lock();
        busy_ = false;
        work_off(hold);
    }
    void stop() { // any thread; when nothing lives here that is not over
        stop_ = true;
        mailbox_.disturb();
    }

  private:
    class Alarm final : public Poller::Events {
      public:
        Alarm(IoThread &thread, Object &object) : thread_(thread), object_(object) {}
        void timer(int) override {
            Object &object = object_;
            thread_.alarms_.erase(&object); // and this with it
            Object::expire(object);
        }

      private:
        IoThread &thread_;
        Object &object_;
    };
    static constexpr int commands_in_a_turn = 256; // then descriptors and timers have theirs

    void readable() override {
        Command command;
        for (int i = 0; i < commands_in_a_turn && mailbox_.try_recv(command); ++i) Object::process(command);
    }
    // The thread is gone. What comes late (references are let go) is done by those who bring it, one at a time, in order.
    void work_off(std::unique_lock<std::mutex> &hold) {
        if (std::exchange(busy_, true)) return; // somebody is at it, perhaps further up on this very stack
        while (!late_.empty()) {                // all at once: so this is faster than those who bring more
            std::vector<Command> commands;
            commands.swap(late_);
            hold.unlock();
            for (Command &command : commands) Object::process(command);
            hold.lock();
        }
        busy_ = false;
    }

    Poller poller_;
    std::mutex lock_;                  // of those who post
    Mailbox<Command, NoLock> mailbox_; // writers hold `lock_`
    std::vector<Command> late_;        // `lock_`
    bool over_ = false, busy_ = false; // `lock_`
    std::atomic<bool> stop_{false};
    std::map<Object *, Alarm> alarms_; // the thread's
    Poller::Handle inbox_ = nullptr;
};

// An object on an io thread: what it watches is let go of when it is over.
class IoObject : public Object, protected Poller::Events {
  protected:
    explicit IoObject(std::shared_ptr<Home> home) : Object(std::move(home)) {}

    Poller::Handle watch(int fd) {
        watched_.push_back(poller().add(fd, *this));
        return watched_.back();
    }
    void forget(Poller::Handle handle) { // before its descriptor is closed
        if (std::erase(watched_, handle) != 0) poller().remove(handle);
    }
    Poller &poller() { return static_cast<IoThread &>(*home()).poller(); }
    virtual void closed() {} // it is over: descriptors may be closed

  private:
    void over() final {
        for (Poller::Handle handle : std::exchange(watched_, {})) poller().remove(handle);
        poller().cancel_timers(*this);
        closed();
    }
    std::vector<Poller::Handle> watched_;
};

// A number of io threads and the root of all that lives on them. Thread-safe, but for its destruction.
class IoThreads {
  public:
    explicit IoThreads(unsigned count = 1) : generation_((ForkGuard::instance(), ForkGuard::generation())) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before); // signals are for the program's own threads
        for (unsigned i = 0; i < std::max(count, 1U); ++i) {
            homes_.push_back(std::make_shared<IoThread>());
            threads_.emplace_back([home = homes_.back()] {
                pthread_setname_np(pthread_self(), "penstock-io");
                home->run();
            });
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        root_ = launch_from<Root>(nullptr, homes_[0], [](Object *) {}, over_);
    }
    ~IoThreads() { shutdown(0); }
    IoThreads(const IoThreads &) = delete;
    IoThreads &operator=(const IoThreads &) = delete;

    // A new object on the thread that has least to do; what the pool owns, until it is ended or all is shut down.
    template <class T, class... Arguments> Ref<T> launch(Arguments &&...arguments) {
        const std::lock_guard hold(lock_);
        if (closed_ || generation_ != ForkGuard::generation()) throw Error(Code::closed, "the io threads are shut down");
        auto adopt = [this](Object *made) { homes_[0]->post({Command::Kind::adopt, root_.object(), made}); };
        return launch_from<T>(root_.object(), least_loaded(), adopt, std::forward<Arguments>(arguments)...);
    }
    const std::shared_ptr<IoThread> &least_loaded() const {
        return *std::min_element(homes_.begin(), homes_.end(),
                                 [](const auto &a, const auto &b) { return a->load() < b->load(); });
    }

    // Ends everything: at once what has nothing under way, the rest when that is done or `linger_ns` have passed. False if some
    // object did not give its thread back for `patience_ns` more: then the threads are left to themselves. Not from an io thread.
    bool shutdown(int64_t linger_ns, int64_t patience_ns = 10'000'000'000) {
        {
            const std::lock_guard hold(lock_);
            if (std::exchange(closed_, true)) return true;
        }
        if (generation_ != ForkGuard::generation()) { // a forked child: the threads are the parent's, and perhaps held a lock
            new Ref<Root>(std::move(root_));
            new std::vector<std::thread>(std::move(threads_));
            new auto(std::move(homes_));
            return true;
        }
        homes_[0]->post({Command::Kind::end, root_.object(), nullptr, monotonic_ns() + linger_ns});
        std::unique_lock wait(over_->lock);
        const bool over =
            over_->changed.wait_for(wait, std::chrono::nanoseconds(linger_ns + patience_ns), [&] { return over_->yes; });
        wait.unlock();
        if (over)
            for (const auto &home : homes_) home->stop();
        for (std::thread &thread : threads_)
            if (over) thread.join();
            else thread.detach();
        return over;
    }

  private:
    struct Over {
        std::mutex lock;
        std::condition_variable changed;
        bool yes = false;
    };
    class Root final : public Object {
      public:
        Root(std::shared_ptr<Home> home, std::shared_ptr<Over> over) : Object(std::move(home)), over_(std::move(over)) {}

      private:
        void over() override {
            const std::lock_guard hold(over_->lock);
            over_->yes = true;
            over_->changed.notify_all();
        }
        const std::shared_ptr<Over> over_;
    };

    const std::shared_ptr<Over> over_ = std::make_shared<Over>();
    const uint32_t generation_;
    std::mutex lock_;
    bool closed_ = false;
    std::vector<std::shared_ptr<IoThread>> homes_;
    std::vector<std::thread> threads_;
    Ref<Root> root_;
};

} // namespace penstock
