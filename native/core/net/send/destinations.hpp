// The destinations of a publication that sends to several receivers by unicast: to addresses that the program named (manual), or
// to those that asked at its control address (dynamic). All datagrams go to all of them. After Aeron's multi-destination cast.
// Time is an argument. docs/design/network_log.md.
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

    // `seal`: of all datagrams; null: they leave as they are.
    Destinations(const UdpSocket &socket, NetCalls &calls, bool dynamic, const uint8_t *stable, uint64_t stable_size,
                 DatagramSeal *seal)
        : socket_(socket), calls_(calls), dynamic_(dynamic), stable_(stable), stable_size_(stable_size), seal_(seal),
          sealed_(seal == nullptr ? nullptr : new uint8_t[65536]) {}

    // ---- manual ----

    // False: it is there already. Throws if there are too many.
    bool add(const Address &to) {
        if (find(to) != destinations_.end()) return false;
        if (is_v4(to) != (socket_.family() == AF_INET)) throw Error(Code::invalid, text_of(to) + ": IPv4 and IPv6 do not mix");
        if (destinations_.size() == destinations_max)
            throw Error(Code::invalid, "a publication has at most " + std::to_string(destinations_max) + " destinations");
        open(to, 0).verified = true;
        return true;
    }
    // Drops the datagrams that wait for it. False: it is not there.
    bool remove(const Address &to) {
        const auto found = find(to);
        if (found == destinations_.end()) return false;
        close(found);
        return true;
    }

    // ---- dynamic ----

    enum class Handled { pass_on, setup_request, verified }; // setup_request: the receiver knows no session yet
    // Handles a received datagram. An address is verified by the session's id, which only those know that received something
    // there.
    Handled on_datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length, int32_t session, int32_t stream) {
        wire::StatusFrame frame;
        bool tagged;
        if (!dynamic_ || !wire::parse(bytes, length, frame, tagged)) return Handled::pass_on;
        const bool is_setup_request = frame.session == 0 && frame.stream == 0 && (frame.start.flags & wire::flag_send_setup) != 0;
        if (!is_setup_request && (frame.session != session || frame.stream != stream)) return Handled::pass_on;
        auto destination = find(from);
        if (destination == destinations_.end()) {
            if (destinations_.size() == destinations_max) {
                ++refused_;
                return Handled::pass_on;
            }
            open(from, now);
            destination = std::prev(destinations_.end());
        }
        destination->last_status_ns = std::max(destination->last_status_ns, now);
        if (is_setup_request) {
            destination->credit += reply_factor * length;
            return Handled::setup_request;
        }
        return std::exchange(destination->verified, true) ? Handled::pass_on : Handled::verified;
    }
    void forget(int64_t now) {
        if (!dynamic_) return;
        for (auto destination = destinations_.begin(); destination != destinations_.end();) {
            const auto next = std::next(destination);
            if (now - destination->last_status_ns >= silence_ns) close(destination);
            destination = next;
        }
    }

    // ---- as SendBatch has them ----

    // To all of them, or to none: false if one has no room now. An address that is not verified gets SETUP only.
    bool send(const uint8_t *bytes, size_t length) {
        uint16_t type = 0;
        std::memcpy(&type, bytes + offsetof(wire::Start, type), sizeof type);
        const bool setup = type == static_cast<uint16_t>(wire::Type::setup);
        for (Destination &destination : destinations_)
            if (takes(destination, setup, length) && !destination.batch.has_room(length)) return false;
        if (seal_ != nullptr) seal_->seal(bytes, length, sealed_.get()); // once: all of them get the same datagram
        for (Destination &destination : destinations_) {
            if (!takes(destination, setup, length)) continue;
            if (!destination.verified) destination.credit -= length;
            if (seal_ == nullptr) destination.batch.send(bytes, length);
            else destination.batch.send_sealed(nullptr, sealed_.get(), length + wire::seal_length);
        }
        return true;
    }
    bool flush() {
        bool all = true;
        for (Destination &destination : destinations_) all &= destination.batch.flush();
        return all;
    }
    bool empty() const {
        return std::all_of(destinations_.begin(), destinations_.end(),
                           [](const Destination &destination) { return destination.batch.empty(); });
    }
    SendCounts counts() const {
        SendCounts sum = closed_counts_;
        for (const Destination &destination : destinations_) sum += destination.batch.counts();
        return sum;
    }
    size_t size() const { return destinations_.size(); }
    uint64_t refused() const { return refused_; }

  private:
    struct Destination {
        Destination(const UdpSocket &socket, NetCalls &calls, const Address &at, const uint8_t *stable, uint64_t stable_size,
                    DatagramSeal *seal)
            : to(at), batch(socket, calls, stable, stable_size, &at, seal) {}
        const Address to;
        SendBatch batch;
        int64_t last_status_ns = 0;
        uint64_t credit = 0; // bytes of SETUP that it may draw
        bool verified = false;
    };
    static bool takes(const Destination &destination, bool setup, size_t length) {
        return destination.verified || (setup && destination.credit >= length);
    }

    std::list<Destination>::iterator find(const Address &to) {
        return std::find_if(destinations_.begin(), destinations_.end(),
                            [&](const Destination &destination) { return destination.to == to; });
    }
    Destination &open(const Address &to, int64_t now) {
        Destination &made = destinations_.emplace_back(socket_, calls_, to, stable_, stable_size_, seal_);
        made.last_status_ns = now;
        return made;
    }
    void close(std::list<Destination>::iterator destination) {
        closed_counts_ += destination->batch.counts();
        destinations_.erase(destination);
    }

    const UdpSocket &socket_;
    NetCalls &calls_;
    const bool dynamic_;
    const uint8_t *const stable_;
    const uint64_t stable_size_;
    DatagramSeal *const seal_;
    const std::unique_ptr<uint8_t[]> sealed_;
    std::list<Destination> destinations_;
    SendCounts closed_counts_; // of those that are gone
    uint64_t refused_ = 0;
};

} // namespace penstock
