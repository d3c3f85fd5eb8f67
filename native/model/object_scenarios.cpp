// The scenarios of objects that live on a thread: nothing is freed while somebody can still send to it.
#include "explorer.hpp"
#include "scenarios.hpp"

#include "command.hpp"
#include "waiting.hpp"
#include "ypipe.hpp"

#include <cstring>

namespace penstock::model {
namespace {

// A thread's mailbox, with a lock that the checker sees.
class ModelHome final : public Home {
  public:
    ModelHome() {
        std::memset(region, 0, sizeof region);
        World::share(region, sizeof region, sizeof region);
        pipe_ = new (region) YPipe<Command, 32>;
        static_assert(sizeof(YPipe<Command, 32>) <= 2048);
        lock_ = reinterpret_cast<Atomic<uint32_t> *>(region + 2048);
        raised_ = lock_ + 1;
    }
    void post(Command command) override {
        for (uint32_t free = 0; !lock_->cas(free, 1); free = 0) spin_pause();
        pipe_->write(std::move(command));
        const bool awake = pipe_->flush();
        lock_->release(0);
        if (awake) return;
        raised_->add(1);
        event_wake(*raised_);
    }
    void alarm(Object &, int64_t) override {}
    void cancel_alarms(Object &) override {}
    // Runs so many commands.
    void run(uint32_t count) {
        for (uint32_t slept = 0; count != 0;) {
            Command command;
            if (pipe_->read(command)) {
                Object::process(command);
                --count;
                continue;
            }
            while (raised_->acquire() == slept) event_sleep(*raised_, slept, 1);
            ++slept;
        }
    }
    alignas(4096) static inline uint8_t region[8192];

  private:
    YPipe<Command, 32> *pipe_;
    Atomic<uint32_t> *lock_, *raised_;
};

struct Fate {
    uint32_t calls = 0, freed = 0;
    bool over = false;
};

class Thing final : public Object {
  public:
    Thing(std::shared_ptr<Home> home, Fate *fate) : Object(std::move(home)), fate_(fate) {}
    void use() {
        EXPECT(fate_->freed == 0 && !fate_->over);
        ++fate_->calls;
    }
    // In the memory that the checker watches, and never given back: what is used too late is still recognised.
    static void *operator new(size_t size) {
        uint8_t *at = ModelHome::region + 4096 + 512 * used++;
        EXPECT(size <= 512 && used <= 8);
        return at;
    }
    static void operator delete(void *) {}
    static inline uint32_t used = 0;

  protected:
    void over() override { fate_->over = true; }
    ~Thing() override {
        EXPECT(fate_->over);
        ++fate_->freed;
    }

  private:
    Fate *fate_;
};

Ref<Thing> make(const std::shared_ptr<ModelHome> &home, Fate *fate) {
    return launch_from<Thing>(nullptr, home, [](Object *) {}, fate);
}

// One hands a reference on to another and lets go of its own, while the object is told to end.
void object_outlives_its_references() {
    Thing::used = 0;
    const auto home = std::make_shared<ModelHome>();
    auto *fate = new Fate;
    auto *mine = new Ref<Thing>(make(home, fate));
    auto *given = new Ref<Thing>;
    auto *handed = reinterpret_cast<Atomic<uint32_t> *>(ModelHome::region + 3072);
    World::thread([=] { home->run(7); });
    World::thread([=] {
        *given = *mine;
        mine->call([](Thing &thing) { thing.use(); });
        handed->release(1);
        home->post({Command::Kind::end, mine->object()});
        *mine = {};
    });
    World::thread([=] {
        while (handed->acquire() == 0) spin_pause();
        given->call([](Thing &thing) { thing.use(); });
        *given = {};
    });
    World::finally([=] {
        EXPECT(fate->freed == 1);
        EXPECT(fate->calls == 1 || fate->calls == 2);
    });
}

// Two with a reference each, who do not know of each other.
void object_serves_two() {
    Thing::used = 0;
    const auto home = std::make_shared<ModelHome>();
    auto *fate = new Fate;
    auto *one = new Ref<Thing>(make(home, fate));
    auto *other = new Ref<Thing>(*one);
    World::thread([=] { home->run(8); });
    World::thread([=] {
        one->call([](Thing &thing) { thing.use(); });
        Ref<Thing> copy = *one;
        *one = {};
        home->post({Command::Kind::end, copy.object()});
    });
    World::thread([=] {
        other->call([](Thing &thing) { thing.use(); });
        *other = {};
    });
    World::finally([=] { EXPECT(fate->freed == 1); });
}

} // namespace

const std::vector<Scenario> &object_scenarios() {
    static const std::vector<Scenario> all = {
        {"pipe_object_handed_on", "an object outlives every reference, and what was sent by it", object_outlives_its_references},
        {"pipe_object_serves_two", "two send to an object that is told to end", object_serves_two},
    };
    return all;
}

} // namespace penstock::model
