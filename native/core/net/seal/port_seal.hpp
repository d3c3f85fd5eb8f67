// The seal of a port that receives. A publication's datagrams count once it has answered a challenge: what was recorded from an
// earlier time is authentic, but nobody answers for it. docs/design/network_key.md.
#pragma once

#include "net/seal/datagram_seal.hpp"
#include "net/wire/address.hpp"

#include <utility>

namespace penstock {

class PortSeal final : public DatagramSeal {
  public:
    static constexpr int64_t challenge_ns = 20'000'000; // between two challenges to one address
    static constexpr int64_t moved_ns = 1'000'000'000;  // of silence, after which a publication may answer from elsewhere
    static constexpr size_t asked_max = 8;              // addresses of one publication
    static constexpr size_t challenges_max = 64;        // that wait to be sent
    static constexpr size_t held_max = 4, held_bytes_max = 2048; // datagrams of a publication that wait for its answer

    explicit PortSeal(Keys keys) : keys_(std::move(keys)), salt_(new_salt()), clear_(new uint8_t[65536]) {}

    const Keys &keys() const { return keys_; }
    const SealCounts &counts() const { return counts_; }

    // Whom the next datagrams are for.
    void address(const Address &to) {
        to_ = peers_.newest([&](const Peer &peer) { return peer.verified && peer.at == to; });
    }
    void seal(const uint8_t *clear, size_t length, uint8_t *out) override {
        if (to_ != nullptr) to_->control.seal(wire::SealedKind::control, ++number_, clear, length, out);
        else request().seal(wire::SealedKind::request, ++number_, clear, length, out);
    }

    // `each(bytes, length)`: the frames of a datagram that arrived, if it counts, and of those that have waited for it. A
    // publication is where it has answered from: a copy from elsewhere, which may come first, takes nothing from it.
    template <class Each> void open(int64_t now, const Address &from, const uint8_t *bytes, size_t length, Each &&each) {
        wire::SealedHeader header;
        if (!wire::read_sealed(bytes, length, header) ||
            (header.kind != wire::SealedKind::frames && header.kind != wire::SealedKind::answer))
            return refuse();
        Peer *peer = peers_.find([&](const Peer &one) { return one.salt == header.salt; });
        if (peer == nullptr) {
            if ((peer = meet(now, header, bytes, length)) == nullptr) return refuse();
        } else if (peer->verified && header.kind == wire::SealedKind::frames && peer->at == from) {
            peer->heard_ns = now;
            const Opener::Result result = peer->opener.open(header, bytes, length, clear_.get());
            if (result == Opener::Result::forged) return refuse();
            if (result == Opener::Result::opened) each(clear_.get(), length - wire::seal_length);
            counts_.replayed += result == Opener::Result::replayed;
            return;
        } else if (peer->verified && now - peer->heard_ns < moved_ns) {
            ++counts_.replayed;
            return;
        } else if (!peer->opener.decrypt(header, bytes, length, clear_.get())) return refuse();
        const size_t clear_length = length - wire::seal_length;
        if (header.kind == wire::SealedKind::frames) return hold(now, *peer, from, header.number, clear_length);
        const Address *where = answered(*peer, clear_length);
        if (where == nullptr) return;
        peer->at = *where; // and not `from`: a copy of the answer may come first from elsewhere
        peer->verified = true;
        peer->heard_ns = now;
        peer->asked.clear();
        peer->opener.close_up_to(header.number); // what was sent before the answer may have been delivered before
        for (const Held &held : std::exchange(peer->held, {}))
            if (peer->opener.take(held.number)) each(held.bytes.data(), held.bytes.size());
    }
    // `send(to, bytes, length)`: each challenge.
    template <class Send> void send_challenges(Send &&send) {
        for (const auto &entry : challenges_) {
            const Asked &asked = entry.second;
            Peer *peer = peers_.find([&](const Peer &one) { return one.salt == entry.first; });
            if (peer == nullptr) continue;
            uint8_t sealed[sizeof asked.challenge + wire::seal_length];
            peer->control.seal(wire::SealedKind::challenge, ++number_, asked.challenge.data(), asked.challenge.size(), sealed);
            send(asked.at, sealed, sizeof sealed);
        }
        challenges_.clear();
    }

  private:
    struct Held {
        uint64_t number;
        std::vector<uint8_t> bytes;
    };
    struct Asked {
        Address at;
        Salt challenge; // of this address alone
        int64_t again_ns;
    };
    struct Peer { // a publication
        Salt salt;
        Opener opener;
        Sealer control;
        int64_t heard_ns; // from `at`, or, as long as it is not verified, from anywhere
        bool verified = false;
        Address at = {};               // where it has answered from
        std::vector<Asked> asked = {}; // where it was challenged
        std::vector<Held> held = {};
    };

    void refuse() { ++counts_.unauthenticated; }
    // The first datagram of a salt. Null: it is not authentic.
    Peer *meet(int64_t now, const wire::SealedHeader &header, const uint8_t *bytes, size_t length) {
        std::optional<Opener> opener;
        const Keyring::Key *key = open_first(*keys_, header, bytes, length, clear_.get(), opener,
                                             [&](const Secret &secret) { return frames_key(secret, header.salt); });
        if (key == nullptr) return nullptr;
        to_ = nullptr; // it may be the one that goes
        return &peers_.add(
            {header.salt, std::move(*opener), Sealer(control_key(key->secret, salt_, header.salt), key->mark, salt_), now});
    }
    // A publication that has not answered from here yet. What it sent after the answer may have overtaken it: it counts once that
    // is there.
    void hold(int64_t now, Peer &peer, const Address &from, uint64_t number, size_t length) {
        auto asked = std::find_if(peer.asked.begin(), peer.asked.end(), [&](const Asked &one) { return one.at == from; });
        if (asked == peer.asked.end()) {
            if (peer.asked.size() == asked_max) peer.asked.erase(peer.asked.begin());
            asked = peer.asked.insert(peer.asked.end(), {from, new_salt(), now});
        }
        if (now >= asked->again_ns && challenges_.size() < challenges_max) {
            counts_.replayed += asked->again_ns != now; // the last one has no answer yet
            asked->again_ns = now + challenge_ns;
            challenges_.emplace_back(peer.salt, *asked);
        }
        if (length > held_bytes_max) return;
        if (peer.held.size() == held_max) peer.held.erase(peer.held.begin());
        peer.held.push_back({number, {clear_.get(), clear_.get() + length}});
    }
    // The address to whose challenge `clear_` is the answer; null if it is none.
    const Address *answered(const Peer &peer, size_t length) const {
        if (length != sizeof(Asked::challenge)) return nullptr;
        const auto found = std::find_if(peer.asked.begin(), peer.asked.end(), [&](const Asked &one) {
            return std::memcmp(clear_.get(), one.challenge.data(), one.challenge.size()) == 0;
        });
        return found == peer.asked.end() ? nullptr : &found->at;
    }
    // For a publication that is not known.
    Sealer &request() {
        if (!request_) request_.emplace(control_key(keys_->first().secret, salt_, {}), keys_->first().mark, salt_);
        return *request_;
    }

    const Keys keys_;
    const Salt salt_;
    uint64_t number_ = 0; // of all keys together
    SealPeers<Peer> peers_;
    Peer *to_ = nullptr;
    std::optional<Sealer> request_;
    std::vector<std::pair<Salt, Asked>> challenges_;
    const std::unique_ptr<uint8_t[]> clear_;
    SealCounts counts_;
};

} // namespace penstock
