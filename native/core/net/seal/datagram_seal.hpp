// What both ends of a sealed channel share: how a batch seals what it sends, and the sealers that an end has heard of. An end
// with no key has none of it.
#pragma once

#include "net/seal/sealed_datagram.hpp"

#include <algorithm>
#include <list>
#include <optional>
#include <span>

namespace penstock {

// For SendBatch.
class DatagramSeal {
  public:
    virtual ~DatagramSeal() = default;
    // `out`: room for `length` and seal_length, which is what it writes.
    virtual void seal(const uint8_t *clear, size_t length, uint8_t *out) = 0;
};

struct SealCounts {
    uint64_t unauthenticated = 0; // sealed with another key, or not at all
    uint64_t replayed = 0;        // seen before, too old, or of a publication that does not answer
};

// When to tell that datagrams are refused: the first time, and then once an hour.
class RefusalNotice {
  public:
    static constexpr int64_t again_ns = 3'600'000'000'000;
    bool is_due(uint64_t refused, int64_t now) {
        if (refused <= told_ || now < next_ns_) return false;
        told_ = refused;
        next_ns_ = now + again_ns;
        return true;
    }

  private:
    uint64_t told_ = 0;
    int64_t next_ns_ = INT64_MIN;
};
inline std::string refusal_text(uint64_t refused, bool has_key) {
    return std::string("datagrams are refused: ") +
           (has_key ? "they are sealed with another key, or not at all" : "they are sealed, and there is no key_file here") +
           " (" + std::to_string(refused) + " so far; the counter is `unauthenticated`; this is told once an hour)";
}

// The sealers that an end has heard of, by their salts. Each has shown that it has the key, so strangers fill nothing.
template <class Peer> class SealPeers {
  public:
    static constexpr size_t peers_max = 256;

    template <class Fits> Peer *find(Fits &&fits) {
        if (last_ != nullptr && fits(*last_)) return last_;
        const auto found = std::find_if(peers_.begin(), peers_.end(), fits);
        return found == peers_.end() ? nullptr : last_ = &*found;
    }
    // The newest that `fits`; null if there is none.
    template <class Fits> Peer *newest(Fits &&fits) {
        const auto found = std::find_if(peers_.rbegin(), peers_.rend(), fits);
        return found == peers_.rend() ? nullptr : &*found;
    }
    // If there are too many, the one that was heard of longest ago goes, an unverified one first.
    Peer &add(Peer &&peer) {
        if (peers_.size() == peers_max) {
            last_ = nullptr;
            peers_.erase(std::min_element(peers_.begin(), peers_.end(), [](const Peer &a, const Peer &b) {
                return std::pair(a.verified, a.heard_ns) < std::pair(b.verified, b.heard_ns);
            }));
        }
        return *(last_ = &peers_.emplace_back(std::move(peer)));
    }

  private:
    std::list<Peer> peers_;
    Peer *last_ = nullptr;
};

// Opens the first datagram of a sealer with each key that it may have. `derive_key`: of a secret. Null: it has none of them.
template <class Derive>
const Keyring::Key *open_first(const Keyring &keys, const wire::SealedHeader &header, const uint8_t *bytes, size_t length,
                               uint8_t *clear, std::optional<Opener> &opener, Derive &&derive_key) {
    for (const Keyring::Key &key : keys.all()) {
        if (key.mark != header.mark) continue;
        opener.emplace(derive_key(key.secret));
        if (opener->decrypt(header, bytes, length, clear)) return &key;
    }
    return nullptr;
}

} // namespace penstock
