// Any bytes as a channel's file: opened, or refused with an error.
#include "fuzz.hpp"

#include "log/files/log_file.hpp"

using namespace penstock;

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    hostile::Input input(data, size);
    // The first byte says how much of a true header to put over the noise, so that the checks behind the magic are met.
    const auto kind = input.take<uint8_t>(), state = input.take<uint8_t>();
    size_t length = 16384;
    static uint8_t file[16384];
    std::memset(file, 0, sizeof file);
    size_t noise = input.left();
    const auto block = input.block(noise);
    std::memcpy(file, block.get(), noise < sizeof file ? noise : sizeof file);
    auto *header = reinterpret_cast<Header *>(file);
    if ((kind & 1) != 0) header->magic.relaxed(magic);
    if ((kind & 2) != 0) header->layout_version = layout_version;
    if ((kind & 4) != 0) header->kind = static_cast<uint32_t>(Kind::log);
    if ((kind & 8) != 0) own_words<LogWords>(header).term_length = 256;
    if ((kind & 16) != 0) own_words<LogWords>(header).capacity = 256, own_words<LogWords>(header).max_frame = 64;
    if ((kind & 32) != 0) header->slot_count = 4;
    if ((kind & 64) != 0) header->file_size = length = log_file_size(4, 256);
    if ((kind & 128) != 0) length = noise;
    if ((state & 1) != 0) header->state.relaxed(state >> 1 & 1);
    if ((state & 4) != 0) header->open_slots = 4;
    if ((state & 8) != 0) header->open_size = open_file_size(log_kind, 4);
    const auto exact = std::make_unique<uint8_t[]>(length);
    std::memcpy(exact.get(), file, length < sizeof file ? length : sizeof file);
    try {
        const OpenedLog log = read_header(exact.get(), length, "fuzzed");
        if (log_file_size(log.geometry.slot_count, log.geometry.term_length, Kind::log, log.geometry.last) != length ||
            log.metadata.size() > metadata_max)
            __builtin_trap();
        if (header->state.relaxed() != 0) __builtin_trap();
    } catch (const Error &) {
    }
    try { // as an open channel
        if (!still_open(find_header(exact.get(), length, "fuzzed", Kind::log), "fuzzed")) return;
        const OpenPart part = read_open_part(exact.get(), length, "fuzzed", log_kind);
        if (part.size > length || slots_offset + part.slots * sizeof(Slot) > part.size) __builtin_trap();
        const auto &notes = *reinterpret_cast<const Notes *>(exact.get() + notes_offset);
        if (read_notes(notes, "fuzzed").size() > notes_max) __builtin_trap();
    } catch (const Error &) {
    }
}
