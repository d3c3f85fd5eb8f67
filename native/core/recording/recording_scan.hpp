// Reads recordings: checked index, checked blocks, frames to whole messages to Arrow rows. Reads byte ranges, by pread where
// there are files, never a mapping: a file that shrinks is an error, not a signal. Believes no byte that its checksum does not
// cover.
#pragma once

#include "ground/arrow_batch.hpp"
#include "ground/assembler.hpp"
#include "ground/mapping.hpp"
#include "recording/recording.hpp"

#include <algorithm>
#include <fcntl.h>
#include <functional>
#include <optional>

namespace penstock {

// The bytes of a segment or of its index: a file, or an object of an object storage.
class ByteSource {
  public:
    virtual ~ByteSource() = default;
    // How many bytes there were, up to `length`.
    virtual size_t read_at(uint64_t offset, void *to, size_t length) const = 0;
    virtual uint64_t size() const = 0;
    virtual const std::string &path() const = 0;
};
using OpenSource = std::function<std::unique_ptr<ByteSource>(const std::string &path)>;

class ReadFile final : public ByteSource {
  public:
    explicit ReadFile(std::string path) : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
        if (fd_ < 0) fail_system("cannot open " + path_);
    }
    ~ReadFile() override { ::close(fd_); }
    ReadFile(const ReadFile &) = delete;
    ReadFile &operator=(const ReadFile &) = delete;
    size_t read_at(uint64_t offset, void *to, size_t length) const override {
        auto *bytes = static_cast<uint8_t *>(to);
        size_t done = 0;
        while (done < length) {
            const ssize_t got = ::pread(fd_, bytes + done, length - done, static_cast<off_t>(offset + done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail_system("cannot read " + path_);
            if (got == 0) break;
            done += static_cast<size_t>(got);
        }
        return done;
    }
    uint64_t size() const override { return size_of_file(fd_); }
    const std::string &path() const override { return path_; }

  private:
    std::string path_;
    int fd_;
};

inline std::unique_ptr<ByteSource> open_file(const std::string &path) { return std::make_unique<ReadFile>(path); }

struct Problem {
    std::string path;
    uint64_t offset; // first byte concerned
    uint64_t length;
    std::string what;
};

// The index of one segment: its header, its entries up to the first that is not intact, and what is wrong after them.
struct SegmentIndex {
    IndexHeader header;
    std::vector<IndexEntry> entries;
    uint64_t data_length = 0; // bytes that the entries cover
    uint64_t end = 0;         // position after them and after the gap that may follow: where the next segment begins
    bool sealed = false;
    std::vector<Problem> problems;
    uint64_t torn = 0; // bytes of an entry not fully written: normal after a crash
};

inline SegmentIndex read_index(const std::string &path, const OpenSource &open = open_file) {
    const std::unique_ptr<ByteSource> source = open(path);
    const ByteSource &file = *source;
    SegmentIndex index;
    if (file.read_at(0, &index.header, sizeof index.header) != sizeof index.header || !record_intact(index.header) ||
        index.header.magic != index_magic || index.header.version != index_version) {
        index.problems.push_back({path, 0, sizeof index.header, "the index's header is damaged or not an index's"});
        return index;
    }
    const uint64_t count = (file.size() - sizeof index.header) / sizeof(IndexEntry);
    index.torn = (file.size() - sizeof index.header) % sizeof(IndexEntry);
    index.entries.resize(count);
    const size_t got = file.read_at(sizeof index.header, index.entries.data(), count * sizeof(IndexEntry));
    index.entries.resize(got / sizeof(IndexEntry));
    uint64_t position = static_cast<uint64_t>(index.header.base), missing = 0;
    for (size_t i = 0; i < index.entries.size(); ++i) {
        const IndexEntry &entry = index.entries[i];
        const uint64_t offset = sizeof(IndexHeader) + i * sizeof(IndexEntry);
        std::string what;
        if (!record_intact(entry)) what = "an index entry is damaged";
        else if (static_cast<uint64_t>(entry.position) != position) what = "an index entry does not follow the one before it";
        else if (index.sealed) what = "an index entry follows the seal";
        else if (entry.kind > static_cast<uint16_t>(EntryKind::seal)) what = "an index entry has an unknown kind";
        else if (entry.kind == static_cast<uint16_t>(EntryKind::block) &&
                 (entry.length < header_length || entry.length % frame_alignment != 0))
            what = "an index entry has an impossible length";
        if (!what.empty()) {
            index.problems.push_back({path, offset, sizeof(IndexEntry), what});
            index.entries.resize(i);
            break;
        }
        if (entry.kind == static_cast<uint16_t>(EntryKind::block)) position += entry.length;
        if (entry.kind == static_cast<uint16_t>(EntryKind::gap)) missing += static_cast<uint64_t>(entry.time_min);
        index.sealed = entry.kind == static_cast<uint16_t>(EntryKind::seal);
    }
    index.data_length = position - static_cast<uint64_t>(index.header.base);
    index.end = position + missing;
    if (index.sealed && index.torn != 0)
        index.problems.push_back({path, file.size() - index.torn, index.torn, "bytes follow the sealed index"});
    return index;
}

// Walks the frames of a block; how far it came, which is the block's length unless something there is no frame.
// `visit(word0, header, position)`.
template <class Visit> uint64_t walk_frames(const uint8_t *bytes, const IndexEntry &entry, uint32_t term_length, Visit &&visit) {
    uint64_t at = 0;
    while (at < entry.length) {
        uint64_t word0 = 0;
        if (entry.length - at >= header_length) std::memcpy(&word0, bytes + at, sizeof word0);
        const int32_t length = frame_length(word0);
        const uint64_t position = static_cast<uint64_t>(entry.position) + at;
        const uint64_t step = align_frame(static_cast<uint32_t>(length));
        const uint64_t left = term_length == 0 ? UINT64_MAX : term_length - position % term_length;
        if (length < static_cast<int32_t>(header_length) || step > entry.length - at || step > left ||
            frame_type(word0) > static_cast<uint16_t>(FrameType::data))
            return at;
        visit(word0, bytes + at, position);
        at += step;
    }
    return at;
}

// The same for a block whose checksum was right: then something else than a frame is `corrupt`.
template <class Visit>
void walk_block(const uint8_t *bytes, const IndexEntry &entry, uint32_t term_length, const std::string &path, uint64_t offset,
                Visit &&visit) {
    const uint64_t at = walk_frames(bytes, entry, term_length, visit);
    if (at < entry.length)
        throw Error(Code::corrupt, path + ": no frame begins at byte " + std::to_string(offset + at) + " (position " +
                                       std::to_string(static_cast<uint64_t>(entry.position) + at) + ")");
}

inline std::string describe_damage(const uint8_t *bytes, const IndexEntry &entry, uint32_t found, uint64_t offset) {
    ByteError error;
    std::string what = "the checksum of the block at position " + std::to_string(entry.position) + " is wrong";
    if (find_byte_error(found, entry.block_crc, entry.length, error))
        what += ": byte " + std::to_string(offset + error.offset) + " alone explains it (it is " +
                std::to_string(bytes[error.offset]) + ", was " + std::to_string(bytes[error.offset] ^ error.change) + ")";
    return what;
}

// Checks every byte of a segment. Nothing found: the index's entries and the blocks they cover are what was written.
inline std::vector<Problem> verify_segment(const std::string &data_path, const std::string &index_path, uint64_t &valid_entries,
                                           const OpenSource &open = open_file) {
    SegmentIndex index = read_index(index_path, open);
    std::vector<Problem> problems = index.problems;
    valid_entries = index.entries.size();
    const std::unique_ptr<ByteSource> source = open(data_path);
    const ByteSource &data = *source;
    const uint64_t size = data.size();
    std::vector<uint8_t> block;
    uint64_t offset = 0;
    for (size_t i = 0; i < index.entries.size(); ++i) {
        const IndexEntry &entry = index.entries[i];
        if (entry.kind != static_cast<uint16_t>(EntryKind::block)) continue;
        // No more than there is: a length is believed only as far as the file goes.
        block.resize(std::min<uint64_t>(entry.length, size > offset ? size - offset : 0));
        const size_t got = data.read_at(offset, block.data(), block.size());
        std::string what;
        ByteError error;
        uint64_t at = offset, length = entry.length;
        const uint32_t found = got == entry.length ? crc32c(block.data(), entry.length) : 0;
        if (got != entry.length) {
            what = "the segment ends inside the block at position " + std::to_string(entry.position);
            at = offset + got;
            length = entry.length - got;
        } else if (found != entry.block_crc) {
            what = describe_damage(block.data(), entry, found, offset);
            if (find_byte_error(found, entry.block_crc, entry.length, error)) {
                at = offset + error.offset;
                length = 1;
            }
        } else {
            try {
                walk_block(block.data(), entry, index.header.term_length, data_path, offset,
                           [](uint64_t, const uint8_t *, uint64_t) {});
            } catch (const Error &wrong) {
                what = wrong.what();
            }
        }
        if (!what.empty()) {
            problems.push_back({data_path, at, length, what});
            valid_entries = std::min<uint64_t>(valid_entries, i);
        }
        offset += entry.length;
    }
    if (index.sealed && data.size() > offset)
        problems.push_back({data_path, offset, data.size() - offset, "bytes follow the sealed segment"});
    return problems;
}

struct ScanOptions {
    uint64_t start = 0, end = UINT64_MAX;               // messages that begin in here; both ends of blocks or of the recording
    int64_t time_min = INT64_MIN, time_max = INT64_MAX; // and were sent in here, inclusive
    bool frames = false;                                // each data frame as it is, fragments included
    uint64_t batch_rows = 32768, batch_bytes = 64 << 20;
};

// Messages of a range of a recording, batch by batch.
class Scan {
  public:
    struct Segment {
        std::string data_path, index_path;
    };
    // later: gives the segments behind the given ones. It is asked once, and only if a message begins in the range and ends
    // there.
    using Later = std::function<std::vector<Segment>()>;
    Scan(std::vector<Segment> segments, ScanOptions options, OpenSource open = open_file, Later later = nullptr)
        : segments_(std::move(segments)), options_(std::move(options)), later_(std::move(later)), open_(std::move(open)) {}

    // Adds rows until the batch is full or the range ends; false once nothing is left.
    bool fill(BatchBuilder &batch) {
        for (;;) {
            while (at_ < end_) {
                if (batch.rows() >= options_.batch_rows || batch.payload_bytes() >= options_.batch_bytes) return true;
                step(batch);
            }
            if (!next_block()) return batch.rows() != 0;
        }
    }

    // Where a later scan or a live subscription must begin so that every message not yet given out is seen whole.
    uint64_t resume() const { return std::min(assembler_.oldest(), position_ + at_); }

  private:
    // Reads ahead: one pread for as many neighbouring blocks as fit.
    bool next_block() {
        for (;;) {
            if (!index_ || entry_ >= index_->entries.size()) {
                if (segment_ >= segments_.size() && !look_further()) return false;
                open_segment(segments_[segment_++]);
                continue;
            }
            const IndexEntry &entry = index_->entries[entry_++];
            const auto position = static_cast<uint64_t>(entry.position);
            const bool late = position >= options_.end;
            // Past the range only what began in it is still wanted, and no further than a message can be long.
            if (late && (assembler_.empty() || position - options_.end > 2 * message_max)) return false;
            if (entry.kind == static_cast<uint16_t>(EntryKind::gap)) {
                note_gap(position, static_cast<uint64_t>(entry.time_min));
                assembler_.clear();
                continue;
            }
            if (entry.kind != static_cast<uint16_t>(EntryKind::block)) continue;
            const uint64_t offset = offset_;
            offset_ += entry.length;
            if (position + entry.length <= options_.start) continue;
            const bool in_time = entry.time_max >= options_.time_min && entry.time_min <= options_.time_max;
            if (gap_end_ != gap_begin_ && gap_end_ >= options_.start && gap_begin_ < options_.end)
                lost_ = static_cast<int64_t>(static_cast<uint64_t>(lost_) + (gap_end_ - gap_begin_));
            gap_end_ = gap_begin_ = 0;
            if (!in_time && assembler_.empty() && lost_ == 0) continue;
            load(entry, offset);
            return true;
        }
    }

    bool look_further() {
        if (!later_ || asked_ || assembler_.empty()) return false;
        asked_ = true;
        const std::vector<Segment> found = later_();
        segments_.insert(segments_.end(), found.begin(), found.end());
        return !found.empty();
    }

    // Gaps that follow each other are one. It is lost to the range whose messages come right after it.
    void note_gap(uint64_t position, uint64_t bytes) {
        if (gap_end_ == gap_begin_ || gap_end_ != position) gap_begin_ = position;
        gap_end_ = position + bytes;
    }

    void open_segment(const Segment &segment) {
        index_ = read_index(segment.index_path, open_);
        if (!index_->problems.empty())
            throw Error(Code::corrupt, index_->problems[0].path + ": byte " + std::to_string(index_->problems[0].offset) + ": " +
                                           index_->problems[0].what + ". Run verify, then repair");
        const auto base = static_cast<uint64_t>(index_->header.base);
        if (expected_ && base != *expected_)
            throw Error(Code::corrupt, segment.index_path + ": this segment begins at position " + std::to_string(base) +
                                           ", but the one before it ended at " + std::to_string(*expected_) +
                                           ": the part between is missing. Run verify, then repair");
        expected_ = index_->end;
        data_ = open_(segment.data_path);
        entry_ = 0;
        offset_ = 0;
        cached_from_ = cached_to_ = 0;
    }

    void load(const IndexEntry &entry, uint64_t offset) {
        if (offset < cached_from_ || offset + entry.length > cached_to_) {
            constexpr uint64_t ahead = 4 << 20;
            const uint64_t want = std::max<uint64_t>(entry.length, std::min(ahead, index_->data_length - offset));
            const uint64_t size = data_->size(); // a length is believed only as far as the file goes
            cache_.resize(std::min(want, size > offset ? size - offset : 0));
            cached_from_ = offset;
            cached_to_ = offset + data_->read_at(offset, cache_.data(), cache_.size());
        }
        if (offset + entry.length > cached_to_)
            throw Error(Code::corrupt, data_->path() + ": the file ends at byte " + std::to_string(cached_to_) +
                                           " inside a block. Run verify, then repair");
        block_ = cache_.data() + (offset - cached_from_);
        const uint32_t found = crc32c(block_, entry.length);
        if (found != entry.block_crc)
            throw Error(Code::corrupt,
                        data_->path() + ": " + describe_damage(block_, entry, found, offset) + ". Run verify, then repair");
        walk_block(block_, entry, index_->header.term_length, data_->path(), offset, [](uint64_t, const uint8_t *, uint64_t) {});
        position_ = static_cast<uint64_t>(entry.position);
        recorded_ns_ = entry.recorded_ns;
        at_ = 0;
        end_ = entry.length;
    }

    // One frame. Its shape was checked by load().
    void step(BatchBuilder &batch) {
        const uint8_t *frame = block_ + at_;
        uint64_t word0;
        std::memcpy(&word0, frame, sizeof word0);
        const uint64_t position = position_ + at_;
        const auto length = static_cast<size_t>(frame_length(word0));
        at_ += align_frame(length);
        if (frame_type(word0) != static_cast<uint16_t>(FrameType::data)) return;
        BatchRow row;
        std::memcpy(&row.session, frame + offsetof(FrameHeader, session), 4);
        std::memcpy(&row.time_ns, frame + offsetof(FrameHeader, reserved), 8);
        row.position = position;
        row.recorded_ns = recorded_ns_;
        row.flags = frame_flags(word0);
        const uint8_t *payload = frame + header_length;
        const size_t size = length - header_length;
        if (options_.frames || (row.flags & flags_whole) == flags_whole) {
            if (position >= options_.start && position < options_.end) emit(batch, row, payload, size, true);
            return;
        }
        const bool begins = (row.flags & flag_begin) != 0;
        if (begins && (position < options_.start || position >= options_.end)) return;
        const Assembler::Part *whole = assembler_.add(row.session, row.flags, position, payload, size);
        if (whole == nullptr) return;
        row.position = whole->position;
        row.flags = flags_whole;
        emit(batch, row, whole->bytes.data(), whole->bytes.size(), false);
    }

    void emit(BatchBuilder &batch, BatchRow &row, const uint8_t *payload, size_t size, bool padded) {
        if (row.time_ns < options_.time_min || row.time_ns > options_.time_max) return;
        row.lost = lost_;
        lost_ = 0;
        // The last block of the cache ends where the buffer does; padding up to the frame's end is inside it.
        batch.add(row, payload, size, padded);
    }

    std::vector<Segment> segments_;
    ScanOptions options_;
    Later later_;
    bool asked_ = false;
    std::optional<SegmentIndex> index_;
    std::optional<uint64_t> expected_; // where the next segment must begin
    OpenSource open_;
    std::unique_ptr<ByteSource> data_;
    std::vector<uint8_t> cache_;
    const uint8_t *block_ = nullptr;
    Assembler assembler_;
    uint64_t cached_from_ = 0, cached_to_ = 0, offset_ = 0, at_ = 0, end_ = 0, position_ = 0;
    uint64_t gap_begin_ = 0, gap_end_ = 0;
    int64_t recorded_ns_ = 0, lost_ = 0;
    size_t segment_ = 0, entry_ = 0;
};

} // namespace penstock
