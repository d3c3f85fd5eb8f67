// Any bytes as a recording: index and segment are verified and scanned. Sums are set right on request, so that the checks behind
// them are met too.
#include "fuzz.hpp"
#include "record/recording_scan.hpp"
#include "record/segment_verify.hpp"

#include <sys/mman.h>

using namespace penstock;

namespace {

struct File {
    File() : fd(memfd_create("fuzz", MFD_CLOEXEC)), path("/proc/self/fd/" + std::to_string(fd)) {}
    void fill(const uint8_t *bytes, size_t length) const {
        if (ftruncate(fd, 0) != 0 || pwrite(fd, bytes, length, 0) != static_cast<ssize_t>(length)) __builtin_trap();
    }
    int fd;
    std::string path;
};

} // namespace

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    static const File segment, index;
    hostile::Input input(data, size);
    const auto kind = input.take<uint8_t>();
    size_t index_length = input.take<uint16_t>() % 1024;
    const auto index_bytes = input.block(index_length);
    size_t data_length = input.left();
    const auto data_bytes = input.block(data_length);
    if ((kind & 1) != 0 && index_length >= sizeof(IndexHeader)) {
        auto *header = reinterpret_cast<IndexHeader *>(index_bytes.get());
        header->magic = index_magic;
        header->version = index_version;
        if ((kind & 2) != 0) header->term_length = 256;
        seal_record(*header);
        int64_t position = header->base;
        uint64_t offset = 0;
        for (size_t at = sizeof(IndexHeader); at + sizeof(IndexEntry) <= index_length; at += sizeof(IndexEntry)) {
            auto *entry = reinterpret_cast<IndexEntry *>(index_bytes.get() + at);
            if ((kind & 4) != 0) entry->position = position;
            if ((kind & 8) != 0) entry->length %= 256;
            if ((kind & 16) != 0) entry->kind %= 4;
            if ((kind & 32) != 0 && offset + entry->length <= data_length)
                entry->block_crc = crc32c(data_bytes.get() + offset, entry->length);
            if ((kind & 64) != 0) seal_record(*entry);
            offset += entry->length;
            position = static_cast<int64_t>(static_cast<uint64_t>(position) + entry->length);
        }
    }
    index.fill(index_bytes.get(), index_length);
    segment.fill(data_bytes.get(), data_length);
    bool clean = false;
    try {
        std::vector<uint64_t> bad;
        clean = verify_segment(segment.path, index.path, bad).empty();
    } catch (const Error &) {
    }
    ScanOptions options;
    options.frames = (kind & 128) != 0;
    options.batch_rows = 8;
    try {
        Scan scan({{segment.path, index.path}}, options);
        for (int i = 0; i < 100; ++i) {
            BatchBuilder batch(column_position | column_payload);
            if (!scan.fill(batch)) break;
        }
        if (clean && !scan.left_out().empty()) __builtin_trap(); // files that verify accepts are read whole
    } catch (const Error &) {
        if (clean) __builtin_trap(); // files that verify accepts can be read
    }
}
