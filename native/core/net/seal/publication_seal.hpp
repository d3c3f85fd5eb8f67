// The seal of a publication. What it sends has one key for all receivers, of its own salt; what they send has a key of both
// salts, so nothing that was recorded from another publication's time opens here. docs/design/network_key.md.
#pragma once

#include "net/seal/datagram_seal.hpp"
#include "net/wire/address.hpp"
#include "net/wire/status_frame.hpp"

namespace penstock {

class PublicationSeal final : public DatagramSeal {
  public:
    static constexpr size_t answers_max = 64; // that wait to be sent

    explicit PublicationSeal(Keys keys)
        : keys_(std::move(keys)), salt_(new_salt()),
          sealer_(frames_key(keys_->first().secret, salt_), keys_->first().mark, salt_), clear_(new uint8_t[65536]) {}

    const SealCounts &counts() const { return counts_; }
    void seal(const uint8_t *clear, size_t length, uint8_t *out) override {
        sealer_.seal(wire::SealedKind::frames, ++number_, clear, length, out);
    }

    // The frames of a datagram that arrived; empty if it has none for the sender.
    std::span<const uint8_t> open(int64_t now, const Address &from, const uint8_t *bytes, size_t length) {
        wire::SealedHeader header;
        if (!wire::read_sealed(bytes, length, header)) return refuse();
        if (header.kind == wire::SealedKind::request) return open_request(header, bytes, length);
        if (header.kind != wire::SealedKind::control && header.kind != wire::SealedKind::challenge) return refuse();
        // An address has a window of its own: who sends copies from elsewhere takes no number from the receiver.
        if (Peer *peer = peers_.find([&](const Peer &one) { return one.salt == header.salt && one.at == from; })) {
            const Opener::Result result = peer->opener.open(header, bytes, length, clear_.get());
            counts_.replayed += result == Opener::Result::replayed;
            if (result == Opener::Result::forged) return refuse();
            if (result == Opener::Result::replayed) return {};
            peer->heard_ns = now;
        } else {
            std::optional<Opener> opener;
            if (open_first(*keys_, header, bytes, length, clear_.get(), opener,
                           [&](const Secret &key) { return control_key(key, header.salt, salt_); }) == nullptr)
                return refuse();
            opener->take(header.number);
            peers_.add({header.salt, std::move(*opener), from, true, now});
        }
        const std::span<const uint8_t> frames(clear_.get(), length - wire::seal_length);
        if (header.kind == wire::SealedKind::control) return frames;
        if (frames.size() == challenge_length && answers_.size() < answers_max) {
            Answer &answer = answers_.emplace_back(Answer{from, {}});
            std::memcpy(answer.challenge.data(), frames.data(), frames.size());
        }
        return {};
    }
    // `send(to, bytes, length)`: each answer to a challenge, which may be a recorded one: it is not longer. Whether there was
    // one: a receiver is new, and needs SETUP.
    template <class Send> bool send_answers(Send &&send) {
        const bool any = !answers_.empty();
        for (const Answer &answer : answers_) {
            uint8_t sealed[challenge_length + wire::seal_length];
            sealer_.seal(wire::SealedKind::answer, ++number_, answer.challenge.data(), challenge_length, sealed);
            send(answer.to, sealed, sizeof sealed);
        }
        answers_.clear();
        return any;
    }

    static constexpr size_t challenge_length = 16;

  private:
    struct Peer {
        Salt salt;
        Opener opener;
        Address at;
        bool verified;
        int64_t heard_ns;
    };
    struct Answer {
        Address to;
        Salt challenge;
    };

    std::span<const uint8_t> refuse() {
        ++counts_.unauthenticated;
        return {};
    }
    // May come again, from a recording of the wire: so it may ask for SETUP, and for nothing else.
    std::span<const uint8_t> open_request(const wire::SealedHeader &header, const uint8_t *bytes, size_t length) {
        std::optional<Opener> opener;
        if (open_first(*keys_, header, bytes, length, clear_.get(), opener,
                       [&](const Secret &key) { return control_key(key, header.salt, {}); }) == nullptr)
            return refuse();
        const size_t clear_length = length - wire::seal_length;
        wire::StatusFrame frame;
        bool tagged;
        if (!wire::parse(clear_.get(), clear_length, frame, tagged) || frame.session != 0 || frame.stream != 0 ||
            (frame.start.flags & wire::flag_send_setup) == 0)
            return refuse();
        return {clear_.get(), clear_length};
    }

    const Keys keys_;
    const Salt salt_;
    Sealer sealer_;
    uint64_t number_ = 0;
    SealPeers<Peer> peers_;
    std::vector<Answer> answers_;
    const std::unique_ptr<uint8_t[]> clear_;
    SealCounts counts_;
};

} // namespace penstock
