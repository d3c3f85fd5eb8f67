// Which datagrams a path lets through. Probes of several lengths go out in a few rounds, some time apart; receivers echo the
// length of each that arrives. A sender probes while the same bytes are asked for again and again. It knows no socket and no
// receiver.
#pragma once

#include "net/wire/extension_frame.hpp"
#include "net/wire/wire.hpp"

#include <array>
#include <cstdint>
#include <string>

namespace penstock {

class PathProbe {
  public:
    static constexpr uint32_t rounds_max = 5;
    static constexpr int64_t round_ns = 50'000'000;
    static constexpr int64_t answer_ns = 250'000'000;  // for the echoes of the last round, and two round trips
    static constexpr int64_t again_ns = 5'000'000'000; // between two probes
    // Beside the MTU itself. Each is an MTU: a multiple of 32.
    static constexpr std::array<uint32_t, 17> lengths = {32768, 16384, 8960, 8192, 4096, 2048, 1472, 1408, 1376,
                                                         1344,  1280,  1216, 1184, 1152, 1024, 512,  256};

    explicit PathProbe(uint32_t mtu) : mtu_(mtu) {}

    bool running() const { return round_ != 0; }
    // True if it begins now: not while it runs, nor right afterwards.
    bool begin(int64_t now) {
        if (running() || now < again_at_) return false;
        round_ = 1;
        next_ = 0;
        at_ = now;
        return true;
    }
    // Sends what is due: `send(length)`, false if there is no room. True once, when the echoes must have come.
    template <class Send> bool tick(int64_t now, int64_t round_trip_ns, Send &&send) {
        if (!running() || now < at_) return false;
        if (round_ > rounds_max) {
            round_ = 0;
            again_at_ = now + again_ns;
            return true;
        }
        for (; next_ <= lengths.size(); ++next_) {
            const uint32_t length = next_ == lengths.size() ? mtu_ : lengths[next_];
            if (length >= mtu_ && next_ != lengths.size()) continue;
            if (!send(length)) return false;
        }
        next_ = 0;
        at_ = now + (round_ == rounds_max ? answer_ns + 2 * round_trip_ns : round_ns);
        ++round_;
        return false;
    }
    int64_t next() const { return running() ? at_ : INT64_MAX; }

  private:
    const uint32_t mtu_;
    uint32_t round_ = 0; // 0: it does not run
    size_t next_ = 0;    // of the lengths
    int64_t at_ = 0, again_at_ = INT64_MIN;
};

} // namespace penstock
