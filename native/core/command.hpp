// Objects that live on a thread and are reached only by commands through its mailbox, and who owns whom: an owner ends after all
// it owns has ended, and nothing is freed while somebody can still send to it. After ZeroMQ's object_t, own_t and command_t, with
// counted references in the place of its counts of commands sent. Why nothing is freed too early: docs/design/io_thread.md.
#pragma once

#include "clock.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>
#include <utility>

namespace penstock {

class Object;

struct Command {
    enum class Kind : uint8_t { none, plug, call, adopt, ask_end, end, ended, release };
    Kind kind = Kind::none;
    Object *to = nullptr;
    Object *about = nullptr;              // adopt, ask_end, ended: whom it is about
    int64_t deadline_ns = 0;              // end: of the monotonic clock
    std::function<void(Object &)> call{}; // what to run on the object's thread
};

// Where objects live: a thread with a mailbox.
class Home {
  public:
    virtual ~Home() = default;
    virtual void post(Command command) = 0; // any thread; the home runs Object::process with it, in order
    // Calls Object::expire at that time. Only from objects that live here.
    virtual void alarm(Object &object, int64_t when_ns) = 0;
    virtual void cancel_alarms(Object &object) = 0;
};

template <class T> class Ref;

class Object {
  public:
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;
    const std::shared_ptr<Home> &home() const { return home_; }

    // One command to an object that lives here. The object may be gone afterwards.
    static void process(Command &command) {
        Object &to = *command.to;
        switch (command.kind) {
        case Command::Kind::plug:
            if (to.ending_) break;
            to.plugged_ = true;
            to.plugged();
            break;
        case Command::Kind::call:
            if (!to.over_) command.call(to);
            command.call = nullptr; // with what it held, while the object is still there
            break;
        case Command::Kind::adopt:
            to.children_.insert(command.about);
            break;
        case Command::Kind::ask_end:
            to.end_child(command.about);
            break;
        case Command::Kind::end:
            to.begin_end(command.deadline_ns);
            break;
        case Command::Kind::ended:
            --to.awaited_;
            break;
        case Command::Kind::release:
            to.held_.add(uint64_t{0} - 1); // only this thread counts down, so that what it finds to be 0 stays 0
            break;
        case Command::Kind::none:
            break;
        }
        to.settle();
    }
    static void expire(Object &object) {
        if (object.ending_ && !object.drained_) {
            object.expired();
            object.drained_ = true;
        }
        object.settle();
    }

  protected:
    explicit Object(std::shared_ptr<Home> home) : home_(std::move(home)) { held_.relaxed(0); }
    virtual ~Object() = default;

    // ---- for those who derive; all of it on the object's thread ----

    virtual void plugged() {} // it lives on its thread from now on; not called if it has to end before
    // Everything under way should come to its end by then, and `drained` be called. What it owns is told at the same time.
    virtual void ending(int64_t) { drained(); }
    virtual void expired() {} // the deadline has passed: what is left is to be dropped
    virtual void over() {}    // all it owned has ended, and so has it; no more calls come

    void drained() {
        if (std::exchange(drained_, true)) return;
        held_.add(1); // what follows from that is looked at by a command, not under the caller's feet
        home_->post({Command::Kind::release, this});
    }
    // Its owner is asked to end it.
    void end_me() {
        if (owner_ == nullptr || std::exchange(asked_, true)) return;
        owner_->home_->post({Command::Kind::ask_end, owner_, this});
    }
    // A new object, owned by this one; it may live elsewhere. Empty if this one is ending.
    template <class T, class... Arguments> Ref<T> launch(const std::shared_ptr<Home> &where, Arguments &&...arguments);
    size_t children() const { return children_.size() + awaited_; }
    int64_t linger_ns = 0; // for what it owns, when that ends and it does not

  private:
    template <class T> friend class Ref;
    template <class T, class Adopt, class... Arguments>
    friend Ref<T> launch_from(Object *owner, const std::shared_ptr<Home> &where, Adopt &&adopt, Arguments &&...arguments);

    void end_child(Object *child) {
        if (children_.erase(child) == 0) return; // it was told already
        ++awaited_;
        child->home_->post({Command::Kind::end, child, nullptr, ending_ ? deadline_ns_ : monotonic_ns() + linger_ns});
    }
    void begin_end(int64_t deadline_ns) {
        if (std::exchange(ending_, true)) return;
        deadline_ns_ = deadline_ns;
        while (!children_.empty()) end_child(*children_.begin());
        home_->alarm(*this, deadline_ns);
        if (plugged_) ending(deadline_ns);
        else drained_ = true;
    }
    // After each command: whether it is over, and whether it can go.
    void settle() {
        if (!over_ && ending_ && drained_ && children_.empty() && awaited_ == 0) {
            over_ = true;
            home_->cancel_alarms(*this);
            over();
            if (owner_ != nullptr) owner_->home_->post({Command::Kind::ended, owner_, this});
        }
        if (over_ && held_.relaxed() == 0) delete this; // each count up is seen: it came before the command that counted it down
    }

    const std::shared_ptr<Home> home_;
    Object *owner_ = nullptr; // which is there until this one has ended
    std::unordered_set<Object *> children_;
    uint64_t awaited_ = 0; // children told to end that have not said that they did
    int64_t deadline_ns_ = 0;
    bool plugged_ = false, ending_ = false, drained_ = false, over_ = false, asked_ = false;
    Atomic<uint64_t> held_; // references; up: whoever has one, down: its thread
};

// A right to send commands to an object: as long as there is one, the object's memory is there. Each belongs to one thread at a
// time.
template <class T> class Ref {
  public:
    Ref() = default;
    Ref(const Ref &other) : object_(other.object_) { count(); }
    Ref(Ref &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Ref &operator=(Ref other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Ref() { // by the same way as what was sent before: so the object outlives that
        if (object_ == nullptr) return;
        const std::shared_ptr<Home> home = object()->home(); // which may go with the object
        home->post({Command::Kind::release, object()});
    }
    explicit operator bool() const { return object_ != nullptr; }
    Object *object() const { return object_; }

    // Runs on the object's thread, in the order of sending, unless the object is over by then.
    template <class Call> void call(Call call) const {
        object()->home()->post({Command::Kind::call, object(), nullptr, 0,
                                [call = std::move(call)](Object &on) mutable { call(static_cast<T &>(on)); }});
    }
    // Asks its owner to end it.
    void end() const {
        call([](Object &object) { object.end_me(); });
    }

  private:
    template <class U, class Adopt, class... Arguments>
    friend Ref<U> launch_from(Object *owner, const std::shared_ptr<Home> &where, Adopt &&adopt, Arguments &&...arguments);
    explicit Ref(T *object) : object_(object) { count(); }
    void count() {
        if (object_ != nullptr) object()->held_.add(1);
    }
    T *object_ = nullptr;
};

// A new object of `owner`, which learns of it first: so it knows whoever asks it for its end. `adopt` tells it.
template <class T, class Adopt, class... Arguments>
Ref<T> launch_from(Object *owner, const std::shared_ptr<Home> &where, Adopt &&adopt, Arguments &&...arguments) {
    Ref<T> made(new T(where, std::forward<Arguments>(arguments)...));
    made.object()->owner_ = owner;
    adopt(made.object());
    where->post({Command::Kind::plug, made.object()});
    return made;
}

template <class T, class... Arguments> Ref<T> Object::launch(const std::shared_ptr<Home> &where, Arguments &&...arguments) {
    if (ending_) return {};
    auto adopt = [this](Object *made) { children_.insert(made); };
    return launch_from<T>(this, where, adopt, std::forward<Arguments>(arguments)...);
}

} // namespace penstock
