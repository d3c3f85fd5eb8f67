// Plain sockets for benchmarks of the network log: a burst is sent, then received, by one thread, and both ends go on through
// memory that no cache holds. The bytes are laid out as in the network log.
#pragma once

#include "check.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace penstock::bare {

inline constexpr size_t mtu = 1408, log_size = size_t{48} << 20; // a log that no cache holds
inline constexpr size_t buffer_size = 65536, run_max = 65507;

inline int64_t clock_of(clockid_t id) {
    timespec now{};
    clock_gettime(id, &now);
    return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}
inline int64_t cpu_ns() { return clock_of(CLOCK_PROCESS_CPUTIME_ID); }
inline int64_t wall_ns() { return clock_of(CLOCK_MONOTONIC); }

inline sockaddr_in loopback(uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = port;
    return at;
}
inline int make_socket() {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int room = 4 << 20;
    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    sockaddr_in at = loopback(0);
    CHECK(bind(fd, reinterpret_cast<sockaddr *>(&at), sizeof at) == 0);
    return fd;
}
inline uint16_t port_of(int fd) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    CHECK(getsockname(fd, reinterpret_cast<sockaddr *>(&at), &size) == 0);
    return at.sin_port;
}
inline void connect_to(int fd, int other) {
    const sockaddr_in at = loopback(port_of(other));
    CHECK(connect(fd, reinterpret_cast<const sockaddr *>(&at), sizeof at) == 0);
}

// ---- one way: a burst is sent, then received, by one thread; both ends go on through cold memory ----

struct Shape {
    const char *name;
    std::vector<size_t> datagrams; // one burst
    double messages;               // in it
};

// A frame has a header of 32 bytes and ends at a multiple of 32.
inline size_t frame(size_t payload) { return (payload + 32 + 31) / 32 * 32; }

inline std::vector<Shape> shapes() {
    std::vector<Shape> made;
    made.push_back({"64 B", std::vector<size_t>(46, 14 * frame(64)), 46 * 14});
    made.push_back({"1 KiB", std::vector<size_t>(60, frame(1024)), 60});
    std::vector<size_t> large(46, mtu); // 65,536 bytes: 47 whole datagrams and the rest
    large.insert(large.end(), {mtu, frame(65536 - 47 * (mtu - 32))});
    made.push_back({"64 KiB", large, 1});
    std::mt19937_64 random(1); // 16 to 1,024 bytes, as many frames in a datagram as fit
    Shape mixed{"mixed", {}, 0};
    size_t used = 0;
    while (mixed.datagrams.size() < 46) {
        const size_t need = frame(16 + random() % 1009);
        if (used + need > mtu) {
            mixed.datagrams.push_back(used);
            used = 0;
        }
        used += need;
        ++mixed.messages;
    }
    --mixed.messages; // the frame that did not fit
    made.push_back(mixed);
    return made;
}

class OneWay {
  public:
    explicit OneWay(bool gro) : from_(make_socket()), to_(make_socket()), source_(log_size, 7), place_(log_size), buffers_(16) {
        connect_to(from_, to_);
        connect_to(to_, from_);
        const int on = 1;
        if (gro) CHECK(setsockopt(to_, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0);
        for (auto &buffer : buffers_) buffer.resize(buffer_size);
    }
    ~OneWay() {
        close(from_);
        close(to_);
    }
    OneWay(const OneWay &) = delete;
    OneWay &operator=(const OneWay &) = delete;

    // Equal datagrams go out in one call each run.
    void send_runs(const std::vector<size_t> &burst) {
        for (size_t i = 0; i < burst.size();) {
            size_t count = 1, bytes = burst[i];
            while (i + count < burst.size() && count < 64 && burst[i + count - 1] == burst[i] && burst[i + count] <= burst[i] &&
                   bytes + burst[i + count] <= run_max)
                bytes += burst[i + count++];
            iovec piece{next(bytes), bytes};
            alignas(cmsghdr) char space[CMSG_SPACE(sizeof(uint16_t))] = {};
            msghdr message{};
            message.msg_iov = &piece;
            message.msg_iovlen = 1;
            message.msg_control = space;
            message.msg_controllen = sizeof space;
            cmsghdr *control = CMSG_FIRSTHDR(&message);
            control->cmsg_level = IPPROTO_UDP;
            control->cmsg_type = UDP_SEGMENT;
            control->cmsg_len = CMSG_LEN(sizeof(uint16_t));
            const auto each = static_cast<uint16_t>(burst[i]);
            std::memcpy(CMSG_DATA(control), &each, sizeof each);
            CHECK(sendmsg(from_, &message, 0) == static_cast<ssize_t>(bytes), "sendmsg: %s", strerror(errno));
            i += count;
        }
    }
    void send_many(const std::vector<size_t> &burst) {
        mmsghdr messages[64] = {};
        iovec pieces[64];
        for (size_t i = 0; i < burst.size(); ++i) {
            pieces[i] = {next(burst[i]), burst[i]};
            messages[i].msg_hdr.msg_iov = &pieces[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        for (size_t i = 0; i < burst.size(); i += 16) {
            const auto count = static_cast<unsigned>(std::min<size_t>(16, burst.size() - i));
            CHECK(sendmmsg(from_, messages + i, count, 0) == static_cast<int>(count), "sendmmsg: %s", strerror(errno));
        }
    }
    // Until all bytes of a burst are there and copied to their place.
    void receive(size_t bytes) {
        while (bytes != 0) {
            mmsghdr messages[16] = {};
            iovec pieces[16];
            alignas(cmsghdr) char space[16][64];
            for (size_t i = 0; i < 16; ++i) {
                pieces[i] = {buffers_[i].data(), buffer_size};
                messages[i].msg_hdr.msg_iov = &pieces[i];
                messages[i].msg_hdr.msg_iovlen = 1;
                messages[i].msg_hdr.msg_control = space[i];
                messages[i].msg_hdr.msg_controllen = sizeof space[i];
            }
            const int got = recvmmsg(to_, messages, 16, MSG_DONTWAIT, nullptr);
            CHECK(got > 0, "a datagram was lost: %s", strerror(errno));
            for (int i = 0; i < got; ++i) {
                const size_t length = messages[i].msg_len;
                if (placed_ + length > log_size) placed_ = 0;
                std::memcpy(place_.data() + placed_, buffers_[static_cast<size_t>(i)].data(), length);
                placed_ += length;
                bytes -= length;
            }
        }
    }

  private:
    uint8_t *next(size_t bytes) {
        if (sent_ + bytes > log_size) sent_ = 0;
        sent_ += bytes;
        return source_.data() + sent_ - bytes;
    }
    const int from_, to_;
    std::vector<uint8_t> source_, place_;
    std::vector<std::vector<uint8_t>> buffers_;
    size_t sent_ = 0, placed_ = 0;
};

} // namespace penstock::bare
