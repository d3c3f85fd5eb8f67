// The network log's core: CPU time of a message from publish to read, both ends in one process over loopback, terms larger than
// any cache. JSON lines; udp_bare has what the same bytes cost without the library.
#include "check.hpp"
#include "net/udp_ends.hpp"

#include <random>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr size_t term_length = 16 << 20;

int64_t cpu_ns() { return system_ns(CLOCK_PROCESS_CPUTIME_ID); }

struct Shape {
    const char *name;
    std::vector<size_t> lengths; // of one burst
};

uint16_t free_port() {
    UdpSocket probe(parse_address("127.0.0.1", 0), "bench");
    probe.bind(parse_address("127.0.0.1", 0));
    return probe.bound().port;
}

class Pair {
  public:
    explicit Pair(const std::string &folder) {
        UdpEndpointOptions at;
        at.at = parse_address("127.0.0.1", free_port());
        at.window = 2 << 20;
        path_ = folder + "/bench.endpoint";
        const OpenFile file = make_file(path_, endpoint_file_size(at.slot_count), [&](int fd) {
            const uint8_t boot[16] = {};
            format_endpoint(fd, at, "{}", boot, 0);
        });
        reader = std::make_unique<UdpReader>(file.fd(), path_, Start{}, 0);
        UdpWriterOptions to;
        to.to = at.at;
        to.term_length = term_length;
        to.window = 2 << 20;
        writer = std::make_unique<UdpWriter>("udp:bench", folder + "/bench.", to);
        while (writer->receivers() == 0) {
            const uint32_t ticket = writer->prepare();
            writer->sleep(ticket, 1'000'000);
            reader->peek();
        }
    }
    ~Pair() { ::unlink(path_.c_str()); }
    Pair(const Pair &) = delete;
    Pair &operator=(const Pair &) = delete;

    void burst(const std::vector<IoVec> &pieces, bool many) {
        size_t sent = 0;
        if (many) sent = writer->offer_many(pieces.data(), pieces.size());
        else
            while (sent < pieces.size() && one(pieces[sent])) ++sent;
        CHECK(sent == pieces.size(), "no room after %zu", sent);
        writer->flush();
        for (const IoVec &piece : pieces) {
            const Message *message;
            while ((message = reader->peek()) == nullptr) writer->flush();
            CHECK(message->length == piece.length && message->data[0] == 7);
            reader->consume();
        }
    }
    std::unique_ptr<UdpReader> reader;
    std::unique_ptr<UdpWriter> writer;

  private:
    bool one(const IoVec &piece) {
        if (piece.length <= writer->payload_max()) return writer->offer(piece.data, piece.length) != no_room;
        PendingSend sending{static_cast<const uint8_t *>(piece.data), piece.length};
        return writer->send_some(sending);
    }
    std::string path_;
};

void measure(const std::string &folder, const Shape &shape, const char *way, bool many, int64_t limit_ns) {
    Pair pair(folder);
    const std::vector<uint8_t> bytes(*std::max_element(shape.lengths.begin(), shape.lengths.end()), 7);
    std::vector<IoVec> pieces;
    for (const size_t length : shape.lengths) pieces.push_back({bytes.data(), length});
    size_t bytes_of_burst = 0;
    for (const size_t length : shape.lengths) bytes_of_burst += align_frame(length + header_length);
    // Once through all terms of both logs: the system makes a page when it is touched first.
    for (size_t warm = 0; warm <= 3 * term_length; warm += bytes_of_burst) pair.burst(pieces, many);
    double messages = 0;
    const int64_t begun = cpu_ns();
    int64_t now = begun;
    for (; now - begun < limit_ns; now = cpu_ns()) {
        pair.burst(pieces, many);
        messages += static_cast<double>(pieces.size());
    }
    const UdpCounts there = pair.writer->counts(), back = pair.reader->counts();
    std::printf("{\"case\": \"%s\", \"way\": \"%s\", \"ns\": %.2f, \"segmented\": %.3f, \"coalesced\": %.3f}\n", shape.name, way,
                static_cast<double>(now - begun) / messages,
                static_cast<double>(there.segmented) / static_cast<double>(std::max<uint64_t>(1, there.datagrams_sent)),
                static_cast<double>(back.coalesced) / static_cast<double>(std::max<uint64_t>(1, back.datagrams_received)));
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    std::string name = "/dev/shm/penstock-udp-bench-" + std::string(6, 'X');
    CHECK(mkdtemp(name.data()) != nullptr);
    std::mt19937_64 random(1); // as udp_bare's
    Shape mixed{"mixed", {}};
    for (int i = 0; i < 110; ++i) mixed.lengths.push_back(16 + random() % 1009);
    const Shape shapes[] = {
        {"64 B", std::vector<size_t>(46 * 14, 64)}, {"1 KiB", std::vector<size_t>(60, 1024)}, {"64 KiB", {65536}}, mixed};
    for (const Shape &shape : shapes) { // all, or the one that is named: for a profiler
        if (argc > 1 && !quick && shape.name != std::string(argv[1])) continue;
        const int64_t limit = quick ? 5'000'000 : 400'000'000;
        measure(name, shape, "network log", false, limit);
        if (shape.lengths.size() > 1) measure(name, shape, "network log, batches", true, limit);
    }
    CHECK(Conductor::instance().finish(20'000'000'000));
    CHECK(rmdir(name.c_str()) == 0, "something was left in %s", name.c_str());
    return 0;
}
