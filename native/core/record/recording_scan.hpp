// Scans recordings: frames to whole messages to Arrow rows, batch by batch. Walks each block once.
#pragma once

#include "ground/messages/arrow_batch.hpp"
#include "ground/messages/assembler.hpp"
#include "record/recorded_block.hpp"
#include "record/segment_index.hpp"

namespace penstock {

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
        : segments_(std::move(segments)), options_(std::move(options)), fetch_more_(std::move(later)), expected_(options_.begins),
          open_(std::move(open)) {}

    // Adds rows until the batch is full or the range ends; false once nothing is left.
    bool fill(BatchBuilder &batch) {
        for (;;) {
            while (next_frame_ < frames_.size()) {
                if (batch.rows() >= options_.batch_rows || batch.payload_bytes() >= options_.batch_bytes) return true;
                step(batch);
            }
            if (!next_block()) return batch.rows() != 0;
        }
    }

    // Where a later scan or a live subscription must begin so that every message not yet given out is seen whole.
    uint64_t resume() const { return std::min(assembler_.oldest(), reached_); }
    const std::vector<LeftOut> &left_out() const { return left_out_; }
    // A file that is not there any more, though it was when the scan was made: there the scan ended.
    const std::string &gone() const { return missing_file_; }

  private:
    bool next_block() {
        while (missing_file_.empty()) {
            if (!index_ || entry_ >= index_->entries.size()) {
                if (index_ && index_->end == options_.start) find_damage_before(index_->entries.size(), offset_);
                if (segment_ >= segments_.size() && !fetch_more_segments()) return false;
                if (!open_segment(segments_[segment_++])) return false;
                continue;
            }
            const IndexEntry &entry = index_->entries[entry_++];
            const auto position = static_cast<uint64_t>(entry.position);
            const bool late = position >= options_.end;
            // Past the range only what began in it is still wanted, and no further than a message can be long.
            if (late && (assembler_.empty() || position - options_.end > 2 * message_max)) return false;
            if (is_kind(entry, EntryKind::gap) || is_kind(entry, EntryKind::hole)) {
                const auto missing = static_cast<uint64_t>(entry.time_min);
                note_gap(position, missing);
                assembler_.clear();
                if (is_kind(entry, EntryKind::hole)) {
                    if (entry.spare == unwritten)
                        leave_out(position, position + missing,
                                  segments_[segment_ - 1].index_path + ": the index entries of blocks are damaged", true);
                    offset_ += missing;
                    pass(position + missing);
                }
                continue;
            }
            if (!is_kind(entry, EntryKind::block)) continue;
            const uint64_t offset = offset_;
            offset_ += entry.length;
            if (position + entry.length <= options_.start) continue;
            if (position == options_.start) find_damage_before(entry_ - 1, offset);
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
    void find_damage_before(size_t before, uint64_t offset) {
        uint64_t begin = gap_end_ == options_.start && gap_begin_ != gap_end_ ? gap_begin_ : options_.start;
        while (before-- > 0) {
            const IndexEntry &entry = index_->entries[before];
            if (is_kind(entry, EntryKind::hole)) offset -= static_cast<uint64_t>(entry.time_min); // noted as it was passed
            if (!is_kind(entry, EntryKind::block)) continue;
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
        reached_ = position;
        frames_.clear();
        next_frame_ = 0;
    }

    bool fetch_more_segments() {
        if (!fetch_more_ || has_fetched_more_ || assembler_.empty()) return false;
        has_fetched_more_ = true;
        const std::vector<Segment> found = fetch_more_();
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
        if (is_there([&] { data_.open(open_(segment.data_path)); })) return true;
        if (!is_there([&] { open_(segment.index_path); })) return gone(segment.index_path);
        leave_out(base, base + index_->data_length, segment.data_path + ": the segment is missing", false);
        note_gap(base, index_->data_length);
        assembler_.clear();
        pass(base + index_->data_length);
        std::erase_if(index_->entries, [&](const IndexEntry &entry) { return !is_kind(entry, EntryKind::gap); });
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
        missing_file_ = path;
        return false;
    }

    void leave_out(uint64_t start, uint64_t end, std::string what, bool in_index) {
        left_out_.push_back({start, end, std::move(what), in_index});
    }

    // Walks a block. False if it is damaged.
    bool load(const IndexEntry &entry, uint64_t offset) {
        const auto position = static_cast<uint64_t>(entry.position);
        block_ = data_.read(offset, entry.length, index_->data_length);
        frames_.clear();
        next_frame_ = 0;
        std::optional<BlockDamage> damage;
        if (block_ == nullptr)
            damage = {offset, entry.length, "the file ends at byte " + std::to_string(data_.end()) + " inside a block"};
        else
            damage = check_block(block_, entry, offset, index_->header.term_length,
                                 [&](uint64_t, uint64_t at) { frames_.push_back(static_cast<uint32_t>(at)); });
        if (damage) {
            leave_out(position, position + entry.length, data_.path() + ": " + damage->what, false);
            frames_.clear();
            return false;
        }
        block_position_ = reached_ = position;
        recorded_ns_ = entry.recorded_ns;
        return true;
    }

    // One frame, where load() found it.
    void step(BatchBuilder &batch) {
        const uint8_t *frame = block_ + frames_[next_frame_];
        const uint64_t position = block_position_ + frames_[next_frame_];
        ++next_frame_;
        uint64_t word0;
        std::memcpy(&word0, frame, sizeof word0);
        const auto length = static_cast<size_t>(frame_length(word0));
        reached_ = position + align_frame(length);
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
        if (begins && (position < options_.start || position >= options_.end)) {
            assembler_.forget(row.session); // its writer gave up the message before: no fragment behind this one is of that
            return;
        }
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
        // The last block read ahead ends where the buffer does; padding up to the frame's end is inside it.
        batch.add(row, payload, size, padded);
    }

    std::vector<Segment> segments_;
    ScanOptions options_;
    Later fetch_more_;
    bool has_fetched_more_ = false;
    std::optional<SegmentIndex> index_;
    std::optional<uint64_t> expected_; // where the next segment must begin
    OpenSource open_;
    ReadAhead data_;
    const uint8_t *block_ = nullptr; // in data_
    std::vector<uint32_t> frames_;   // where the block's frames begin, as offsets in it
    size_t next_frame_ = 0;
    Assembler assembler_;
    uint64_t offset_ = 0, block_position_ = 0;
    uint64_t reached_ = 0; // position up to which every frame was seen
    uint64_t gap_begin_ = 0, gap_end_ = 0;
    int64_t recorded_ns_ = 0, lost_ = 0;
    size_t segment_ = 0, entry_ = 0;
    std::vector<LeftOut> left_out_;
    std::string missing_file_;
};

} // namespace penstock
