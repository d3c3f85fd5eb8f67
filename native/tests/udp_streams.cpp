// Several streams on one port of a machine: in one process, and in several, of which the one with the socket leaves or is killed.
#include "udp_folder.hpp"

#include <sys/wait.h>

using namespace penstock;
using namespace penstock::test;

namespace {

UdpEndpointOptions stream(const Address &at, int32_t number) {
    UdpEndpointOptions options;
    options.at = at;
    options.stream = number;
    return options;
}

UdpWriterOptions brief() { // at the end nobody may be there to say that all was read
    UdpWriterOptions options;
    options.linger_ns = 100'000'000;
    return options;
}

void send(UdpWriter &writer, uint32_t number) {
    PendingSend sending{reinterpret_cast<const uint8_t *>(&number), sizeof number};
    CHECK(wait_until(writer, [&] { return writer.send_some(sending); }), "message %u", number);
}
void expect(UdpReader &reader, uint32_t number) {
    const Message *message = nullptr;
    CHECK(wait_until(reader, [&] { return (message = reader.peek()) != nullptr; }), "message %u", number);
    uint32_t found;
    CHECK(message->length == sizeof found);
    std::memcpy(&found, message->data, sizeof found);
    CHECK(found == number, "%u instead of %u", found, number);
    reader.consume();
}

void in_one_process(const Folder &folder) {
    const Address at = parse_address("127.0.0.1", free_port());
    const Place one(folder, stream(at, 1)), two(folder, stream(at, 2));
    auto first = one.reader(), second = two.reader();
    CHECK(first->owns_socket() && second->owns_socket());
    auto to_first = one.writer(brief()), to_second = two.writer(brief());
    for (UdpWriter *writer : {to_first.get(), to_second.get()})
        CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
    for (uint32_t i = 0; i < 1000; ++i) {
        send(*to_first, i);
        send(*to_second, i + 7);
        expect(*first, i);
        expect(*second, i + 7);
    }
    for (UdpReader *reader : {first.get(), second.get()}) {
        const UdpCounts counts = reader->counts();
        CHECK(counts.malformed == 0 && counts.losses == 0);
    }
    CHECK(first->counts().datagrams_received != 0 && second->counts().datagrams_received != 0);
    first->leave();
    for (uint32_t i = 0; i < 1000; ++i) { // the other goes on with the same socket
        send(*to_second, i);
        expect(*second, i);
    }
    CHECK(second->owns_socket());
    auto again = one.reader(); // joins where the publication is when it is heard
    CHECK(wait_until(*again, [&] { return again->peek() != nullptr || !again->sessions().empty(); }));
    send(*to_first, 99);
    expect(*again, 99);
}

// A process with a subscription to one stream: it says that it is there, and then reads so many messages in order. It leaves
// after them, or stays until it is killed.
struct Subscriber {
    Subscriber(const Place &place, uint32_t count, bool stays) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            auto reader = place.reader({Start::From::earliest, 0});
            const char there = reader->owns_socket() ? 2 : 1;
            CHECK(::write(ends[1], &there, 1) == 1);
            for (uint32_t i = 0; i < count; ++i) expect(*reader, i);
            CHECK(reader->counts().losses == 0);
            CHECK(::write(ends[1], &there, 1) == 1);
            while (stays) pause();
            reader->leave();
            _exit(0);
        }
        ::close(ends[1]);
        from = ends[0];
        holds = hear() == 2;
    }
    char hear() const { // it is there; it has read everything
        char said = 0;
        CHECK(::read(from, &said, 1) == 1, "a subscriber failed");
        return said;
    }
    void end(int signal) {
        if (signal != 0) kill(pid, signal);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(signal == 0 ? status == 0 : WIFSIGNALED(status));
        ::close(from);
    }
    pid_t pid;
    int from;
    bool holds;
};

// The process with the socket receives for the others. When it is killed, or leaves, one of them takes all streams over.
void in_several_processes(const Folder &folder) {
    const Address at = parse_address("127.0.0.1", free_port());
    const Place one(folder, stream(at, 1)), two(folder, stream(at, 2)), three(folder, stream(at, 3));
    constexpr uint32_t half = 2000;
    Subscriber first(one, 10, true), second(two, 2 * half, false), third(three, 3 * half, false);
    CHECK(first.holds && !second.holds && !third.holds);
    auto to_first = one.writer(brief()), to_second = two.writer(brief()), to_third = three.writer(brief());
    for (UdpWriter *writer : {to_first.get(), to_second.get(), to_third.get()})
        CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
    for (uint32_t i = 0; i < 10; ++i) send(*to_first, i);
    first.hear();
    for (uint32_t i = 0; i < half; ++i) send(*to_second, i), send(*to_third, i);
    first.end(SIGKILL); // in the middle: the rest of the last sends is on its way
    for (uint32_t i = half; i < 2 * half; ++i) send(*to_second, i), send(*to_third, i);
    second.hear();
    second.end(0);
    for (uint32_t i = 2 * half; i < 3 * half; ++i) send(*to_third, i);
    third.hear();
    third.end(0);
    auto last = two.reader(); // the port is free again
    CHECK(last->owns_socket());
}

// Subscriptions elsewhere that all go, and others that come: for these the stream begins again.
void a_guest_comes_again(const Folder &folder) {
    const Address at = parse_address("127.0.0.1", free_port());
    const Place one(folder, stream(at, 1)), two(folder, stream(at, 2));
    Subscriber owner(one, 0, true);
    CHECK(owner.holds);
    for (int i = 0; i < 3; ++i) {
        auto reader = two.reader();
        auto writer = two.writer();
        CHECK(!reader->owns_socket());
        CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
        send(*writer, 5);
        expect(*reader, 5);
        writer->leave();
        CHECK(wait_until(*reader, [&] { return reader->peek() == nullptr && reader->ended(); }));
    }
    Subscriber killed(two, 0, true);
    CHECK(!killed.holds);
    auto writer = two.writer(brief());
    CHECK(wait_until(*writer, [&] { return writer->receivers() == 1; }));
    const OpenFile opened = open_file(two.path);
    const EndpointFile file(opened.fd(), two.path);
    ByteLocks locks(opened.fd(), two.path);
    // The owner may let the foreign stream before go, and take this one on, just now.
    for (const int64_t until = monotonic_ns() + 60'000'000'000; !locks.taken_by_other(lock_byte::owner);) {
        CHECK(monotonic_ns() < until);
        platform::nap(1'000'000);
    }
    killed.end(SIGKILL); // without subscriptions ownership is nobody's
    for (const int64_t until = monotonic_ns() + 60'000'000'000; locks.taken_by_other(lock_byte::owner);) {
        CHECK(monotonic_ns() < until);
        const uint32_t ticket = event_prepare(file.control().event.value);
        if (locks.taken_by_other(lock_byte::owner)) event_sleep(file.control().event.value, ticket, 10'000'000);
    }
    owner.end(SIGKILL);
    auto reader = two.reader();
    CHECK(wait_until(*reader, [&] { return reader->owns_socket(); }));
    one.reader(); // forgets what the killed one left
}

// A subscription that cannot listen gets an error that says so.
void nobody_answers(const Folder &folder) {
    const Address at = parse_address("127.0.0.1", free_port());
    const Place one(folder, stream(at, 1)), two(folder, stream(at, 2));
    const auto refused = [&](const Place &place) -> Error {
        try {
            place.reader();
        } catch (const Error &error) {
            return error;
        }
        CHECK(false, "it listens");
        return Error(Code::invalid, "");
    };
    Subscriber owner(one, 0, true);
    kill(owner.pid, SIGSTOP);
    CHECK(waitpid(owner.pid, nullptr, WUNTRACED) == owner.pid);
    const Error stopped = refused(two);
    CHECK(stopped.code == Code::busy && std::strstr(stopped.what(), "stopped") != nullptr);
    kill(owner.pid, SIGCONT);
    owner.end(SIGKILL);
    one.reader();
    {
        UdpSocket other(at, "test");
        other.bind(at);
        const Error taken = refused(two);
        CHECK(taken.code == Code::system && taken.number == EADDRINUSE, "%s", taken.what());
    }
    two.reader();
}

} // namespace

int main() {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    const Folder folder;
    in_several_processes(folder);
    a_guest_comes_again(folder);
    nobody_answers(folder);
    in_one_process(folder);
    CHECK(Conductor::instance().finish(20'000'000'000));
    folder.check_empty();
    std::printf("several streams share a port\n");
    return 0;
}
