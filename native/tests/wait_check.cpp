// The event word and the habit of spinning: the sleeper's bit, the count and the notifier's core share the word, and none spoils
// another; a waiter does not spin beside its notifier, and less often after spins in vain.
#include "check.hpp"
#include "ground/waiting.hpp"

#include <sched.h>

using namespace penstock;

namespace {

void run_on(unsigned core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

void a_wake_names_its_core() {
    Atomic<uint32_t> event{};
    CHECK(!event_woken_from_here(event), "nobody has woken anybody");
    event_notify(event);
    CHECK(event.relaxed() == 0, "nobody slept, so the word is left alone");
    for (uint32_t i = 0; i < 5; ++i) {
        const uint32_t before = event_announce(event);
        CHECK((before & event_has_sleeper) != 0 && event.relaxed() == before);
        event_notify(event);
        CHECK((event.relaxed() & event_has_sleeper) == 0 && event.relaxed() != before);
        CHECK(event_woken_from_here(event));
        event_interrupt(event);
        CHECK(event_woken_from_here(event), "a disturbance changes the count only");
    }
}

// The count passes its end and comes back to 0 without a word for the core.
void the_count_begins_again() {
    Atomic<uint32_t> event{};
    const uint32_t count_end = 1u << event_core_shift;
    event.relaxed(count_end - 2);
    event_announce(event);
    event_notify(event);
    CHECK(event.relaxed() == event_core() << event_core_shift);
}

void another_core_is_named() {
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
    cpu_set_t allowed;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    if (!CPU_ISSET(0, &allowed) || !CPU_ISSET(1, &allowed)) return;
    Atomic<uint32_t> event{};
    run_on(0);
    event_announce(event);
    event_notify(event);
    CHECK(event_woken_from_here(event));
    run_on(1);
    CHECK(!event_woken_from_here(event));
    SpinHabit habit;
    CHECK(habit.worth(event), "the notifier has a core of its own");
    run_on(0);
    CHECK(!habit.worth(event), "the notifier needs this core");
    CHECK(habit.due(), "a waiter that yields may spin beside it");
}

// A notifier on this core that goes on without an answer is given the core; one that waits for each answer is slept for.
void a_stream_from_this_core_is_spun_for() {
    run_on(sched_getcpu());
    Atomic<uint32_t> event{};
    event_announce(event);
    event_notify(event);
    SpinHabit habit;
    const auto waits_to_trial = [&](int messages) { // which the trial brings
        int waits = 1;
        for (; !habit.worth(event); ++waits) habit.took();
        for (int i = 0; i < messages; ++i) habit.took();
        return waits;
    };
    for (const int expected : {16, 32, 64, 128}) CHECK(waits_to_trial(1) == expected);
    CHECK(waits_to_trial(2) == 256);
    CHECK(waits_to_trial(2) == 1, "several messages since the last wait");
    CHECK(waits_to_trial(2) == 1);
    CHECK(waits_to_trial(1) == 1);
    CHECK(waits_to_trial(0) == 16, "the trial that found several was worth it");
}

void spins_in_vain_become_rare() {
    Atomic<uint32_t> event{};
    SpinHabit habit;
    uint32_t spins = 0;
    for (int i = 0; i < 3; ++i) {
        CHECK(habit.worth(event));
        habit.spun(false);
    }
    for (uint32_t pause : {2u, 4u, 8u, 16u, 32u, 64u, 64u, 64u}) {
        uint32_t skipped = 0;
        while (!habit.worth(event)) ++skipped;
        CHECK(skipped == pause, "skipped %u, not %u", skipped, pause);
        habit.spun(false);
        ++spins;
    }
    CHECK(spins == 8);
    while (!habit.worth(event)) {
    }
    habit.spun(true);
    CHECK(habit.worth(event) && habit.worth(event), "a spin that paid is spun again");
}

// A waiter that yields while it spins counts its spins in vain as others do.
void yielding_spins_become_rare() {
    SpinHabit habit;
    for (int i = 0; i < 3; ++i) {
        CHECK(habit.due());
        habit.spun(false);
    }
    CHECK(!habit.due() && !habit.due() && habit.due(), "two waits are left out after three spins in vain");
    habit.spun(true);
    CHECK(habit.due());
}

} // namespace

int main() {
    a_wake_names_its_core();
    the_count_begins_again();
    another_core_is_named();
    a_stream_from_this_core_is_spun_for();
    spins_in_vain_become_rare();
    yielding_spins_become_rare();
    std::puts("wakes name their core, and spins that do not pay become rare");
    return 0;
}
