// A UDP socket: addresses, buffers, multicast, runs of datagrams in one call (GSO, GRO). It knows no frames.
#pragma once

#include "net/io/descriptor.hpp"
#include "net/io/net_calls.hpp"
#include "net/io/port_owner.hpp"
#include "net/wire/address.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace penstock {

// ---- addresses ----

inline bool is_v4(const Address &address) {
    static constexpr uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(address.host.data(), mapped, sizeof mapped) == 0;
}
inline bool is_multicast(const Address &address) {
    return is_v4(address) ? (address.host[12] & 0xf0) == 0xe0 : address.host[0] == 0xff;
}
inline bool is_loopback(const Address &address) {
    Address six;
    six.host[15] = 1;
    return is_v4(address) ? address.host[12] == 127 : address.host == six.host;
}
inline bool is_unset(const Address &address) {
    return std::all_of(address.host.begin(), address.host.end(), [](uint8_t byte) { return byte == 0; });
}
// Of no one address: a socket bound there hears all of the machine's.
inline bool is_any(const Address &address) {
    return std::all_of(address.host.begin() + (is_v4(address) ? 12 : 0), address.host.end(),
                       [](uint8_t byte) { return byte == 0; });
}
inline Address address_of(const sockaddr_storage &from) {
    Address made;
    if (from.ss_family == AF_INET) {
        const auto &v4 = reinterpret_cast<const sockaddr_in &>(from);
        made.host[10] = made.host[11] = 0xff;
        std::memcpy(made.host.data() + 12, &v4.sin_addr, 4);
        made.port = ntohs(v4.sin_port);
    } else {
        const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(from);
        std::memcpy(made.host.data(), &v6.sin6_addr, 16);
        made.port = ntohs(v6.sin6_port);
        if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) || IN6_IS_ADDR_MC_LINKLOCAL(&v6.sin6_addr)) made.scope = v6.sin6_scope_id;
    }
    return made;
}
// What the kernel tells of a datagram's way, and takes for another one.
struct alignas(cmsghdr) Ancillary {
    uint8_t bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in6_pktinfo))];
};
inline void read_local(const cmsghdr &control, Address &to) {
    if (control.cmsg_level == IPPROTO_IP && control.cmsg_type == IP_PKTINFO) {
        in_pktinfo about;
        std::memcpy(&about, CMSG_DATA(&control), sizeof about);
        to.local[10] = to.local[11] = 0xff;
        std::memcpy(to.local.data() + 12, &about.ipi_spec_dst, 4);
    } else if (control.cmsg_level == IPPROTO_IPV6 && control.cmsg_type == IPV6_PKTINFO) {
        in6_pktinfo about;
        std::memcpy(&about, CMSG_DATA(&control), sizeof about);
        std::memcpy(to.local.data(), &about.ipi6_addr, 16);
    }
}
// Writes one message to the kernel beside a datagram; the bytes that it takes.
template <class About> size_t write_control(uint8_t *place, int level, int type, const About &about) {
    auto *control = reinterpret_cast<cmsghdr *>(place);
    control->cmsg_level = level;
    control->cmsg_type = type;
    control->cmsg_len = CMSG_LEN(sizeof about);
    std::memcpy(CMSG_DATA(control), &about, sizeof about);
    return CMSG_SPACE(sizeof about);
}
// The local address that a datagram leaves from.
inline size_t write_local(uint8_t *place, const std::array<uint8_t, 16> &local, int family) {
    if (family == AF_INET) {
        in_pktinfo about{};
        std::memcpy(&about.ipi_spec_dst, local.data() + 12, 4);
        return write_control(place, IPPROTO_IP, IP_PKTINFO, about);
    }
    in6_pktinfo about{};
    std::memcpy(&about.ipi6_addr, local.data(), 16);
    return write_control(place, IPPROTO_IPV6, IPV6_PKTINFO, about);
}
inline std::vector<Address> NetCalls::resolve(const std::string &host, uint16_t port) {
    addrinfo hints{}, *first = nullptr;
    hints.ai_socktype = SOCK_DGRAM;
    std::vector<Address> all;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0) return all;
    for (const addrinfo *one = first; one != nullptr; one = one->ai_next) {
        sockaddr_storage at{};
        std::memcpy(&at, one->ai_addr, std::min<size_t>(one->ai_addrlen, sizeof at));
        all.push_back(address_of(at));
        all.back().port = port;
    }
    freeaddrinfo(first);
    return all;
}
// For a socket of that family.
inline socklen_t fill(sockaddr_storage &to, const Address &address, int family) {
    std::memset(&to, 0, sizeof to);
    if (family == AF_INET) {
        auto &v4 = reinterpret_cast<sockaddr_in &>(to);
        v4.sin_family = AF_INET;
        v4.sin_port = htons(address.port);
        std::memcpy(&v4.sin_addr, address.host.data() + 12, 4);
        return sizeof v4;
    }
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(to);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    v6.sin6_scope_id = address.scope;
    std::memcpy(&v6.sin6_addr, address.host.data(), 16);
    return sizeof v6;
}
// Numeric, as 10.0.0.7 or fe80::1; callers resolve names.
inline Address parse_address(const std::string &host, uint16_t port, uint32_t scope = 0) {
    Address made;
    made.port = port;
    made.scope = scope;
    if (inet_pton(AF_INET6, host.c_str(), made.host.data()) == 1) return made;
    made.host[10] = made.host[11] = 0xff;
    if (inet_pton(AF_INET, host.c_str(), made.host.data() + 12) != 1)
        throw Error(Code::invalid, "'" + host + "' is no IPv4 or IPv6 address");
    return made;
}
inline std::string host_text(const Address &address) {
    char text[INET6_ADDRSTRLEN];
    if (is_v4(address)) inet_ntop(AF_INET, address.host.data() + 12, text, sizeof text);
    else inet_ntop(AF_INET6, address.host.data(), text, sizeof text);
    return text;
}
inline std::string text_of(const Address &address) {
    const std::string host = host_text(address), port = ":" + std::to_string(address.port);
    return is_v4(address) ? host + port
                          : "[" + host + (address.scope != 0 ? "%" + std::to_string(address.scope) : "") + "]" + port;
}
// What to tell when a share is used up. `from`: the last source.
inline std::string share_text(const std::string &what, const Address &from, const std::string &counter, uint64_t count) {
    return what + ": the last one came from " + text_of(from) + " (" + std::to_string(count) + " so far; the counter is `" +
           counter + "`; this is told once an hour)";
}
// Aeron's rule: receivers' messages go to the group after the data's.
inline Address control_group(Address group) {
    ++group.host[15];
    return group;
}

// Adds the process that has the port to an error of bind(). It searches all processes.
inline Error name_port_owner(const Error &error, const Address &at) {
    return error.number == EADDRINUSE ? Error(error.code, error.what() + port_owner_text(at.port), error.number) : error;
}

// ---- the socket ----

class UdpSocket {
  public:
    explicit UdpSocket(const Address &like, const std::string &where)
        : family_(is_v4(like) ? AF_INET : AF_INET6), where_(where),
          fd_(::socket(family_, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        if (fd_.get() < 0) fail_system(where_ + ": cannot make a UDP socket");
    }
    int fd() const { return fd_.get(); }
    int family() const { return family_; }

    void bind(const Address &at) {
        put(at);
        if (::bind(fd(), reinterpret_cast<const sockaddr *>(&storage_), length_) == 0) return;
        const int number = errno;
        throw Error(Code::system, where_ + ": cannot listen at " + text_of(at) + ": " + std::strerror(number), number);
    }
    // Datagrams tell which of this machine's addresses they were sent to.
    void show_local() {
        if (family_ == AF_INET) set(IPPROTO_IP, IP_PKTINFO, 1);
        else set(IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    }
    void connect(const Address &to) {
        put(to);
        if (::connect(fd(), reinterpret_cast<const sockaddr *>(&storage_), length_) != 0)
            fail_system(where_ + ": cannot send to " + text_of(to));
    }
    // The same again, to another address or from another one of this machine: the last one is forgotten. False: there is no way
    // there now.
    bool connect_again(const Address &to) {
        sockaddr_storage none{};
        none.ss_family = AF_UNSPEC;
        ::connect(fd(), reinterpret_cast<const sockaddr *>(&none), sizeof none);
        put(to);
        return ::connect(fd(), reinterpret_cast<const sockaddr *>(&storage_), length_) == 0;
    }
    // The address of this machine that datagrams to another one leave from; all zero if there is no way there.
    static std::array<uint8_t, 16> source_to(const Address &to) {
        const int family = is_v4(to) ? AF_INET : AF_INET6;
        const Descriptor probe(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        sockaddr_storage at{};
        socklen_t length = fill(at, to, family);
        if (probe.get() < 0 || ::connect(probe.get(), reinterpret_cast<const sockaddr *>(&at), length) != 0) return {};
        length = sizeof at;
        if (getsockname(probe.get(), reinterpret_cast<sockaddr *>(&at), &length) != 0) return {};
        return address_of(at).host;
    }
    Address bound() const {
        sockaddr_storage at{};
        socklen_t length = sizeof at;
        if (getsockname(fd(), reinterpret_cast<sockaddr *>(&at), &length) != 0) fail_system(where_ + ": no address");
        return address_of(at);
    }

    // Joins a group. Several sockets of a host may.
    void join(const Address &group, const Address &interface) {
        set(SOL_SOCKET, SO_REUSEADDR, 1);
        bind(group);
        int result;
        if (family_ == AF_INET) {
            ip_mreqn request{};
            std::memcpy(&request.imr_multiaddr, group.host.data() + 12, 4);
            if (!is_unset(interface)) std::memcpy(&request.imr_address, interface.host.data() + 12, 4);
            request.imr_ifindex = static_cast<int>(interface.scope);
            result = setsockopt(fd(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
        } else {
            ipv6_mreq request{};
            std::memcpy(&request.ipv6mr_multiaddr, group.host.data(), 16);
            request.ipv6mr_interface = interface.scope;
            result = setsockopt(fd(), IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request);
        }
        if (result != 0) fail_system(where_ + ": cannot join the group " + text_of(group));
    }
    // The interface and the TTL of datagrams to groups.
    void multicast(const Address &interface, uint8_t ttl) {
        int result = 0;
        if (family_ == AF_INET) {
            ip_mreqn request{};
            if (!is_unset(interface)) std::memcpy(&request.imr_address, interface.host.data() + 12, 4);
            request.imr_ifindex = static_cast<int>(interface.scope);
            if (!is_unset(interface) || interface.scope != 0)
                result = setsockopt(fd(), IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request);
            if (result == 0) set(IPPROTO_IP, IP_MULTICAST_TTL, ttl);
        } else {
            if (interface.scope != 0) set(IPPROTO_IPV6, IPV6_MULTICAST_IF, static_cast<int>(interface.scope));
            set(IPPROTO_IPV6, IPV6_MULTICAST_HOPS, ttl);
        }
        if (result != 0) fail_system(where_ + ": cannot send to groups through " + host_text(interface));
    }

    // Requests a buffer; returns the bytes granted. A privileged process exceeds the system's limit.
    uint32_t receive_buffer(uint32_t bytes) { return buffer(SO_RCVBUF, SO_RCVBUFFORCE, bytes); }
    uint32_t send_buffer(uint32_t bytes) { return buffer(SO_SNDBUF, SO_SNDBUFFORCE, bytes); }
    // Bytes of the send buffer that are used now, as by datagrams for a host that does not answer ARP.
    uint32_t unsent() const {
        int bytes = 0;
        return ::ioctl(fd(), SIOCOUTQ, &bytes) == 0 ? static_cast<uint32_t>(bytes) : 0;
    }
    // Lets the kernel coalesce runs of datagrams. False on an old kernel, which delivers them one by one.
    bool coalesce() {
        const int on = 1;
        return setsockopt(fd(), IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
    }

  private:
    void put(const Address &address) {
        if (family_ == AF_INET && !is_v4(address)) throw Error(Code::invalid, where_ + ": IPv4 and IPv6 do not mix");
        length_ = fill(storage_, address, family_);
    }
    void set(int level, int option, int value) {
        if (setsockopt(fd(), level, option, &value, sizeof value) != 0) fail_system(where_ + ": cannot set up a UDP socket");
    }
    uint32_t buffer(int option, int by_force, uint32_t bytes) {
        const int asked = static_cast<int>(std::min<uint32_t>(bytes, 1u << 30));
        int granted = 0; // the kernel reports twice the granted size
        socklen_t length = sizeof granted;
        setsockopt(fd(), SOL_SOCKET, option, &asked, sizeof asked);
        getsockopt(fd(), SOL_SOCKET, option, &granted, &length);
        if (granted / 2 >= asked) return static_cast<uint32_t>(granted / 2);
        setsockopt(fd(), SOL_SOCKET, by_force, &asked, sizeof asked);
        getsockopt(fd(), SOL_SOCKET, option, &granted, &length);
        return static_cast<uint32_t>(granted / 2);
    }

    const int family_;
    const std::string where_;
    const Descriptor fd_;
    sockaddr_storage storage_{};
    socklen_t length_ = 0;
};

} // namespace penstock
