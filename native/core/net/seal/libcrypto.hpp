// OpenSSL's libcrypto, which is loaded when a key is given: AES-256-GCM, HMAC-SHA-256, and HKDF (RFC 5869) over it. No header of
// OpenSSL is needed; the functions are those that versions 1.1 and 3 share.
#pragma once

#include "ground/error.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <string>

namespace penstock {

using Secret = std::array<uint8_t, 32>;

class Libcrypto {
  public:
    // Throws `unsupported` if the library is not there.
    static const Libcrypto &instance() {
        static const Libcrypto *loaded = new Libcrypto;
        return *loaded;
    }

    void *(*context_new)() = nullptr;
    void (*context_free)(void *) = nullptr;
    const void *(*aes_256_gcm)() = nullptr;
    int (*cipher_init)(void *context, const void *cipher, void *engine, const uint8_t *key, const uint8_t *iv,
                       int seals) = nullptr;
    int (*cipher_update)(void *context, uint8_t *out, int *out_length, const uint8_t *in, int length) = nullptr;
    int (*cipher_final)(void *context, uint8_t *out, int *out_length) = nullptr;
    int (*context_control)(void *context, int what, int number, void *bytes) = nullptr;
    const void *(*sha256)() = nullptr;
    uint8_t *(*hmac)(const void *digest, const void *key, int key_length, const uint8_t *bytes, size_t length, uint8_t *out,
                     unsigned *out_length) = nullptr;

  private:
    Libcrypto() {
        void *library = nullptr;
        for (const char *name : {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so"})
            if (library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) break;
        if (library == nullptr) fail("libcrypto.so.3 is not found");
        load(library, "EVP_CIPHER_CTX_new", context_new);
        load(library, "EVP_CIPHER_CTX_free", context_free);
        load(library, "EVP_aes_256_gcm", aes_256_gcm);
        load(library, "EVP_CipherInit_ex", cipher_init);
        load(library, "EVP_CipherUpdate", cipher_update);
        load(library, "EVP_CipherFinal_ex", cipher_final);
        load(library, "EVP_CIPHER_CTX_ctrl", context_control);
        load(library, "EVP_sha256", sha256);
        load(library, "HMAC", hmac);
    }
    template <class Function> static void load(void *library, const char *name, Function &to) {
        to = reinterpret_cast<Function>(dlsym(library, name));
        if (to == nullptr) fail(std::string("it has no function ") + name);
    }
    [[noreturn]] static void fail(const std::string &why) {
        throw Error(Code::unsupported, "a key needs OpenSSL's libcrypto, version 1.1 or 3, and " + why +
                                           ": install it, as by `apt install libssl3` or `dnf install openssl-libs`");
    }
};

// Key derivation: HKDF with SHA-256, 32 bytes.
inline Secret derive(const Secret &key, const uint8_t *salt, size_t salt_length, const char *purpose) {
    const Libcrypto &lib = Libcrypto::instance();
    const auto hmac = [&](const uint8_t *by, size_t by_length, const uint8_t *bytes, size_t length) {
        Secret made;
        unsigned made_length = made.size();
        if (lib.hmac(lib.sha256(), by, static_cast<int>(by_length), bytes, length, made.data(), &made_length) == nullptr)
            throw Error(Code::system, "libcrypto cannot derive a key");
        return made;
    };
    const Secret extracted = hmac(salt, salt_length, key.data(), key.size());
    std::string info(purpose);
    info.push_back('\x01');
    return hmac(extracted.data(), extracted.size(), reinterpret_cast<const uint8_t *>(info.data()), info.size());
}

// AES-256-GCM with one key, in one direction.
class Gcm {
  public:
    static constexpr size_t iv_length = 12, tag_length = 16;
    enum class Way { open = 0, seal = 1 };

    Gcm(const Secret &key, Way way) : lib_(Libcrypto::instance()), context_(lib_.context_new(), lib_.context_free) {
        if (!context_ || lib_.cipher_init(context_.get(), lib_.aes_256_gcm(), nullptr, key.data(), nullptr, int(way)) != 1)
            throw Error(Code::system, "libcrypto cannot begin AES-256-GCM");
    }

    // `out`: as long as `in`, and behind it the tag.
    void seal(const uint8_t *iv, const uint8_t *header, size_t header_length, const uint8_t *in, size_t length, uint8_t *out) {
        if (!run(iv, header, header_length, in, length, out) || !finish(out + length) ||
            lib_.context_control(context_.get(), get_tag, tag_length, out + length) != 1)
            throw Error(Code::system, "libcrypto cannot seal a datagram");
    }
    // False, and nothing of `out` may be used: the tag behind `in` is another.
    bool open(const uint8_t *iv, const uint8_t *header, size_t header_length, const uint8_t *in, size_t length, uint8_t *out) {
        return run(iv, header, header_length, in, length, out) &&
               lib_.context_control(context_.get(), set_tag, tag_length, const_cast<uint8_t *>(in + length)) == 1 &&
               finish(out + length);
    }

  private:
    static constexpr int get_tag = 0x10, set_tag = 0x11;

    bool run(const uint8_t *iv, const uint8_t *header, size_t header_length, const uint8_t *in, size_t length, uint8_t *out) {
        int done = 0;
        return lib_.cipher_init(context_.get(), nullptr, nullptr, nullptr, iv, -1) == 1 &&
               lib_.cipher_update(context_.get(), nullptr, &done, header, static_cast<int>(header_length)) == 1 &&
               lib_.cipher_update(context_.get(), out, &done, in, static_cast<int>(length)) == 1;
    }
    bool finish(uint8_t *out) {
        int done = 0;
        return lib_.cipher_final(context_.get(), out, &done) == 1;
    }

    const Libcrypto &lib_;
    std::unique_ptr<void, void (*)(void *)> context_;
};

} // namespace penstock
