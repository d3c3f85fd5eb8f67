// The handshakes of the network log within a process: threads that sleep on a socket, a thread that finds something for them, and
// the conductor, which is asked to look or relies on the sleepers.
#include "pristine.hpp"

#include "ground/waiting.hpp"
#include "net/io/announcement.hpp"
#include "net/io/socket_sleepers.hpp"
#include "net/io/wake_request.hpp"

namespace penstock::model {
namespace {

struct Words {
    alignas(64) Announcement announced;
    alignas(64) Atomic<uint32_t> found;
    alignas(64) Atomic<uint32_t> wake; // in place of the descriptor or the timer: its count of wakes
    alignas(64) WakeRequest request;
    alignas(64) SocketSleepers sleepers;
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

// Stores work for the conductor, and asks it to look.
void ask(Words &shared) {
    shared.found.relaxed(shared.found.relaxed() + 1);
    if (shared.request.make()) event_interrupt(shared.wake);
}
void look_until(Words &shared, uint32_t count) {
    for (;;) {
        const uint32_t wakes = shared.wake.relaxed();
        shared.request.clear();
        if (shared.found.relaxed() >= count) return;
        event_sleep(shared.wake, wakes, 1);
    }
}
void asked_twice() { // the second request may be left out, but no work missed
    Words &shared = words();
    World::thread([&] {
        ask(shared);
        ask(shared);
    });
    World::thread([&] { look_until(shared, 2); });
}

// Sleeps on the socket for a moment, and calls the conductor if that relied on it.
void sleep_once(Words &shared) {
    shared.sleepers.enter();
    shared.sleepers.leave();
    if (shared.sleepers.relied_on()) event_interrupt(shared.wake);
}
void serve(Words &shared) { // until nobody else does
    for (;;) {
        const uint32_t wakes = shared.wake.relaxed();
        if (!shared.sleepers.rely()) return;
        event_sleep(shared.wake, wakes, 1);
    }
}
void relied_on() {
    Words &shared = words();
    World::thread([&] { sleep_once(shared); });
    World::thread([&] { serve(shared); });
}
void two_relied_on() {
    Words &shared = words();
    for (int i = 0; i < 2; ++i) World::thread([&] { sleep_once(shared); });
    World::thread([&] { serve(shared); });
}

} // namespace

const std::vector<Scenario> &waiter_scenarios() {
    static const std::vector<Scenario> all = {
        {"waiter_sleeps", "a thread sleeps while another finds something", sleeps},
        {"waiter_two_sleep", "and so do two", two_sleep, true},
        {"waiter_found_twice", "it is found in two steps", found_twice},
        {"waiter_asked_twice", "the conductor is asked to look, and asked once more", asked_twice},
        {"waiter_relied_on", "the conductor relies on a thread that sleeps", relied_on},
        {"waiter_two_relied_on", "and on two", two_relied_on, true},
    };
    return all;
}

} // namespace penstock::model
