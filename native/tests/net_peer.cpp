// The network log's sender or receiver over a plain socket, one datagram per call: a peer for tests with real Aeron drivers
// that uses the state machines and nothing else of the product. Prints one JSON line when it is done.
#include "net_world.hpp"

#include <arpa/inet.h>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

using namespace penstock;
using namespace penstock::test;

namespace {

std::map<std::string, std::string> given;
std::string text(const std::string &name, const std::string &otherwise = "") {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : found->second;
}
int64_t number(const std::string &name, int64_t otherwise) {
    const std::string found = text(name);
    return found.empty() ? otherwise : std::strtoll(found.c_str(), nullptr, 10);
}

int64_t clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

// The messages of tests/interop/bodies.py: a number, then a stretch of one pattern.
class Bodies {
  public:
    Bodies() {
        std::ifstream file(text("--pattern"), std::ios::binary);
        pattern_.assign(std::istreambuf_iterator<char>(file), {});
        CHECK(!pattern_.empty(), "no pattern");
        std::string sizes = text("--sizes", "64");
        for (char *at = sizes.data(); *at != 0; at += *at == ',') sizes_.push_back(std::strtoull(at, &at, 10));
    }
    std::string body(uint64_t number) const {
        std::string made(8, '\0');
        std::memcpy(made.data(), &number, 8);
        return made + pattern_.substr(number * 31 % 4096, sizes_[number % sizes_.size()] - 8);
    }

  private:
    std::string pattern_;
    std::vector<size_t> sizes_;
};

sockaddr_in socket_address(const std::string &host_port) {
    sockaddr_in made{};
    made.sin_family = AF_INET;
    const size_t colon = host_port.rfind(':');
    made.sin_port = htons(static_cast<uint16_t>(std::stoi(host_port.substr(colon + 1))));
    CHECK(inet_pton(AF_INET, host_port.substr(0, colon).c_str(), &made.sin_addr) == 1);
    return made;
}

class Socket {
  public:
    Socket() : random_(static_cast<uint64_t>(number("--seed", 1))), loss_(std::strtod(text("--loss", "0").c_str(), nullptr)) {
        fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        const int room = 4 << 20;
        CHECK(fd_ >= 0);
        setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
        const std::string here = text("--bind");
        if (here.empty()) return;
        const sockaddr_in at = socket_address(here);
        CHECK(bind(fd_, reinterpret_cast<const sockaddr *>(&at), sizeof at) == 0, "cannot bind %s", here.c_str());
    }
    ~Socket() { ::close(fd_); }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;

    bool send(const Address &to, const uint8_t *bytes, size_t length) {
        if (chance(random_, loss_)) return true;
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = to.port;
        std::memcpy(&at.sin_addr, to.host.data() + 12, 4);
        return sendto(fd_, bytes, length, 0, reinterpret_cast<const sockaddr *>(&at), sizeof at) >= 0 || errno != EAGAIN;
    }
    // The next datagram that is not lost; false if there is none.
    bool receive(Address &from, std::vector<uint8_t> &bytes) {
        for (;;) {
            sockaddr_in at{};
            socklen_t size = sizeof at;
            bytes.resize(65536);
            const ssize_t got = recvfrom(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr *>(&at), &size);
            if (got < 0) return false;
            if (chance(random_, loss_)) continue;
            bytes.resize(static_cast<size_t>(got));
            from = Address{};
            from.port = at.sin_port;
            std::memcpy(from.host.data() + 12, &at.sin_addr, 4);
            return true;
        }
    }
    // Until something arrives, or that time has come.
    void wait(int64_t until) const {
        const int64_t left = std::clamp<int64_t>(until - clock_ns(), 0, 20'000'000);
        const timespec limit{0, left};
        pollfd one{fd_, POLLIN, 0};
        ppoll(&one, 1, &limit, nullptr);
    }

  private:
    int fd_ = -1;
    Random random_;
    double loss_;
};

constexpr int64_t second = 1'000'000'000;

int publish() {
    const Bodies bodies;
    Socket socket;
    SenderOptions options;
    options.session = static_cast<int32_t>(number("--session", 305419896));
    options.stream = static_cast<int32_t>(number("--stream", 1001));
    options.mtu = static_cast<uint32_t>(number("--mtu", 1408));
    const auto term_length = static_cast<uint32_t>(number("--term-length", 65536));
    const auto count = static_cast<uint64_t>(number("--count", 1000));
    const Memory memory(term_length, options.mtu, static_cast<int32_t>(number("--initial", 7)), options.stream);
    const Terms &terms = memory.terms;
    Sender sender(terms, options, 0, clock_ns());
    const sockaddr_in at = socket_address(text("--to"));
    Address to;
    to.port = at.sin_port;
    std::memcpy(to.host.data() + 12, &at.sin_addr, 4);
    struct Way {
        Socket &socket;
        const Address &to;
        bool send(const uint8_t *bytes, size_t length) const { return socket.send(to, bytes, length); }
    } way{socket, to};

    uint64_t tail = 0, clean = terms.size(), next = 0;
    const uint32_t most = options.mtu - header_length;
    const auto frame = [&](const char *bytes, uint32_t length, uint8_t flags, FrameType type) {
        const uint64_t room = align_frame(length + header_length);
        if (const uint64_t to_be_clean = tail + room + header_length; to_be_clean > clean) {
            terms.clean(clean - terms.size(), to_be_clean - terms.size());
            clean = to_be_clean;
        }
        FrameHeader *header = terms.frame(tail);
        terms.write_header(header, tail, options.session, 0);
        if (type == FrameType::data) std::memcpy(reinterpret_cast<char *>(header) + header_length, bytes, length);
        header->word0.release(pack_word0(length + header_length, flags, type));
        tail += room;
    };
    // All fragments of a message stand in one term: Aeron's assembler forgets a message that padding interrupts.
    const auto message = [&](const std::string &bytes) {
        const uint64_t need = bytes.size() / most * options.mtu + align_frame(bytes.size() % most + header_length);
        if (const uint64_t left = terms.left_in_term(tail); need > left)
            frame(nullptr, static_cast<uint32_t>(left) - header_length, flags_whole, FrameType::pad);
        for (size_t done = 0; done < bytes.size();) {
            const auto part = static_cast<uint32_t>(std::min<size_t>(most, bytes.size() - done));
            const int begin = done == 0 ? flag_begin : 0, end = done + part == bytes.size() ? flag_end : 0;
            frame(bytes.data() + done, part, static_cast<uint8_t>(begin | end), FrameType::data);
            done += part;
        }
    };
    std::vector<uint8_t> datagram;
    const int64_t deadline = clock_ns() + number("--seconds", 60) * second;
    while (sender.state() != Sender::State::closed && clock_ns() < deadline) {
        Address from;
        while (socket.receive(from, datagram)) sender.datagram(clock_ns(), from, datagram.data(), datagram.size());
        while (sender.connected() && next < count && tail < sender.position() + term_length / 4) message(bodies.body(next++));
        if (next == count) sender.close(clock_ns(), tail);
        if (!sender.tick(clock_ns(), way) && tail == sender.position()) socket.wait(sender.next());
    }
    const SenderCounts &n = sender.counts();
    std::printf("{\"sent\": %lu, \"closed\": %s, \"naks\": %lu, \"retransmits\": %lu, \"malformed\": %lu, \"refused\": %lu, "
                "\"ignored\": %lu, \"heartbeats\": %lu, \"datagrams\": %lu}\n",
                next, sender.state() == Sender::State::closed ? "true" : "false", n.naks, n.retransmits, n.malformed,
                n.statuses_refused, n.naks_ignored, n.heartbeats, n.datagrams);
    return 0;
}

struct Store {
    std::map<int32_t, std::unique_ptr<Memory>> held;
    std::vector<std::unique_ptr<Memory>> old;
    int64_t ended = 0;
    std::optional<Terms> open(const wire::SetupFrame &setup, const Address &) {
        auto &memory = held[setup.session];
        if (memory) old.push_back(std::move(memory));
        memory = std::make_unique<Memory>(static_cast<uint32_t>(setup.term_length), static_cast<uint32_t>(setup.mtu),
                                          setup.initial_term_id, setup.stream);
        return memory->terms;
    }
    void close(const Image &) { ++ended; }
};

int subscribe() {
    const Bodies bodies;
    Socket socket;
    ReceiverOptions options;
    options.stream = static_cast<int32_t>(number("--stream", 1001));
    options.receiver = 0x1122334455667788;
    options.window = static_cast<uint32_t>(number("--window", 128 * 1024));
    Store store;
    Receiver<Store> receiver(options, store, clock_ns());
    Random random(1);
    struct Part {
        uint64_t position, next;
        std::string bytes;
        bool begun; // a session may be joined within a message
    };
    std::map<int32_t, Part> parts;
    std::vector<uint8_t> datagram;
    uint64_t messages = 0, lost = 0, naks = 0;
    const auto sessions = static_cast<int64_t>(number("--sessions", 1));
    const int64_t deadline = clock_ns() + number("--seconds", 60) * second;
    std::string wrong;
    const auto read = [&](Image &image) {
        Part &part = parts.try_emplace(image.session(), Part{image.join(), UINT64_MAX, {}, false}).first->second;
        while (part.position < image.rebuilt()) {
            const FrameHeader *frame = image.terms().frame(part.position);
            const uint64_t word0 = frame->word0.acquire();
            const auto length = static_cast<size_t>(frame_length(word0));
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::data)) {
                if (frame_flags(word0) & flag_begin) {
                    part.bytes.clear();
                    part.begun = true;
                }
                part.bytes.append(reinterpret_cast<const char *>(frame) + header_length, length - header_length);
                if (part.begun && (frame_flags(word0) & flag_end) != 0) {
                    if (part.next == UINT64_MAX) std::memcpy(&part.next, part.bytes.data(), 8);
                    if (part.bytes != bodies.body(part.next) && wrong.empty()) wrong = std::to_string(part.next);
                    ++part.next;
                    ++messages;
                }
            }
            part.position += align_frame(length);
        }
        image.consume(part.position);
    };
    std::printf("{\"ready\": true}\n");
    std::fflush(stdout);
    while (store.ended < sessions && clock_ns() < deadline) {
        Address from;
        for (int burst = 0; burst < 64 && socket.receive(from, datagram); ++burst)
            receiver.datagram(clock_ns(), from, datagram.data(), datagram.size());
        lost = naks = 0;
        for (const auto &image : receiver.images()) {
            read(*image);
            lost += image->counts().bytes_lost;
            naks += image->counts().naks;
        }
        receiver.tick(clock_ns(), socket, random);
        socket.wait(receiver.next());
    }
    const ReceiverCounts &n = receiver.counts();
    std::printf("{\"messages\": %lu, \"wrong\": \"%s\", \"images\": %lu, \"ended\": %ld, \"malformed\": %lu}\n", messages,
                wrong.c_str(), n.images, store.ended, n.malformed);
    return wrong.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    for (int i = 2; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
    return std::string(argv[1]) == "publish" ? publish() : subscribe();
}
