// Reads recordings: checked index, checked blocks, frames to whole messages to Arrow rows. Reads byte ranges, by pread where
// there are files, never a mapping: a file that shrinks is an error, not a signal. Believes no byte that its checksum does not
// cover.
#pragma once

#include "ground/arrow_batch.hpp"
#include "ground/assembler.hpp"
#include "ground/mapping.hpp"
#include "record/recording.hpp"

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

// The index of one segment: its header, its intact entries, and what is wrong. Damaged entries are holes, as far as the entries
// behind them say where those end: a damaged entry costs its block and nothing else.
struct SegmentIndex {
    IndexHeader header;
    std::vector<IndexEntry> entries;
    uint64_t data_length = 0; // bytes that the entries cover
    uint64_t end = 0;         // position after them and after the gap that may follow: where the next segment begins
    bool sealed = false;
    std::vector<Problem> problems;
    uint64_t torn = 0;  // bytes of an entry not fully written: normal after a crash
    bool open = false;  // its last entries are damaged: nothing in it says where it ends
    bool other = false; // it belongs elsewhere: nothing in it is believed
};

// The position in a segment's file name, which is its first byte's; nothing for a name that is no segment's.
inline std::optional<int64_t> base_in_name(const std::string &path) {
    constexpr size_t digits = 20, suffix = 4;
    const size_t slash = path.rfind('/'), begin = slash == std::string::npos ? 0 : slash + 1;
    if (path.size() - begin != digits + suffix) return std::nullopt;
    uint64_t base = 0;
    for (size_t i = begin; i < begin + digits; ++i) {
        if (path[i] < '0' || path[i] > '9') return std::nullopt;
        if (__builtin_mul_overflow(base, uint64_t{10}, &base)) return std::nullopt;
        if (__builtin_add_overflow(base, static_cast<uint64_t>(path[i] - '0'), &base)) return std::nullopt;
    }
    return static_cast<int64_t>(base);
}

inline bool entry_possible(const IndexEntry &entry) {
    if (!record_intact(entry) || entry.kind > static_cast<uint16_t>(EntryKind::hole)) return false;
    if (entry.kind == static_cast<uint16_t>(EntryKind::block))
        return entry.length >= header_length && entry.length % frame_alignment == 0;
    return entry.kind == static_cast<uint16_t>(EntryKind::seal) || entry.time_min >= 0;
}

inline constexpr uint16_t unwritten = 1; // in `spare` of a hole that no repair has written down yet

// recording: whose index it must be; 0: any's.
inline SegmentIndex read_index(const std::string &path, const OpenSource &open = open_file, uint64_t recording = 0) {
    const std::unique_ptr<ByteSource> source = open(path);
    const ByteSource &file = *source;
    const std::optional<int64_t> named = base_in_name(path);
    SegmentIndex index;
    const bool whole = file.read_at(0, &index.header, sizeof index.header) == sizeof index.header;
    const bool header_intact =
        whole && record_intact(index.header) && index.header.magic == index_magic && index.header.version == index_version;
    if (!header_intact) {
        index.problems.push_back({path, 0, sizeof index.header, "the index's header is damaged or not an index's"});
        index.header = IndexHeader{};
        index.header.base = named.value_or(0);
        index.end = static_cast<uint64_t>(index.header.base);
        index.other = index.open = !whole || !named;
        if (index.other) return index;
    } else if (named && index.header.base != *named) {
        index.problems.push_back(
            {path, offsetof(IndexHeader, base), 8,
             "its base is " + std::to_string(index.header.base) + ", its name says " + std::to_string(*named)});
        index.other = true;
    } else if (recording != 0 && index.header.recording != recording) {
        index.problems.push_back(
            {path, offsetof(IndexHeader, recording), 8,
             "it is of recording " + std::to_string(index.header.recording) + ", and not of " + std::to_string(recording)});
        index.other = true;
    }
    if (index.other) {
        index.header.base = *named;
        index.end = static_cast<uint64_t>(*named);
        return index;
    }
    const uint64_t count = (file.size() - sizeof index.header) / sizeof(IndexEntry);
    index.torn = (file.size() - sizeof index.header) % sizeof(IndexEntry);
    std::vector<IndexEntry> read(count);
    const size_t got = file.read_at(sizeof index.header, read.data(), count * sizeof(IndexEntry));
    read.resize(got / sizeof(IndexEntry));
    index.entries.reserve(read.size());
    uint64_t position = static_cast<uint64_t>(index.header.base), missing = 0;
    for (size_t i = 0; i < read.size(); ++i) {
        const IndexEntry &entry = read[i];
        const uint64_t offset = sizeof(IndexHeader) + i * sizeof(IndexEntry);
        const auto at = static_cast<uint64_t>(entry.position);
        std::string what;
        if (index.sealed) what = "an index entry follows the seal";
        else if (!record_intact(entry)) what = "an index entry is damaged";
        else if (!entry_possible(entry)) what = "an index entry is not possible";
        else if (at != position && (!index.open || at < position)) what = "an index entry does not follow the one before it";
        if (!what.empty()) {
            index.problems.push_back({path, offset, sizeof(IndexEntry), what});
            index.open = index.open || !index.sealed;
            continue;
        }
        if (at > position) { // the blocks of damaged entries
            IndexEntry hole;
            hole.position = static_cast<int64_t>(position);
            hole.time_min = static_cast<int64_t>(at - position);
            hole.recorded_ns = entry.recorded_ns;
            hole.messages_before = index.entries.empty() ? index.header.messages_before : index.entries.back().messages_before;
            hole.kind = static_cast<uint16_t>(EntryKind::hole);
            hole.spare = unwritten;
            seal_record(hole);
            index.entries.push_back(hole);
            position = at;
        }
        index.open = false;
        if (index.entries.empty() && !header_intact) index.header.messages_before = entry.messages_before;
        index.entries.push_back(entry);
        if (entry.kind == static_cast<uint16_t>(EntryKind::block)) position += entry.length;
        if (entry.kind == static_cast<uint16_t>(EntryKind::hole)) position += static_cast<uint64_t>(entry.time_min);
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

inline std::string describe_no_frame(const IndexEntry &entry, uint64_t offset, uint64_t at) {
    return "no frame begins at byte " + std::to_string(offset + at) + " (position " +
           std::to_string(static_cast<uint64_t>(entry.position) + at) + ")";
}

inline std::string describe_damage(const uint8_t *bytes, const IndexEntry &entry, uint32_t found, uint64_t offset) {
    ByteError error;
    std::string what = "the checksum of the block at position " + std::to_string(entry.position) + " is wrong";
    if (find_byte_error(found, entry.block_crc, entry.length, error))
        what += ": byte " + std::to_string(offset + error.offset) + " alone explains it (it is " +
                std::to_string(bytes[error.offset]) + ", was " + std::to_string(bytes[error.offset] ^ error.change) + ")";
    return what;
}

// Checks every byte of a segment. Nothing found: the index's entries and the blocks they cover are what was written, holes
// apart. bad: the numbers of entries whose blocks are damaged.
inline std::vector<Problem> verify_segment(const std::string &data_path, const std::string &index_path,
                                           std::vector<uint64_t> &bad, const OpenSource &open = open_file,
                                           uint64_t recording = 0) {
    SegmentIndex index = read_index(index_path, open, recording);
    std::vector<Problem> problems = index.problems;
    bad.clear();
    const std::unique_ptr<ByteSource> source = open(data_path);
    const ByteSource &data = *source;
    const uint64_t size = data.size();
    std::vector<uint8_t> block;
    uint64_t offset = 0;
    for (size_t i = 0; i < index.entries.size(); ++i) {
        const IndexEntry &entry = index.entries[i];
        if (entry.kind == static_cast<uint16_t>(EntryKind::hole)) offset += static_cast<uint64_t>(entry.time_min);
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
        } else if (const uint64_t walked =
                       walk_frames(block.data(), entry, index.header.term_length, [](uint64_t, const uint8_t *, uint64_t) {});
                   walked < entry.length) {
            what = describe_no_frame(entry, offset, walked);
        }
        if (!what.empty()) {
            problems.push_back({data_path, at, length, what});
            bad.push_back(i);
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
    uint64_t recording = 0;         // whose segments they are; 0: it is not checked
    std::optional<uint64_t> begins; // where the first segment must begin
};

// Damage that a scan left out: positions [start, end) as a gap. in_index: the index says so, so that planning knows it too.
struct LeftOut {
    uint64_t start, end;
    std::string what;
    bool in_index;
};

// Messages of a range of a recording, batch by batch. A damaged block is left out, as a gap of its length.
class Scan {
  public:
    struct Segment {
        std::string data_path, index_path;
    };
    // later: gives the segments behind the given ones. It is asked once, and only if a message begins in the range and ends
    // there.
    using Later = std::function<std::vector<Segment>()>;
    Scan(std::vector<Segment> segments, ScanOptions options, OpenSource open = open_file, Later later = nullptr)
        : segments_(std::move(segments)), options_(std::move(options)), later_(std::move(later)), expected_(options_.begins),
          open_(std::move(open)) {}

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
    const std::vector<LeftOut> &left_out() const { return left_out_; }
    // A file that is not there any more, though it was when the scan was made: there the scan ended.
    const std::string &gone() const { return gone_; }

  private:
    // Reads ahead: one pread for as many neighbouring blocks as fit.
    bool next_block() {
        while (gone_.empty()) {
            if (!index_ || entry_ >= index_->entries.size()) {
                if (index_ && index_->end == options_.start) look_back(index_->entries.size(), offset_);
                if (segment_ >= segments_.size() && !look_further()) return false;
                if (!open_segment(segments_[segment_++])) return false;
                continue;
            }
            const IndexEntry &entry = index_->entries[entry_++];
            const auto position = static_cast<uint64_t>(entry.position);
            const bool late = position >= options_.end;
            // Past the range only what began in it is still wanted, and no further than a message can be long.
            if (late && (assembler_.empty() || position - options_.end > 2 * message_max)) return false;
            if (entry.kind == static_cast<uint16_t>(EntryKind::gap) || entry.kind == static_cast<uint16_t>(EntryKind::hole)) {
                const auto missing = static_cast<uint64_t>(entry.time_min);
                note_gap(position, missing);
                assembler_.clear();
                if (entry.kind == static_cast<uint16_t>(EntryKind::hole)) {
                    if (entry.spare == unwritten)
                        leave_out(position, position + missing,
                                  segments_[segment_ - 1].index_path + ": the index entries of blocks are damaged", true);
                    offset_ += missing;
                    pass(position + missing);
                }
                continue;
            }
            if (entry.kind != static_cast<uint16_t>(EntryKind::block)) continue;
            const uint64_t offset = offset_;
            offset_ += entry.length;
            if (position + entry.length <= options_.start) continue;
            if (position == options_.start) look_back(entry_ - 1, offset);
            const bool in_time = entry.time_max >= options_.time_min && entry.time_min <= options_.time_max;
            if (gap_end_ != gap_begin_ && gap_end_ >= options_.start && gap_begin_ < options_.end)
                lost_ = static_cast<int64_t>(static_cast<uint64_t>(lost_) + (gap_end_ - gap_begin_));
            gap_end_ = gap_begin_ = 0;
            if (!in_time && assembler_.empty() && lost_ == 0) continue;
            if (!load(entry, offset)) {
                note_gap(position, entry.length);
                assembler_.clear();
                pass(position + entry.length);
                continue;
            }
            return true;
        }
        return false;
    }

    // Damaged blocks right before the range, among the first `before` entries, the last of which ends at `offset`: no message of
    // an earlier range tells that they are lost.
    void look_back(size_t before, uint64_t offset) {
        uint64_t begin = gap_end_ == options_.start && gap_begin_ != gap_end_ ? gap_begin_ : options_.start;
        while (before-- > 0) {
            const IndexEntry &entry = index_->entries[before];
            const auto kind = static_cast<EntryKind>(entry.kind);
            if (kind == EntryKind::hole) offset -= static_cast<uint64_t>(entry.time_min); // noted as it was passed
            if (kind != EntryKind::block) continue;
            offset -= entry.length;
            if (static_cast<uint64_t>(entry.position) + entry.length != begin || load(entry, offset)) break;
            begin = static_cast<uint64_t>(entry.position);
        }
        if (begin != options_.start) {
            gap_begin_ = begin;
            gap_end_ = options_.start;
        }
        pass(options_.start);
    }

    // Nothing is left to give out before `position`.
    void pass(uint64_t position) {
        position_ = position;
        at_ = end_ = 0;
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

    // False if the segment is gone.
    bool open_segment(const Segment &segment) {
        if (!is_there([&] { index_ = read_index(segment.index_path, open_, options_.recording); }))
            return gone(segment.index_path);
        for (const Problem &problem : index_->problems)
            leave_out(0, 0, problem.path + ": byte " + std::to_string(problem.offset) + ": " + problem.what, true);
        const auto base = static_cast<uint64_t>(index_->header.base);
        entry_ = 0;
        offset_ = 0;
        cached_from_ = cached_to_ = 0;
        if (expected_ && base < *expected_) {
            leave_out(0, 0,
                      segment.index_path + ": this segment begins at position " + std::to_string(base) +
                          ", but the one before it ended at " + std::to_string(*expected_),
                      true);
            index_->entries.clear();
            return true;
        }
        if (expected_ && base > *expected_) {
            leave_out(*expected_, base,
                      segment.index_path + ": this segment begins at position " + std::to_string(base) +
                          ", but the one before it ended at " + std::to_string(*expected_) + ": the part between is missing",
                      true);
            note_gap(*expected_, base - *expected_);
            assembler_.clear();
            pass(base);
        }
        expected_ = index_->end;
        if (index_->entries.empty()) return true;
        if (is_there([&] { data_ = open_(segment.data_path); })) return true;
        if (!is_there([&] { open_(segment.index_path); })) return gone(segment.index_path);
        leave_out(base, base + index_->data_length, segment.data_path + ": the segment is missing", false);
        const auto is_gap = [](const IndexEntry &entry) { return entry.kind == static_cast<uint16_t>(EntryKind::gap); };
        note_gap(base, index_->data_length);
        assembler_.clear();
        pass(base + index_->data_length);
        std::erase_if(index_->entries, [&](const IndexEntry &entry) { return !is_gap(entry); });
        return true;
    }

    template <class Open> static bool is_there(Open &&open) {
        try {
            open();
        } catch (const Error &error) {
            if (error.code != Code::system || error.number != ENOENT) throw;
            return false;
        }
        return true;
    }

    bool gone(const std::string &path) {
        gone_ = path;
        return false;
    }

    void leave_out(uint64_t start, uint64_t end, std::string what, bool in_index) {
        left_out_.push_back({start, end, std::move(what), in_index});
    }

    // False if the block is damaged.
    bool load(const IndexEntry &entry, uint64_t offset) {
        if (offset < cached_from_ || offset + entry.length > cached_to_) {
            constexpr uint64_t ahead = 4 << 20;
            const uint64_t want = std::max<uint64_t>(entry.length, std::min(ahead, index_->data_length - offset));
            const uint64_t size = data_->size(); // a length is believed only as far as the file goes
            cache_.resize(std::min(want, size > offset ? size - offset : 0));
            cached_from_ = offset;
            cached_to_ = offset + data_->read_at(offset, cache_.data(), cache_.size());
        }
        const auto position = static_cast<uint64_t>(entry.position);
        std::string what;
        if (offset + entry.length > cached_to_) {
            what = "the file ends at byte " + std::to_string(cached_to_) + " inside a block";
        } else {
            block_ = cache_.data() + (offset - cached_from_);
            const uint32_t found = crc32c(block_, entry.length);
            if (found != entry.block_crc) {
                what = describe_damage(block_, entry, found, offset);
            } else {
                const uint64_t walked =
                    walk_frames(block_, entry, index_->header.term_length, [](uint64_t, const uint8_t *, uint64_t) {});
                if (walked < entry.length) what = describe_no_frame(entry, offset, walked);
            }
        }
        if (!what.empty()) {
            leave_out(position, position + entry.length, data_->path() + ": " + what, false);
            return false;
        }
        position_ = position;
        recorded_ns_ = entry.recorded_ns;
        at_ = 0;
        end_ = entry.length;
        return true;
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
    std::vector<LeftOut> left_out_;
    std::string gone_;
};

} // namespace penstock
