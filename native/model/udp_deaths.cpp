// The network log's scenarios in which a process is killed at any of its operations: the socket owner, or a subscription.
#include "udp_stage.hpp"

namespace penstock::model {
namespace {

void made_by(int thread, Owner &owner) { // its locks and slots die with it
    World::owner(thread);
    owner.run_duty_cycle({setup(1)});
    World::owner(-1);
}

// The owner (thread 0) does `work` and may be killed anywhere. If it lives it goes on until the stream stands up to `end`.
// Thread 1 reads it all, and takes ownership over as soon as that is free: then it hears the sender.
template <class Before, class Work> void taken_over(uint64_t end, Before before, Work work) {
    UdpStage stage(3);
    Owner &first = owner(0), &next = owner(1, false);
    Subscription &reader = subscription(1);
    World::owner(0);
    before(first);
    World::owner(1);
    reader.sessions().refresh();
    World::owner(-1);
    World::thread(
        [&first, work, end] {
            work(first);
            first.feed(1, 0, end);
        },
        true);
    World::thread([&next, &reader, end] {
        for (bool holds = false; reader.total < end / 64;) {
            if (reader.one()) continue;
            if (holds || !next.consume()) spin_pause();
            else holds = next.feed(1, 0, end);
        }
        EXPECT(reader.sessions().lost() == 0);
    });
}

void inserting() {
    taken_over(128, [](Owner &h) { h.run_duty_cycle({setup(1)}); }, [](Owner &h) { h.run_duty_cycle({data(1, 0)}); });
}
void inserting_a_run() {
    taken_over(128, [](Owner &h) { h.run_duty_cycle({setup(1)}); }, [](Owner &h) { h.run_duty_cycle({data(1, 0, 2)}); });
}
void inserting_behind_a_gap() {
    taken_over(128, [](Owner &h) { h.run_duty_cycle({setup(1)}); }, [](Owner &h) { h.run_duty_cycle({data(1, 64)}); });
}
void making() {
    taken_over(64, [](Owner &) {}, [](Owner &h) { h.run_duty_cycle({setup(1)}); });
}
void consuming() { // the edge that was told to the sender, and the memory that was cleaned for it
    taken_over(192, [](Owner &h) { h.run_duty_cycle({setup(1), data(1, 0, 2)}); }, [](Owner &h) { h.run_duty_cycle(); });
}
void beside_a_reader() { // the one that takes over is another process than the one that reads
    UdpStage stage(3);
    Owner &first = owner(0), &next = owner(1, false);
    Subscription &reader = subscription(2);
    made_by(0, first);
    reader.sessions().refresh();
    World::thread(
        [&first] {
            first.run_duty_cycle({data(1, 0)});
            first.feed(1, 0, 64);
        },
        true);
    World::thread([&next] {
        while (!World::finished(0)) {
            if (!next.consume()) spin_pause();
            else {
                next.feed(1, 0, 64);
                return;
            }
        }
    });
    World::thread([&reader] { reader.read_asleep(1); });
}
void handed_over() { // nobody dies
    UdpStage stage;
    Owner &first = owner(0), &next = owner(1, false);
    Subscription &reader = subscription(2);
    made_by(0, first);
    reader.sessions().refresh();
    World::thread([&first] {
        first.run_duty_cycle({data(1, 0)});
        first.give_up();
    });
    World::thread([&next] {
        next.take_surely();
        next.run_duty_cycle({data(1, 64)});
    });
    World::thread([&reader] { reader.read(2); });
}
void dead_subscription() { // its place is freed, and the rest goes on
    UdpStage stage;
    Owner &first = owner(0);
    Subscription &reader = subscription(1);
    made_by(0, first);
    World::owner(1);
    reader.sessions().refresh();
    World::owner(-1);
    World::thread([&first] {
        first.run_duty_cycle({data(1, 0, 2)});
        first.turn_until([&] { return first.image().consumed() == 128; });
    });
    World::thread(
        [&reader] {
            reader.read(2);
            reader.sessions().show_positions();
        },
        true);
}
void dead_at_the_end() { // less is missing than what holds the sender up; the session ends all the same
    UdpStage stage;
    Owner &first = owner(0);
    Subscription &reader = subscription(1);
    made_by(0, first);
    World::owner(1);
    reader.sessions().refresh();
    World::owner(-1);
    World::thread([&first] {
        first.run_duty_cycle({data(1, 0), end_of_stream(1, 64)});
        first.turn_until([&] { return first.image().consumed() == 64; });
    });
    World::thread(
        [&reader] {
            reader.read(1);
            reader.sessions().show_positions();
        },
        true);
}
void dead_newcomer() { // it dies while it joins
    UdpStage stage;
    Subscription &other = subscription(0);
    Owner &first = owner(0);
    made_by(0, first);
    other.sessions().refresh();
    World::thread([&first, &other] {
        first.run_duty_cycle({data(1, 0, 2)});
        other.read(2);
        other.sessions().show_positions();
        if (World::died(1)) first.turn_until([&] { return first.image().consumed() == 128; });
    });
    World::thread(
        [] {
            auto &reader = *new Subscription;
            reader.join();
        },
        true);
}

} // namespace

const std::vector<Scenario> &udp_deaths() {
    static const std::vector<Scenario> all = {
        {"udp_dead_inserting", "an owner dies while it inserts, another one takes over", inserting, true, true},
        {"udp_dead_inserting_a_run", "two frames of one datagram", inserting_a_run, true},
        {"udp_dead_behind_a_gap", "frames behind a gap are gone", inserting_behind_a_gap, true},
        {"udp_dead_making", "it dies while it makes an image", making, true, true},
        {"udp_dead_asleep", "a subscription of another process sleeps meanwhile", beside_a_reader, true, true},
        {"udp_dead_consuming", "it dies while it moves the sender's limit", consuming, true, true},
        {"udp_handed_over", "the owner leaves", handed_over, true, true},
        {"udp_dead_subscription", "a subscription dies", dead_subscription, true},
        {"udp_dead_at_the_end", "and a session ends", dead_at_the_end, true},
        {"udp_dead_newcomer", "a subscription dies while it joins", dead_newcomer, true, true},
    };
    return all;
}

} // namespace penstock::model
