// Proof that a source receives at its address, without a word of memory for it: the number of a round trip measurement is a
// keyed hash of the address, the session and the time, as a SYN cookie is. So a flood of forged addresses fills no table. The
// hash is SipHash-2-4 (Aumasson and Bernstein 2012).
#pragma once

#include "net/wire/address.hpp"

#include <cstring>

namespace penstock {

class SourceProof {
  public:
    static constexpr int64_t epoch_ns = 2'000'000'000; // a number is good for this epoch and the next one

    // `secret`: two random words.
    void set_secret(uint64_t first, uint64_t second) {
        key_[0] = first;
        key_[1] = second;
        is_set_ = true;
    }
    bool is_set() const { return is_set_; }
    // Never 0.
    int64_t number(int64_t now, const Address &from, int32_t session) const { return at_epoch(now / epoch_ns, from, session); }
    bool proves(int64_t now, const Address &from, int32_t session, int64_t number) const {
        const int64_t epoch = now / epoch_ns;
        return is_set_ && (number == at_epoch(epoch, from, session) || number == at_epoch(epoch - 1, from, session));
    }

  private:
    int64_t at_epoch(int64_t epoch, const Address &from, int32_t session) const {
        uint64_t words[5];
        std::memcpy(words, from.host.data(), 16);
        words[2] = uint64_t{from.scope} << 32 | from.port;
        words[3] = static_cast<uint64_t>(epoch);
        words[4] = static_cast<uint32_t>(session);
        return static_cast<int64_t>(hash(words, 5) | 1);
    }
    uint64_t hash(const uint64_t *words, size_t count) const {
        uint64_t v[4] = {key_[0] ^ 0x736f6d6570736575, key_[1] ^ 0x646f72616e646f6d, key_[0] ^ 0x6c7967656e657261,
                         key_[1] ^ 0x7465646279746573};
        const auto rotate = [](uint64_t x, int bits) { return x << bits | x >> (64 - bits); };
        const auto rounds = [&](int times) {
            for (; times != 0; --times) {
                v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
                v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
                v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
                v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
            }
        };
        const auto mix = [&](uint64_t word) {
            v[3] ^= word;
            rounds(2);
            v[0] ^= word;
        };
        for (size_t i = 0; i < count; ++i) mix(words[i]);
        mix(uint64_t{count * 8 & 0xff} << 56);
        v[2] ^= 0xff;
        rounds(4);
        return v[0] ^ v[1] ^ v[2] ^ v[3];
    }

    uint64_t key_[2] = {};
    bool is_set_ = false;
};

} // namespace penstock
