// The seal of datagrams: known answers of its algorithms, the replay window against a set, and what each end accepts.
#include "check.hpp"

#include "net/seal/port_seal.hpp"
#include "net/seal/publication_seal.hpp"
#include "net/wire/setup_frame.hpp"

#include <cstdio>
#include <random>
#include <set>
#include <vector>

using namespace penstock;

namespace {

using Datagrams = std::vector<std::vector<uint8_t>>;

std::vector<uint8_t> from_hex(const char *text) {
    std::vector<uint8_t> made;
    for (unsigned byte; std::sscanf(text, "%2x", &byte) == 1; text += 2) made.push_back(static_cast<uint8_t>(byte));
    return made;
}
Secret secret_of(uint8_t byte) {
    Secret made;
    made.fill(byte);
    return made;
}
Keys keyring(std::initializer_list<uint8_t> bytes) {
    std::vector<Secret> secrets;
    for (const uint8_t byte : bytes) secrets.push_back(secret_of(byte));
    return std::make_shared<const Keyring>(secrets);
}

// NIST's AES-256-GCM, test case 16 of the submission: 60 bytes and a header of 20.
void known_cipher() {
    const auto key = from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
    const auto iv = from_hex("cafebabefacedbaddecaf888");
    const auto clear = from_hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
                                "b16aedf5aa0de657ba637b39");
    const auto header = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    const auto sealed = from_hex("522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b105682883"
                                 "8c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b");
    Secret secret;
    std::memcpy(secret.data(), key.data(), key.size());
    std::vector<uint8_t> out(sealed.size()), back(clear.size());
    Gcm(secret, Gcm::Way::seal).seal(iv.data(), header.data(), header.size(), clear.data(), clear.size(), out.data());
    CHECK(out == sealed);
    Gcm opener(secret, Gcm::Way::open);
    CHECK(opener.open(iv.data(), header.data(), header.size(), sealed.data(), clear.size(), back.data()) && back == clear);
    for (size_t at = 0; at < sealed.size(); ++at) { // each byte counts
        auto other = sealed;
        other[at] ^= 1;
        CHECK(!opener.open(iv.data(), header.data(), header.size(), other.data(), clear.size(), back.data()));
    }
}

void replay_window(uint64_t seed) {
    std::mt19937_64 random(seed);
    ReplayWindow window;
    std::set<uint64_t> seen;
    uint64_t highest = 0, at = 1 + random() % 10;
    for (int i = 0; i < 20'000; ++i) {
        const uint64_t kind = random() % 100;
        if (kind < 60) ++at;
        else if (kind < 62) at += random() % 20'000;
        const uint64_t number = kind < 70 ? at : at - std::min(at, random() % 9000);
        const bool is_new = number != 0 && number + ReplayWindow::width > highest && !seen.contains(number);
        CHECK(window.is_new(number) == is_new);
        if (!is_new || random() % 8 == 0) continue; // a forged one changes nothing
        window.add(number);
        seen.insert(number);
        highest = std::max(highest, number);
    }
}

// A link of the two ends, by hand.
struct Link {
    explicit Link(Keys of_publication, Keys of_port) : publication(std::move(of_publication)), port(std::move(of_port)) {}
    PublicationSeal publication;
    PortSeal port;
    const Address from =
                      [] {
                          Address a;
                          a.port = 7;
                          return a;
                      }(),
                  back = [] {
                      Address a;
                      a.port = 9;
                      return a;
                  }();
    Datagrams wire;
    int64_t now = 1;

    std::vector<uint8_t> sent(const std::vector<uint8_t> &frames) {
        std::vector<uint8_t> sealed(frames.size() + wire::seal_length);
        publication.seal(frames.data(), frames.size(), sealed.data());
        wire.push_back(sealed);
        return sealed;
    }
    // The port takes a datagram in, and the challenge and the answer go to and fro. What the streams get.
    Datagrams received(const std::vector<uint8_t> &sealed, bool answers = true) {
        Datagrams got;
        const auto each = [&](const uint8_t *bytes, size_t length) { got.emplace_back(bytes, bytes + length); };
        port.open(++now, from, sealed.data(), sealed.size(), each);
        size_t paid = sealed.size(); // an address that has not answered draws no more than it sends
        port.send_challenges([&](const Address &to, const uint8_t *bytes, size_t length) {
            CHECK(to == from && length <= paid);
            paid = length;
            CHECK(publication.open(now, back, bytes, length).empty());
        });
        publication.send_answers([&](const Address &to, const uint8_t *bytes, size_t length) {
            CHECK(to == back && length <= paid);
            wire.emplace_back(bytes, bytes + length);
            if (answers) port.open(now, from, bytes, length, each);
        });
        return got;
    }
};

void ends_agree() {
    const std::vector<uint8_t> setup(40, 5), data(96, 1);
    Link link(keyring({1}), keyring({1}));
    CHECK(link.received(link.sent(setup)).empty()); // it may be older than the answer
    const auto sealed = link.sent(data);
    CHECK(link.received(sealed) == Datagrams{data});
    CHECK(link.received(sealed).empty() && link.port.counts().replayed == 1); // once
    auto forged = link.sent(data);
    forged[50] ^= 1;
    CHECK(link.received(forged).empty() && link.port.counts().unauthenticated == 1);
    forged[50] ^= 1;
    CHECK(link.received(forged) == Datagrams{data}); // a forged copy that came first takes nothing away
    // The other way.
    std::vector<uint8_t> status(36, 3), control(36 + wire::seal_length);
    link.port.address(link.from);
    link.port.seal(status.data(), status.size(), control.data());
    const auto opened = link.publication.open(1, link.back, control.data(), control.size());
    CHECK(std::vector<uint8_t>(opened.begin(), opened.end()) == status);
    CHECK(link.publication.open(1, link.back, control.data(), control.size()).empty());
}

// Everything that was sent before, to a receiver that is new: authentic, and yet nothing of it counts.
void recorded_session() {
    Link old(keyring({1}), keyring({1}));
    for (int i = 0; i < 100; ++i) old.received(old.sent(std::vector<uint8_t>(64, 7)));
    Link now(keyring({1}), keyring({1}));
    for (const auto &sealed : old.wire) CHECK(now.received(sealed).empty());
    CHECK(now.port.counts().unauthenticated == 0);
    // And to the publication that is new: what a receiver said to the old one.
    std::vector<uint8_t> status(36, 3), control(36 + wire::seal_length);
    old.port.address(old.from);
    old.port.seal(status.data(), status.size(), control.data());
    const uint64_t before = now.publication.counts().unauthenticated; // challenges, which were for the old one
    CHECK(now.publication.open(1, now.back, control.data(), control.size()).empty());
    CHECK(now.publication.counts().unauthenticated == before + 1);
}

void other_keys() {
    const std::vector<uint8_t> data(64, 1);
    for (const auto &[a, b, agree] : {std::tuple{keyring({1}), keyring({2}), false},
                                      {keyring({1, 2}), keyring({2, 1}), true},
                                      {keyring({1}), keyring({2, 1}), true},
                                      {keyring({1}), keyring({1, 2}), true}}) {
        Link link(a, b);
        link.received(link.sent(data));
        CHECK(link.received(link.sent(data)).size() == agree);
        CHECK(link.received(data).empty()); // in the clear
        CHECK(link.port.counts().unauthenticated == (agree ? 1u : 3u));
    }
    CHECK(keyring({1, 2})->agrees(*keyring({2, 1})) && !keyring({1})->agrees(*keyring({2})));
    CHECK(!keyring({1})->agrees(*keyring({2, 1})) && keyring({1, 2})->agrees(*keyring({1})));
}

// A receiver that begins while a publication lives: what this has sent before is authentic, and others may have read it.
void begun_anew() {
    Link link(keyring({1}), keyring({1}));
    const std::vector<uint8_t> data(64, 1);
    for (int i = 0; i < 100; ++i) link.received(link.sent(data));
    PortSeal again(keyring({1}));
    Datagrams got;
    const auto each = [&](const uint8_t *bytes, size_t length) { got.emplace_back(bytes, bytes + length); };
    const Datagrams before = link.wire;
    const auto all = [&] {
        for (const auto &sealed : before) again.open(++link.now, link.from, sealed.data(), sealed.size(), each);
    };
    again.open(++link.now, link.from, before[0].data(), before[0].size(), each); // most of them come behind the answer
    // What was sent behind the answer overtakes it.
    std::vector<uint8_t> answer, behind;
    again.send_challenges(
        [&](const Address &, const uint8_t *bytes, size_t length) { link.publication.open(1, link.back, bytes, length); });
    CHECK(link.publication.send_answers(
        [&](const Address &, const uint8_t *bytes, size_t length) { answer.assign(bytes, bytes + length); }));
    behind = link.sent(data);
    again.open(++link.now, link.from, behind.data(), behind.size(), each);
    CHECK(got.empty());
    again.open(++link.now, link.from, answer.data(), answer.size(), each);
    CHECK(got == Datagrams{data});
    all();
    CHECK(got.size() == 1);
}

// Who has no key but sees all datagrams sends copies from elsewhere, before they arrive themselves.
void copies_from_elsewhere() {
    Link link(keyring({1}), keyring({1}));
    const std::vector<uint8_t> data(64, 1);
    Address elsewhere = link.from;
    ++elsewhere.port;
    Datagrams got;
    const auto each = [&](const uint8_t *bytes, size_t length) { got.emplace_back(bytes, bytes + length); };
    const auto copy = [&](const std::vector<uint8_t> &sealed) {
        link.port.open(link.now, elsewhere, sealed.data(), sealed.size(), each);
    };
    const auto challenge = [&](const std::vector<uint8_t> &sealed, bool from_elsewhere) { // what follows of it, with copies first
        if (from_elsewhere) copy(sealed);
        link.port.open(link.now, link.from, sealed.data(), sealed.size(), each);
        int to_elsewhere = 0;
        link.port.send_challenges([&](const Address &to, const uint8_t *bytes, size_t length) {
            if (to == elsewhere) ++to_elsewhere;
            else link.publication.open(link.now, link.back, bytes, length);
        });
        Datagrams answers;
        link.publication.send_answers(
            [&](const Address &, const uint8_t *bytes, size_t length) { answers.emplace_back(bytes, bytes + length); });
        for (const auto &answer : answers) {
            copy(answer);
            link.port.open(link.now, link.from, answer.data(), answer.size(), each);
        }
        return to_elsewhere;
    };
    CHECK(challenge(link.sent(data), true) == 1);
    for (int i = 0; i < 3; ++i) CHECK(challenge(link.sent(data), true) == 0);
    CHECK(got.size() == 3);
    // The receiver's side: what it sends counts from where it came, too.
    std::vector<uint8_t> status(36, 3), control(36 + wire::seal_length);
    link.port.address(link.from);
    link.port.seal(status.data(), status.size(), control.data());
    CHECK(!link.publication.open(1, elsewhere, control.data(), control.size()).empty());
    CHECK(!link.publication.open(1, link.back, control.data(), control.size()).empty());
    CHECK(link.publication.open(1, link.back, control.data(), control.size()).empty());
}

// A publication whose address changes answers from there, once it is silent where it was; an old answer does not move it.
void another_address() {
    Link link(keyring({1}), keyring({1}));
    const std::vector<uint8_t> data(64, 1);
    link.received(link.sent(data));
    const std::vector<uint8_t> old = link.wire.back(); // the answer
    Address elsewhere = link.from;
    ++elsewhere.port;
    Datagrams got;
    const auto each = [&](const uint8_t *bytes, size_t length) { got.emplace_back(bytes, bytes + length); };
    const auto comes = [&](const std::vector<uint8_t> &sealed) {
        link.port.open(++link.now, elsewhere, sealed.data(), sealed.size(), each);
    };
    comes(link.sent(data));
    link.port.send_challenges([](const Address &, const uint8_t *, size_t) { CHECK(false); }); // it is not silent yet
    link.now += PortSeal::moved_ns;
    comes(link.sent(data));
    std::vector<uint8_t> answer;
    link.port.send_challenges([&](const Address &to, const uint8_t *bytes, size_t length) {
        CHECK(to == elsewhere);
        link.publication.open(1, link.back, bytes, length);
    });
    link.publication.send_answers(
        [&](const Address &, const uint8_t *bytes, size_t length) { answer.assign(bytes, bytes + length); });
    comes(old);
    comes(link.sent(data));
    CHECK(got.empty());
    comes(answer);
    const size_t before = got.size();
    comes(link.sent(data));
    CHECK(got.size() == before + 1);
}

// More publications than there is room for: those that answered stay.
void many_publications() {
    Link link(keyring({1}), keyring({1}));
    const std::vector<uint8_t> data(64, 1);
    link.received(link.sent(data));
    CHECK(link.received(link.sent(data)).size() == 1);
    for (int i = 0; i < 1000; ++i) {
        Link other(keyring({1}), keyring({1}));
        std::vector<uint8_t> sealed = other.sent(data);
        CHECK(link.received(sealed).empty());
    }
    CHECK(link.received(link.sent(data)).size() == 1);
}

// A request that names no publication may ask for SETUP, and nothing else passes for one.
void requests() {
    Link link(keyring({1}), keyring({1}));
    auto frame = wire::make<wire::StatusFrame>(wire::Type::status, wire::flag_send_setup);
    std::vector<uint8_t> sealed(sizeof frame + wire::seal_length);
    link.port.address(link.from);
    for (const bool fine : {true, false}) {
        if (!fine) frame.session = 5;
        link.port.seal(wire::bytes_of(frame), sizeof frame, sealed.data());
        CHECK(link.publication.open(1, link.back, sealed.data(), sealed.size()).empty() != fine);
    }
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = penstock::test::argument(argc, argv, "--seed", 1);
    known_cipher();
    for (uint64_t i = 0; i < 50; ++i) replay_window(seed + i);
    ends_agree();
    recorded_session();
    begun_anew();
    copies_from_elsewhere();
    another_address();
    other_keys();
    many_publications();
    requests();
    std::puts("ok");
}
