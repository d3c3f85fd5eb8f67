// Numbers and layouts of the core that Python needs, too: written once, there, and read here.
#include "bind/ground/bind.hpp"

#include "ground/checksum.hpp"
#include "ground/files/latency.hpp"

#include "frames/frame_layout.hpp"
#include "ground/files/channel_header.hpp"
#include "ground/files/open_channel.hpp"
#include "ground/members/member_name.hpp"
#include "ground/messages/arrow_batch.hpp"
#include "ground/messages/sync_message.hpp"
#include "log/files/log_layout.hpp"
#include "net/receive/files/endpoint_layout.hpp"
#include "pipe/pipe_tap.hpp"
#include "pipe/table/peer_table.hpp"
#include "record/recording.hpp"

#include <type_traits>

namespace penstock::bind {

namespace {

// A field in the language of Python's `struct`, which has no padding here: little-endian, standard sizes.
template <class Field> constexpr char struct_code() {
    static_assert(std::is_integral_v<Field>);
    constexpr char codes[] = {'?', 'B', 'H', '?', 'I', '?', '?', '?', 'Q'};
    return std::is_signed_v<Field> ? static_cast<char>(codes[sizeof(Field)] - 'A' + 'a') : codes[sizeof(Field)];
}
// The fields in their order; they must fill the record.
template <class Record, class... Fields> std::string struct_format(Fields Record::*...) {
    static_assert((sizeof(Fields) + ...) == sizeof(Record));
    return std::string("<") + std::string{struct_code<Fields>()...};
}

// A field in the language of NumPy's dtypes.
template <class Field> nb::tuple dtype_field(const char *name, Field) {
    return nb::make_tuple(name, std::string(std::is_signed_v<Field> ? "<i" : "<u") + std::to_string(sizeof(Field)));
}

nb::tuple entry_fields() {
    constexpr IndexEntry e;
    return nb::make_tuple(
        dtype_field("position", e.position), dtype_field("length", e.length), dtype_field("block_crc", e.block_crc),
        dtype_field("time_min", e.time_min), dtype_field("time_max", e.time_max), dtype_field("recorded_ns", e.recorded_ns),
        dtype_field("messages_before", e.messages_before), dtype_field("begins", e.begins), dtype_field("kind", e.kind),
        dtype_field("spare", e.spare), dtype_field("payload", e.payload), dtype_field("crc", e.crc));
}

nb::tuple role_names() {
    nb::list names;
    for (uint32_t role = 0; role <= static_cast<uint32_t>(PeerRole::tap); ++role)
        names.append(role_name(static_cast<PeerRole>(role)));
    return nb::tuple(names);
}

nb::tuple when_full_names() {
    nb::list names;
    for (const char *name : when_full_name) names.append(name);
    return nb::tuple(names);
}

nb::dict recorded_columns() {
    nb::dict columns;
    for (const RecordedColumn &column : recorded_column) columns[column.name] = static_cast<uint32_t>(column.bit);
    return columns;
}

} // namespace

void bind_formats(nb::module_ &m) {
    m.def(
        "crc32c", [](nb::bytes data, uint32_t before) { return crc32c(data.data(), data.size(), before); }, nb::arg("data"),
        nb::arg("before") = 0);
    m.def(
        "latency_bucket", [](uint64_t ns) { return latency_bucket(ns); }, nb::arg("ns"),
        "The bucket of a latency in a subscription's histogram.");
    nb::class_<MemberName>(m, "MemberName", "The name of a member.")
        .def(
            "__init__",
            [](MemberName *self, const nb::bytes &given, bool own) {
                std::string text(given.c_str(), given.size());
                new (self) MemberName(own ? MemberName::own(std::move(text)) : MemberName(std::move(text)));
            },
            nb::arg("given"), nb::arg("own") = true)
        .def(
            "now", [](const MemberName &self) { return nb::bytes(self.now().data(), self.now().size()); },
            "The name in this process. If none was given it is drawn, and drawn again in a forked child.");
    m.attr("LIFE_BYTE") = lock_byte::life;
    m.attr("NAME_MAX") = name_max;
    m.attr("ROLES") = role_names();
    m.attr("WHEN_FULL") = when_full_names();
    m.attr("MISSING_LENGTH") = PipeTap::missing_length;
    m.attr("SYNC_HEADER") = struct_format(&SyncHeader::sender, &SyncHeader::type, &SyncHeader::kind);
    m.attr("METADATA_MAX") = metadata_max;
    m.attr("NOTES_MAX") = notes_max;
    m.attr("DESCRIPTION_MAX") = description_max;
    m.attr("FRAME_NOTE") = struct_format(&FrameNote::buffer, &FrameNote::dtype, &FrameNote::dimensions, &FrameNote::rest_length,
                                         &FrameNote::id, &FrameNote::start_ns, &FrameNote::end_ns);
    m.attr("INDEX_HEADER_LENGTH") = sizeof(IndexHeader);
    m.attr("INDEX_ENTRY") = entry_fields();
    m.attr("ENTRY_BLOCK") = static_cast<uint16_t>(EntryKind::block);
    m.attr("ENTRY_GAP") = static_cast<uint16_t>(EntryKind::gap);
    m.attr("ENTRY_SEAL") = static_cast<uint16_t>(EntryKind::seal);
    m.attr("ENTRY_HOLE") = static_cast<uint16_t>(EntryKind::hole);
    m.attr("RECORDED_COLUMNS") = recorded_columns();
}

} // namespace penstock::bind
