// The destinations of a publication that sends to several receivers by unicast: to addresses that the program named (manual), or
// to those that asked at its control address (dynamic). All datagrams go to all of them. After Aeron's multi-destination cast.
// Time is an argument. docs/design/network_log.md.
#pragma once

#include "net/io/send_batch.hpp"
#include "net/wire/answer_queue.hpp"
#include "net/wire/rtt_frame.hpp"
#include "net/wire/setup_frame.hpp"
#include "net/wire/shares.hpp"
#include "net/wire/status_frame.hpp"

#include <algorithm>
#include <list>

namespace penstock {

class Destinations {
  public:
    static constexpr size_t destinations_max = 64;       // that a program names
    static constexpr size_t dynamic_max = 256;           // that ask
    static constexpr int64_t silence_ns = 5'000'000'000; // a receiver that is silent for this long is forgotten

    // `seal`: of all datagrams; null: they leave as they are.
    Destinations(const UdpSocket &socket, NetCalls &calls, bool dynamic, const uint8_t *stable, uint64_t stable_size,
                 DatagramSeal *seal)
        : socket_(socket), calls_(calls), dynamic_(dynamic), stable_(stable), stable_size_(stable_size), seal_(seal),
          sealed_(seal == nullptr ? nullptr : new uint8_t[65536]), answers_(socket, calls, nullptr, 0, nullptr, seal) {}

    // ---- manual ----

    // False: it is there already. Throws if there are too many.
    bool add(const Address &to) {
        if (find(to) != destinations_.end()) return false;
        if (is_v4(to) != (socket_.family() == AF_INET)) throw Error(Code::invalid, text_of(to) + ": IPv4 and IPv6 do not mix");
        if (destinations_.size() == destinations_max)
            throw Error(Code::invalid, "a publication has at most " + std::to_string(destinations_max) + " destinations");
        open(to, 0);
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

    // setup_request: the receiver knows no session yet. refused: there are too many.
    enum class Handled { pass_on, setup_request, verified, refused };
    // Handles a received datagram. An address is verified by the session's id, which only those know that received something
    // there. Until then it has no place here, and draws no more bytes of SETUP than it sends.
    Handled on_datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length, int32_t session, int32_t stream) {
        wire::StatusFrame status;
        wire::RttFrame rtt;
        bool tagged;
        if (!dynamic_) return Handled::pass_on;
        const bool is_status = wire::parse(bytes, length, status, tagged);
        const bool is_rtt = !is_status && wire::parse(bytes, length, rtt);
        if (!is_status && !is_rtt) return Handled::pass_on;
        const bool is_mine =
            is_status ? status.session == session && status.stream == stream : rtt.session == session && rtt.stream == stream;
        const bool is_setup_request =
            is_status && status.session == 0 && status.stream == 0 && (status.start.flags & wire::flag_send_setup) != 0;
        if (!is_mine && !is_setup_request) return Handled::pass_on;
        auto destination = find(from);
        const bool known = destination != destinations_.end();
        if (!known && is_setup_request) {
            add_asker(now, from, length);
            return Handled::setup_request;
        }
        if (!known && destinations_.size() == dynamic_max && !give_way(now, from)) {
            ++refused_;
            refused_from_ = from;
            return Handled::refused;
        }
        if (!known) {
            open(from, now);
            destination = std::prev(destinations_.end());
            std::erase_if(askers_.items(), [&](const Asker &one) { return one.from == from; });
        }
        destination->last_status_ns = std::max(destination->last_status_ns, now);
        if (is_setup_request) return Handled::setup_request;
        if (is_status) destination->on_position(now, status.term_id, status.term_offset);
        return known ? Handled::pass_on : Handled::verified;
    }
    void forget(int64_t now) {
        if (!dynamic_) return;
        std::erase_if(askers_.items(), [&](const Asker &one) { return now - one.asked_ns >= silence_ns; });
        for (auto destination = destinations_.begin(); destination != destinations_.end();) {
            const auto next = std::next(destination);
            if (now - destination->last_status_ns >= silence_ns) close(destination);
            destination = next;
        }
    }

    // ---- as SendBatch has them ----

    // To all of them, or to none: false if one has no room now. Receivers that know no session yet get SETUP only.
    bool send(const uint8_t *bytes, size_t length) {
        uint16_t type = 0;
        std::memcpy(&type, bytes + offsetof(wire::Start, type), sizeof type);
        const bool setup = type == static_cast<uint16_t>(wire::Type::setup);
        for (Destination &destination : destinations_)
            if (!destination.batch.has_room(length)) return false;
        if (seal_ != nullptr) seal_->seal(bytes, length, sealed_.get()); // once: all of them get the same datagram
        for (Destination &destination : destinations_) {
            if (seal_ == nullptr) destination.batch.send(bytes, length);
            else destination.batch.send_sealed(nullptr, sealed_.get(), length + wire::seal_length);
        }
        if (setup) answer_askers(bytes, length);
        return true;
    }
    bool flush() {
        bool all = answers_.flush();
        for (Destination &destination : destinations_) all &= destination.batch.flush();
        return all;
    }
    bool empty() const {
        return answers_.empty() && std::all_of(destinations_.begin(), destinations_.end(),
                                               [](const Destination &destination) { return destination.batch.empty(); });
    }
    SendCounts counts() const {
        SendCounts sum = closed_counts_;
        sum += answers_.counts();
        for (const Destination &destination : destinations_) sum += destination.batch.counts();
        return sum;
    }
    size_t size() const { return destinations_.size(); }
    uint64_t refused() const { return refused_; }                 // for want of a place
    uint64_t displaced() const { return displaced_; }             // destinations that gave way to another host's
    const Address &refused_from() const { return refused_from_; } // the last one

  private:
    struct Destination {
        Destination(const UdpSocket &socket, NetCalls &calls, const Address &at, const uint8_t *stable, uint64_t stable_size,
                    DatagramSeal *seal)
            : to(at), batch(socket, calls, stable, stable_size, &at, seal) {}
        const Address to;
        SendBatch batch;
        int64_t last_status_ns = 0;
        int64_t active_ns = 0; // when it came, or its position moved last
        int32_t term_id = 0, term_offset = 0;
        void on_position(int64_t now, int32_t id, int32_t offset) {
            const auto terms = static_cast<int32_t>(static_cast<uint32_t>(id) - static_cast<uint32_t>(term_id));
            if (terms > 0 || (terms == 0 && offset > term_offset)) active_ns = now;
            term_id = id;
            term_offset = offset;
        }
    };
    struct Asker { // it knows no session yet
        Address from;
        uint64_t credit; // bytes that it has sent, and not drawn
        int64_t asked_ns;
    };
    void add_asker(int64_t now, const Address &from, uint64_t bytes) {
        for (Asker &one : askers_.items()) {
            if (!(one.from == from)) continue;
            one.credit += bytes;
            one.asked_ns = now;
            return;
        }
        if (askers_.add({from, bytes, now})) return;
        ++refused_;
        refused_from_ = from;
    }
    void answer_askers(const uint8_t *bytes, size_t length) {
        std::erase_if(askers_.items(), [&](const Asker &one) {
            if (one.credit < length) return false;
            if (!answers_.has_room(length)) answers_.flush();
            if (seal_ == nullptr) answers_.send(one.from, bytes, length);
            else answers_.send_sealed(&one.from, sealed_.get(), length + wire::seal_length);
            return true; // without room its answer is lost: it asks again
        });
    }
    bool give_way(int64_t now, const Address &from) {
        std::vector<Shareholder> holders;
        for (const Destination &one : destinations_) holders.push_back({one.to, 1, true, one.active_ns});
        const auto found = Shares::choose_one(now, holders, {from, 1, true, now}, dynamic_max);
        if (!found) return false;
        close(std::next(destinations_.begin(), static_cast<ptrdiff_t>(*found)));
        ++displaced_;
        return true;
    }

    std::list<Destination>::iterator find(const Address &to) {
        return std::find_if(destinations_.begin(), destinations_.end(),
                            [&](const Destination &destination) { return destination.to == to; });
    }
    Destination &open(const Address &to, int64_t now) {
        Destination &made = destinations_.emplace_back(socket_, calls_, to, stable_, stable_size_, seal_);
        made.last_status_ns = made.active_ns = now;
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
    SendBatch answers_; // to askers
    std::list<Destination> destinations_;
    AnswerQueue<Asker> askers_;
    Address refused_from_;
    SendCounts closed_counts_; // of those that are gone
    uint64_t refused_ = 0, displaced_ = 0;
};

} // namespace penstock
