// Datagrams on their way out: neighbours of equal size become one run (GSO), several runs leave by one system call. The rest
// stays here until the next flush, if the system takes no more. Errors are counted, never thrown.
#pragma once

#include "ground/atomics.hpp"
#include "net/io/net_calls.hpp"
#include "net/io/socket.hpp"
#include "net/seal/datagram_seal.hpp"

#include <array>
#include <memory>

namespace penstock {

struct SendCounts {
    uint64_t datagrams = 0, bytes = 0, segmented = 0;
    uint64_t refused = 0, failed = 0; // no room now; an error: dropped
    uint64_t calls = 0;
    uint64_t unreachable = 0; // an earlier datagram went to a port without a socket
    SendCounts &operator+=(const SendCounts &more) {
        datagrams += more.datagrams, bytes += more.bytes, segmented += more.segmented;
        refused += more.refused, failed += more.failed, calls += more.calls, unreachable += more.unreachable;
        return *this;
    }
};

class SendBatch {
  public:
    static constexpr size_t runs_max = 128, own_max = 64 * 1024, sealed_max = 256 * 1024;
    static constexpr uint32_t segments_max = 64, run_bytes_max = 65507;

    // `stable`: memory whose bytes stay as they are until they have left; everything else is copied. `to`: of a socket that is
    // not connected. `seal`: of all datagrams; null: they leave as they are.
    SendBatch(const UdpSocket &socket, NetCalls &calls, const uint8_t *stable = nullptr, uint64_t stable_size = 0,
              const Address *to = nullptr, DatagramSeal *seal = nullptr)
        : socket_(socket), calls_(calls), stable_(stable), stable_size_(stable_size), seal_(seal),
          own_size_(seal == nullptr ? own_max : sealed_max), own_(new uint8_t[own_size_]) {
        if (to == nullptr) return;
        to_length_ = fill(to_, *to, socket.family());
        local_ = to->local;
    }

    bool empty() const { return first_ == count_; }
    bool segments() const { return segments_; } // whether runs are still tried
    const SendCounts &counts() const { return counts_; }

    // Whether a datagram of that length finds room.
    bool has_room(size_t length) const {
        return count_ != runs_max && own_used_ + length + (seal_ == nullptr ? 0 : wire::seal_length) <= own_size_;
    }
    // To where the socket, or this batch, sends. False: no room.
    bool send(const uint8_t *bytes, size_t length) { return add(bytes, static_cast<uint32_t>(length), nullptr); }
    bool send(const Address &to, const uint8_t *bytes, size_t length) { return add(bytes, static_cast<uint32_t>(length), &to); }
    // A datagram that is sealed already. Null: to where the socket, or this batch, sends.
    bool send_sealed(const Address *to, const uint8_t *bytes, size_t length) {
        uint8_t *place = next_sealed(static_cast<uint32_t>(length), to);
        if (place != nullptr) std::memcpy(place, bytes, length);
        return place != nullptr;
    }

    // True if nothing is left here.
    bool flush() {
        while (!empty()) {
            const unsigned built = build();
            const int sent = calls_.send(socket_.fd(), messages_.data(), built);
            ++counts_.calls;
            if (sent > 0) {
                for (int i = 0; i < sent; ++i) on_sent();
                refused_once_ = false;
            } else if (!handle_error(errno)) return false;
        }
        first_ = count_ = 0;
        own_used_ = 0;
        return true;
    }

  private:
    struct FrameBlock {
        const uint8_t *bytes;
        uint32_t length, segment, segments;
        bool has_address;
        sockaddr_storage to;
        socklen_t to_length;
        std::array<uint8_t, 16> local;
    };

    // Room for a sealed datagram. A neighbour of equal size belongs to its run. Null: no room.
    uint8_t *next_sealed(uint32_t length, const Address *to) {
        if (own_used_ + length > own_size_) return nullptr;
        uint8_t *place = own_.get() + own_used_;
        if (to == nullptr && count_ != first_ && segments_ && extend_run(place, length)) {
            own_used_ += length;
            return place;
        }
        if (count_ == runs_max) return nullptr;
        begin_run(place, length, to);
        own_used_ += length;
        return place;
    }
    bool extend_run(const uint8_t *bytes, uint32_t length) {
        FrameBlock &last = runs_[count_ - 1];
        if (last.has_address || last.bytes + last.length != bytes || length > last.segment ||
            last.length != last.segment * last.segments || last.segments >= segments_max || last.length + length > run_bytes_max)
            return false;
        last.length += length;
        ++last.segments;
        return true;
    }
    void begin_run(const uint8_t *bytes, uint32_t length, const Address *to) {
        FrameBlock &run = runs_[count_++];
        run.bytes = bytes;
        run.length = run.segment = length;
        run.segments = 1;
        run.has_address = to != nullptr;
        if (to == nullptr) return;
        run.to_length = fill(run.to, *to, socket_.family());
        run.local = to->local;
    }

    bool add(const uint8_t *bytes, uint32_t length, const Address *to) {
        if (seal_ != nullptr) {
            uint8_t *place = next_sealed(length + static_cast<uint32_t>(wire::seal_length), to);
            if (place != nullptr) seal_->seal(bytes, length, place);
            return place != nullptr;
        }
        const bool stays = bytes >= stable_ && bytes < stable_ + stable_size_;
        if (stays && to == nullptr && count_ != first_ && segments_ && extend_run(bytes, length)) return true;
        if (count_ == runs_max || (!stays && own_used_ + length > own_size_)) return false;
        if (!stays) {
            copy_bytes(own_.get() + own_used_, bytes, length);
            bytes = own_.get() + own_used_;
            own_used_ += (length + 64) & ~size_t{31};
        }
        begin_run(bytes, length, to);
        return true;
    }

    // The next messages for the system, from the first byte that has not left.
    unsigned build() {
        unsigned built = 0;
        size_t run = first_;
        uint32_t at = offset_;
        while (run < count_ && built < messages_.size()) {
            FrameBlock &from = runs_[run];
            const uint32_t left = from.length - at;
            const bool whole = segments_ && left > from.segment;
            const uint32_t length = whole ? left : std::min(left, from.segment);
            pieces_[built] = {const_cast<uint8_t *>(from.bytes + at), length};
            msghdr &header = messages_[built].msg_hdr;
            header = {};
            header.msg_iov = &pieces_[built];
            header.msg_iovlen = 1;
            if (from.has_address) {
                header.msg_name = &from.to;
                header.msg_namelen = from.to_length;
            } else if (to_length_ != 0) {
                header.msg_name = &to_;
                header.msg_namelen = to_length_;
            }
            uint8_t *place = controls_[built].bytes;
            size_t used = 0;
            const std::array<uint8_t, 16> &local = from.has_address ? from.local : local_;
            if ((from.has_address || to_length_ != 0) && local != std::array<uint8_t, 16>{})
                used = write_local(place, local, socket_.family());
            if (whole) used += write_control(place + used, IPPROTO_UDP, UDP_SEGMENT, static_cast<uint16_t>(from.segment));
            if (used != 0) {
                header.msg_control = place;
                header.msg_controllen = used;
            }
            ++built;
            at += length;
            if (at == from.length) {
                ++run;
                at = 0;
            }
        }
        return built;
    }
    bool first_is_run() const { return segments_ && runs_[first_].length - offset_ > runs_[first_].segment; }
    uint32_t first_length() const {
        const uint32_t left = runs_[first_].length - offset_;
        return segments_ ? left : std::min(left, runs_[first_].segment);
    }
    void skip() {
        offset_ += first_length();
        if (offset_ < runs_[first_].length) return;
        ++first_;
        offset_ = 0;
    }
    void on_sent() {
        const uint32_t length = first_length(), datagrams = (length + runs_[first_].segment - 1) / runs_[first_].segment;
        counts_.datagrams += datagrams;
        counts_.bytes += length;
        if (datagrams > 1) counts_.segmented += datagrams;
        skip();
    }
    // An error of the first message. False: the rest waits.
    bool handle_error(int number) {
        if (number == EINTR) return true;
        if (number == EAGAIN || number == ENOBUFS || number == ENOMEM) {
            ++counts_.refused;
            return false;
        }
        if (first_is_run() && (number == EINVAL || number == EMSGSIZE || number == EIO || number == EOPNOTSUPP)) {
            segments_ = false; // this way takes no runs
            return true;
        }
        counts_.unreachable += number == ECONNREFUSED;
        if (number == ECONNREFUSED && !refused_once_) { // the error of an earlier datagram; this one was not tried
            refused_once_ = true;
            return true;
        }
        refused_once_ = false;
        ++counts_.failed;
        skip();
        return true;
    }

    const UdpSocket &socket_;
    NetCalls &calls_;
    const uint8_t *const stable_;
    const uint64_t stable_size_;
    sockaddr_storage to_{};
    socklen_t to_length_ = 0;         // 0: where the socket is connected
    std::array<uint8_t, 16> local_{}; // of `to_`
    DatagramSeal *const seal_;
    const size_t own_size_;
    std::unique_ptr<uint8_t[]> own_;
    size_t own_used_ = 0;
    std::array<FrameBlock, runs_max> runs_;
    size_t first_ = 0, count_ = 0;
    uint32_t offset_ = 0; // in the first run
    bool segments_ = true, refused_once_ = false;
    std::array<mmsghdr, 64> messages_;
    std::array<iovec, 64> pieces_;
    std::array<Ancillary, 64> controls_{};
    SendCounts counts_;
};

} // namespace penstock
