// The network log over real sockets, on loopback.
#include "udp_owners.hpp"

#include <random>
#include <sys/wait.h>
#include <thread>

using namespace penstock;
using namespace penstock::test;

namespace {

void a_message_arrives(const Folder &folder) {
    const Place place(folder);
    auto reader = place.reader();
    CHECK(reader->owns_socket());
    auto writer = place.writer();
    CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
    CHECK(writer->offer("hello", 5) != no_room);
    const Message *message = nullptr;
    CHECK(wait_until(*reader, [&] { return (message = reader->peek()) != nullptr; }));
    CHECK(message->length == 5 && std::memcmp(message->data, "hello", 5) == 0 && message->session == writer->session());
    CHECK(writer->progress().first == 0, "sent, and not read");
    reader->consume();
    CHECK(!reader->ended());
    CHECK(wait_until(*writer, [&] { return reader->peek() == nullptr && writer->progress().first == writer->position(); }));
    writer->leave();
    CHECK(wait_until(*reader, [&] { return reader->peek() == nullptr && reader->ended(); }));
}

// Senders count a late subscription when it has joined their sessions, and not before: it would miss what they send in between.
void a_late_subscription_counts_when_it_reads(const Folder &folder) {
    const Place place(folder);
    auto reader = place.reader();
    auto writer = place.writer();
    CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
    const OpenFile opened = open_file(place.path);
    const EndpointFile file(opened.fd(), place.path);
    SessionReaders late(Start{}, 0);
    late.join(opened.fd(), file, 1);
    const bool counted = wait_until(*writer, [&] { return reader->peek() != nullptr || writer->receivers() != 1; }, 200'000'000);
    CHECK(!counted, "it has not joined the session, and is counted");
    late.refresh();
    CHECK(wait_until(*writer, [&] { return reader->peek() == nullptr && writer->receivers() == 2; }));
    late.leave();
    auto another = place.reader();
    CHECK(wait_until(*writer, [&] { return writer->receivers() == 2; }));
    const uint64_t from = another->position();
    CHECK(writer->offer("hello", 5) != no_room);
    CHECK(wait_until(*another, [&] { return another->peek() != nullptr; }));
    CHECK(another->position() == from);
    writer->leave();
}

// A turn that finds something wakes the other threads that mean to sleep, and not its own.
void a_turn_wakes_other_threads() {
    SocketWaiter caller(NetCalls::system());
    const auto elsewhere = [](auto &&work) { std::thread(work).join(); };
    const auto woken = [&] { return caller.sleep(-1, 1'000'000) == SocketWaiter::Woken::event; };
    caller.announce();
    caller.wake_sleepers();
    CHECK(!woken(), "woken by its own turn");
    caller.announce();
    elsewhere([&] { caller.wake_sleepers(); });
    CHECK(woken());
    elsewhere([&] { caller.announce(); });
    caller.wake_sleepers();
    CHECK(woken());
    elsewhere([&] { caller.announce(); });
    caller.announce();
    caller.wake_sleepers();
    CHECK(woken(), "another thread announced itself before");
    caller.wake_sleepers();
    CHECK(!woken(), "nobody means to sleep");
}

// Pairs of messages, with pauses: the second one would wait for a third in vain, and soon goes out at once. Whether it does is
// the writer's own affair: it looks before the conductor comes.
void messages_that_wait_in_vain_wait_no_more(const Folder &folder) {
    const Place place(folder);
    auto reader = place.reader();
    auto writer = place.writer();
    CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
    uint32_t at_once = 0;
    for (int i = 0; i < 300; ++i) {
        for (int two = 0; two < 2; ++two) CHECK(writer->offer("hello", 5) != no_room);
        at_once += i >= 100 && writer->lag() == 0;
        const int64_t until = monotonic_ns() + 300'000;
        while (monotonic_ns() < until)
            while (reader->peek() != nullptr) reader->consume();
    }
    CHECK(at_once >= 150, "%u of 200 pairs went out at once", at_once);
    writer->leave();
}

void many_messages(const Folder &folder, uint32_t count, size_t size) {
    const Place place(folder);
    auto reader = place.reader();
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        reader->leave();
        auto writer = place.writer();
        CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
        std::vector<uint8_t> bytes(size);
        for (uint32_t i = 0; i < count; ++i) {
            std::memcpy(bytes.data(), &i, sizeof i);
            PendingSend sending{bytes.data(), bytes.size()};
            CHECK(wait_until(*writer, [&] { return writer->send_some(sending); }));
        }
        writer->leave();
        CHECK(Conductor::instance().finish(20'000'000'000));
        _exit(0);
    }
    for (uint32_t i = 0; i < count; ++i) {
        const Message *message = nullptr;
        CHECK(wait_until(*reader, [&] { return (message = reader->peek()) != nullptr; }), "message %u", i);
        uint32_t number;
        std::memcpy(&number, message->data, sizeof number);
        CHECK(number == i && message->length == size, "%u instead of %u", number, i);
        reader->consume();
    }
    CHECK(wait_until(*reader, [&] { return reader->peek() == nullptr && reader->ended(); }));
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    const UdpCounts counts = reader->counts();
    std::printf("%u messages of %zu bytes: %lu datagrams, %lu coalesced, %lu naks, %lu duplicates, %lu overruns\n", count, size,
                counts.datagrams_received, counts.coalesced, counts.naks_sent, counts.duplicates, counts.overruns);
}

// System calls that fail at random, or do a part of their work.
class Faulty final : public NetCalls {
  public:
    explicit Faulty(uint64_t seed) : random_(seed) {}
    int send(int fd, mmsghdr *messages, unsigned count) override {
        const std::lock_guard hold(mutex_);
        static constexpr int errors[] = {EAGAIN, ENOBUFS, ENOMEM, EINTR, EPERM, ENETDOWN, ECONNREFUSED, EHOSTUNREACH};
        if (is_run(messages[0]) && refuses_runs) return fail(EIO);
        if (random_() % 4 == 0) return fail(errors[random_() % std::size(errors)]);
        return NetCalls::send(fd, messages, random_() % 4 == 0 ? 1 : count);
    }
    int receive(int fd, mmsghdr *messages, unsigned count) override {
        const std::lock_guard hold(mutex_);
        static constexpr int errors[] = {EAGAIN, EINTR, ECONNREFUSED, ENETDOWN, ENOMEM, EIO};
        if (random_() % 4 == 0) return fail(errors[random_() % std::size(errors)]);
        return NetCalls::receive(fd, messages, random_() % 4 == 0 ? 1 : count);
    }
    std::atomic<bool> refuses_runs{false};
    std::atomic<uint64_t> failed{0};

  private:
    static bool is_run(const mmsghdr &message) { return message.msg_hdr.msg_controllen != 0; }
    int fail(int number) {
        ++failed;
        errno = number;
        return -1;
    }
    std::mutex mutex_; // callers and the conductor
    std::mt19937_64 random_;
};

// Every message arrives, once and in order, whatever the system calls do.
void system_calls_fail(const Folder &folder, uint64_t seed, uint32_t count) {
    static Faulty sending(seed), receiving(seed + 1); // the conductor may use them after this function
    const Place place(folder);
    auto reader = place.reader({}, receiving);
    auto writer = place.writer({}, sending);
    CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
    uint32_t sent = 0, got = 0;
    std::vector<uint8_t> bytes(3000);
    PendingSend message{bytes.data(), 0};
    const auto write = [&] {
        if (sent == count) return;
        if (message.length == 0) {
            message = {bytes.data(), 4 + sent * 2654435761u % 2990};
            std::memcpy(bytes.data(), &sent, sizeof sent);
        }
        if (!writer->send_some(message)) return;
        message.length = 0;
        ++sent;
        sending.refuses_runs = sent > count / 2;
    };
    const int64_t until = monotonic_ns() + 100'000'000'000;
    while (got < count) {
        write();
        for (const Message *found; (found = reader->peek()) != nullptr; reader->consume()) {
            uint32_t number;
            std::memcpy(&number, found->data, sizeof number);
            CHECK(number == got && found->length == 4 + number * 2654435761u % 2990, "%u instead of %u", number, got);
            ++got;
        }
        CHECK(monotonic_ns() < until, "%u of %u messages in time", got, count);
    }
    const UdpCounts out = writer->counts(), in = reader->counts();
    CHECK(sending.failed != 0 && receiving.failed != 0 && out.send_failed != 0 && out.send_refused != 0 &&
          in.receive_failed != 0);
    CHECK(in.naks_sent != 0 && out.retransmitted != 0 && in.losses == 0);
    std::printf("%u messages while %lu system calls failed: %lu datagrams refused at first, %lu dropped, %lu sent again\n", count,
                sending.failed + receiving.failed, out.send_refused, out.send_failed, out.retransmitted);
}

// The child of a process that publishes and subscribes joins again as another member; its parent goes on.
void a_child_takes_part_anew(const Folder &folder) {
    const Place place(folder);
    auto reader = place.reader();
    auto writer = place.writer();
    CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
    const int32_t session = writer->session();
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        reader->leave();
        writer->rejoin();
        CHECK(writer->session() != session);
        CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
        CHECK(writer->offer("child", 5) != no_room);
        writer->leave();
        CHECK(Conductor::instance().finish(60'000'000'000));
        _exit(0);
    }
    CHECK(writer->offer("mother", 6) != no_room);
    bool mother = false, other = false;
    CHECK(wait_until(*reader, [&] {
        for (const Message *message; (message = reader->peek()) != nullptr; reader->consume())
            (message->length == 6 && message->session == session ? mother : other) = true;
        return mother && other;
    }));
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(writer->offer("mother", 6) != no_room);
    CHECK(wait_until(*reader, [&] { return reader->peek() != nullptr; }));
}

// The conductor's cycles, called here at times of this test's choosing: each visit at its time, and not before.
void a_keeper_comes_when_it_is_due() {
    static int64_t now;
    now = 5'000'000'000;
    struct Visited final : Agent {
        explicit Visited(int64_t every) : every_ns(every) {}
        Schedule do_work(int64_t at) override {
            last = at;
            ++visits;
            return {at + every_ns, over};
        }
        bool is_closing() const override { return !over; }
        const int64_t every_ns;
        int64_t last = 0;
        int visits = 0;
        bool over = false;
    };
    Conductor conductor([] { return now; }, false);
    const auto often = std::make_shared<Visited>(1000), rarely = std::make_shared<Visited>(2500);
    conductor.add(often);
    conductor.add(rarely);
    CHECK(conductor.cycle(0) == now + 1000); // the first visit is due at once
    CHECK(often->visits == 1 && rarely->visits == 1);
    now += 999;
    CHECK(conductor.cycle(0) == now + 1 && often->visits == 1);
    now += 1;
    CHECK(conductor.cycle(0) == now + 1000 && often->visits == 2 && rarely->visits == 1);
    now += 1'000'000; // a clock that jumps: one visit each, not those that were missed
    CHECK(conductor.cycle(0) == now + 1000 && often->visits == 3 && rarely->visits == 2 && rarely->last == now);
    conductor.wake(); // all of them, whatever the clock says
    CHECK(conductor.cycle(0) == now + 1000 && often->visits == 4 && rarely->visits == 3);

    WakeUp something;
    conductor.watch(*often, something.fd());
    something.set();
    conductor.cycle(0);
    CHECK(often->visits == 5);
    conductor.cycle(0); // it still has something, but is watched once
    CHECK(often->visits == 5);
    conductor.watch(*often, something.fd());
    conductor.cycle(0);
    CHECK(often->visits == 6);

    conductor.wake_within(1'000);
    now += 1;
    conductor.cycle(10'000'000'000); // waits for the timer
    CHECK(often->visits == 7 && rarely->last == now);

    CHECK(!conductor.finish(0));
    often->over = rarely->over = true;
    now += 3000;
    conductor.cycle(0);
    CHECK(conductor.finish(0) && often->visits == 8 && often.use_count() == 1);
    CHECK(conductor.cycle(0) == now + 1'000'000'000 && conductor.agents_run() == 15);
}

// A closed publication goes on for as long as its receivers take something, however slowly. When nothing has moved for its linger
// it gives up, and says how much it had still to send.
void a_closed_publication_waits_for_slow_receivers(const Folder &folder) {
    constexpr int64_t linger = 1'000'000'000, pause = linger * 9 / 10;
    constexpr uint32_t room = 1056, messages = 10; // bytes that a message takes
    for (const bool slow : {true, false}) {
        UdpWriterOptions options;
        options.to = parse_address("127.0.0.1", free_port());
        options.linger_ns = linger;
        UdpSocket peer(options.to, "test");
        peer.bind(options.to);
        NetworkPublication out("udp:test", folder.path("closing."), options, 77, NetCalls::system());
        int64_t now = monotonic_ns();
        out.run_duty_cycle(now, true);
        sockaddr_storage from{};
        socklen_t length = sizeof from;
        char setup[64];
        CHECK(recvfrom(peer.fd(), setup, sizeof setup, 0, reinterpret_cast<sockaddr *>(&from), &length) == 40);
        const auto take = [&](uint32_t messages_read) { // and there is room for one more
            auto frame = wire::make<wire::StatusFrame>(wire::Type::status);
            frame.start.length = wire::status_length;
            frame.session = 77;
            frame.stream = options.stream;
            frame.term_id = options.initial_term_id;
            frame.term_offset = static_cast<int32_t>(messages_read * room);
            frame.window = room;
            CHECK(sendto(peer.fd(), &frame, wire::status_length, 0, reinterpret_cast<sockaddr *>(&from), length) > 0);
        };
        auto log = std::make_shared<TermLog>(out.fd(), out.where(), out.mapping());
        LogWriter writer(log, true, nullptr);
        const std::vector<char> body(1000, 'x');
        for (uint32_t i = 0; i < messages; ++i) CHECK(writer.offer(body.data(), body.size()) != no_room);
        log->detach();
        take(0);
        out.close(now);
        CHECK(out.sent() == room);
        for (uint32_t i = 1; slow && i < messages; ++i) {
            take(i);
            CHECK(!out.do_work(now += pause).done && out.sent() == (i + 1) * room, "%lu", static_cast<unsigned long>(out.sent()));
        }
        CHECK(!out.do_work(now += pause).done);
        CHECK(out.do_work(now += pause).done);
        const Conductor::Unsent expected{{"udp:test", (messages - 1) * room}};
        CHECK(Conductor::instance().take_unsent() == (slow ? Conductor::Unsent{} : expected));
    }
}

// A message goes from one to the other, at this address.
void reaches(const Folder &folder, const Address &at) {
    UdpEndpointOptions options;
    options.at = at;
    const Place place(folder, options);
    auto reader = place.reader();
    auto writer = place.writer();
    CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }), "%s", text_of(at).c_str());
    CHECK(writer->offer("hello", 5) != no_room);
    CHECK(wait_until(*reader, [&] { return reader->peek() != nullptr; }));
    reader->consume();
    writer->leave();
    CHECK(wait_until(*reader, [&] { return reader->peek() == nullptr && reader->ended(); }));
}

} // namespace

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    const Folder folder;
    const auto scale = static_cast<uint32_t>(argument(argc, argv, "--scale", 1));
    a_keeper_comes_when_it_is_due();
    a_turn_wakes_other_threads();
    a_message_arrives(folder);
    a_late_subscription_counts_when_it_reads(folder);
    messages_that_wait_in_vain_wait_no_more(folder);
    a_closed_publication_waits_for_slow_receivers(folder);
    a_new_owner_goes_on(folder);
    a_silent_session_tells_its_readers_what_is_lost(folder);
    a_takeover_fails_half_way(folder);
    many_messages(folder, 100'000 * scale, 64);
    many_messages(folder, 20'000 * scale, 1000);
    many_messages(folder, 500 * scale, 100'000);
    a_child_takes_part_anew(folder);
    reaches(folder, parse_address("::1", free_port("::1")));
    reaches(folder, parse_address("239.192.7.9", free_port()));
    system_calls_fail(folder, argument(argc, argv, "--seed", 1), 5000 * scale);
    CHECK(Conductor::instance().finish(20'000'000'000));
    folder.check_empty();
    return 0;
}
