// Receives datagrams: many with one system call, and splits coalesced runs (GRO). Errors are counted, never thrown.
#pragma once

#include "net/io/net_calls.hpp"
#include "net/io/socket.hpp"

#include <array>
#include <memory>
#include <utility>

namespace penstock {

struct ReceiveCounts {
    uint64_t datagrams = 0, bytes = 0, coalesced = 0, truncated = 0, failed = 0, calls = 0;
    uint64_t unreachable = 0; // an earlier datagram went to a port without a socket
};

class ReceiveBatch {
  public:
    static constexpr size_t buffers = 16, buffer_bytes = 64 * 1024;

    ReceiveBatch(const UdpSocket &socket, NetCalls &calls) : socket_(socket), calls_(calls), bytes_(new Buffer[buffers]) {
        for (unsigned i = 0; i < buffers; ++i) {
            pieces_[i] = {bytes_[i].bytes, buffer_bytes};
            msghdr &header = messages_[i].msg_hdr;
            header.msg_name = &from_[i];
            header.msg_iov = &pieces_[i];
            header.msg_iovlen = 1;
            header.msg_control = controls_[i].bytes;
        }
    }
    ReceiveBatch(const ReceiveBatch &) = delete;
    ReceiveBatch &operator=(const ReceiveBatch &) = delete;

    const ReceiveCounts &counts() const { return counts_; }

    // `each(from, bytes, length)` for the datagrams that are there, up to about `most` bytes; false if there is none. Where
    // datagrams arrive one by one, a call reads one and does not check for others, which costs less, unless `all` are wanted.
    template <class Each> bool receive(uint64_t most, Each &&each, bool all = false) {
        bool any = false;
        for (uint64_t got = 0; got < most;) {
            const unsigned requested = runs_ ? buffers / 4 : !all && arrives_singly_ && empty_ ? 1 : buffers;
            prepare(std::exchange(written_, 0));
            const int received = calls_.receive(socket_.fd(), messages_.data(), requested);
            ++counts_.calls;
            if (received <= 0) {
                if (received < 0 && errno == EINTR) continue;
                if (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
                    counts_.unreachable += errno == ECONNREFUSED;
                    ++counts_.failed; // ECONNREFUSED of an earlier datagram, ENETDOWN: the next call continues
                    if (++failed_in_row_ < 8) continue;
                }
                failed_in_row_ = 0;
                empty_ = true;
                return any;
            }
            failed_in_row_ = 0;
            any = true;
            empty_ = runs_ = false;
            written_ = static_cast<unsigned>(received);
            for (int i = 0; i < received; ++i) got += split_run(static_cast<unsigned>(i), each);
            arrives_singly_ = received == 1 && !runs_;
            if (static_cast<unsigned>(received) < requested || requested == 1) return true; // the socket is empty, most likely
        }
        return any;
    }

  private:
    // The first ones, into which the system has written.
    void prepare(unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            msghdr &header = messages_[i].msg_hdr;
            header.msg_namelen = sizeof from_[i];
            header.msg_controllen = sizeof controls_[i].bytes;
            header.msg_flags = 0;
        }
    }
    template <class Each> uint64_t split_run(unsigned i, Each &&each) {
        msghdr &header = messages_[i].msg_hdr;
        const size_t length = messages_[i].msg_len;
        if ((header.msg_flags & MSG_TRUNC) != 0) {
            ++counts_.truncated;
            return length;
        }
        size_t segment = length;
        Address from = address_of(from_[i]);
        for (cmsghdr *control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
            read_local(*control, from);
            if (control->cmsg_level != IPPROTO_UDP || control->cmsg_type != UDP_GRO) continue;
            int segment_size;
            std::memcpy(&segment_size, CMSG_DATA(control), sizeof segment_size);
            if (segment_size > 0) segment = static_cast<size_t>(segment_size);
        }
        const uint8_t *bytes = bytes_[i].bytes;
        size_t at = 0;
        do {
            const size_t one = std::min(segment, length - at);
            ++counts_.datagrams;
            counts_.coalesced += segment < length;
            each(from, bytes + at, one);
            at += one;
        } while (at < length);
        counts_.bytes += length;
        runs_ |= segment < length;
        return std::max<uint64_t>(length, 1);
    }

    struct alignas(4096) Buffer { // the system copies into it, and copy_bytes says what may be slow
        uint8_t bytes[buffer_bytes];
    };
    const UdpSocket &socket_;
    NetCalls &calls_;
    const std::unique_ptr<Buffer[]> bytes_;
    std::array<mmsghdr, buffers> messages_{};
    std::array<iovec, buffers> pieces_{};
    std::array<Ancillary, buffers> controls_{};
    std::array<sockaddr_storage, buffers> from_{};
    unsigned written_ = buffers;
    bool runs_ = false, arrives_singly_ = false,
         empty_ = false; // the last datagrams arrived in runs; arrived one by one; the socket was empty
    int failed_in_row_ = 0;
    ReceiveCounts counts_;
};

} // namespace penstock
