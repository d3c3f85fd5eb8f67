// The frame pool's scenarios: two buffers, notes of 64 bytes in a circle of 256. The bytes of frame i say i, and are written
// and read plainly: a read of a buffer that is being written is a data race.
#include "pristine.hpp"

#include "frames/frame_reader.hpp"
#include "frames/frame_writer.hpp"

namespace penstock::model {
namespace {

constexpr uint32_t buffers = 2;

class FrameStage {
  public:
    explicit FrameStage(uint32_t readers = 2, uint32_t writers = 1) {
        const uint32_t slots = readers + writers;
        PoolGeometry g;
        g.ring.capacity = 256;
        g.ring.slot_count = slots;
        g.buffers = buffers;
        g.frame_bytes = 16;
        static Pristine file;
        const uint8_t boot[16] = {};
        mapping = file.restore(slots, g.file_size(), [&](int fd) { format_frames(fd, g, "{}", boot, 0); });
        World::share(mapping->bytes(), mapping->size(), g.buffers_offset());
        quiet_ring(*mapping, slots);
    }
    static std::shared_ptr<FramePool> open() { return std::make_shared<FramePool>(-1, "frames", mapping); }
    static FrameWriter &writer(int thread) { return handle_of<FrameWriter>(thread, open(), nullptr); }
    static FrameReader &reader(int thread, bool conflate = false) {
        return handle_of<FrameReader>(thread, open(), Start{}, conflate);
    }
    // One that waits for all that read every frame.
    static FrameWriter &patient(int thread) { return handle_of<FrameWriter>(thread, open(), nullptr, true); }
    // One that the publication waits for.
    static FrameReader &waiting(int thread, uint32_t how = waits_always) {
        return handle_of<FrameReader>(thread, open(), Start{}, false, how);
    }
    static inline std::shared_ptr<Mapping> mapping;
};

// `said`: of one of several publications, which do not know their frames' numbers.
bool publish(FrameWriter &writer, uint64_t said = 0) {
    const uint32_t buffer = writer.take_buffer();
    if (buffer == no_buffer) return false;
    const uint64_t number = said != 0 ? said : writer.ring().sequence();
    copy_in(writer.pool().bytes(buffer) + 8, &number, sizeof number);
    FrameNote note;
    note.id = number;
    writer.publish(buffer, note, nullptr, 16);
    return true;
}
void publish_surely(FrameWriter &writer, uint64_t said = 0) {
    while (!publish(writer, said)) spin_pause();
}
void publishes(FrameWriter &writer, int count, bool mortal = false) {
    World::thread(
        [&writer, count] {
            for (int i = 0; i < count; ++i) publish_surely(writer);
        },
        mortal);
}

constexpr uint64_t said_by_several = 1000;

void expect_whole(const Frame &frame) {
    penstock::read(frame.data + 8, 8);
    uint64_t number = 0;
    std::memcpy(&number, frame.data + 8, sizeof number);
    EXPECT((number == frame.sequence || number >= said_by_several) && frame.note.id == number);
}
// Takes one frame, looks at it, gives it back.
bool one(FrameReader &reader) {
    Frame frame;
    if (!reader.consume(frame)) return false;
    expect_whole(frame);
    reader.give_back(frame.note.buffer);
    return true;
}
void reads(FrameReader &reader, uint64_t count) {
    World::thread([&reader, count] {
        uint64_t got = 0;
        auto seen = [&] { return got + reader.ring().lost_messages() + reader.ring().conflated(); };
        while (seen() < count) {
            if (one(reader)) ++got;
            else spin_pause();
        }
        EXPECT(seen() == count && reader.leases() == 0);
        if (count <= buffers) EXPECT(reader.ring().lost_messages() == 0);
    });
}
// The living have given back all leases: every buffer can be acquired.
void expect_all_free(FrameWriter &writer) {
    for (uint32_t i = 0; i < buffers; ++i) EXPECT(writer.take_buffer() != no_buffer);
    EXPECT(writer.take_buffer() == no_buffer);
}

template <int count> void flow() {
    FrameStage stage;
    FrameReader &reader = FrameStage::reader(1);
    publishes(FrameStage::writer(0), count);
    reads(reader, count);
}

void far_behind() { // the frames that are still in their buffers are read, though the notes at the reader's place were lapped
    constexpr uint64_t sent = 8;
    FrameStage stage;
    FrameReader &reader = FrameStage::reader(1);
    FrameWriter &writer = FrameStage::writer(0);
    for (uint64_t i = 0; i < sent; ++i) publish_surely(writer);
    World::thread([&reader] {
        uint64_t got = 0;
        while (one(reader)) ++got;
        EXPECT(got == buffers && reader.ring().lost_messages() == sent - buffers);
    });
}

void held() { // a leased buffer does not change, for anything that the publication does
    FrameStage stage;
    FrameReader &reader = FrameStage::reader(1);
    FrameWriter &writer = FrameStage::writer(0);
    publish(writer);
    Frame &frame = *new Frame;
    EXPECT(reader.consume(frame));
    World::thread([&writer] {
        for (int i = 0; i < 2; ++i) publish_surely(writer);
    });
    World::thread([&reader, &frame] {
        expect_whole(frame);
        Frame other;
        if (reader.consume(other)) {
            EXPECT(other.note.buffer != frame.note.buffer);
            expect_whole(other);
            reader.give_back(other.note.buffer);
        }
        expect_whole(frame);
        reader.give_back(frame.note.buffer);
    });
}

void two_readers() {
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    FrameReader &a = FrameStage::reader(1), &b = FrameStage::reader(2);
    publish(writer);
    publishes(writer, 2);
    World::thread([&a] { one(a); });
    World::thread([&b] { one(b); });
    World::finally([&writer] { expect_all_free(writer); });
}

void two_leases() { // a buffer that two lease is free when both have given it back
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    FrameReader &a = FrameStage::reader(1), &b = FrameStage::reader(2);
    publish(writer);
    publish(writer);
    for (FrameReader *reader : {&a, &b}) {
        auto *held = new Frame[2];
        EXPECT(reader->consume(held[0]) && reader->consume(held[1]));
        World::thread([reader, held] {
            expect_whole(held[0]);
            reader->give_back(held[0].note.buffer);
            expect_whole(held[1]);
            reader->give_back(held[1].note.buffer);
        });
    }
    publishes(writer, 1);
}

void leased_twice() { // by one subscription: the buffer is free when both leases have ended
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    FrameReader &reader = FrameStage::reader(1);
    publish(writer);
    World::thread([&] {
        auto *held = new Frame[2];
        EXPECT(reader.newest(held[0]) && reader.newest(held[1]) && held[0].data == held[1].data);
        reader.give_back(held[0].note.buffer);
        EXPECT(reader.leases() == 1);
        EXPECT(writer.take_buffer() != no_buffer && writer.take_buffer() == no_buffer);
        expect_whole(held[1]);
        reader.give_back(held[1].note.buffer);
        EXPECT(reader.leases() == 0 && writer.take_buffer() != no_buffer);
    });
}

void sleeps_for_room(FrameWriter &writer) {
    for (;;) {
        const uint32_t expected = event_prepare(writer.pool().room());
        if (publish(writer)) return;
        event_sleep(writer.pool().room(), expected, slice_ns_max);
    }
}

void room_is_made() { // the publication sleeps until a lease is given back
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    FrameReader &reader = FrameStage::reader(1);
    auto *held = new Frame[2];
    publish(writer);
    publish(writer);
    EXPECT(reader.consume(held[0]) && reader.consume(held[1]));
    World::thread([&writer] { sleeps_for_room(writer); });
    World::thread([&reader, held] {
        expect_whole(held[1]);
        reader.give_back(held[1].note.buffer);
    });
}

void failed_lease_wakes() { // a subscription that sets a bit for a frame that is gone may have sent the publication to sleep
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    FrameReader &holder = FrameStage::reader(-1), &late = FrameStage::reader(1);
    for (int i = 0; i < 3; ++i) publish(writer);
    auto *frame = new Frame;
    EXPECT(holder.consume(*frame) && frame->sequence == 1); // frame 0 is gone; frame 2 is in its buffer
    World::thread([&writer] { sleeps_for_room(writer); });
    World::thread([&late] {
        Frame other;
        if (late.consume(other)) EXPECT(other.sequence >= 1);
    });
}

void newest_while_replaced() {
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    FrameReader &reader = FrameStage::reader(1);
    publish(writer);
    publishes(writer, 2);
    World::thread([&reader] {
        Frame frame;
        uint64_t last = 0;
        for (int i = 0; i < 2; ++i) {
            if (!reader.newest(frame)) continue;
            expect_whole(frame);
            EXPECT(frame.sequence >= last);
            last = frame.sequence;
            reader.give_back(frame.note.buffer);
        }
    });
}

void newest_only() {
    FrameStage stage;
    FrameReader &reader = FrameStage::reader(1, true);
    publishes(FrameStage::writer(0), 3);
    reads(reader, 3);
}

void joins_while_recycled() { // a newcomer's lease is seen, whichever slot it got
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    publish(writer);
    publishes(writer, 2);
    World::thread([] {
        auto &reader = *new FrameReader(FrameStage::open(), {}, false);
        Frame frame;
        if (!reader.newest(frame)) return;
        expect_whole(frame);
        reader.give_back(frame.note.buffer);
    });
}

void dead_readers_leases() {
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    FrameReader &reader = FrameStage::reader(1);
    publish(writer);
    publishes(writer, 1);
    World::thread(
        [&reader] {
            Frame frame;
            if (!reader.consume(frame)) return;
            expect_whole(frame);
            reader.give_back(frame.note.buffer);
        },
        true);
    World::finally([&writer] { expect_all_free(writer); });
}

void slot_of_a_dead_reader() { // one slot: its new owner has none of the old leases, and keeps its own
    FrameStage stage(1);
    FrameWriter &writer = FrameStage::writer(2);
    publish(writer);
    for (int i = 0; i < 2; ++i)
        World::thread(
            [] {
                try {
                    auto &reader = *new FrameReader(FrameStage::open(), {}, false);
                    Frame frame;
                    if (!reader.newest(frame)) return;
                    expect_whole(frame);
                    expect_whole(frame);
                    reader.give_back(frame.note.buffer);
                } catch (const Error &error) {
                    EXPECT(error.code == Code::busy);
                }
            },
            i == 0);
    publishes(writer, 1);
    World::finally([&writer] { expect_all_free(writer); });
}

void put_back() { // a buffer that was examined and found leased holds its frame again
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    FrameReader &a = FrameStage::reader(1), &late = FrameStage::reader(-1);
    publish(writer);
    EXPECT(writer.take_buffer() != no_buffer);
    auto &recycled = *new bool(false);
    World::thread([&writer, &recycled] { recycled = writer.take_buffer() != no_buffer; });
    World::thread([&a] {
        Frame frame;
        if (a.consume(frame)) expect_whole(frame);
    });
    World::finally([&late, &recycled] {
        Frame frame;
        EXPECT(late.consume(frame) != recycled);
    });
}

// ---- subscriptions that the publication waits for: nothing is lost ----

void reads_all(FrameReader &reader, uint64_t count) {
    World::thread([&reader, count] {
        while (reader.ring().sequence() < count)
            if (!one(reader)) spin_pause();
        EXPECT(reader.ring().lost_messages() == 0 && reader.leases() == 0);
    });
}

void waits() {
    FrameStage stage;
    FrameReader &reader = FrameStage::waiting(1);
    publishes(FrameStage::writer(0), 3);
    reads_all(reader, 3);
}

void waits_for_both() {
    FrameStage stage;
    FrameReader &a = FrameStage::waiting(1), &b = FrameStage::waiting(2);
    FrameWriter &writer = FrameStage::writer(0);
    publish(writer);
    publish(writer);
    publishes(writer, 1);
    reads_all(a, 3);
    reads_all(b, 3);
}

void waits_where_it_was_opened_so() {
    FrameStage stage;
    FrameReader &reader = FrameStage::waiting(1, waits_where_opened);
    publishes(FrameStage::patient(0), 3);
    reads_all(reader, 3);
}

void waits_for_a_recorder_beside_another() {
    FrameStage stage;
    FrameReader &a = FrameStage::waiting(1), &b = FrameStage::waiting(2, waits_with_others);
    FrameWriter &writer = FrameStage::writer(0);
    publish(writer);
    publish(writer);
    publishes(writer, 1);
    reads_all(a, 3);
    reads_all(b, 3);
}

void waits_and_wakes() { // the publication sleeps until a frame was received and given back
    FrameStage stage;
    FrameReader &reader = FrameStage::waiting(1);
    FrameWriter &writer = FrameStage::writer(0);
    publish(writer);
    publish(writer);
    World::thread([&writer] { sleeps_for_room(writer); });
    World::thread([&reader] { EXPECT(one(reader)); });
}

void waits_for_one_that_leaves() {
    FrameStage stage;
    FrameReader &reader = FrameStage::waiting(1);
    FrameWriter &writer = FrameStage::writer(0);
    publish(writer);
    publish(writer);
    World::thread([&writer] { sleeps_for_room(writer); });
    World::thread([&reader] { reader.leave(); });
}

void waits_no_more() { // its handle is closed, and it keeps a frame
    FrameStage stage;
    FrameReader &reader = FrameStage::waiting(1);
    FrameWriter &writer = FrameStage::writer(0);
    publish(writer);
    publish(writer);
    auto *held = new Frame;
    EXPECT(reader.consume(*held));
    World::thread([&writer] { sleeps_for_room(writer); });
    World::thread([&reader, held] {
        reader.stop_waiting();
        expect_whole(*held);
    });
}

template <int before, Start::From from = Start::From::newest>
void waits_for_a_newcomer() { // it receives everything from its start on
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    for (int i = 0; i < before; ++i) publish(writer);
    publishes(writer, 3);
    World::thread([] {
        auto &reader = *new FrameReader(FrameStage::open(), {from, 1}, false, true);
        EXPECT(from == Start::From::newest || reader.ring().sequence() + 1 >= before);
        while (reader.ring().sequence() < before + 3)
            if (!one(reader)) spin_pause();
        EXPECT(reader.ring().lost_messages() == 0);
    });
}

void room_when_it_has_a_start() { // until then the publication may have gone to sleep
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    for (int i = 0; i < 2; ++i) publish(writer);
    World::thread([&writer] { sleeps_for_room(writer); });
    World::thread([] { FrameStage::waiting(-1); });
}

void waits_for_a_successor() { // in a slot whose last owner had read more than it begins with
    FrameStage stage;
    FrameReader &before = FrameStage::waiting(-1);
    FrameWriter &writer = FrameStage::writer(0);
    for (int i = 0; i < 2; ++i) {
        publish(writer);
        EXPECT(one(before));
    }
    before.leave();
    publishes(writer, 2);
    World::thread([] {
        auto &reader = *new FrameReader(FrameStage::open(), {Start::From::last, 1}, false, true);
        EXPECT(reader.ring().sequence() >= 1);
        while (reader.ring().sequence() < 4)
            if (!one(reader)) spin_pause();
        EXPECT(reader.ring().lost_messages() == 0);
    });
}

void waits_for_the_dead() {
    FrameStage stage;
    FrameWriter &writer = FrameStage::writer(0);
    publish(writer);
    publishes(writer, 2);
    World::thread(
        [] {
            auto &reader = *new FrameReader(FrameStage::open(), {}, false, true);
            while (reader.ring().sequence() < 3)
                if (!one(reader)) spin_pause();
        },
        true);
    World::finally([&writer] { expect_all_free(writer); });
}

void waiting_outlives_the_writer() { // nothing is lost, whatever the publication left when it died
    FrameStage stage;
    FrameReader &reader = FrameStage::waiting(1);
    publishes(FrameStage::writer(0), 2, true);
    World::thread([&reader] { one(reader); });
    World::finally([&reader] {
        if (!World::died(0)) return;
        auto &writer = *new FrameWriter(FrameStage::open(), nullptr);
        const uint64_t first = writer.ring().sequence();
        uint64_t sent = 0;
        while (publish(writer)) ++sent; // until the buffers that nobody waits for are used up
        while (one(reader)) {
        }
        EXPECT(reader.ring().sequence() == first + sent && reader.ring().lost_messages() == 0);
        EXPECT(publish(writer) && one(reader) && publish(writer) && one(reader));
        EXPECT(reader.ring().lost_messages() == 0);
        expect_all_free(writer);
    });
}

void killed_writer() { // the successor has every buffer that is not leased, and no frame comes twice
    FrameStage stage;
    FrameReader &reader = FrameStage::reader(1);
    FrameWriter &mortal = FrameStage::writer(0);
    publish(mortal);
    publishes(mortal, 2, true);
    World::thread([&reader] {
        Frame frame;
        if (!reader.consume(frame)) return;
        expect_whole(frame);
        one(reader);
        expect_whole(frame);
        reader.give_back(frame.note.buffer);
    });
    World::finally([&reader] {
        if (!World::died(0)) return;
        auto &writer = *new FrameWriter(FrameStage::open(), nullptr);
        const uint64_t first = writer.ring().sequence();
        EXPECT(first >= 1 && first <= 3);
        EXPECT(publish(writer) && publish(writer));
        while (one(reader)) {
        }
        EXPECT(reader.ring().sequence() == first + 2);
        expect_all_free(writer);
    });
}

// Writer i's frame j says 1000 (i + 1) + j.
void publishes_beside(FrameWriter &writer, uint64_t first, uint64_t count, bool mortal = false) {
    World::thread(
        [&writer, first, count] {
            for (uint64_t i = 0; i < count; ++i) publish_surely(writer, first + i);
        },
        mortal);
}

void succeeded_while_read() {
    FrameStage stage(1, 2);
    FrameReader &reader = FrameStage::reader(2);
    FrameWriter &mortal = FrameStage::writer(0);
    publish(mortal, 1000);
    publishes_beside(mortal, 1001, 1, true);
    World::thread([] {
        try {
            auto &writer = *new FrameWriter(FrameStage::open(), nullptr);
            publish_surely(writer, 2000);
        } catch (const Error &error) {
            EXPECT(error.code == Code::busy);
        }
    });
    World::thread([&reader] {
        for (int i = 0; i < 2; ++i) one(reader);
    });
}

// ---- several publications ----

void two_writers() { // each frame comes once and whole, or is counted
    FrameStage stage(1, 2);
    FrameReader &reader = FrameStage::reader(2);
    publishes_beside(FrameStage::writer(0), 1000, 1);
    publishes_beside(FrameStage::writer(1), 2000, 1);
    reads(reader, 2);
}

template <uint64_t count> void two_writers_wait() { // nothing is lost, and each writer's frames keep their order
    FrameStage stage(1, 2);
    FrameReader &reader = FrameStage::waiting(2);
    publishes_beside(FrameStage::writer(0), 1000, count);
    publishes_beside(FrameStage::writer(1), 2000, 1);
    World::thread([&reader] {
        uint64_t least[2] = {1000, 2000};
        Frame frame;
        while (reader.ring().sequence() < count + 1) {
            if (!reader.consume(frame)) {
                spin_pause();
                continue;
            }
            expect_whole(frame);
            EXPECT(frame.note.id == least[frame.note.id / 1000 - 1]++);
            reader.give_back(frame.note.buffer);
        }
        EXPECT(reader.ring().lost_messages() == 0);
    });
}

void open_beside() { // a buffer that one publication fills is not handed out to the other
    FrameStage stage(0, 2);
    FrameWriter &a = FrameStage::writer(0), &b = FrameStage::writer(1);
    for (FrameWriter *writer : {&a, &b})
        World::thread([writer] {
            uint32_t buffer = no_buffer;
            while ((buffer = writer->take_buffer()) == no_buffer) spin_pause(); // the other one may keep the turn for long
            const uint64_t number = 1000;
            copy_in(writer->pool().bytes(buffer) + 8, &number, sizeof number);
            writer->give_back(buffer);
        });
    World::finally([&a] { expect_all_free(a); });
}

void waits_for_another_writer() { // it sleeps while the other one has every buffer open
    FrameStage stage(0, 2);
    FrameWriter &a = FrameStage::writer(0), &b = FrameStage::writer(1);
    const uint32_t first = a.take_buffer();
    EXPECT(a.take_buffer() != no_buffer);
    World::thread([&a, first] { a.publish(first, {}, nullptr, 16); });
    World::thread([&b] { sleeps_for_room(b); });
}

void waits_for_one_that_closes() {
    FrameStage stage(0, 2);
    FrameWriter &a = FrameStage::writer(0), &b = FrameStage::writer(1);
    for (uint32_t i = 0; i < buffers; ++i) EXPECT(a.take_buffer() != no_buffer);
    World::thread([&a] {
        const uint64_t number = 1000; // it closes while it fills them
        for (uint32_t i = 0; i < buffers; ++i) copy_in(a.pool().bytes(i) + 8, &number, sizeof number);
        a.leave();
    });
    World::thread([&b] { sleeps_for_room(b); });
}

// What one of them left when it died, the other one repairs: no frame comes twice, none that was received is lost, every buffer
// comes back.
template <bool both> void killed_beside() {
    FrameStage stage(1, 2);
    FrameReader &reader = FrameStage::waiting(2);
    FrameWriter &living = FrameStage::writer(1);
    publishes_beside(FrameStage::writer(0), 1000, 1, true);
    if (both) publishes_beside(living, 2000, 1);
    else World::thread([&reader] { one(reader); });
    World::finally([&reader, &living] {
        if (!World::died(0)) return;
        while (one(reader)) { // so that there is room
        }
        EXPECT(publish(living, 2001));
        while (one(reader)) {
        }
        EXPECT(reader.ring().sequence() == living.ring().sequence() && reader.ring().lost_messages() == 0);
        EXPECT(reader.ring().sequence() >= 1 + both && reader.ring().sequence() <= 2 + both);
        expect_all_free(living);
    });
}

void one_comes() { // the stream has not ended while the publication whose session is seen is there
    FrameStage stage(1, 1);
    FrameReader &reader = FrameStage::reader(1);
    World::thread([] { new FrameWriter(FrameStage::open(), nullptr); });
    World::thread([&reader] {
        uint32_t gone = 0;
        for (int i = 0; i < 2; ++i) EXPECT(!reader.pool().ring()->has_lost_writer(gone, true));
    });
}

void ends_with_the_last() { // the stream has ended when no publication is left, and not before
    FrameStage stage(1, 2);
    FrameReader &reader = FrameStage::reader(2);
    FrameWriter &a = FrameStage::writer(0), &b = FrameStage::writer(1);
    EXPECT(a.take_buffer() != no_buffer);
    World::thread([&a] { a.leave(); });
    World::thread([&b] {
        publish_surely(b, 2000);
        b.leave();
    });
    World::thread([&reader] {
        uint32_t gone = 0;
        uint64_t got = 0;
        while (!reader.pool().ring()->has_lost_writer(gone, true) || reader.pool().ring()->readable(reader.ring().position())) {
            if (one(reader)) ++got;
            else spin_pause();
        }
        EXPECT(got == 1);
    });
    World::finally([&reader] { EXPECT(reader.pool().leased_count() == 0); }); // nobody had to look for the one that left
}

} // namespace

const std::vector<Scenario> &frame_scenarios() {
    static const std::vector<Scenario> all = {
        {"frames_flow", "frames into fresh buffers", flow<2>, true},
        {"frames_recycle", "and into used ones", flow<3>, true},
        {"frames_far_behind", "what is left for a reader whose notes were lapped", far_behind},
        {"frames_held", "a leased frame stays as it is", held},
        {"frames_two_readers", "two that come and go", two_readers, true},
        {"frames_two_leases", "a buffer leased twice", two_leases},
        {"frames_leased_twice", "by one subscription", leased_twice},
        {"frames_room", "no wake-up is lost when a lease is given back", room_is_made},
        {"frames_failed_lease", "nor when a lease comes too late", failed_lease_wakes},
        {"frames_newest", "the newest, while it is replaced", newest_while_replaced},
        {"frames_conflate", "only the newest", newest_only, true},
        {"frames_join", "a subscription comes and leases at once", joins_while_recycled},
        {"frames_put_back", "a buffer examined in vain keeps its frame", put_back},
        {"frames_dead_lease", "a dead reader's leases return", dead_readers_leases},
        {"frames_dead_slot", "and its slot is given to the next", slot_of_a_dead_reader, true},
        {"frames_wait", "nothing is lost for a subscription that the publication waits for", waits, true},
        {"frames_wait_both", "nor for two of them", waits_for_both, true, true},
        {"frames_wait_opened", "nor where the publication was opened to wait", waits_where_it_was_opened_so, true},
        {"frames_wait_recorder", "nor for a recorder beside one of them", waits_for_a_recorder_beside_another, true, true},
        {"frames_wait_wake", "no wake-up is lost when it has received a frame", waits_and_wakes},
        {"frames_wait_leave", "nor when it leaves", waits_for_one_that_leaves},
        {"frames_wait_close", "nor when it is closed and keeps a frame", waits_no_more},
        {"frames_wait_join", "it joins while buffers are reused", waits_for_a_newcomer<1>, true},
        {"frames_wait_late", "and when all of them were used before", waits_for_a_newcomer<2>, true},
        {"frames_wait_last", "and when it begins with the newest frame", waits_for_a_newcomer<2, Start::From::last>, true},
        {"frames_wait_start", "the publication sleeps while it looks for its start", room_when_it_has_a_start},
        {"frames_wait_again", "and when another was in its slot", waits_for_a_successor, true},
        {"frames_wait_dead", "it dies", waits_for_the_dead, true, true},
        {"frames_wait_killed", "the publication dies", waiting_outlives_the_writer, true},
        {"frames_killed", "the publication is killed, another goes on", killed_writer, true},
        {"frames_succeeded", "while a subscription reads", succeeded_while_read, true, true},
        {"frames_two_writers", "two publications take turns", two_writers, true, true},
        {"frames_two_writers_wait", "for a subscription that both wait for", two_writers_wait<1>, true, true},
        {"frames_two_writers_recycle", "and into used buffers", two_writers_wait<2>, true, true},
        {"frames_open_beside", "a buffer that one fills is its own", open_beside},
        {"frames_writers_room", "no wake-up is lost when it is published", waits_for_another_writer},
        {"frames_writers_close", "nor when its publication closes", waits_for_one_that_closes},
        {"frames_killed_beside", "one is killed, the other goes on", killed_beside<false>, true},
        {"frames_killed_turn", "while it waits for its turn", killed_beside<true>, true, true},
        {"frames_writer_comes", "one that comes is seen with its session", one_comes},
        {"frames_last_writer", "the stream ends with the last of them", ends_with_the_last, true, true},
    };
    return all;
}

} // namespace penstock::model
