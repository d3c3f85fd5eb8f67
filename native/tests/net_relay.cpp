// A relay for UDP datagrams that loses, doubles, holds back, delays and changes them, by seed and by direction; it stands between
// real sockets in tests. Each client gets a socket of its own towards the target, so the target tells them apart.
// Commands on stdin: `there NAME VALUE`, `back NAME VALUE`, `stats`. It ends with stdin.
#include "check.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <queue>
#include <random>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using Random = std::mt19937_64;
constexpr size_t largest = 65536, clients_max = 256, burst = 32;

int64_t clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}
sockaddr_in loopback(uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    return at;
}
int make_socket(uint16_t port) {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), room = 8 << 20;
    CHECK(fd >= 0);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    const sockaddr_in at = loopback(port);
    CHECK(bind(fd, reinterpret_cast<const sockaddr *>(&at), sizeof at) == 0, "port %u: %s", port, strerror(errno));
    return fd;
}

struct Counts {
    uint64_t seen = 0, lost = 0, doubled = 0, held = 0, changed = 0, passed = 0, refused = 0;
};

// The fate of the datagrams of one direction.
class Way {
  public:
    explicit Way(uint64_t seed) : random_(seed) {}
    Counts counts;

    void set(const std::string &name, double value) {
        if (name == "loss") loss_ = value;
        else if (name == "double") doubled_ = value;
        else if (name == "hold") held_ = value; // a share that comes later than what follows it
        else if (name == "hold_us") hold_us_ = value;
        else if (name == "delay_us") delay_us_ = value;
        else if (name == "change") changed_ = value; // a share with bytes changed
        else if (name == "cut") cut_ = value != 0;
        else if (name == "longest") longest_ = value; // longer datagrams are lost
        else CHECK(false, "no such condition: %s", name.c_str());
    }
    // `send(bytes)` now, or later by `tick`. `to`: remembered with what is held back.
    template <class Send> void pass(int64_t now, size_t to, std::vector<uint8_t> &bytes, Send &&send) {
        ++counts.seen;
        for (int copies = chance(doubled_) ? (++counts.doubled, 2) : 1; copies != 0; --copies) {
            if (cut_ || static_cast<double>(bytes.size()) > longest_ || chance(loss_)) {
                ++counts.lost;
                continue;
            }
            std::vector<uint8_t> *sent = &bytes;
            std::vector<uint8_t> other;
            if (chance(changed_)) {
                other = bytes;
                change(other);
                sent = &other;
            }
            double late = delay_us_;
            if (chance(held_)) late += hold_us_ * unit(), ++counts.held;
            if (late <= 0) send(to, *sent);
            else waiting_.push({now + static_cast<int64_t>(late * 1000), number_++, to, *sent});
        }
    }
    template <class Send> void tick(int64_t now, Send &&send) {
        for (; !waiting_.empty() && waiting_.top().at <= now; waiting_.pop()) send(waiting_.top().to, waiting_.top().bytes);
    }
    int64_t next() const { return waiting_.empty() ? INT64_MAX : waiting_.top().at; }

  private:
    struct Waiting {
        int64_t at;
        uint64_t number;
        size_t to;
        std::vector<uint8_t> bytes;
        bool operator<(const Waiting &other) const { return at != other.at ? at > other.at : number > other.number; }
    };
    double unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
    bool chance(double p) { return p > 0 && unit() < p; }
    void change(std::vector<uint8_t> &bytes) {
        ++counts.changed;
        if (bytes.empty()) return;
        if (chance(0.1)) bytes.resize(random_() % bytes.size() + 1);
        for (uint64_t i = random_() % 4 + 1; i != 0; --i) bytes[random_() % bytes.size()] = static_cast<uint8_t>(random_());
    }

    Random random_;
    double loss_ = 0, doubled_ = 0, held_ = 0, hold_us_ = 1000, delay_us_ = 0, changed_ = 0, longest_ = largest;
    bool cut_ = false;
    std::priority_queue<Waiting> waiting_;
    uint64_t number_ = 0;
};

class Relay {
  public:
    Relay(uint16_t listen, uint16_t to, uint64_t seed)
        : listening_(make_socket(listen)), to_(loopback(to)), there_(seed), back_(~seed) {
        buffers_.resize(burst);
        for (auto &buffer : buffers_) buffer.resize(largest);
    }
    Way &way(const std::string &name) { return name == "there" ? there_ : back_; }

  private:
    struct Client {
        sockaddr_in at;
        int fd;
    };
    auto forward() {
        return [this](size_t to, const std::vector<uint8_t> &bytes) {
            const bool sent = ::send(clients_[to].fd, bytes.data(), bytes.size(), 0) >= 0;
            ++(sent ? there_.counts.passed : there_.counts.refused);
        };
    }
    auto backward() {
        return [this](size_t to, const std::vector<uint8_t> &bytes) {
            const sockaddr_in &at = clients_[to].at;
            const bool sent =
                sendto(listening_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr *>(&at), sizeof at) >= 0;
            ++(sent ? back_.counts.passed : back_.counts.refused);
        };
    }
    size_t find(const sockaddr_in &from) {
        for (size_t i = 0; i < clients_.size(); ++i)
            if (clients_[i].at.sin_port == from.sin_port && clients_[i].at.sin_addr.s_addr == from.sin_addr.s_addr) return i;
        if (clients_.size() == clients_max) return clients_max;
        const int fd = make_socket(0);
        CHECK(connect(fd, reinterpret_cast<const sockaddr *>(&to_), sizeof to_) == 0);
        clients_.push_back({from, fd});
        return clients_.size() - 1;
    }
    template <class Each> void receive(int fd, Each &&each) {
        for (;;) {
            mmsghdr messages[burst] = {};
            iovec pieces[burst];
            sockaddr_in from[burst];
            for (size_t i = 0; i < burst; ++i) {
                buffers_[i].resize(largest);
                pieces[i] = {buffers_[i].data(), largest};
                messages[i].msg_hdr.msg_iov = &pieces[i];
                messages[i].msg_hdr.msg_iovlen = 1;
                messages[i].msg_hdr.msg_name = &from[i];
                messages[i].msg_hdr.msg_namelen = sizeof from[i];
            }
            const int got = recvmmsg(fd, messages, burst, MSG_DONTWAIT, nullptr);
            for (int i = 0; i < got; ++i) {
                auto &bytes = buffers_[static_cast<size_t>(i)];
                bytes.resize(messages[i].msg_len);
                each(from[i], bytes);
            }
            if (got < static_cast<int>(burst)) return; // a refusal by the other side's kernel is the loss that it looks like
        }
    }

  public:
    // False once stdin has ended.
    bool run_duty_cycle() {
        std::vector<pollfd> all{{STDIN_FILENO, POLLIN, 0}, {listening_, POLLIN, 0}};
        for (const Client &client : clients_) all.push_back({client.fd, POLLIN, 0});
        const int64_t next = std::min(there_.next(), back_.next()), now = clock_ns();
        const int64_t left = next == INT64_MAX ? 1'000'000'000 : std::max<int64_t>(0, next - now);
        const timespec limit{left / 1'000'000'000, left % 1'000'000'000};
        ppoll(all.data(), all.size(), &limit, nullptr);
        if (all[0].revents != 0 && !obey()) return false;
        if (all[1].revents != 0)
            receive(listening_, [&](const sockaddr_in &from, std::vector<uint8_t> &bytes) {
                const size_t client = find(from);
                if (client < clients_max) there_.pass(clock_ns(), client, bytes, forward());
            });
        for (size_t i = 2; i < all.size(); ++i)
            if (all[i].revents != 0)
                receive(all[i].fd, [&](const sockaddr_in &, std::vector<uint8_t> &bytes) {
                    back_.pass(clock_ns(), i - 2, bytes, backward());
                });
        there_.tick(clock_ns(), forward());
        back_.tick(clock_ns(), backward());
        return true;
    }

  private:
    bool obey() {
        char text[4096];
        const ssize_t got = read(STDIN_FILENO, text, sizeof text);
        if (got <= 0) return false;
        commands_.append(text, static_cast<size_t>(got));
        for (size_t end; (end = commands_.find('\n')) != std::string::npos; commands_.erase(0, end + 1)) {
            std::istringstream line(commands_.substr(0, end));
            std::string first, name;
            double value = 0;
            line >> first >> name >> value;
            if (first != "stats") way(first).set(name, value);
            tell();
        }
        return true;
    }
    void tell() const {
        std::string text = "{";
        for (const auto &[name, way] : {std::pair{"there", &there_}, {"back", &back_}}) {
            const Counts &n = way->counts;
            char part[400];
            std::snprintf(
                part, sizeof part,
                "\"%s\": {\"seen\": %lu, \"lost\": %lu, \"doubled\": %lu, \"held\": %lu, \"changed\": %lu, \"passed\": %lu, "
                "\"refused\": %lu}%s",
                name, n.seen, n.lost, n.doubled, n.held, n.changed, n.passed, n.refused, way == &there_ ? ", " : "}");
            text += part;
        }
        std::printf("%s\n", text.c_str());
        std::fflush(stdout);
    }

    const int listening_;
    const sockaddr_in to_;
    Way there_, back_;
    std::vector<Client> clients_;
    std::vector<std::vector<uint8_t>> buffers_;
    std::string commands_;
};

} // namespace

int main(int argc, char **argv) {
    CHECK(argc == 4, "net_relay LISTEN_PORT TARGET_PORT SEED");
    Relay relay(static_cast<uint16_t>(std::atoi(argv[1])), static_cast<uint16_t>(std::atoi(argv[2])),
                std::strtoull(argv[3], nullptr, 10));
    std::printf("ready\n");
    std::fflush(stdout);
    while (relay.run_duty_cycle()) {
    }
    return 0;
}
