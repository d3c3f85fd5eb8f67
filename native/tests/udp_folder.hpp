// Shared by the tests of the network log over sockets: an endpoint's file in a folder of its own, and waits as handles make them.
#pragma once

#include "check.hpp"
#include "net/udp_ends.hpp"

namespace penstock::test {

// Where a test's files lie; it is empty again at the end, or something was left behind.
class Folder {
  public:
    Folder() { CHECK(mkdtemp(name_.data()) != nullptr); }
    void check_empty() const { CHECK(rmdir(name_.c_str()) == 0, "something was left in %s", name_.c_str()); }
    std::string path(const std::string &name) const { return name_ + ("/" + name); }

  private:
    std::string name_ = "/dev/shm/penstock-net-test-" + std::string(6, 'X');
};

inline uint16_t free_port(const char *host = "127.0.0.1") {
    UdpSocket probe(parse_address(host, 0), "test");
    probe.bind(parse_address(host, 0));
    return probe.bound().port;
}

class Place {
  public:
    explicit Place(const Folder &folder, UdpEndpointOptions o = {}) : options(o), folder_(folder) {
        if (options.at.port == 0) options.at = parse_address("127.0.0.1", free_port());
        path = folder.path(host_text(options.at) + ":" + std::to_string(options.at.port) + "@" + std::to_string(options.stream) +
                           ".endpoint");
        const OpenFile file = make_file(path, endpoint_file_size(options.slot_count), [&](int fd) {
            const uint8_t boot[16] = {};
            format_endpoint(fd, options, "{}", boot, 0);
        });
    }
    ~Place() { ::unlink(path.c_str()); }
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;
    std::unique_ptr<UdpReader> reader(Start start = {}, NetCalls &calls = NetCalls::system()) const {
        const OpenFile file = open_file(path);
        return std::make_unique<UdpReader>(file.fd(), path, start, 0, Keys{}, "", calls);
    }
    std::unique_ptr<UdpWriter> writer(UdpWriterOptions o = {}, NetCalls &calls = NetCalls::system()) const {
        if (o.to.port == 0) o.to = options.at;
        o.stream = options.stream;
        return std::make_unique<UdpWriter>("udp:test", folder_.path(std::to_string(options.at.port) + "."), o, nullptr, calls);
    }
    UdpEndpointOptions options;
    std::string path;

  private:
    const Folder &folder_;
};

// False: too late. A test that waits so long has failed.
template <class End, class Attempt> bool wait_until(End &end, Attempt &&attempt, int64_t ns = 60'000'000'000) {
    if (attempt()) return true;
    const int64_t until = monotonic_ns() + ns;
    for (;;) {
        const uint32_t ticket = end.prepare();
        if (attempt()) return true;
        if (monotonic_ns() > until) return false;
        end.sleep(ticket, 10'000'000);
    }
}

} // namespace penstock::test
