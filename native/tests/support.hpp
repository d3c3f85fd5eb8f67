// Shared by native tests: a channel file in memory, random numbers from a seed, checks that name the place.
#pragma once

#include "check.hpp"
#include "frames/frame_reader.hpp"
#include "frames/frame_writer.hpp"
#include "log/log_reader.hpp"
#include "log/log_writer.hpp"
#include "pipe/pipe_tap.hpp"
#include "ring/ring_reader.hpp"
#include "ring/ring_writer.hpp"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace penstock::test {

// A log in anonymous memory. Handles share one mapping, so that sanitizers see all accesses at the same addresses.
class Channel {
  public:
    explicit Channel(LogGeometry g = {}) : geometry(g) {
        fd_ = memfd_create("penstock-test", MFD_CLOEXEC);
        CHECK(fd_ >= 0);
        const uint64_t size = log_file_size(g.slot_count, g.term_length, Kind::log, g.last);
        CHECK(posix_fallocate(fd_, 0, static_cast<off_t>(size)) == 0);
        const uint8_t boot[16] = {};
        format_log(fd_, g, "{}", boot, 0);
        map = std::make_shared<Mapping>(fd_, size, true);
    }
    ~Channel() { ::close(fd_); }
    std::shared_ptr<TermLog> open() const {
        return std::make_shared<TermLog>(fd_, "test", map, Kind::log, MonotonicClock(clock));
    }
    std::shared_ptr<LogWriter> writer(bool exclusive = false, const std::string &name = {}) const {
        return std::make_shared<LogWriter>(open(), exclusive, nullptr, name);
    }
    std::shared_ptr<LogReader> reader(Start start = {}, uint64_t drop_after_ns = 0, const std::string &name = {}) const {
        return std::make_shared<LogReader>(open(), start, drop_after_ns, name);
    }
    LogGeometry geometry;
    std::shared_ptr<Mapping> map;
    std::shared_ptr<ManualClock> clock; // of what is opened from now on; null: the machine's

  private:
    int fd_;
};

// The same for a ring.
class RingChannel {
  public:
    explicit RingChannel(const RingGeometry &g) : geometry(g), fd_(memfd_create("penstock-test", MFD_CLOEXEC)) {
        const uint64_t size = ring_file_size(g.slot_count, g.capacity);
        CHECK(fd_ >= 0 && posix_fallocate(fd_, 0, static_cast<off_t>(size)) == 0);
        const uint8_t boot[16] = {};
        format_ring(fd_, g, "{}", boot, 0);
        map = std::make_shared<Mapping>(fd_, size, true);
    }
    ~RingChannel() { ::close(fd_); }
    RingChannel(const RingChannel &) = delete;
    RingChannel &operator=(const RingChannel &) = delete;
    std::shared_ptr<Ring> open() const { return std::make_shared<Ring>(fd_, "ring", map); }
    std::shared_ptr<RingWriter> writer() const { return std::make_shared<RingWriter>(open(), nullptr); }
    std::shared_ptr<RingReader> reader(Start start = {}) const { return std::make_shared<RingReader>(open(), start, false); }
    const RingGeometry geometry;
    std::shared_ptr<Mapping> map;

  private:
    int fd_;
};

// The same for pipes.
class PipeChannel {
  public:
    explicit PipeChannel(const PipeGeometry &g) : geometry(g), fd_(memfd_create("penstock-test", MFD_CLOEXEC)) {
        CHECK(fd_ >= 0 && posix_fallocate(fd_, 0, static_cast<off_t>(g.file_size())) == 0);
        const uint8_t boot[16] = {};
        format_pipe(fd_, g, "{}", boot, 0);
        map = std::make_shared<Mapping>(fd_, g.file_size(), true);
    }
    ~PipeChannel() { ::close(fd_); }
    PipeChannel(const PipeChannel &) = delete;
    PipeChannel &operator=(const PipeChannel &) = delete;
    std::shared_ptr<PipePeer> peer(PeerRole role, WhenFull when_full = WhenFull::wait) const {
        return std::make_shared<PipePeer>(fd_, "pipe", role, "name", when_full, nullptr, map, MonotonicClock(clock));
    }
    const PipeGeometry geometry;
    std::shared_ptr<Mapping> map;
    std::shared_ptr<ManualClock> clock; // of peers from now on; null: the machine's

  private:
    int fd_;
};

// The same for frames.
class FrameChannel {
  public:
    explicit FrameChannel(const PoolGeometry &g) : geometry(g), fd_(memfd_create("penstock-test", MFD_CLOEXEC)) {
        CHECK(fd_ >= 0);
        CHECK(posix_fallocate(fd_, 0, static_cast<off_t>(g.file_size())) == 0);
        const uint8_t boot[16] = {};
        format_frames(fd_, g, "{}", boot, 0);
        map = std::make_shared<Mapping>(fd_, g.file_size(), true);
    }
    ~FrameChannel() { ::close(fd_); }
    FrameChannel(const FrameChannel &) = delete;
    FrameChannel &operator=(const FrameChannel &) = delete;
    std::shared_ptr<FramePool> open() const { return std::make_shared<FramePool>(fd_, "frames", map); }
    std::shared_ptr<FrameWriter> writer() const { return std::make_shared<FrameWriter>(open(), nullptr); }
    std::shared_ptr<FrameReader> reader(Start start = {}, bool conflate = false, bool waits = false) const {
        return std::make_shared<FrameReader>(open(), start, conflate, waits);
    }
    const PoolGeometry geometry;
    std::shared_ptr<Mapping> map;

  private:
    int fd_;
};

// A message that proves itself: who, which, and a sum over the filler.
struct Proof {
    uint32_t writer;
    uint32_t length;
    uint64_t number;
    uint64_t sum;
};
inline uint64_t sum_of(const uint8_t *bytes, size_t length, uint64_t start) {
    uint64_t sum = start * 0x9e3779b97f4a7c15ull + length;
    for (size_t i = 0; i < length; ++i) sum = (sum ^ bytes[i]) * 0x100000001b3ull;
    return sum;
}
inline void fill(uint8_t *to, uint32_t writer, uint64_t number, uint32_t length) {
    uint8_t *rest = to + sizeof(Proof);
    for (uint32_t i = 0; i < length - sizeof(Proof); ++i) rest[i] = static_cast<uint8_t>(number + i);
    const Proof proof{writer, length, number, sum_of(rest, length - sizeof(Proof), number)};
    std::memcpy(to, &proof, sizeof proof);
}
inline Proof check_message(const uint8_t *data, size_t length) {
    CHECK(length >= sizeof(Proof));
    Proof proof;
    std::memcpy(&proof, data, sizeof proof);
    CHECK(proof.length == length, "length %zu, says %u", length, proof.length);
    CHECK(proof.sum == sum_of(data + sizeof proof, length - sizeof proof, proof.number), "writer %u number %lu", proof.writer,
          static_cast<unsigned long>(proof.number));
    return proof;
}

} // namespace penstock::test
