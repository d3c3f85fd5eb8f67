// The socket waiter of the network log: threads that sleep on a socket, and one that finds something for them.
#include "pristine.hpp"

#include "ground/waiting.hpp"
#include "net/io/announcement.hpp"

namespace penstock::model {
namespace {

struct Words {
    alignas(64) Announcement announced;
    alignas(64) Atomic<uint32_t> found;
    alignas(64) Atomic<uint32_t> wake; // in place of the descriptor: its count of wakes
};

Words &words() {
    static Pristine file;
    static std::shared_ptr<Mapping> mapping;
    mapping = file.restore(0, 4096, [](int) {});
    World::share(mapping->bytes(), mapping->size(), sizeof(Words));
    return *reinterpret_cast<Words *>(mapping->bytes());
}

void find(Words &shared, uint64_t me) {
    shared.found.relaxed(shared.found.relaxed() + 1);
    if (shared.announced.claim(me)) event_interrupt(shared.wake);
}
void await(Words &shared, uint64_t me, uint32_t count) {
    for (;;) {
        const uint32_t wakes = shared.wake.relaxed();
        shared.announced.announce(me);
        if (shared.found.relaxed() >= count) return;
        event_sleep(shared.wake, wakes, 1);
    }
}

void sleeps() {
    Words &shared = words();
    World::thread([&] { find(shared, 2); });
    World::thread([&] { await(shared, 3, 1); });
}
void two_sleep() { // one wake is for both
    Words &shared = words();
    World::thread([&] { find(shared, 2); });
    for (uint64_t me : {3, 4}) World::thread([&shared, me] { await(shared, me, 1); });
}
void found_twice() { // the sleeper needs the second
    Words &shared = words();
    World::thread([&] {
        find(shared, 2);
        find(shared, 2);
    });
    World::thread([&] { await(shared, 3, 2); });
}

} // namespace

const std::vector<Scenario> &waiter_scenarios() {
    static const std::vector<Scenario> all = {
        {"waiter_sleeps", "a thread sleeps while another finds something", sleeps},
        {"waiter_two_sleep", "and so do two", two_sleep, true},
        {"waiter_found_twice", "it is found in two steps", found_twice},
    };
    return all;
}

} // namespace penstock::model
