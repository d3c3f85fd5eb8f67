// A recording's segment: raw frames in one file, a checked index of blocks in another. This file knows their bytes and
// how they are appended; segment_index.hpp and recording_scan.hpp read them. Format: docs/design/recording.md.
#pragma once

#include "ground/checksum.hpp"
#include "ground/error.hpp"
#include "ground/messages/message.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace penstock {

inline constexpr uint64_t index_magic = 0x3158444954534e50; // "PNSTIDX1", little-endian
inline constexpr uint32_t index_version = 1;
inline constexpr uint64_t block_max = 256 << 10; // summed, then written: the second pass finds it in the cache

struct IndexHeader {
    uint64_t magic = index_magic;     // 0
    uint32_t version = index_version; // 8
    uint32_t term_length = 0;         // 12
    int64_t base = 0;                 // 16: position of the segment's first byte
    int32_t initial_term_id = 0;      // 24
    int32_t stream = 0;               // 28
    uint64_t messages_before = 0;     // 32: messages begun in earlier segments
    uint64_t recording = 0;           // 40
    uint8_t spare[12] = {};           // 48
    uint32_t crc = 0;                 // 60: of the bytes before it
};
static_assert(sizeof(IndexHeader) == 64 && offsetof(IndexHeader, crc) == 60);

// hole: a block that was damaged. Its bytes stay in the file and no reader uses them; positions continue behind them.
enum class EntryKind : uint16_t { block = 0, gap = 1, seal = 2, hole = 3 };

struct IndexEntry {
    int64_t position = 0;         // 0: of the block's first frame; of the first byte missing; of the segment's end
    uint32_t length = 0;          // 8: bytes of the block
    uint32_t block_crc = 0;       // 12: CRC32C of those bytes
    int64_t time_min = 0;         // 16: of its messages' send times, ns; of a gap or a hole: the bytes missing
    int64_t time_max = 0;         // 24
    int64_t recorded_ns = 0;      // 32: when the recorder saw it
    uint64_t messages_before = 0; // 40: messages begun earlier in this recording
    uint32_t begins = 0;          // 48: messages that begin here
    uint16_t kind = 0;            // 52
    uint16_t spare = 0;           // 54
    uint32_t payload = 0;         // 56: payload bytes
    uint32_t crc = 0;             // 60: of the bytes before it
};
static_assert(sizeof(IndexEntry) == 64 && offsetof(IndexEntry, messages_before) == 40 && offsetof(IndexEntry, crc) == 60);

template <class Record> void seal_record(Record &record) { record.crc = crc32c(&record, offsetof(Record, crc)); }
template <class Record> bool record_intact(const Record &record) { return record.crc == crc32c(&record, offsetof(Record, crc)); }

// The destination of bytes. The real one writes to a descriptor; a test's may lose or tear bytes that were not synced.
class ByteSink {
  public:
    virtual ~ByteSink() = default;
    virtual void write_at(uint64_t offset, const void *data, size_t length) = 0;
    virtual void sync() = 0;
};

class FileSink final : public ByteSink {
  public:
    FileSink(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
    ~FileSink() override { ::close(fd_); }
    FileSink(const FileSink &) = delete;
    FileSink &operator=(const FileSink &) = delete;
    void write_at(uint64_t offset, const void *data, size_t length) override {
        const auto *bytes = static_cast<const uint8_t *>(data);
        while (length != 0) {
            const ssize_t written = ::pwrite(fd_, bytes, length, static_cast<off_t>(offset));
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) fail_system("cannot write " + path_, written < 0 ? errno : ENOSPC);
            bytes += written;
            offset += static_cast<uint64_t>(written);
            length -= static_cast<size_t>(written);
        }
    }
    void sync() override {
        if (::fdatasync(fd_) != 0) fail_system("cannot sync " + path_);
    }

  private:
    int fd_;
    std::string path_;
};

// Appends to one segment. A block counts once its index entry is written, which happens after its bytes are.
class SegmentWriter {
  public:
    // Begins a segment, or, with `entries` > 0, continues after that many index entries.
    SegmentWriter(std::unique_ptr<ByteSink> data, std::unique_ptr<ByteSink> index, const IndexHeader &header, uint64_t entries,
                  uint64_t data_length, uint64_t messages_before)
        : data_(std::move(data)), index_(std::move(index)), header_(header),
          index_end_(sizeof(IndexHeader) + entries * sizeof(IndexEntry)), length_(data_length), messages_(messages_before),
          position_(static_cast<uint64_t>(header.base) + data_length) {
        if (entries != 0) return;
        seal_record(header_);
        index_->write_at(0, &header_, sizeof header_);
    }

    // `intact` is asked after the copy and throws if writers went over the run meanwhile: then nothing was appended.
    template <class Intact> void append(const FrameBlock &run, int64_t recorded_ns, Intact &&intact) {
        IndexEntry entry;
        entry.position = static_cast<int64_t>(position_);
        entry.length = static_cast<uint32_t>(run.length);
        entry.block_crc = crc32c(run.data, run.length);
        data_->write_at(length_, run.data, run.length);
        intact();
        entry.time_min = run.time_min == INT64_MAX ? 0 : run.time_min;
        entry.time_max = run.time_max == INT64_MIN ? 0 : run.time_max;
        entry.recorded_ns = recorded_ns;
        entry.messages_before = messages_;
        entry.begins = run.begins;
        entry.payload = static_cast<uint32_t>(run.payload);
        add(entry);
        position_ += run.length;
        length_ += run.length;
        messages_ += run.begins;
    }
    // The channel went on without us. A segment holds no hole: the caller begins a new one at the gap's end.
    void append_gap(uint64_t bytes, int64_t recorded_ns) {
        IndexEntry entry;
        entry.position = static_cast<int64_t>(position_);
        entry.time_min = static_cast<int64_t>(bytes);
        entry.recorded_ns = recorded_ns;
        entry.messages_before = messages_;
        entry.kind = static_cast<uint16_t>(EntryKind::gap);
        add(entry);
    }
    void seal(int64_t recorded_ns) {
        IndexEntry entry;
        entry.position = static_cast<int64_t>(position_);
        entry.recorded_ns = recorded_ns;
        entry.messages_before = messages_;
        entry.kind = static_cast<uint16_t>(EntryKind::seal);
        add(entry);
    }
    // Afterwards everything below position() is durable.
    void sync() {
        data_->sync();
        index_->sync();
    }
    uint64_t position() const { return position_; }
    uint64_t length() const { return length_; }
    uint64_t messages() const { return messages_; }

  private:
    void add(IndexEntry &entry) {
        seal_record(entry);
        index_->write_at(index_end_, &entry, sizeof entry);
        index_end_ += sizeof entry;
    }

    std::unique_ptr<ByteSink> data_, index_;
    IndexHeader header_;
    uint64_t index_end_, length_, messages_, position_;
};

} // namespace penstock
