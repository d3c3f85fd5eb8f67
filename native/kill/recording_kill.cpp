// Kills a recorder after every one of its instructions. Its files are copied whenever they changed; another process must find in
// the copy a valid prefix of the log, and be able to go on from there to the end.
#include "../tests/support.hpp"
#include "record/recording_scan.hpp"
#include "record/segment_verify.hpp"
#include "tracer.hpp"

#include <chrono>

using namespace penstock;
using namespace penstock::test;
using penstock::kill_room::Victim;

namespace {

constexpr uint64_t T = 64 * 1024;

std::vector<uint8_t> content(int fd) {
    std::vector<uint8_t> bytes(size_of_file(fd));
    CHECK(pread(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return bytes;
}

// A file that is only a descriptor; others read it by its name under /proc.
struct MemoryFile {
    MemoryFile() : fd(memfd_create("segment", MFD_CLOEXEC)) { CHECK(fd >= 0); }
    ~MemoryFile() { ::close(fd); }
    MemoryFile(const MemoryFile &) = delete;
    MemoryFile &operator=(const MemoryFile &) = delete;
    std::string path() const { return "/proc/self/fd/" + std::to_string(fd); }
    void fill(const std::vector<uint8_t> &bytes) const {
        CHECK(ftruncate(fd, 0) == 0);
        CHECK(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    }
    std::unique_ptr<FileSink> sink() const { return std::make_unique<FileSink>(dup(fd), path()); }
    int fd;
};

struct Case {
    uint64_t seed;
    uint32_t messages, longest;
    uint64_t start;
    bool seals;
};

struct Plan {
    explicit Plan(const Case &at) : channel(geometry(at)), writer(channel.writer()) {
        std::mt19937_64 random(at.seed);
        std::vector<uint8_t> buffer;
        for (uint32_t i = 0; i < at.messages; ++i) {
            buffer.resize(sizeof(Proof) + random() % at.longest);
            fill(buffer.data(), 1, i, static_cast<uint32_t>(buffer.size()));
            PendingSend sending{buffer.data(), buffer.size()};
            CHECK(writer->send_some(sending));
        }
        header.term_length = static_cast<uint32_t>(T);
        header.base = static_cast<int64_t>(at.start);
    }
    static LogGeometry geometry(const Case &at) {
        LogGeometry g;
        g.term_length = g.window = T;
        g.start_position = at.start;
        return g;
    }
    // Records everything from `from` on in blocks of at most `most` bytes.
    void record(SegmentWriter &segment, LogReader &reader, uint64_t most, bool seals) const {
        for (auto run = reader.run(most); run.length != 0; run = reader.run(most)) {
            segment.append(run, 7, [] {});
            reader.take_run(run);
        }
        segment.sync();
        if (seals) segment.seal(8);
        segment.sync();
    }
    Channel channel;
    std::shared_ptr<LogWriter> writer;
    IndexHeader header;
};

struct Result {
    uint64_t steps = 0, states = 0, kills = 0, failures = 0;
    std::string first;
};

uint64_t rows_of(const MemoryFile &data, const MemoryFile &index) {
    const ScanOptions options;
    Scan scan({{data.path(), index.path()}}, options);
    uint64_t rows = 0;
    for (;;) {
        BatchBuilder batch(column_position | column_payload);
        if (!scan.fill(batch)) return rows;
        rows += batch.rows();
    }
}

// Another process's findings, and whether the recording can be continued. `least`: bytes that were reported as synced.
std::string recover(const Plan &plan, const Case &at, const std::vector<uint8_t> &data_bytes,
                    const std::vector<uint8_t> &index_bytes) {
    const MemoryFile data, index;
    data.fill(data_bytes);
    index.fill(index_bytes);
    SegmentIndex known = read_index(index.path());
    if (index_bytes.size() < sizeof(IndexHeader)) return {}; // an index without its header has no name yet
    if (!known.problems.empty()) return "the index is damaged: " + known.problems[0].what;
    std::vector<uint64_t> bad;
    const auto problems = verify_segment(data.path(), index.path(), bad);
    if (!problems.empty()) return "damage: " + problems[0].what;
    const auto *log = reinterpret_cast<const uint8_t *>(plan.channel.open()->frame(at.start));
    if (std::memcmp(log, data_bytes.data(), known.data_length) != 0) return "the prefix is not what was in the log";
    rows_of(data, index);
    // Go on: cut what was not published, record the rest.
    if (known.sealed) return rows_of(data, index) == at.messages ? "" : "sealed without all messages";
    CHECK(ftruncate(data.fd, static_cast<off_t>(known.data_length)) == 0);
    CHECK(ftruncate(index.fd, static_cast<off_t>(sizeof(IndexHeader) + known.entries.size() * sizeof(IndexEntry))) == 0);
    uint64_t messages = 0;
    for (const IndexEntry &entry : known.entries) messages += entry.begins;
    SegmentWriter segment(data.sink(), index.sink(), plan.header, known.entries.size(), known.data_length, messages);
    auto reader = plan.channel.reader({Start::From::position, at.start + known.data_length});
    plan.record(segment, *reader, 1 << 20, true);
    if (!verify_segment(data.path(), index.path(), bad).empty()) return "damage after going on";
    const uint64_t rows = rows_of(data, index);
    return rows == at.messages ? "" : std::to_string(rows) + " messages after going on";
}

void walk(const Case &at, Result &result, uint64_t kills) {
    const Plan plan(at);
    const MemoryFile data, index;
    std::shared_ptr<LogReader> reader;
    const auto prepare = [&] { reader = plan.channel.reader({Start::From::earliest, 0}); };
    const auto act = [&] {
        SegmentWriter segment(data.sink(), index.sink(), plan.header, 0, 0, 0);
        plan.record(segment, *reader, 700, at.seals);
    };
    std::vector<uint64_t> changes;
    uint64_t step = 0;
    const auto check = [&](uint64_t place, const char *how) {
        std::string wrong;
        try {
            wrong = recover(plan, at, content(data.fd), content(index.fd));
        } catch (const Error &error) {
            wrong = error.what();
        }
        if (!wrong.empty() && result.failures++ == 0)
            result.first = "--seed " + std::to_string(at.seed) + " " + how + " at step " + std::to_string(place) + ": " + wrong;
    };
    {
        Victim child(prepare, act);
        uint64_t last_data = 0, last_index = 0;
        while (child.step()) {
            ++step;
            const uint64_t now_data = size_of_file(data.fd), now_index = size_of_file(index.fd); // both only grow
            if (now_data == last_data && now_index == last_index) continue;
            last_data = now_data;
            last_index = now_index;
            ++result.states;
            changes.push_back(step);
            check(step, "copied");
        }
    }
    result.steps += step;
    std::mt19937_64 random(at.seed ^ 77);
    for (uint64_t i = 0; i < kills; ++i) {
        CHECK(ftruncate(data.fd, 0) == 0 && ftruncate(index.fd, 0) == 0);
        const uint64_t place = i < changes.size() ? changes[i] : 1 + random() % step;
        {
            Victim child(prepare, act);
            for (uint64_t done = 0; done < place && child.step(); ++done) {
            }
        }
        ++result.kills;
        check(place, "killed");
    }
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = argument(argc, argv, "--seed", 1), rounds = argument(argc, argv, "--rounds", 4);
    const uint64_t kills = argument(argc, argv, "--kills", 20);
    std::mt19937_64 random(seed);
    const uint64_t edges[] = {0, (uint64_t{1} << 31) - T, (uint64_t{1} << 32) - T, (uint64_t{1} << 48) - T};
    Result result;
    const auto begun = std::chrono::steady_clock::now();
    for (uint64_t round = 0; round < rounds; ++round) {
        Case at;
        at.seed = seed + round;
        at.messages = static_cast<uint32_t>(3 + random() % 12);
        at.longest = static_cast<uint32_t>(10 + random() % 600);
        at.start = edges[random() % 4];
        at.seals = random() % 3 != 0;
        walk(at, result, kills);
    }
    std::printf("{\"operation\": \"record and seal\", \"steps\": %lu, \"states\": %lu, \"kills\": %lu, \"failures\": %lu, "
                "\"seconds\": %.2f, \"first\": \"%s\"}\n",
                (unsigned long)result.steps, (unsigned long)result.states, (unsigned long)result.kills,
                (unsigned long)result.failures, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(),
                result.first.c_str());
    return result.failures == 0 ? 0 : 1;
}
