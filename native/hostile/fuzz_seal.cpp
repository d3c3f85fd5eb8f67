// Any datagrams into both ends of a sealed channel, and authentic ones with bytes changed, doubled and out of order: nothing
// counts that the other end has not sealed, and nothing counts twice.
#include "fuzz.hpp"
#include "net/seal/port_seal.hpp"
#include "net/seal/publication_seal.hpp"

#include <set>
#include <string>
#include <vector>

using namespace penstock;

namespace {

using Bytes = std::vector<uint8_t>;

Keys keyring() {
    static const Keys keys = std::make_shared<const Keyring>(std::vector<Secret>{Secret{1, 2, 3}, Secret{4}});
    return keys;
}

} // namespace

void hostile::parse(const uint8_t *data, size_t size) {
    Input input(data, size);
    PublicationSeal publication(keyring());
    PortSeal port(keyring());
    const Address from{}, back{};
    std::vector<Bytes> there, home;                                  // all that each end has sealed
    std::multiset<std::string> frames, control, got_there, got_home; // in the clear
    uint32_t next = 0;
    int64_t now = 0;

    const auto deliver_there = [&](const Bytes &datagram) {
        port.open(now += 1'000'000, from, datagram.data(), datagram.size(),
                  [&](const uint8_t *bytes, size_t length) { got_there.emplace(reinterpret_cast<const char *>(bytes), length); });
    };
    const auto deliver_home = [&](const Bytes &datagram) {
        const auto clear = publication.open(now, back, datagram.data(), datagram.size());
        if (!clear.empty()) got_home.emplace(reinterpret_cast<const char *>(clear.data()), clear.size());
    };
    for (int steps = 0; steps < 40 && input.left() > 0; ++steps) {
        const auto what = input.take<uint8_t>();
        const bool to_port = (what & 8) != 0;
        std::vector<Bytes> &sealed = to_port ? there : home;
        Bytes datagram;
        switch (what & 7) {
        case 0: // an authentic one
        case 1: {
            Bytes clear(4 + what / 16 * 9);
            std::memcpy(clear.data(), &++next, sizeof next);
            datagram.resize(clear.size() + wire::seal_length);
            if (to_port) publication.seal(clear.data(), clear.size(), datagram.data());
            else port.address(from), port.seal(clear.data(), clear.size(), datagram.data());
            (to_port ? frames : control).emplace(reinterpret_cast<const char *>(clear.data()), clear.size());
            sealed.push_back(datagram);
            break;
        }
        case 2: // one again
        case 3:
            if (sealed.empty()) continue;
            datagram = sealed[input.take<uint8_t>() % sealed.size()];
            break;
        case 4: // changed, cut, or longer
            if (sealed.empty()) continue;
            datagram = sealed[input.take<uint8_t>() % sealed.size()];
            datagram[input.take<uint16_t>() % datagram.size()] ^= static_cast<uint8_t>(1 << (what / 32));
            if ((what & 16) != 0) datagram.resize(input.take<uint8_t>());
            break;
        case 5: // of the other way
            if ((to_port ? home : there).empty()) continue;
            datagram = (to_port ? home : there)[input.take<uint8_t>() % (to_port ? home : there).size()];
            break;
        case 6: // challenges and answers
            port.send_challenges(
                [&](const Address &, const uint8_t *bytes, size_t length) { home.emplace_back(bytes, bytes + length); });
            publication.send_answers(
                [&](const Address &, const uint8_t *bytes, size_t length) { there.emplace_back(bytes, bytes + length); });
            continue;
        default: // anything
            datagram.resize(input.take<uint8_t>());
            for (uint8_t &byte : datagram) byte = input.take<uint8_t>();
            if ((what & 16) != 0 && datagram.size() > 8) std::memcpy(datagram.data(), "PNSK\x01", 5);
        }
        if (to_port) deliver_there(datagram);
        else deliver_home(datagram);
    }
    for (const auto &[got, sent] : {std::pair(&got_there, &frames), {&got_home, &control}})
        for (const std::string &one : *got)
            if (got->count(one) > 1 || !sent->contains(one)) __builtin_trap();
}
