// The ways of a publication that sends to several receivers by unicast: to addresses that the program named (manual), or to those
// that asked at its control address (dynamic). All datagrams go to all of them. After Aeron's multi-destination cast. Time is an
// argument. docs/design/network_log.md.
#pragma once

#include "net/io/send_batch.hpp"
#include "net/wire/setup_frame.hpp"
#include "net/wire/status_frame.hpp"

#include <algorithm>
#include <list>

namespace penstock {

class Destinations {
  public:
    static constexpr size_t destinations_max = 64;
    static constexpr int64_t silence_ns = 5'000'000'000; // a receiver that is silent for this long is forgotten
    static constexpr uint64_t reply_factor = 3;          // bytes sent for each byte received, until the address is verified

    Destinations(const UdpSocket &socket, NetCalls &calls, bool dynamic, const uint8_t *stable, uint64_t stable_size)
        : socket_(socket), calls_(calls), dynamic_(dynamic), stable_(stable), stable_size_(stable_size) {}

    // ---- manual ----

    // False: it is there already. Throws if there are too many.
    bool add(const Address &to) {
        if (find(to) != ways_.end()) return false;
        if (is_v4(to) != (socket_.family() == AF_INET)) throw Error(Code::invalid, text_of(to) + ": IPv4 and IPv6 do not mix");
        if (ways_.size() == destinations_max)
            throw Error(Code::invalid, "a publication has at most " + std::to_string(destinations_max) + " destinations");
        open(to, 0).proved = true;
        return true;
    }
    // Drops the datagrams that wait for it. False: it is not there.
    bool remove(const Address &to) {
        const auto found = find(to);
        if (found == ways_.end()) return false;
        close(found);
        return true;
    }

    // ---- dynamic ----

    enum class Heard { passed_on, asks, proves }; // asks: for a SETUP, before it knows a session
    // A datagram that came. An address is proved by the session's id, which only those know that received something there.
    Heard heard(int64_t now, const Address &from, const uint8_t *bytes, size_t length, int32_t session, int32_t stream) {
        wire::StatusFrame frame;
        bool tagged;
        if (!dynamic_ || !wire::parse(bytes, length, frame, tagged)) return Heard::passed_on;
        const bool asks = frame.session == 0 && frame.stream == 0 && (frame.start.flags & wire::flag_send_setup) != 0;
        if (!asks && (frame.session != session || frame.stream != stream)) return Heard::passed_on;
        auto way = find(from);
        if (way == ways_.end()) {
            if (ways_.size() == destinations_max) {
                ++refused_;
                return Heard::passed_on;
            }
            open(from, now);
            way = std::prev(ways_.end());
        }
        way->heard_ns = std::max(way->heard_ns, now);
        if (asks) {
            way->credit += reply_factor * length;
            return Heard::asks;
        }
        return std::exchange(way->proved, true) ? Heard::passed_on : Heard::proves;
    }
    void forget(int64_t now) {
        if (!dynamic_) return;
        for (auto way = ways_.begin(); way != ways_.end();) {
            const auto next = std::next(way);
            if (now - way->heard_ns >= silence_ns) close(way);
            way = next;
        }
    }

    // ---- as SendBatch has them ----

    // To all of them, or to none: false if one has no room now. Of an address that is not proved only SETUP is sent to it.
    bool send(const uint8_t *bytes, size_t length) {
        uint16_t type = 0;
        std::memcpy(&type, bytes + offsetof(wire::Start, type), sizeof type);
        const bool setup = type == static_cast<uint16_t>(wire::Type::setup);
        for (Way &way : ways_)
            if (takes(way, setup, length) && !way.batch.has_room(length)) return false;
        for (Way &way : ways_) {
            if (!takes(way, setup, length)) continue;
            if (!way.proved) way.credit -= length;
            way.batch.send(bytes, length);
        }
        return true;
    }
    bool flush() {
        bool all = true;
        for (Way &way : ways_) all &= way.batch.flush();
        return all;
    }
    bool empty() const {
        return std::all_of(ways_.begin(), ways_.end(), [](const Way &way) { return way.batch.empty(); });
    }
    SendCounts counts() const {
        SendCounts sum = past_;
        for (const Way &way : ways_) sum += way.batch.counts();
        return sum;
    }
    size_t size() const { return ways_.size(); }
    uint64_t refused() const { return refused_; }

  private:
    struct Way {
        Way(const UdpSocket &socket, NetCalls &calls, const Address &at, const uint8_t *stable, uint64_t stable_size)
            : to(at), batch(socket, calls, stable, stable_size, &at) {}
        const Address to;
        SendBatch batch;
        int64_t heard_ns = 0;
        uint64_t credit = 0; // bytes of SETUP that it may draw
        bool proved = false;
    };
    static bool takes(const Way &way, bool setup, size_t length) { return way.proved || (setup && way.credit >= length); }

    std::list<Way>::iterator find(const Address &to) {
        return std::find_if(ways_.begin(), ways_.end(), [&](const Way &way) { return way.to == to; });
    }
    Way &open(const Address &to, int64_t now) {
        Way &made = ways_.emplace_back(socket_, calls_, to, stable_, stable_size_);
        made.heard_ns = now;
        return made;
    }
    void close(std::list<Way>::iterator way) {
        past_ += way->batch.counts();
        ways_.erase(way);
    }

    const UdpSocket &socket_;
    NetCalls &calls_;
    const bool dynamic_;
    const uint8_t *const stable_;
    const uint64_t stable_size_;
    std::list<Way> ways_;
    SendCounts past_; // of those that are gone
    uint64_t refused_ = 0;
};

} // namespace penstock
