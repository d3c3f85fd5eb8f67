// Checks every byte of a segment.
#pragma once

#include "record/recorded_block.hpp"
#include "record/segment_index.hpp"

namespace penstock {

// Nothing found: the index's entries and the blocks they cover are what was written, holes apart. bad: the numbers of entries
// whose blocks are damaged.
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
        if (is_kind(entry, EntryKind::hole)) offset += static_cast<uint64_t>(entry.time_min);
        if (!is_kind(entry, EntryKind::block)) continue;
        // No more than there is: a length is believed only as far as the file goes.
        block.resize(std::min<uint64_t>(entry.length, size > offset ? size - offset : 0));
        const size_t got = data.read_at(offset, block.data(), block.size());
        std::optional<BlockDamage> damage;
        if (got == entry.length)
            damage = check_block(block.data(), entry, offset, index.header.term_length, [](uint64_t, uint64_t) {});
        else
            damage = {offset + got, entry.length - got,
                      "the segment ends inside the block at position " + std::to_string(entry.position)};
        if (damage) {
            problems.push_back({data_path, damage->offset, damage->length, damage->what});
            bad.push_back(i);
        }
        offset += entry.length;
    }
    if (index.sealed && data.size() > offset)
        problems.push_back({data_path, offset, data.size() - offset, "bytes follow the sealed segment"});
    return problems;
}

} // namespace penstock
