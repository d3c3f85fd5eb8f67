// What a key costs for each datagram, beside the bare cipher over the same bytes, in turn: sealing as SendBatch does, opening as
// a port does. Prints JSON lines; medians.
#include "support.hpp"

#include "net/seal/port_seal.hpp"
#include "net/seal/publication_seal.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

using namespace penstock;

namespace {

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}
template <class Do> double cost(size_t count, Do &&each) {
    const int64_t begun = system_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < count; ++i) each(i);
    return static_cast<double>(system_ns(CLOCK_THREAD_CPUTIME_ID) - begun) / static_cast<double>(count);
}

void measure(const char *name, size_t size, size_t count, int rounds) {
    const Keys keys = std::make_shared<const Keyring>(std::vector<Secret>{Secret{1}});
    PublicationSeal publication(keys);
    PortSeal port(keys);
    const Address from{};
    const auto nothing = [](const uint8_t *, size_t) {};
    const size_t room = size + wire::seal_length;
    std::vector<uint8_t> clear(size, 7), sealed(count * room), out(room);
    const auto seal_all = [&] { return cost(count, [&](size_t i) { publication.seal(clear.data(), size, &sealed[i * room]); }); };
    seal_all(); // the publication is challenged, and answers
    port.open(1, from, sealed.data(), room, nothing);
    port.send_challenges([&](const Address &, const uint8_t *bytes, size_t length) { publication.open(1, from, bytes, length); });
    publication.send_answers(
        [&](const Address &, const uint8_t *bytes, size_t length) { port.open(1, from, bytes, length, nothing); });

    Gcm bare_seal(Secret{2}, Gcm::Way::seal), bare_open(Secret{2}, Gcm::Way::open);
    std::vector<uint8_t> bare(count * room);
    uint64_t delivered = 0;
    std::vector<double> found[4];
    for (int round = 0; round < rounds; ++round) {
        uint8_t iv[Gcm::iv_length] = {};
        const auto step = [&](size_t i) { std::memcpy(iv, &i, sizeof i); };
        found[0].push_back(cost(count, [&](size_t i) {
            step(i);
            bare_seal.seal(iv, clear.data(), 32, clear.data(), size, &bare[i * room]);
        }));
        found[1].push_back(seal_all());
        found[2].push_back(cost(count, [&](size_t i) {
            step(i);
            delivered += bare_open.open(iv, clear.data(), 32, &bare[i * room], size, out.data());
        }));
        found[3].push_back(cost(count, [&](size_t i) {
            port.open(1, from, &sealed[i * room], room, [&](const uint8_t *, size_t) { ++delivered; });
        }));
    }
    if (delivered != 2 * count * static_cast<size_t>(rounds)) std::abort();
    std::printf("{\"case\": \"%s\", \"bare_seal_ns\": %.1f, \"seal_ns\": %.1f, \"bare_open_ns\": %.1f, \"open_ns\": %.1f}\n",
                name, median(found[0]), median(found[1]), median(found[2]), median(found[3]));
}

} // namespace

int main(int argc, char **argv) {
    const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
    for (const auto &[name, size] : {std::pair("64 B", size_t{64}), {"1344 B", 1344}, {"8 KiB", 8192}})
        measure(name, size, quick ? 200 : size > 4096 ? 500 : 3000, quick ? 3 : 31);
}
