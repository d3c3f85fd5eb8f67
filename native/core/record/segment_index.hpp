// Reads the index of a segment. Believes no entry that its checksum does not cover.
#pragma once

#include "record/byte_source.hpp"
#include "record/recording.hpp"

#include <optional>

namespace penstock {

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

// The position in a segment's file name, which is its first byte's; nothing for other names.
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

// Of an entry that is intact.
inline bool entry_possible(const IndexEntry &entry) {
    if (entry.kind > static_cast<uint16_t>(EntryKind::hole)) return false;
    if (entry.kind == static_cast<uint16_t>(EntryKind::block))
        return entry.length >= header_length && entry.length % frame_alignment == 0;
    return entry.kind == static_cast<uint16_t>(EntryKind::seal) || entry.time_min >= 0;
}

inline constexpr uint16_t unwritten = 1; // in `spare` of a hole that no repair has written down yet

inline bool is_kind(const IndexEntry &entry, EntryKind kind) { return entry.kind == static_cast<uint16_t>(kind); }

// False if the header is damaged: then it is made from the segment's name. recording: whose index it must be; 0: any's.
inline bool read_index_header(const ByteSource &file, uint64_t recording, SegmentIndex &index) {
    const std::string &path = file.path();
    const std::optional<int64_t> named = base_in_name(path);
    const bool whole = file.read_at(0, &index.header, sizeof index.header) == sizeof index.header;
    if (!whole || !record_intact(index.header) || index.header.magic != index_magic || index.header.version != index_version) {
        index.problems.push_back({path, 0, sizeof index.header, "the index's header is damaged or not an index's"});
        index.header = IndexHeader{};
        index.header.base = named.value_or(0);
        index.end = static_cast<uint64_t>(index.header.base);
        index.other = index.open = !whole || !named;
        return false;
    }
    if (named && index.header.base != *named) {
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
        index.header.base = named.value_or(index.header.base);
        index.end = static_cast<uint64_t>(index.header.base);
    }
    return true;
}

// The fault of the next entry, which is at `position` if none is missing; null if it has none.
inline const char *find_entry_problem(const SegmentIndex &index, const IndexEntry &entry, uint64_t position) {
    const auto at = static_cast<uint64_t>(entry.position);
    if (index.sealed) return "an index entry follows the seal";
    if (!record_intact(entry)) return "an index entry is damaged";
    if (!entry_possible(entry)) return "an index entry is not possible";
    if (at != position && (!index.open || at < position)) return "an index entry does not follow the one before it";
    return nullptr;
}

// The blocks of damaged entries, from `position` to the intact entry `next`.
inline IndexEntry make_hole(const SegmentIndex &index, uint64_t position, const IndexEntry &next) {
    IndexEntry hole;
    hole.position = static_cast<int64_t>(position);
    hole.time_min = static_cast<int64_t>(static_cast<uint64_t>(next.position) - position);
    hole.recorded_ns = next.recorded_ns;
    hole.messages_before = index.entries.empty() ? index.header.messages_before : index.entries.back().messages_before;
    hole.kind = static_cast<uint16_t>(EntryKind::hole);
    hole.spare = unwritten;
    seal_record(hole);
    return hole;
}

// recording: whose index it must be; 0: any's.
inline SegmentIndex read_index(const std::string &path, const OpenSource &open = open_file, uint64_t recording = 0) {
    const std::unique_ptr<ByteSource> source = open(path);
    const ByteSource &file = *source;
    SegmentIndex index;
    const bool header_intact = read_index_header(file, recording, index);
    if (index.other) return index;
    const uint64_t count = (file.size() - sizeof index.header) / sizeof(IndexEntry);
    index.torn = (file.size() - sizeof index.header) % sizeof(IndexEntry);
    std::vector<IndexEntry> read(count);
    const size_t got = file.read_at(sizeof index.header, read.data(), count * sizeof(IndexEntry));
    read.resize(got / sizeof(IndexEntry));
    index.entries.reserve(read.size());
    uint64_t position = static_cast<uint64_t>(index.header.base), missing = 0;
    for (size_t i = 0; i < read.size(); ++i) {
        const IndexEntry &entry = read[i];
        if (const char *what = find_entry_problem(index, entry, position)) {
            index.problems.push_back({path, sizeof(IndexHeader) + i * sizeof(IndexEntry), sizeof(IndexEntry), what});
            index.open = index.open || !index.sealed;
            continue;
        }
        if (const auto at = static_cast<uint64_t>(entry.position); at > position) {
            index.entries.push_back(make_hole(index, position, entry));
            position = at;
        }
        index.open = false;
        if (index.entries.empty() && !header_intact) index.header.messages_before = entry.messages_before;
        index.entries.push_back(entry);
        if (is_kind(entry, EntryKind::block)) position += entry.length;
        if (is_kind(entry, EntryKind::hole)) position += static_cast<uint64_t>(entry.time_min);
        if (is_kind(entry, EntryKind::gap)) missing += static_cast<uint64_t>(entry.time_min);
        index.sealed = is_kind(entry, EntryKind::seal);
    }
    index.data_length = position - static_cast<uint64_t>(index.header.base);
    index.end = position + missing;
    if (index.sealed && index.torn != 0)
        index.problems.push_back({path, file.size() - index.torn, index.torn, "bytes follow the sealed index"});
    return index;
}

} // namespace penstock
