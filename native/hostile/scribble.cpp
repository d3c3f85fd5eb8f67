// One peer writes random words all over a channel's memory (a log's, a ring's, frames', pipes', in turn) while others publish,
// read, come and go in processes of their own. Each of them may meet an error; none may crash or hang. The memory has guard pages
// around it.
#include "../tests/support.hpp"

#include <chrono>
#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>

using namespace penstock;
using namespace penstock::test;

namespace {

using Clock = std::chrono::steady_clock;

// Operations of one process: done, and refused with an error.
struct Tally {
    uint64_t done = 0, errors = 0;
};

template <class Act> void guarded(Tally &tally, Act act) {
    try {
        act();
        ++tally.done;
    } catch (const Error &) {
        ++tally.errors;
    }
}

void publish(const Channel &channel, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    std::vector<uint8_t> bytes(20'000);
    while (Clock::now() < until)
        guarded(tally, [&] {
            auto writer = channel.writer();
            for (int i = 0; i < 200 && Clock::now() < until; ++i)
                guarded(tally, [&] {
                    ClaimedRange range;
                    const auto length = static_cast<uint32_t>(random() % 16'000);
                    switch (random() % 4) {
                    case 0:
                        writer->offer(bytes.data(), length);
                        break;
                    case 1: {
                        IoVec pieces[4];
                        for (auto &piece : pieces) piece = {bytes.data(), random() % 500};
                        writer->offer_many(pieces, 4);
                        break;
                    }
                    case 2:
                        if (writer->claim(length, writer->open_index(), range)) {
                            std::memset(range.payload, 1, length);
                            if (random() % 2) writer->commit(range);
                            else writer->abort(range);
                        }
                        break;
                    default: {
                        PendingSend sending{bytes.data(), 20'000};
                        for (int part = 0; part < 3 && !writer->send_some(sending); ++part) {
                        }
                        writer->give_up(sending);
                    }
                    }
                });
            writer->log().crash_for_test();
        });
}

void subscribe(const Channel &channel, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    while (Clock::now() < until)
        guarded(tally, [&] {
            auto reader = channel.reader({random() % 2 ? Start::From::earliest : Start::From::newest, 0}, random() % 2);
            uint64_t sum = 0;
            for (int i = 0; i < 500 && Clock::now() < until; ++i)
                guarded(tally, [&] {
                    if (random() % 8 == 0) {
                        const FrameBlock run = reader->run(1 << 16);
                        for (uint64_t b = 0; b < run.length; b += 8) sum += run.data[b];
                        reader->take_run(run);
                        return;
                    }
                    const Message *message = reader->peek();
                    if (message == nullptr) {
                        reader->unblock();
                        return;
                    }
                    for (size_t b = 0; b < message->length; ++b) sum += message->data[b];
                    reader->consume();
                });
            reader->log().crash_for_test();
        });
}

void publish(const RingChannel &channel, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    const std::vector<uint8_t> bytes(16'000);
    while (Clock::now() < until)
        guarded(tally, [&] {
            auto writer = channel.writer();
            for (int i = 0; i < 500 && Clock::now() < until; ++i)
                guarded(tally, [&] {
                    if (random() % 4 == 0) {
                        IoVec pieces[4];
                        for (auto &piece : pieces) piece = {bytes.data(), random() % 500};
                        writer->offer_many(pieces, 4);
                    } else {
                        writer->offer(bytes.data(), random() % bytes.size());
                    }
                    if (random() % 16 == 0) writer->ring().lag();
                });
        });
}

void subscribe(const RingChannel &channel, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    std::vector<uint8_t> bytes(70'000), buffer;
    while (Clock::now() < until)
        guarded(tally, [&] {
            RingReader reader(channel.open(), {}, random() % 2 == 0);
            for (int i = 0; i < 500 && Clock::now() < until; ++i)
                guarded(tally, [&] {
                    if (random() % 8 == 0) {
                        reader.run(1 << 15, buffer);
                        return;
                    }
                    const Message *message = reader.peek();
                    if (message != nullptr && message->length <= bytes.size() && reader.copy(bytes.data(), *message))
                        reader.consume();
                });
        });
}

void publish(const FrameChannel &channel, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    while (Clock::now() < until)
        guarded(tally, [&] {
            auto writer = channel.writer();
            for (int i = 0; i < 500 && Clock::now() < until; ++i)
                guarded(tally, [&] {
                    const uint32_t buffer = writer->take_buffer();
                    if (buffer == no_buffer) return;
                    std::memset(writer->pool().bytes(buffer), i, channel.geometry.frame_bytes);
                    if (random() % 8 == 0) writer->give_back(buffer);
                    else writer->publish(buffer, {}, nullptr, channel.geometry.frame_bytes);
                });
        });
}

void subscribe(const FrameChannel &channel, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    std::vector<uint8_t> buffer;
    while (Clock::now() < until)
        guarded(tally, [&] {
            auto reader = channel.reader({}, random() % 2 == 0);
            for (int i = 0; i < 500 && Clock::now() < until; ++i)
                guarded(tally, [&] {
                    if (random() % 8 == 0) {
                        reader->cell_run(buffer);
                        return;
                    }
                    Frame frame;
                    if (!(random() % 4 == 0 ? reader->newest(frame) : reader->consume(frame))) return;
                    volatile uint8_t sum = 0;
                    for (uint64_t b = 0; b < frame.bytes(); ++b) sum = static_cast<uint8_t>(sum + frame.data[b]);
                    reader->give_back(frame.note.buffer);
                });
        });
}

void publish(const PipeChannel &channel, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    const std::vector<uint8_t> bytes(16'000);
    while (Clock::now() < until)
        guarded(tally, [&] {
            auto push = channel.peer(PeerRole::push, random() % 2 ? WhenFull::wait : WhenFull::drop_oldest);
            for (int i = 0; i < 500 && Clock::now() < until; ++i)
                guarded(tally, [&] {
                    if (random() % 4 == 0) {
                        IoVec pieces[4];
                        for (auto &piece : pieces) piece = {bytes.data(), random() % 500};
                        push->write_many(pieces, 4);
                    } else {
                        push->write(bytes.data(), random() % bytes.size());
                    }
                    if (random() % 16 == 0) push->repair();
                });
            push->crash_for_test();
        });
}

void subscribe(const PipeChannel &channel, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    while (Clock::now() < until)
        guarded(tally, [&] {
            const bool records = random() % 3 == 0;
            auto peer = channel.peer(records ? PeerRole::tap : PeerRole::pull);
            PipeTap tap(peer, 0);
            uint64_t sum = 0;
            auto count = [&](const Message &message) {
                for (size_t b = 0; b < message.length; ++b) sum += message.data[b];
            };
            for (int i = 0; i < 500 && Clock::now() < until; ++i)
                guarded(tally, [&] {
                    if (records) {
                        const FrameBlock run = tap.run(1 << 15);
                        for (uint64_t b = 0; b < run.length; b += 8) sum += run.data[b];
                        tap.acknowledge(run);
                    } else if (random() % 8 == 0) {
                        peer->drain([&](const Message &message) {
                            count(message);
                            return random() % 50 == 0;
                        });
                    } else if (const Message *message = peer->peek()) {
                        count(*message);
                        peer->consume();
                    } else {
                        peer->repair();
                    }
                    peer->acknowledge();
                });
            peer->crash_for_test();
        });
}

// `hot`: where control words, slots and the like end.
void scribble(const std::shared_ptr<Mapping> &map, uint64_t hot, std::mt19937_64 &random, Clock::time_point until, Tally &tally) {
    const uint64_t words = (map->size() - sizeof(Header)) / 8;
    const uint64_t interesting[] = {0, 1, 2, 31, 32, 33, 0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, uint64_t{1} << 63};
    auto *memory = map->bytes() + sizeof(Header);
    while (Clock::now() < until) {
        // Control words and slots are few: they get half of it.
        const uint64_t at = random() % 2 ? random() % words : random() % ((hot - sizeof(Header)) / 8);
        uint64_t value = random() % 3 == 0 ? interesting[random() % std::size(interesting)] : random();
        if (random() % 4 == 0)
            value = pack_word0(static_cast<uint32_t>(random() % 70'000), flags_whole, static_cast<FrameType>(random() % 2));
        __atomic_store_n(reinterpret_cast<uint64_t *>(memory) + at, value, __ATOMIC_RELAXED);
        ++tally.done;
        if (tally.done % 64 == 0) usleep(50);
    }
}

struct Account {
    uint64_t done = 0, errors = 0, failures = 0;
    std::string first;
};

template <class Kind>
void play(const Kind &channel, uint64_t hot, uint64_t seed, uint64_t round, uint64_t milliseconds, Account &account) {
    auto *tallies = static_cast<Tally *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const auto until = Clock::now() + std::chrono::milliseconds(milliseconds);
    pid_t children[4];
    for (int i = 0; i < 4; ++i) {
        children[i] = fork();
        if (children[i] != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(static_cast<unsigned>(milliseconds / 1000 + 20)); // a hang ends by a signal, and counts
        std::mt19937_64 random(seed * 1000 + round * 10 + static_cast<uint64_t>(i));
        if (i == 0) scribble(channel.map, hot, random, until, tallies[i]);
        else if (i == 1) publish(channel, random, until, tallies[i]);
        else subscribe(channel, random, until, tallies[i]);
        _exit(0);
    }
    for (int i = 0; i < 4; ++i) {
        int status = 0;
        waitpid(children[i], &status, 0);
        if (status == 0) continue;
        if (account.failures++ == 0)
            account.first = "scribble --seed " + std::to_string(seed) + " --rounds " + std::to_string(round + 1) +
                            "   # process " + std::to_string(i) +
                            (WIFSIGNALED(status) ? " died by signal " + std::to_string(WTERMSIG(status)) : " failed");
    }
    for (int i = 1; i < 4; ++i) {
        account.done += tallies[i].done;
        account.errors += tallies[i].errors;
    }
    munmap(tallies, 4096);
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = argument(argc, argv, "--seed", 1), rounds = argument(argc, argv, "--rounds", 4);
    const uint64_t milliseconds = argument(argc, argv, "--milliseconds", 1500);
    const uint64_t only = argument(argc, argv, "--kind", 4); // 0 log, 1 ring, 2 pipe, 3 frames, 4 all in turn
    Account account;
    for (uint64_t round = 0; round < rounds && account.failures == 0; ++round) {
        const uint64_t kind = only < 4 ? only : round % 4;
        if (kind == 0) {
            LogGeometry g;
            g.term_length = g.window = 64 * 1024;
            g.slot_count = 8;
            play(Channel(g), terms_offset(8), seed, round, milliseconds, account);
        } else if (kind == 1) {
            RingGeometry g;
            g.capacity = 64 * 1024;
            g.slot_count = 8;
            play(RingChannel(g), ring_data_offset(8), seed, round, milliseconds, account);
        } else if (kind == 2) {
            PipeGeometry g;
            g.capacity = 64 * 1024;
            g.max_members = g.max_pipes = 8;
            play(PipeChannel(g), g.data_offset(), seed, round, milliseconds, account);
        } else {
            PoolGeometry g;
            g.ring.capacity = 64 * 1024;
            g.ring.slot_count = 8;
            g.buffers = 6;
            g.frame_bytes = 1000;
            play(FrameChannel(g), g.buffers_offset(), seed, round, milliseconds, account);
        }
    }
    std::printf("{\"done\": %lu, \"errors\": %lu, \"failures\": %lu, \"first\": \"%s\"}\n", (unsigned long)account.done,
                (unsigned long)account.errors, (unsigned long)account.failures, account.first.c_str());
    return account.failures == 0 ? 0 : 1;
}
