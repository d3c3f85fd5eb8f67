// The keys of a channel: the first one seals, each one opens. Two at a time are valid while keys are exchanged.
#pragma once

#include "net/seal/libcrypto.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace penstock {

class Keyring {
  public:
    static constexpr size_t keys_max = 2;
    struct Key {
        Secret secret;
        uint16_t mark;        // in each datagram: which key it may be
        uint64_t fingerprint; // in the endpoint's file: whether processes of a machine have the same; never 0
        bool operator==(const Key &) const = default;
    };

    explicit Keyring(const std::vector<Secret> &secrets) {
        if (secrets.empty() || secrets.size() > keys_max)
            throw Error(Code::invalid,
                        "a channel has one key, or two while keys are exchanged, not " + std::to_string(secrets.size()));
        for (const Secret &secret : secrets) {
            const Secret made = derive(secret, nullptr, 0, "penstock udp 1 mark");
            const Secret print = derive(secret, nullptr, 0, "penstock udp 1 fingerprint");
            uint64_t fingerprint;
            std::memcpy(&fingerprint, print.data(), sizeof fingerprint);
            keys_.push_back({secret, static_cast<uint16_t>(made[0] | made[1] << 8), fingerprint | 1});
        }
    }
    const Key &first() const { return keys_.front(); }
    const std::vector<Key> &all() const { return keys_; }
    bool operator==(const Keyring &other) const { return keys_ == other.keys_; }
    bool has(uint64_t fingerprint) const {
        return std::any_of(keys_.begin(), keys_.end(), [&](const Key &key) { return key.fingerprint == fingerprint; });
    }
    // Whether each opens what the other seals.
    bool agrees(const Keyring &other) const { return has(other.first()) && other.has(first()); }

  private:
    bool has(const Key &key) const { return std::find(keys_.begin(), keys_.end(), key) != keys_.end(); }

    std::vector<Key> keys_;
};
using Keys = std::shared_ptr<const Keyring>; // null: datagrams are clear

} // namespace penstock
