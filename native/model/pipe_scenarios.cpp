// The scenarios of pipes: within a process, between two, and of the peers that find each other by a channel's table.
#include "pristine.hpp"

#include "pipe/pipe_tap.hpp"
#include "threads/ypipe.hpp"

namespace penstock::model {
namespace {

// ---- within a process ----

// A pipe and the cells that its values name, laid out again before each execution. A cell's value is written before its number
// goes into the pipe.
template <size_t N> struct Cells {
    static constexpr size_t plain = 4096;
    Cells() {
        std::memset(region, 0, sizeof region);
        World::share(region, sizeof region, plain);
        pipe = new (region) YPipe<uint32_t, N>;
        raised = reinterpret_cast<Atomic<uint32_t> *>(region + 2048);
    }
    uint64_t *cell(uint32_t number) const { return reinterpret_cast<uint64_t *>(region + plain) + number; }
    void write(uint32_t number, bool incomplete = false) const {
        const uint64_t value = 1000 + number;
        copy_in(cell(number), &value, sizeof value);
        pipe->write(number, incomplete);
    }
    void flush() const {
        if (pipe->flush()) return;
        raised->add(1);
        event_wake(*raised);
    }
    bool read(uint32_t expected) const {
        uint32_t number = 0;
        if (!pipe->read(number)) return false;
        EXPECT(number == expected);
        penstock::read(cell(number), sizeof(uint64_t));
        EXPECT(*cell(number) == 1000 + number);
        return true;
    }
    // Reads so many, and sleeps when the pipe says so: there is exactly one signal for each sleep.
    void read_all(uint32_t count) const {
        uint32_t slept = 0;
        for (uint32_t next = 0; next < count;) {
            if (read(next)) {
                ++next;
                continue;
            }
            while (raised->acquire() == slept) event_sleep(*raised, slept, 1);
            ++slept;
            EXPECT(read(next)); // a thread that is woken finds something
            ++next;
        }
    }
    alignas(4096) static inline uint8_t region[8192];
    YPipe<uint32_t, N> *pipe;
    Atomic<uint32_t> *raised;
};

void ypipe_one_by_one() {
    auto &cells = *new Cells<8>;
    World::thread([&] {
        for (uint32_t i = 0; i < 3; ++i) {
            cells.write(i);
            cells.flush();
        }
    });
    World::thread([&] { cells.read_all(3); });
}

void ypipe_polled() { // the reader never waits for a signal
    auto &cells = *new Cells<8>;
    World::thread([&] {
        for (uint32_t i = 0; i < 3; ++i) {
            cells.write(i);
            cells.pipe->flush();
        }
    });
    World::thread([&] {
        for (uint32_t next = 0; next < 3;)
            if (cells.read(next)) ++next;
            else spin_pause();
    });
}

void ypipe_groups() {
    auto &cells = *new Cells<8>;
    World::thread([&] {
        for (uint32_t i = 0; i < 4; ++i) cells.write(i, i % 2 == 0);
        cells.flush();
        cells.write(4, true);
        cells.flush(); // shows nothing of it
        cells.write(5);
        cells.flush();
    });
    World::thread([&] {
        uint32_t slept = 0;
        for (uint32_t next = 0; next < 6;) {
            if (cells.read(next)) {
                ++next;
                continue;
            }
            EXPECT(next % 2 == 0); // a group comes over whole
            while (cells.raised->acquire() == slept) event_sleep(*cells.raised, slept, 1);
            ++slept;
        }
    });
}

void ypipe_chunks() { // chunks go from the reader back to the writer
    auto &cells = *new Cells<2>;
    World::thread([&] {
        for (uint32_t i = 0; i < 5; ++i) {
            cells.write(i);
            if (i % 2 == 1) cells.flush();
        }
        cells.flush();
    });
    World::thread([&] { cells.read_all(5); });
}

// ---- between two processes ----

struct Circle {
    static constexpr uint32_t capacity = 256, mark = 100;
    explicit Circle(bool lossy = false) {
        std::memset(region, 0, sizeof region);
        World::share(region, sizeof region, 4096);
        link->ends.state.relaxed(1);
        link->ends.lossy.relaxed(lossy);
    }
    PipeWriter &writer(uint32_t most = mark) const { return *new PipeWriter(*link, region + 4096, capacity, most, where); }
    PipeReader &reader() const { return *new PipeReader(*link, region + 4096, capacity, where); }
    alignas(4096) static inline uint8_t region[8192];
    PipeLink *link = reinterpret_cast<PipeLink *>(region);
    static inline const std::string where = "pipe";
};

void write_surely(PipeWriter &writer, uint32_t number) {
    while (!writer.write(&number, sizeof number, {})) spin_pause();
    writer.flush();
}
uint32_t number_in(const Message &message) {
    EXPECT(message.length == sizeof(uint32_t));
    penstock::read(message.data, message.length);
    uint32_t number = 0;
    std::memcpy(&number, message.data, sizeof number);
    return number;
}

void pipe_laps() { // four messages fit; six are sent
    auto &circle = *new Circle;
    PipeWriter &writer = circle.writer();
    PipeReader &reader = circle.reader();
    World::thread([&] {
        for (uint32_t i = 0; i < 6; ++i) write_surely(writer, i);
    });
    World::thread([&] {
        for (uint32_t next = 0; next < 6;) {
            Message message;
            if (!reader.peek(message)) {
                reader.acknowledge();
                spin_pause();
                continue;
            }
            EXPECT(number_in(message) == next);
            reader.consume();
            ++next;
            if (next % 2 == 0) reader.acknowledge();
        }
    });
}

void pipe_mark() { // however much room there is, no more than the mark is in it
    auto &circle = *new Circle;
    PipeWriter &writer = circle.writer(2);
    PipeReader &reader = circle.reader();
    World::thread([&] {
        for (uint32_t i = 0; i < 4; ++i) {
            write_surely(writer, i);
            EXPECT(writer.waiting() <= 2);
        }
    });
    World::thread([&] {
        for (uint32_t next = 0; next < 4;) {
            Message message;
            if (!reader.peek(message)) {
                spin_pause();
                continue;
            }
            EXPECT(number_in(message) == next);
            reader.consume();
            ++next;
            reader.acknowledge();
        }
    });
}

void pipe_batches() { // a batch is seen whole
    auto &circle = *new Circle;
    PipeWriter &writer = circle.writer();
    PipeReader &reader = circle.reader();
    World::thread([&] {
        for (uint32_t i = 0; i < 4; i += 2) {
            for (uint32_t k = i; k < i + 2; ++k)
                while (!writer.write(&k, sizeof k, {})) spin_pause();
            writer.flush();
        }
    });
    World::thread([&] {
        for (uint32_t next = 0; next < 4;) {
            Message message;
            if (!reader.peek(message)) {
                EXPECT(next % 2 == 0);
                spin_pause();
                continue;
            }
            EXPECT(number_in(message) == next);
            reader.consume();
            reader.acknowledge();
            ++next;
        }
    });
}

void pipe_inherited() { // a reader goes with a message in hand; another begins where it had acknowledged
    auto &circle = *new Circle;
    PipeWriter &writer = circle.writer();
    PipeReader &first = circle.reader();
    auto *gone = reinterpret_cast<Atomic<uint32_t> *>(Circle::region + 2048); // stands for the kernel's lock
    World::thread([&, gone] {
        for (uint32_t i = 0; i < 5; ++i) write_surely(writer, i);
    });
    World::thread([&, gone] {
        for (uint32_t next = 0; next < 2;) {
            Message message;
            if (!first.peek(message)) {
                spin_pause();
                continue;
            }
            EXPECT(number_in(message) == next++);
            first.consume();
            if (next == 1) first.acknowledge();
        }
        gone->release(1);
    });
    World::thread([&, gone] {
        while (gone->acquire() == 0) spin_pause();
        circle.link->ends.held.relaxed(circle.link->reader.read.relaxed());
        PipeReader &second = circle.reader();
        for (uint32_t next = 1; next < 5;) {
            Message message;
            if (!second.peek(message)) {
                spin_pause();
                continue;
            }
            EXPECT(number_in(message) == next);
            second.consume();
            EXPECT(second.redelivered() == (next == 1));
            second.acknowledge();
            ++next;
        }
    });
}

void pipe_drops_oldest() { // the writer never waits; a message that the reader has claimed stays whole
    auto &circle = *new Circle(true);
    PipeWriter &writer = circle.writer();
    PipeReader &reader = circle.reader();
    auto *dropped = new uint32_t(0);
    World::thread([&, dropped] {
        for (uint32_t i = 0; i < 7; ++i) {
            bool there = writer.write(&i, sizeof i, {});
            while (!there && writer.drop_oldest() != 0) {
                ++*dropped;
                there = writer.write(&i, sizeof i, {});
            }
            if (!there) write_surely(writer, i);
            writer.flush();
        }
    });
    auto *got = new uint32_t(0);
    World::thread([&, got] {
        for (uint32_t next = 0; next < 7;) {
            Message message;
            if (!reader.peek(message)) {
                reader.acknowledge();
                spin_pause();
                continue;
            }
            EXPECT(reader.peek(message)); // once more: it is the same, and nobody drops it
            const uint32_t number = number_in(message);
            EXPECT(number >= next);
            next = number + 1;
            reader.consume();
            reader.acknowledge();
            ++*got;
        }
    });
    World::finally([&reader, dropped, got] {
        EXPECT(*got + *dropped == 7);
        EXPECT(reader.missed() == *dropped);
    });
}

// ---- peers ----

struct Table {
    Table(uint32_t peers, uint32_t links) {
        PipeGeometry g;
        g.capacity = 128;
        g.max_members = peers;
        g.max_pipes = links;
        static Pristine file;
        const uint8_t boot[16] = {};
        mapping = file.restore(uint64_t{peers} << 32 | links, g.file_size(), [&](int fd) { format_pipe(fd, g, "{}", boot, 0); });
        World::share(mapping->bytes(), mapping->size(), g.data_offset());
        const auto *control = reinterpret_cast<PipeControl *>(mapping->bytes() + control_offset);
        World::quiet(&control->totals, sizeof control->totals);
        for (uint32_t i = 0; i < peers; ++i) {
            const auto *slot = reinterpret_cast<PeerSlot *>(mapping->bytes() + slots_offset + i * sizeof(PeerSlot));
            World::quiet(&slot->counters, sizeof slot->counters);
            World::quiet(&slot->identity.pid, 4);
            World::quiet(&slot->identity.joined_ns, 8 + name_max);
        }
    }
    static PipePeer &peer(int thread, PeerRole role) {
        return handle_of<PipePeer>(thread, -1, "pipe", role, "x", WhenFull::wait, nullptr, mapping);
    }
    static inline std::shared_ptr<Mapping> mapping;
};

uint32_t take_one(PipePeer &peer) {
    for (;;) {
        const uint32_t expected = event_prepare(peer.peers().bell());
        const Message *message = peer.peek();
        if (message != nullptr) {
            const uint32_t number = number_in(*message);
            peer.consume();
            return number;
        }
        event_sleep(peer.peers().bell(), expected, 1);
    }
}

void peers_wake() { // a peer that sleeps at its bell is woken by a message for it
    const Table table(2, 2);
    PipePeer &push = Table::peer(0, PeerRole::push), &pull = Table::peer(1, PeerRole::pull);
    World::thread([&] {
        for (uint32_t i = 0; i < 2; ++i)
            while (!push.write(&i, sizeof i)) spin_pause();
    });
    World::thread([&] {
        for (uint32_t i = 0; i < 2; ++i) {
            EXPECT(take_one(pull) == i);
            pull.acknowledge();
        }
    });
}

void peers_meet() { // a peer that joins while another writes
    const Table table(2, 2);
    PipePeer &push = Table::peer(0, PeerRole::push);
    World::thread([&] {
        const uint32_t number = 7;
        while (!push.write(&number, sizeof number)) spin_pause();
    });
    World::thread([&] {
        auto &pull = *new PipePeer(-1, "pipe", PeerRole::pull, "y", WhenFull::wait, nullptr, Table::mapping);
        EXPECT(take_one(pull) == 7);
    });
}

void peers_part() { // a peer that leaves has written a message just before: it is read, and only then is the pipe free again
    const Table table(2, 2);
    PipePeer &push = Table::peer(0, PeerRole::push), &pull = Table::peer(1, PeerRole::pull);
    World::thread([&] {
        const uint32_t number = 3;
        while (!push.write(&number, sizeof number)) spin_pause();
        push.detach();
    });
    World::thread([&] {
        pull.repair();
        EXPECT(take_one(pull) == 3);
        pull.acknowledge();
        pull.detach();
    });
    World::finally([&push] {
        for (uint32_t i = 0; i < 2; ++i)
            EXPECT(push.pipes().link(i).ends.state.relaxed() == 0 || push.pipes().link(i).writer.closed.relaxed() == 0);
    });
}

void peers_relay() { // a pipe is created again for another writer while its reader looks at it
    const Table table(3, 1);
    PipePeer &one = Table::peer(0, PeerRole::push), &pull = Table::peer(1, PeerRole::pull);
    const uint32_t first = 8;
    EXPECT(one.write(&first, sizeof first));
    EXPECT(take_one(pull) == 8);
    pull.acknowledge();
    World::thread([&] {
        one.detach();
        auto &two = *new PipePeer(-1, "pipe", PeerRole::push, "z", WhenFull::wait, nullptr, Table::mapping);
        for (uint32_t second = 9; second < 11; ++second) // past where the old one was read
            while (!two.write(&second, sizeof second)) spin_pause();
    });
    World::thread([&] {
        for (uint32_t second = 9; second < 11; ++second) {
            EXPECT(take_one(pull) == second);
            pull.acknowledge();
        }
    });
}

void peers_inherit() { // one leaves with a message in hand; the other, asleep, is woken and gets it
    const Table table(3, 4);
    PipePeer &push = Table::peer(2, PeerRole::push), &first = Table::peer(0, PeerRole::pull),
             &second = Table::peer(1, PeerRole::pull);
    const uint32_t number = 5;
    World::owner(2);
    EXPECT(push.write(&number, sizeof number));
    World::owner(-1);
    World::thread([&] {
        while (first.peek() == nullptr) spin_pause(); // its first look needs the table's lock
        first.consume();
        first.detach();
    });
    World::thread([&] {
        EXPECT(take_one(second) == 5);
        EXPECT(second.acknowledger().redelivered());
    });
    World::thread([&] { (void)push; });
}

// The number of the last message in a run of a recorder's, each of which is the next one.
uint32_t check_run(const FrameBlock &run, uint32_t next) {
    for (uint64_t at = 0; at < run.length;) {
        const auto *frame = reinterpret_cast<const FrameHeader *>(run.data + at);
        const auto length = static_cast<size_t>(frame_length(frame->word0.relaxed()));
        const SyncParts parts = read_sync(run.data + at + header_length, length - header_length);
        uint32_t number = 0;
        EXPECT(parts.type == "push" && parts.length == sizeof number);
        std::memcpy(&number, parts.body, sizeof number);
        EXPECT(number == next++);
        at += align_frame(length);
    }
    return next;
}

void peers_record() { // every message that a peer gets is there for the recorder; a sender waits for both, and wakes both
    const Table table(3, 3);
    PipePeer &push = Table::peer(0, PeerRole::push), &pull = Table::peer(1, PeerRole::pull);
    World::owner(2);
    const auto recorder = std::make_shared<PipePeer>(-1, "pipe", PeerRole::tap, "t", WhenFull::wait, nullptr, Table::mapping);
    auto &tap = *new PipeTap(recorder, 0);
    PipePeer &taps = *recorder; // the tap keeps it: the threads outlive this function
    World::owner(-1);
    const PipeLink *copies = nullptr;
    for (uint32_t i = 0; i < 3; ++i)
        if (push.pipes().link(i).ends.pattern.relaxed() == static_cast<uint32_t>(PeerRole::tap)) copies = &push.pipes().link(i);
    World::thread([&] {
        for (uint32_t i = 0; i < 3; ++i)
            while (!push.write(&i, sizeof i)) spin_pause();
    });
    World::thread([&, copies] {
        for (uint32_t i = 0; i < 3; ++i) {
            EXPECT(take_one(pull) == i);
            EXPECT(copies->writer.tail.relaxed() >= (i + 1) * 64);
            pull.acknowledge();
        }
    });
    World::thread([&] {
        for (uint32_t next = 0; next < 3;) {
            const uint32_t expected = event_prepare(taps.peers().bell());
            const FrameBlock run = tap.run(128);
            if (run.length == 0) event_sleep(taps.peers().bell(), expected, 1);
            next = check_run(run, next);
            tap.acknowledge(run);
        }
    });
}

} // namespace

const std::vector<Scenario> &pipe_scenarios() {
    static const std::vector<Scenario> all = {
        {"pipe_y_one_by_one", "a pipe between threads; exactly one signal for each sleep", ypipe_one_by_one},
        {"pipe_y_polled", "the same with a reader that never waits for a signal", ypipe_polled},
        {"pipe_y_groups", "a group comes over whole", ypipe_groups},
        {"pipe_y_chunks", "chunks go from the reader back to the writer", ypipe_chunks},
        {"pipe_laps", "a circle is used again and again", pipe_laps},
        {"pipe_mark", "no more than the mark is in a pipe", pipe_mark},
        {"pipe_batches", "a batch is seen whole", pipe_batches},
        {"pipe_inherited", "another reader goes on where one had acknowledged", pipe_inherited, true},
        {"pipe_drops_oldest", "the writer drops what nobody has claimed", pipe_drops_oldest, true},
        {"pipe_wake", "a peer that sleeps at its bell is woken", peers_wake},
        {"pipe_meet", "a peer comes while another writes", peers_meet},
        {"pipe_part", "the message written last is read", peers_part},
        {"pipe_relay", "a pipe is created again while its reader looks", peers_relay},
        {"pipe_record", "every delivered message is there for a recorder", peers_record, true},
        {"pipe_inherit", "a sleeping peer inherits", peers_inherit},
    };
    return all;
}

} // namespace penstock::model
