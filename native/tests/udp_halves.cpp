// Each half of the network log against a plain peer, as Aeron's driver is one: the sender into a plain receiver that knows just
// enough to let it send (SETUP, status messages), and the receiver fed with datagrams that come one by one. Beside each the bare
// loop over the same bytes, in turn. CPU time of one thread for each datagram. JSON lines.
#include "net/udp_ends.hpp"
#include "net/wire/setup_frame.hpp"
#include "udp_folder.hpp"
#include "udp_loops.hpp"

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr uint32_t term_length = 16 << 20, window = 2 << 20;
constexpr int32_t stream = 1;
constexpr int rounds = 8; // of each loop, in turn

struct Case {
    const char *name;
    size_t payload, frames; // of a message; in a datagram
    size_t datagrams;       // of a burst
    size_t datagram() const { return frames * bare::frame(payload); }
    std::vector<size_t> burst() const { return std::vector<size_t>(datagrams, datagram()); }
    size_t messages() const { return frames * datagrams; }
};
constexpr Case cases[] = {{"64 B", 64, 14, 46}, {"1 KiB", 1024, 1, 60}};

struct Spent {
    int64_t ns = 0;
    double datagrams = 0;
    double each() const { return static_cast<double>(ns) / datagrams; }
};
// Runs `once` again and again for a while. It returns the CPU time that counts.
template <class Once> void spend(Spent &on, const Case &c, int64_t limit_ns, Once &&once) {
    for (const int64_t begun = bare::cpu_ns(); bare::cpu_ns() - begun < limit_ns;) {
        on.ns += once();
        on.datagrams += static_cast<double>(c.datagrams);
    }
}
template <class Do> int64_t timed(Do &&act) {
    const int64_t begun = bare::cpu_ns();
    act();
    return bare::cpu_ns() - begun;
}

// ---- the sender, and a plain receiver ----

class PlainReceiver {
  public:
    PlainReceiver() : fd_(bare::make_socket()), bytes_(64 * 1024) {}
    ~PlainReceiver() { ::close(fd_); }
    PlainReceiver(const PlainReceiver &) = delete;
    PlainReceiver &operator=(const PlainReceiver &) = delete;
    uint16_t port() const { return ntohs(bare::port_of(fd_)); }

    // Takes what is there; each SETUP is answered, and so is data, with a status message.
    void hear() {
        bool news = false;
        for (;;) {
            sockaddr_in from{};
            socklen_t size = sizeof from;
            const ssize_t got =
                recvfrom(fd_, bytes_.data(), bytes_.size(), MSG_DONTWAIT, reinterpret_cast<sockaddr *>(&from), &size);
            if (got < 0) break;
            const auto length = static_cast<size_t>(got);
            wire::Type type;
            CHECK(wire::parse_type(bytes_.data(), length, type));
            if (type == wire::Type::setup) {
                wire::SetupFrame setup;
                CHECK(wire::parse(bytes_.data(), length, setup));
                session_ = setup.session;
                CHECK(connect(fd_, reinterpret_cast<const sockaddr *>(&from), size) == 0);
                news = true;
            } else if (type == wire::Type::data || type == wire::Type::pad) {
                wire::DataRun run;
                CHECK(wire::parse(bytes_.data(), length, term_length, run));
                position_ += run.room;
                news |= run.room != 0;
            }
        }
        if (news) say();
    }
    uint64_t position() const { return position_; }

  private:
    void say() {
        auto frame = wire::make<wire::StatusFrame>(wire::Type::status);
        frame.start.length = static_cast<int32_t>(wire::status_length);
        frame.session = session_;
        frame.stream = stream;
        frame.term_id = static_cast<int32_t>(position_ / term_length);
        frame.term_offset = static_cast<int32_t>(position_ % term_length);
        frame.window = window;
        frame.receiver = 1;
        CHECK(send(fd_, &frame, wire::status_length, 0) == static_cast<ssize_t>(wire::status_length));
    }
    const int fd_;
    std::vector<uint8_t> bytes_;
    uint64_t position_ = 0;
    int32_t session_ = 0;
};

class SendingHalf {
  public:
    SendingHalf(const Folder &folder, const Case &c) : bytes_(c.payload, 7), pieces_(c.messages(), {bytes_.data(), c.payload}) {
        UdpWriterOptions o;
        o.to = parse_address("127.0.0.1", there_.port());
        o.stream = stream;
        o.term_length = term_length;
        o.window = window;
        out_ = std::make_unique<NetworkPublication>("udp:halves", folder.path("halves."), o, 7, NetCalls::system());
        log_ = std::make_shared<TermLog>(out_->fd(), out_->where(), out_->mapping());
        writer_ = std::make_unique<LogWriter>(log_, true, nullptr);
        while (out_->receivers() == 0) turn();
    }
    ~SendingHalf() {
        log_->detach();
        out_->close(monotonic_ns());
    }
    SendingHalf(const SendingHalf &) = delete;
    SendingHalf &operator=(const SendingHalf &) = delete;

    // Messages into the log, apart from sending them.
    int64_t publish() {
        return timed([&] { CHECK(writer_->offer_many(pieces_.data(), pieces_.size()) == pieces_.size()); });
    }
    int64_t send() {
        const uint64_t end = log_->tail();
        const int64_t spent = timed([&] {
            while (out_->sent() < end) CHECK(out_->run_duty_cycle(monotonic_ns(), true));
        });
        there_.hear();
        CHECK(there_.position() == end, "the plain receiver has %lu of %lu bytes", there_.position(), end);
        return spent;
    }

  private:
    void turn() {
        CHECK(out_->run_duty_cycle(monotonic_ns(), true));
        there_.hear();
    }
    PlainReceiver there_;
    const std::vector<uint8_t> bytes_;
    const std::vector<IoVec> pieces_;
    std::unique_ptr<NetworkPublication> out_;
    std::shared_ptr<TermLog> log_;
    std::unique_ptr<LogWriter> writer_;
};

void sender(const Folder &folder, const Case &c, int64_t limit_ns) {
    SendingHalf half(folder, c);
    bare::OneWay plain(false);
    const std::vector<size_t> burst = c.burst();
    // Once through all terms: the system makes a page when it is touched first.
    for (size_t warm = 0; warm < size_t{3} * term_length; warm += c.datagrams * c.datagram()) half.publish(), half.send();
    Spent ours, published, reference;
    for (int round = 0; round < rounds; ++round) {
        spend(ours, c, limit_ns / rounds, [&] {
            published.ns += half.publish();
            return half.send();
        });
        spend(reference, c, limit_ns / rounds, [&] {
            const int64_t spent = timed([&] { plain.send_runs(burst); });
            plain.receive(c.datagrams * c.datagram());
            return spent;
        });
    }
    published.datagrams = ours.datagrams;
    std::printf("{\"case\": \"%s\", \"half\": \"sender\", \"ns\": %.1f, \"bare_ns\": %.1f, \"log_ns\": %.1f}\n", c.name,
                ours.each(), reference.each(), published.each());
    std::fflush(stdout);
}

// ---- the receiver, and a plain sender ----

class PlainSender {
  public:
    PlainSender(uint16_t port, const Case &c) : case_(c), fd_(bare::make_socket()), bytes_(c.datagrams * c.datagram()) {
        const sockaddr_in to = bare::loopback(htons(port));
        CHECK(connect(fd_, reinterpret_cast<const sockaddr *>(&to), sizeof to) == 0);
    }
    ~PlainSender() { ::close(fd_); }
    PlainSender(const PlainSender &) = delete;
    PlainSender &operator=(const PlainSender &) = delete;

    void setup() {
        auto frame = wire::make<wire::SetupFrame>(wire::Type::setup);
        frame.session = session;
        frame.stream = stream;
        frame.term_length = term_length;
        frame.mtu = bare::mtu;
        CHECK(send(fd_, &frame, sizeof frame, 0) == sizeof frame);
    }
    // A receiver takes a long term only from a source that answers at its address.
    void answer() {
        uint8_t said[2048];
        for (ssize_t got; (got = recv(fd_, said, sizeof said, MSG_DONTWAIT)) > 0;) {
            wire::RttFrame frame;
            if (!wire::parse(said, static_cast<size_t>(got), frame) || (frame.start.flags & wire::flag_reply) == 0) continue;
            frame.start.flags = 0;
            frame.delta = 0;
            CHECK(send(fd_, &frame, sizeof frame, 0) == sizeof frame);
            setup();
        }
    }
    // A burst of datagrams, each by itself. A term ends in a pad.
    void feed() {
        mmsghdr messages[64] = {};
        iovec pieces[64];
        for (size_t i = 0; i < case_.datagrams; ++i) {
            const uint64_t left = term_length - position_ % term_length;
            if (left < case_.datagram()) pad(static_cast<uint32_t>(left));
            uint8_t *at = bytes_.data() + i * case_.datagram();
            for (size_t f = 0; f < case_.frames; ++f, at += bare::frame(case_.payload)) {
                const wire::DataHeader header = next(wire::Type::data, header_length + case_.payload);
                std::memcpy(at, &header, sizeof header);
                std::memset(at + sizeof header, 7, case_.payload);
            }
            pieces[i] = {bytes_.data() + i * case_.datagram(), case_.datagram()};
            messages[i].msg_hdr.msg_iov = &pieces[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        for (size_t sent = 0; sent < case_.datagrams;) {
            const int got = sendmmsg(fd_, messages + sent, static_cast<unsigned>(case_.datagrams - sent), 0);
            CHECK(got > 0, "sendmmsg: %s", strerror(errno));
            sent += static_cast<size_t>(got);
        }
        char said[2048]; // status messages: the reader has read everything before the next burst
        while (recv(fd_, said, sizeof said, MSG_DONTWAIT) > 0) {
        }
    }

  private:
    static constexpr int32_t session = 77;
    wire::DataHeader next(wire::Type type, size_t length) {
        auto header = wire::make<wire::DataHeader>(type, 0xc0); // a whole message
        header.start.length = static_cast<int32_t>(length);
        header.session = session;
        header.stream = stream;
        header.term_id = static_cast<int32_t>(position_ / term_length);
        header.term_offset = static_cast<int32_t>(position_ % term_length);
        position_ += align_frame(length);
        return header;
    }
    void pad(uint32_t length) {
        const wire::DataHeader header = next(wire::Type::pad, length);
        CHECK(send(fd_, &header, sizeof header, 0) == sizeof header);
    }
    const Case &case_;
    const int fd_;
    std::vector<uint8_t> bytes_;
    uint64_t position_ = 0;
};

// All messages of a burst, read where they lie.
void read(UdpReader &reader, const Case &c) {
    for (size_t i = 0; i < c.messages(); ++i) {
        const Message *message;
        while ((message = reader.peek()) == nullptr) reader.run_duty_cycle();
        CHECK(message->length == c.payload && message->data[0] == 7);
        reader.consume();
    }
}

void receiver(const Folder &folder, const Case &c, int64_t limit_ns) {
    UdpEndpointOptions o;
    o.stream = stream;
    o.window = window;
    const Place place(folder, o);
    const auto reader = place.reader();
    PlainSender from(place.options.at.port, c);
    from.setup();
    while (reader->sessions().empty()) reader->run_duty_cycle(), reader->peek(), from.answer();
    bare::OneWay plain(false);
    const std::vector<size_t> burst = c.burst();
    const size_t bytes = c.datagrams * c.datagram();
    for (size_t warm = 0; warm < size_t{3} * term_length; warm += bytes) from.feed(), reader->run_duty_cycle(), read(*reader, c);
    Spent ours, taken, reference;
    for (int round = 0; round < rounds; ++round) {
        spend(ours, c, limit_ns / rounds, [&] {
            from.feed();
            const int64_t spent = timed([&] { reader->run_duty_cycle(); });
            taken.ns += timed([&] { read(*reader, c); });
            return spent;
        });
        spend(reference, c, limit_ns / rounds, [&] {
            plain.send_many(burst);
            return timed([&] { plain.receive(bytes); });
        });
    }
    taken.datagrams = ours.datagrams;
    CHECK(reader->counts().coalesced == 0 && reader->counts().losses == 0);
    std::printf("{\"case\": \"%s\", \"half\": \"receiver\", \"ns\": %.1f, \"bare_ns\": %.1f, \"log_ns\": %.1f}\n", c.name,
                ours.each(), reference.each(), taken.each());
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    const int64_t limit = quick ? 20'000'000 : 800'000'000;
    const Folder folder;
    for (const Case &c : cases) {
        sender(folder, c, limit);
        receiver(folder, c, limit);
    }
    CHECK(Conductor::instance().finish(20'000'000'000));
    folder.check_empty();
    return 0;
}
