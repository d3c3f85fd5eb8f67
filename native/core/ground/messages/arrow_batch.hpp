// Messages as one Arrow record batch, built column by column straight from frames and handed out through the Arrow C
// data interface (https://arrow.apache.org/docs/format/CDataInterface.html). Knows no Arrow library and no Python.
#pragma once

#include "ground/atomics.hpp"
#include "ground/buffer.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

extern "C" {
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    ArrowSchema **children;
    ArrowSchema *dictionary;
    void (*release)(ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    ArrowArray **children;
    ArrowArray *dictionary;
    void (*release)(ArrowArray *);
    void *private_data;
};
}

// Which columns a batch has; the order of the bits is the order of the columns.
enum BatchColumn : uint32_t {
    column_stream = 1,        // utf8: the channel, the same in every row
    column_session = 2,       // int32
    column_position = 4,      // int64, of the first frame
    column_time = 8,          // timestamp[us, UTC]: send time
    column_timestamp_ns = 16, // int64: send time
    column_recorded_ns = 32,  // int64: when the recorder saw it
    column_flags = 64,        // int32: frame flags
    column_lost = 128,        // int64: bytes missing right before this row
    column_payload = 256,     // binary
    column_time_ns = 512,     // timestamp[ns, UTC]: send time
    column_sender = 1024,     // utf8: of a sync queue's messages
    column_type = 2048,       // utf8: of a sync queue's messages
};
// The columns that a recording has, with their names.
struct RecordedColumn {
    BatchColumn bit;
    const char *name;
};
inline constexpr RecordedColumn recorded_column[] = {
    {column_stream, "stream"},
    {column_session, "session"},
    {column_position, "position"},
    {column_time, "time"},
    {column_timestamp_ns, "timestamp_ns"},
    {column_recorded_ns, "recorded_ns"},
    {column_flags, "flags"},
    {column_lost, "lost"},
    {column_payload, "payload"},
};

struct BatchRow {
    uint64_t position = 0;
    int64_t time_ns = 0, recorded_ns = 0, lost = 0;
    int32_t session = 0;
    uint8_t flags = 0;
    std::string_view sender, type;
};

// Texts one after the other, and where each ends.
struct TextColumn {
    void begin() { offsets.push<int32_t>(0); }
    void push(std::string_view text) {
        std::memcpy(bytes.grow(text.size()), text.data(), text.size());
        bytes.add(text.size());
        offsets.push(static_cast<int32_t>(bytes.size()));
    }
    Buffer offsets, bytes;
};

class BatchBuilder {
  public:
    explicit BatchBuilder(uint32_t columns, std::string stream = {}) : columns_(columns), stream_(std::move(stream)) {
        if (columns_ & column_payload) offsets_.push<int32_t>(0);
        if (columns_ & column_sender) sender_.begin();
        if (columns_ & column_type) type_.begin();
    }
    // Room for about as much as the batch before held, so that buffers need not be moved while they grow.
    void reserve(size_t rows, size_t bytes) {
        if (columns_ & column_position) position_.reserve(rows * 8);
        if (columns_ & (column_timestamp_ns | column_time_ns)) timestamp_ns_.reserve(rows * 8);
        if (columns_ & column_session) session_.reserve(rows * 4);
        if (columns_ & column_payload) {
            offsets_.reserve(rows * 4 + 4);
            payload_.reserve(bytes);
        }
    }
    size_t rows() const { return rows_; }
    size_t payload_bytes() const { return payload_.size(); }
    const int64_t *positions() const { return reinterpret_cast<const int64_t *>(position_.data()); }
    const int64_t *times() const { return reinterpret_cast<const int64_t *>(timestamp_ns_.data()); } // with column_time_ns

    // `padded`: the source may be read up to the next multiple of 32 bytes, which makes small copies cheap.
    void add(const BatchRow &row, const uint8_t *payload, size_t length, bool padded) {
        if (columns_ & column_payload) add_payload(payload, length, padded);
        add_rest(row);
    }
    // The same with a payload that `copy` puts where it is told. False, and no row, if that says that it failed.
    template <class Copy> bool add_copied(const BatchRow &row, size_t length, Copy &&copy) {
        if (!copy(payload_.grow(length))) return false;
        payload_.add(length);
        offsets_.push(static_cast<int32_t>(payload_.size()));
        add_rest(row);
        return true;
    }

    // Fills structures that the caller owns; afterwards the builder is empty for good.
    void finish(ArrowSchema *schema, ArrowArray *array) &&;

  private:
    void add_rest(const BatchRow &row) {
        constexpr uint32_t usual = column_session | column_position | column_time_ns;
        if ((columns_ & ~uint32_t{column_payload}) == usual) {
            session_.push(row.session);
            position_.push(row.position);
            timestamp_ns_.push(row.time_ns);
            ++rows_;
            return;
        }
        if (columns_ & column_session) session_.push(row.session);
        if (columns_ & column_position) position_.push(row.position);
        if (columns_ & column_time) time_.push(row.time_ns / 1000 - (row.time_ns % 1000 < 0));
        if (columns_ & (column_timestamp_ns | column_time_ns)) timestamp_ns_.push(row.time_ns);
        if (columns_ & column_recorded_ns) recorded_ns_.push(row.recorded_ns);
        if (columns_ & column_flags) flags_.push(static_cast<int32_t>(row.flags));
        if (columns_ & column_lost) lost_.push(row.lost);
        if (columns_ & column_sender) sender_.push(row.sender);
        if (columns_ & column_type) type_.push(row.type);
        ++rows_;
    }
    void add_payload(const uint8_t *payload, size_t length, bool padded) {
        uint8_t *to = payload_.grow(length);
        if (padded && length <= 512) {
            for (size_t i = 0; i < length; i += 32) std::memcpy(to + i, payload + i, 32);
        } else if (length != 0) {
            copy_bytes(to, payload, length);
        }
        payload_.add(length);
        offsets_.push(static_cast<int32_t>(payload_.size()));
    }

    uint32_t columns_;
    std::string stream_;
    size_t rows_ = 0;
    Buffer session_, position_, time_, timestamp_ns_, recorded_ns_, flags_, lost_, offsets_, payload_;
    TextColumn sender_, type_;
};

namespace arrow_detail {

struct OwnedArray {
    std::vector<Buffer> buffers;
    std::vector<const void *> pointers;
    std::vector<ArrowArray> children;
    std::vector<ArrowArray *> links;
};
struct OwnedSchema {
    std::vector<ArrowSchema> children;
    std::vector<ArrowSchema *> links;
};

inline void release_array(ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; ++i)
        if (array->children[i]->release != nullptr) array->children[i]->release(array->children[i]);
    delete static_cast<OwnedArray *>(array->private_data);
    array->release = nullptr;
}
inline void release_schema(ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; ++i)
        if (schema->children[i]->release != nullptr) schema->children[i]->release(schema->children[i]);
    delete static_cast<OwnedSchema *>(schema->private_data);
    schema->release = nullptr;
}
inline ArrowArray make_array(size_t rows, std::vector<Buffer> buffers) {
    auto *owned = new OwnedArray;
    owned->buffers = std::move(buffers);
    owned->pointers.push_back(nullptr); // no validity bitmap: nothing is null
    for (const Buffer &buffer : owned->buffers) owned->pointers.push_back(buffer.data());
    return {static_cast<int64_t>(rows),
            0,
            0,
            static_cast<int64_t>(owned->pointers.size()),
            0,
            owned->pointers.data(),
            nullptr,
            nullptr,
            release_array,
            owned};
}
inline ArrowSchema make_schema(const char *name, const char *format) {
    return {format, name, nullptr, 0, 0, nullptr, nullptr, release_schema, new OwnedSchema};
}

} // namespace arrow_detail

inline void BatchBuilder::finish(ArrowSchema *schema, ArrowArray *array) && {
    using namespace arrow_detail;
    auto *arrays = new OwnedArray;
    auto *schemas = new OwnedSchema;
    auto column = [&](BatchColumn bit, const char *name, const char *format, auto &&...buffers) {
        if ((columns_ & bit) == 0) return;
        std::vector<Buffer> list;
        (list.push_back(std::move(buffers)), ...);
        arrays->children.push_back(make_array(rows_, std::move(list)));
        schemas->children.push_back(make_schema(name, format));
    };
    if (columns_ & column_stream) {
        Buffer offsets, names;
        for (size_t i = 0; i <= rows_; ++i) offsets.push(static_cast<int32_t>(i * stream_.size()));
        names.grow(0);
        for (size_t i = 0; i < rows_; ++i) {
            std::memcpy(names.grow(stream_.size()), stream_.data(), stream_.size());
            names.add(stream_.size());
        }
        column(column_stream, "stream", "u", offsets, names);
    }
    for (Buffer *buffer :
         {&session_, &position_, &time_, &timestamp_ns_, &recorded_ns_, &flags_, &lost_, &payload_, &sender_.bytes, &type_.bytes})
        buffer->grow(0); // a column of no rows still needs an address
    column(column_session, "session", "i", session_);
    column(column_position, "position", "l", position_);
    column(column_time, "time", "tsu:UTC", time_);
    column(column_timestamp_ns, "timestamp_ns", "l", timestamp_ns_);
    column(column_recorded_ns, "recorded_ns", "l", recorded_ns_);
    column(column_flags, "flags", "i", flags_);
    column(column_lost, "lost", "l", lost_);
    column(column_sender, "sender", "u", sender_.offsets, sender_.bytes);
    column(column_type, "type", "u", type_.offsets, type_.bytes);
    column(column_payload, "payload", "z", offsets_, payload_);
    column(column_time_ns, "time", "tsn:UTC", timestamp_ns_);
    for (ArrowArray &child : arrays->children) arrays->links.push_back(&child);
    for (ArrowSchema &child : schemas->children) schemas->links.push_back(&child);
    arrays->pointers.push_back(nullptr);
    const auto count = static_cast<int64_t>(arrays->links.size());
    *array = {static_cast<int64_t>(rows_),
              0,
              0,
              1,
              count,
              arrays->pointers.data(),
              arrays->links.data(),
              nullptr,
              release_array,
              arrays};
    *schema = {"+s", "", nullptr, 0, count, schemas->links.data(), nullptr, release_schema, schemas};
}

} // namespace penstock
