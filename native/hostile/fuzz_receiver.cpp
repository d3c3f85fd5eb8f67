// Any datagrams, from two sources and at any time, into a receiver whose readers read on: caps hold, nobody is sent more than
// three times what came from there, and what is below the rebuilt position is a chain of whole frames that never changes.
#include "fuzz.hpp"
#include "net/receive/session/receiver.hpp"

#include <map>

using namespace penstock;

namespace {

constexpr size_t sessions_max = 3;
constexpr uint64_t memory_max = 3 * 256 * 8;

struct Place {
    struct Held {
        std::unique_ptr<uint64_t[]> memory;
        uint64_t position, sum;
    };
    std::optional<Terms> open(const wire::SetupFrame &setup, const Address &) {
        const auto length = static_cast<uint32_t>(setup.term_length);
        Held &made = held[setup.session];
        made.memory = std::make_unique<uint64_t[]>(size_t{3} * length / 8);
        made.position = UINT64_MAX;
        return Terms(reinterpret_cast<uint8_t *>(made.memory.get()), length, 96, setup.initial_term_id, 1);
    }
    void close(const Image &image) { held.erase(image.session()); }
    std::map<int32_t, Held> held;
};
struct Out {
    bool send(const Address &to, const uint8_t *bytes, size_t length) {
        if (length < 28 || length > 44) __builtin_trap();
        uint64_t sum = 0;
        for (size_t i = 0; i < length; ++i) sum += bytes[i]; // all of it is there to be sent
        if ((sum & 7) == 0) return false;                    // the way is full
        sent[to.port & 1] += length;
        return true;
    }
    uint64_t sent[2] = {}, received[2] = {};
};

void read_on(Place &place, Image &image, uint64_t frames) {
    Place::Held &mine = place.held.at(image.session());
    if (mine.position == UINT64_MAX) mine.position = image.join();
    for (; mine.position < image.rebuilt() && frames != 0; --frames) {
        const uint64_t word0 = image.terms().frame(mine.position)->word0.acquire();
        if (frame_length(word0) < 32) __builtin_trap();
        const uint64_t room = align_frame(static_cast<uint64_t>(frame_length(word0)));
        if (room > image.terms().left_in_term(mine.position)) __builtin_trap();
        mine.position += room;
    }
    if (mine.position > image.rebuilt()) __builtin_trap();
    image.consume(mine.position);
}

// A datagram that has a chance: the words of a header are few.
void forge(hostile::Input &input, uint8_t *bytes, size_t length) {
    static constexpr uint16_t types[] = {0, 1, 1, 1, 5, 6, 0xffff, 3};
    const auto what = input.take<uint8_t>();
    const uint16_t type = types[what & 7];
    const auto put = [&](size_t at, uint32_t value) {
        if (at + 4 <= length) std::memcpy(bytes + at, &value, 4);
    };
    if (length < 32) return;
    put(4, uint32_t{type} << 16 | (what & 0xe0u) << 8);
    if (type == 5) {
        const uint32_t words[] = {40, 0, 0, what >> 3 & 3u, 1, 7, 7, 256u << (what >> 5 & 3), 96, 0};
        for (size_t i = 0; i < 10; ++i)
            if (i != 1) put(4 * i, words[i]);
        return;
    }
    put(0, type == 6 ? 40 : (what & 8) != 0 ? 0 : static_cast<uint32_t>(length));
    put(8, uint32_t{input.take<uint8_t>()} % 16 * 32);
    put(12, what >> 3 & 3u);
    put(16, 1);
    put(20, 7 + (input.take<uint8_t>() & 3u));
}

} // namespace

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    hostile::Input input(data, size);
    Place place;
    ReceiverOptions options;
    const auto kind = input.take<uint8_t>();
    options.stream = 1;
    options.receiver = 77;
    options.reliable = (kind & 1) != 0;
    options.window = 32u << (kind >> 1 & 3);
    if ((kind & 8) != 0) options.group_tag = 5;
    options.sessions_max = sessions_max;
    options.memory_max = memory_max;
    int64_t now = 0;
    Receiver<Place> receiver(options, place, now);
    Out out;
    uint64_t dice = 1;
    const auto random = [&] { return dice = dice * 6364136223846793005 + 1442695040888963407; };
    while (input.left() > 0) {
        const auto what = input.take<uint8_t>();
        static constexpr int64_t steps[] = {0, 1'000, 100'000, 200'000'000, 1'000'000'000, 11'000'000'000, -5'000'000'000, 1};
        now += steps[what & 7];
        size_t length = input.take<uint8_t>() % 5 * 32 + ((what & 8) != 0 ? 8 : 0);
        const auto bytes = input.block(length);
        if ((what & 16) != 0) forge(input, bytes.get(), length);
        Address from;
        from.port = what >> 5 & 1;
        out.received[from.port] += length;
        receiver.datagram(now, from, bytes.get(), length);
        if ((what & 64) != 0) receiver.tick(now, out, random);
        if (receiver.images().size() > sessions_max || receiver.memory() > memory_max) __builtin_trap();
        for (const auto &image : receiver.images()) read_on(place, *image, what >> 6);
        for (int source = 0; source < 2; ++source)
            if (out.sent[source] > out.received[source]) __builtin_trap();
        if (receiver.next() < 0) __builtin_trap();
    }
}
