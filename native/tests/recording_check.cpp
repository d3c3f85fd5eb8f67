// CRC32C against its published vectors, the finder of single wrong bytes against every place and value, and scans of
// damaged files: an error or the right data, never a crash.
#include "support.hpp"

#include "record/recording_scan.hpp"
#include "record/segment_verify.hpp"

#include <sys/stat.h>

using namespace penstock;
using namespace penstock::test;

namespace {

void checksum() {
    CHECK(crc32c("123456789", 9) == 0xe3069283); // RFC 3720's check value
    uint8_t zeros[32] = {};
    CHECK(crc32c(zeros, 32) == 0x8a9136aa);
    std::mt19937_64 random(7);
    std::vector<uint8_t> bytes(1000);
    for (uint8_t &byte : bytes) byte = static_cast<uint8_t>(random());
    const uint32_t sum = crc32c(bytes.data(), bytes.size());
    CHECK(sum == ~crc_detail::by_table(~0u, bytes.data(), bytes.size()));
    CHECK(sum == crc32c(bytes.data() + 100, 900, crc32c(bytes.data(), 100)));
    std::vector<uint8_t> large(20'000);
    for (uint8_t &byte : large) byte = static_cast<uint8_t>(random());
    for (size_t length = 0; length <= large.size(); length += 1 + random() % 500)
        CHECK(crc32c(large.data(), length) == ~crc_detail::by_table(~0u, large.data(), length), "length %zu", length);
    for (size_t i = 0; i < bytes.size(); ++i) {
        const auto change = static_cast<uint8_t>(1 + random() % 255);
        bytes[i] ^= change;
        ByteError error;
        CHECK(find_byte_error(crc32c(bytes.data(), bytes.size()), sum, bytes.size(), error));
        CHECK(error.offset == i && error.change == change);
        bytes[i] ^= change;
    }
}

std::string write_file(const std::string &name, const std::vector<uint8_t> &bytes) {
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK(::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    ::close(fd);
    return name;
}

struct Recorded {
    std::vector<uint8_t> data, index;
};

class MemorySink final : public ByteSink {
  public:
    explicit MemorySink(std::vector<uint8_t> &bytes) : bytes_(bytes) {}
    void write_at(uint64_t offset, const void *data, size_t length) override {
        if (bytes_.size() < offset + length) bytes_.resize(offset + length);
        std::memcpy(bytes_.data() + offset, data, length);
    }
    void sync() override {}

  private:
    std::vector<uint8_t> &bytes_;
};

constexpr uint32_t messages_recorded = 60;

Recorded record_something() {
    LogGeometry g;
    g.term_length = g.window = 64 * 1024;
    const Channel channel(g);
    auto reader = channel.reader();
    auto writer = channel.writer();
    Recorded made;
    IndexHeader header;
    header.term_length = g.term_length;
    SegmentWriter segment(std::make_unique<MemorySink>(made.data), std::make_unique<MemorySink>(made.index), header, 0, 0, 0);
    std::vector<uint8_t> buffer;
    for (uint32_t i = 0; i < messages_recorded; ++i) {
        buffer.resize(sizeof(Proof) + i * 37 % 700);
        if (i == 20) buffer.resize(writer->payload_max() + 500); // in fragments
        fill(buffer.data(), 1, i, static_cast<uint32_t>(buffer.size()));
        PendingSend sending{buffer.data(), buffer.size()};
        CHECK(writer->send_some(sending));
        for (auto run = reader->run(block_max); run.length != 0; run = reader->run(block_max)) {
            segment.append(run, 1, [] {});
            reader->take_run(run);
        }
    }
    segment.seal(2);
    return made;
}

// How many messages a scan gives. said: whether it says that anything is wrong. lost: bytes that it counts in front of messages.
uint64_t scan(const std::string &data, const std::string &index, bool &said, uint64_t &left_out) {
    const ScanOptions options;
    Scan scan({{data, index}}, options);
    uint64_t rows = 0;
    for (;;) {
        BatchBuilder batch(column_position | column_payload);
        if (!scan.fill(batch)) break;
        rows += batch.rows();
    }
    said = !scan.left_out().empty();
    left_out = 0;
    for (const LeftOut &one : scan.left_out()) left_out += one.end - one.start;
    return rows;
}

// A flipped byte of a file, or its end cut off (`flip` 0), mended when this goes.
class Wound {
  public:
    Wound(const std::string &path, const std::vector<uint8_t> &whole, size_t at, uint8_t flip)
        : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)), whole_(whole), at_(at), flip_(flip) {
        const auto bad = static_cast<uint8_t>(whole[at] ^ flip);
        CHECK(fd_ >= 0 &&
              (flip == 0 ? ftruncate(fd_, static_cast<off_t>(at)) == 0 : pwrite(fd_, &bad, 1, static_cast<off_t>(at)) == 1));
    }
    ~Wound() {
        const auto length = static_cast<ssize_t>(cut() ? whole_.size() - at_ : 1);
        CHECK(pwrite(fd_, whole_.data() + at_, static_cast<size_t>(length), static_cast<off_t>(at_)) == length);
        ::close(fd_);
    }
    Wound(const Wound &) = delete;
    Wound &operator=(const Wound &) = delete;
    bool cut() const { return flip_ == 0; }

  private:
    const int fd_;
    const std::vector<uint8_t> &whole_;
    const size_t at_;
    const uint8_t flip_;
};

void damaged_files(uint64_t rounds, uint64_t seed) {
    std::mt19937_64 random(seed);
    const Recorded good = record_something();
    const std::string folder = "/dev/shm/penstock-native-" + std::to_string(getpid());
    CHECK(::mkdir(folder.c_str(), 0700) == 0);
    const std::string stem = folder + "/00000000000000000000"; // a segment's name says where it begins
    const std::string data = write_file(stem + ".seg", good.data), index = write_file(stem + ".idx", good.index);
    bool said;
    uint64_t left_out;
    std::vector<uint64_t> bad;
    CHECK(scan(data, index, said, left_out) == messages_recorded && !said);
    CHECK(verify_segment(data, index, bad).empty());
    const SegmentIndex whole_index = read_index(index);
    for (uint64_t i = 0; i < rounds; ++i) {
        const bool in_data = random() % 2 != 0;
        const std::vector<uint8_t> &whole = in_data ? good.data : good.index;
        const size_t place = random() % whole.size();
        const Wound wound(in_data ? data : index, whole, place,
                          random() % 4 != 0 ? static_cast<uint8_t>(1 + random() % 255) : uint8_t{0});
        const bool cut_between_entries = !in_data && wound.cut();
        const auto problems = verify_segment(data, index, bad);
        CHECK(!problems.empty() || cut_between_entries, "seed %lu round %lu", (unsigned long)seed, (unsigned long)i);
        const uint64_t rows = scan(data, index, said, left_out);
        CHECK(rows <= messages_recorded);
        CHECK(said || cut_between_entries, "seed %lu round %lu", (unsigned long)seed, (unsigned long)i);
        if (wound.cut()) continue;
        // One byte costs the block that it is in, or whose entry it is in, with the messages that have a part there.
        uint64_t begins = 0, most = 0, longest = 0;
        for (const IndexEntry &entry : whole_index.entries) {
            begins = std::max<uint64_t>(begins, entry.begins);
            longest = std::max<uint64_t>(longest, entry.length);
        }
        most = begins + 1;
        CHECK(rows + most >= messages_recorded, "seed %lu round %lu: %lu messages", (unsigned long)seed, (unsigned long)i,
              (unsigned long)rows);
        CHECK(left_out <= longest || !in_data);
        CHECK(bad.size() == (in_data ? 1u : 0u), "seed %lu round %lu", (unsigned long)seed, (unsigned long)i);
    }
    ::unlink(data.c_str());
    ::unlink(index.c_str());
    ::rmdir(folder.c_str());
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = argument(argc, argv, "--seed", std::random_device{}());
    const uint64_t rounds = argument(argc, argv, "--rounds", 300);
    std::printf("recording_check --seed %lu --rounds %lu\n", (unsigned long)seed, (unsigned long)rounds);
    checksum();
    damaged_files(rounds, seed);
    std::puts("checksums right, damage found");
    return 0;
}
