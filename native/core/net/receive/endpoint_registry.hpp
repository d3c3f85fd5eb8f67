// The endpoints of this process by their files, and the ports that they share by their addresses.
#pragma once

#include "net/io/port.hpp"
#include "net/io/socket_waiter.hpp"
#include "net/receive/files/port_files.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock {

class Endpoint;

// A port, and the endpoints whose streams it receives.
struct SharedPort {
    SharedPort(NetCalls &calls, const Keys &keys) : port(calls, keys), waiter(calls) {}

    std::mutex duty_cycle_mutex; // of everything here, but `waiter` and `port.socket_fd()`
    Port port;
    SocketWaiter waiter;
    std::vector<Endpoint *> owned;
    std::vector<std::shared_ptr<Endpoint>> foreign; // received for other processes
    Atomic<int> users{};                            // subscriptions of this process. Changed under the registry's lock
};

class EndpointRegistry {
  public:
    static EndpointRegistry &instance() {
        static EndpointRegistry *registry = new EndpointRegistry;
        return *registry;
    }

    // Calls `use(endpoint)` with the endpoint of a file, a null pointer if there is none, which `use` may set. Nobody else finds
    // one meanwhile.
    template <class Use> std::shared_ptr<Endpoint> find(int fd, const std::string &path, Use &&use) {
        struct stat about;
        if (fstat(fd, &about) != 0) fail_system("cannot read " + path);
        const std::pair<dev_t, ino_t> key{about.st_dev, about.st_ino};
        const std::lock_guard hold(mutex_);
        if (generation_ != ForkGuard::generation()) { // a child's are its own
            generation_ = ForkGuard::generation();
            endpoints_.clear();
            ports_.clear();
        }
        std::shared_ptr<Endpoint> found = endpoints_[key].lock();
        use(found);
        endpoints_[key] = found;
        return found;
    }
    // Nobody finds this endpoint from now on, if `last()`. Returns that.
    template <class Last> bool forget(const Endpoint *endpoint, Last &&last) {
        const std::lock_guard hold(mutex_);
        if (!last()) return false;
        std::erase_if(endpoints_, [&](const auto &one) { return one.second.lock().get() == endpoint; });
        return true;
    }
    // From within find(): the port of an endpoint that is made.
    std::shared_ptr<SharedPort> port_of(const EndpointFile &file, const Keys &keys, NetCalls &calls) {
        const UdpEndpointOptions &o = file.options();
        std::erase_if(ports_, [](const auto &one) { return one.second.expired(); });
        if (shares_port(o))
            for (const auto &[at, port] : ports_)
                if (at == o.at)
                    if (auto found = port.lock(); found && (found->users.relaxed() != 0 || same(found->port.keys(), keys))) {
                        check_keys(*found, file, keys);
                        return found;
                    }
        if (shares_port(o)) std::erase_if(ports_, [&](const auto &one) { return one.first == o.at; }); // of closed handles alone
        auto made = std::make_shared<SharedPort>(calls, keys);
        if (shares_port(o)) ports_.emplace_back(o.at, made);
        return made;
    }

    // All streams of a port have the same keys.
    static void check_keys(const SharedPort &found, const EndpointFile &file, const Keys &keys) {
        const Keys &other = found.port.keys();
        if (!keys == !other && (!keys || keys->agrees(*other))) return;
        throw Error(Code::mismatch, file.uri() + ": this process receives at " + text_of(file.options().at) +
                                        (other ? " with another key" : " without a key") +
                                        ", and all streams of a port have the same one");
    }

  private:
    static bool same(const Keys &a, const Keys &b) { return a == b || (a && b && *a == *b); }

    std::mutex mutex_;
    uint32_t generation_ = 0;
    std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Endpoint>> endpoints_;
    std::vector<std::pair<Address, std::weak_ptr<SharedPort>>> ports_;
};

} // namespace penstock
