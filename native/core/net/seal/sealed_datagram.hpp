// A sealed datagram: a header in the clear, which is authenticated, the frames encrypted, and a tag. docs/design/network_key.md.
#pragma once

#include "net/seal/keyring.hpp"
#include "net/seal/replay_window.hpp"
#include "net/wire/wire.hpp"

#include <sys/random.h>

namespace penstock {

using Salt = std::array<uint8_t, 16>; // random; of one sealer, for as long as it lives

namespace wire {

//    0                   1                   2                   3
//    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//   +---------------------------------------------------------------+
// 0 |                       "PNSK"                                  |
//   +---------------+---------------+-------------------------------+
// 4 |   version 1   |     kind      |       mark of the key         |
//   +---------------+---------------+-------------------------------+
// 8 |                salt of the sealer, 16 bytes                   |
//   +---------------------------------------------------------------+
// 24|                number, 1 and up for each salt                 |
//   +---------------------------------------------------------------+
// 32  ciphertext, as long as the frames; tag, 16 bytes
enum class SealedKind : uint8_t {
    frames = 1,    // of a publication, for all receivers
    answer = 2,    // of a publication: a receiver's challenge and salt
    control = 3,   // of a receiver, for the publication whose salt it has seen
    challenge = 4, // of a receiver: 16 random bytes
    request = 5,   // of a receiver that knows no publication yet: it asks for SETUP
};
struct [[gnu::packed]] SealedHeader {
    uint8_t magic[4];
    uint8_t version;
    SealedKind kind;
    uint16_t mark;
    Salt salt;
    uint64_t number;
};
static_assert(sizeof(SealedHeader) == 32 && offsetof(SealedHeader, salt) == 8 && offsetof(SealedHeader, number) == 24);
inline constexpr uint8_t sealed_magic[4] = {'P', 'N', 'S', 'K'};
inline constexpr size_t seal_length = sizeof(SealedHeader) + Gcm::tag_length; // bytes that a seal adds
inline constexpr uint32_t sealed_mtu_max = (65507 - seal_length) / frame_alignment * frame_alignment;

inline bool is_sealed(const uint8_t *bytes, size_t length) {
    return length > seal_length && std::memcmp(bytes, sealed_magic, sizeof sealed_magic) == 0;
}
inline bool read_sealed(const uint8_t *bytes, size_t length, SealedHeader &header) {
    if (!is_sealed(bytes, length)) return false;
    std::memcpy(&header, bytes, sizeof header);
    return header.version == 1;
}
inline std::array<uint8_t, Gcm::iv_length> iv_of(const SealedHeader &header) {
    std::array<uint8_t, Gcm::iv_length> iv{}; // 4 zeros, and the number as it is sent
    std::memcpy(iv.data() + 4, reinterpret_cast<const uint8_t *>(&header) + offsetof(SealedHeader, number), 8);
    return iv;
}

} // namespace wire

inline Salt new_salt() {
    Salt made;
    for (size_t got = 0; got < made.size();) {
        const ssize_t more = getrandom(made.data() + got, made.size() - got, 0);
        if (more < 0 && errno != EINTR) fail_system("no random numbers");
        if (more > 0) got += static_cast<size_t>(more);
    }
    return made;
}
// The key of what a publication sends, and of what a receiver sends to it. `to` is zero where it knows none.
inline Secret frames_key(const Secret &key, const Salt &salt) {
    return derive(key, salt.data(), salt.size(), "penstock udp 1 frames");
}
inline Secret control_key(const Secret &key, const Salt &from, const Salt &to) {
    std::array<uint8_t, 32> both;
    std::memcpy(both.data(), from.data(), from.size());
    std::memcpy(both.data() + from.size(), to.data(), to.size());
    return derive(key, both.data(), both.size(), "penstock udp 1 control");
}

// Seals datagrams with one key. Numbers are the caller's: they never come twice with one salt.
class Sealer {
  public:
    Sealer(const Secret &key, uint16_t mark, const Salt &salt) : gcm_(key, Gcm::Way::seal), mark_(mark), salt_(salt) {}

    // `out`: room for `length` and seal_length.
    void seal(wire::SealedKind kind, uint64_t number, const uint8_t *clear, size_t length, uint8_t *out) {
        wire::SealedHeader header{{}, 1, kind, mark_, salt_, number};
        std::memcpy(header.magic, wire::sealed_magic, sizeof header.magic);
        std::memcpy(out, &header, sizeof header);
        gcm_.seal(wire::iv_of(header).data(), out, sizeof header, clear, length, out + sizeof header);
    }

  private:
    Gcm gcm_;
    uint16_t mark_;
    Salt salt_;
};

// Opens one sealer's datagrams.
class Opener {
  public:
    explicit Opener(const Secret &key) : gcm_(key, Gcm::Way::open) {}

    // Whether it is authentic. `clear`: room for the length less seal_length.
    bool decrypt(const wire::SealedHeader &header, const uint8_t *bytes, size_t length, uint8_t *clear) {
        const size_t at = sizeof header;
        return gcm_.open(wire::iv_of(header).data(), bytes, at, bytes + at, length - wire::seal_length, clear);
    }
    enum class Result { opened, forged, replayed };
    // The same, for each datagram once.
    Result open(const wire::SealedHeader &header, const uint8_t *bytes, size_t length, uint8_t *clear) {
        if (!window_.is_new(header.number)) return Result::replayed;
        if (!decrypt(header, bytes, length, clear)) return Result::forged;
        window_.add(header.number);
        return Result::opened;
    }
    // One that was decrypted before: whether it is new now.
    bool take(uint64_t number) {
        if (!window_.is_new(number)) return false;
        window_.add(number);
        return true;
    }
    // Datagrams up to this number do not count any more.
    void close_up_to(uint64_t number) { window_.close_up_to(number); }

  private:
    Gcm gcm_;
    ReplayWindow window_;
};

} // namespace penstock
