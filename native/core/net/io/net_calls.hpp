// The system calls that move datagrams, and the resolver, behind a seam: tests put a world with faults in their place.
#pragma once

#include "net/wire/address.hpp"

#include <cstdint>
#include <ctime>
#include <netdb.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace penstock {

// Each returns what the system call does, and sets errno. None waits, but wait().
class NetCalls {
  public:
    virtual ~NetCalls() = default;
    virtual int send(int fd, mmsghdr *messages, unsigned count) {
        if (count == 1) return one(sendmsg(fd, &messages->msg_hdr, MSG_DONTWAIT | MSG_NOSIGNAL), *messages);
        return sendmmsg(fd, messages, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    virtual int receive(int fd, mmsghdr *messages, unsigned count) {
        if (count == 1) return one(recvmsg(fd, &messages->msg_hdr, MSG_DONTWAIT), *messages);
        return recvmmsg(fd, messages, count, MSG_DONTWAIT, nullptr);
    }
    virtual int wait(pollfd *descriptors, nfds_t count, int64_t ns) {
        const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
        return ppoll(descriptors, count, &time, nullptr);
    }
    // The addresses that a host's name has now; none if it has none, or the resolver does not answer. It may wait for long.
    virtual std::vector<Address> resolve(const std::string &host, uint16_t port);
    static NetCalls &system() {
        static NetCalls calls;
        return calls;
    }

  private:
    static int one(ssize_t length, mmsghdr &message) { // a call for one costs less than the same for many
        message.msg_len = static_cast<unsigned>(length);
        return length < 0 ? -1 : 1;
    }
};

} // namespace penstock
