// Ring channels: their files, what a file says, and their ends.
#include "bind/ends/look.hpp"
#include "bind/ground/arguments.hpp"
#include "bind/ring/ring_status.hpp"
#include "ends/ring_ends.hpp"

#include "ground/files/open_channel.hpp"
#include "ring/ring_look.hpp"

#include <nanobind/stl/shared_ptr.h>

namespace penstock::bind {

namespace {

nb::dict inspect_ring(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedRing ring = read_ring_header(map.bytes(), map.size(), path);
    return describe_ring(ring, read_ring_status(fd, map, ring));
}

} // namespace

void bind_ring(nb::module_ &m) {
    m.def(
        "format_ring",
        [](int fd, uint32_t capacity, uint32_t slots, uint64_t start_position, uint64_t start_sequence, uint64_t epoch,
           nb::bytes metadata, nb::bytes boot_id, OpenHold *hold) {
            const RingGeometry g{capacity, slots, start_position, start_sequence, epoch};
            if (hold == nullptr) return format_ring(fd, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
            check_geometry(g, Code::invalid);
            decide_file(fd, hold->locks().path(), hold->locks(), ring_kind, slots, ring_file_size(slots, capacity), false,
                        [&](const Mapping &map, const OpenPart &part) {
                            decide_ring(map, part, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
                        });
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("capacity"), nb::arg("slots"), nb::arg("start_position"), nb::arg("start_sequence"),
        nb::arg("epoch"), nb::arg("metadata"), nb::arg("boot_id"), nb::arg("hold") = nb::none());
    m.def("ring_file_size", &ring_file_size, nb::arg("slots"), nb::arg("capacity"), "Bytes that a ring channel's file takes.");
    m.def("inspect_ring", &inspect_ring, nb::arg("fd"), nb::arg("path"),
          "Header, counters and members, read without disturbing anyone.");
    m.def(
        "ring_look",
        [](int fd, const std::string &path) -> std::shared_ptr<Look> {
            return std::make_shared<LookOf<RingLook>>(map_to_look(fd), path);
        },
        nb::arg("fd"), nb::arg("path"), "Looks at a ring without a slot.");
    m.def(
        "check_ring_options",
        [](uint32_t capacity, uint32_t slots, uint64_t start_position) {
            check_geometry(RingGeometry{capacity, slots, start_position}, Code::invalid);
        },
        nb::arg("capacity"), nb::arg("slots"), nb::arg("start_position"));
    m.def(
        "ring_writer",
        [](int fd, std::string path, std::shared_ptr<ManualClock> clock) -> std::shared_ptr<WriterEnd> {
            return std::make_shared<RingWriterEnd>(fd, std::move(path), std::move(clock));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("clock").none());
    m.def(
        "ring_reader",
        [](int fd, std::string path, const std::string &from, uint64_t position, bool conflate) -> std::shared_ptr<ReaderEnd> {
            return std::make_shared<RingReaderEnd>(fd, std::move(path), parse_start(from, position), conflate);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("start"), nb::arg("position"), nb::arg("conflate"));
}

} // namespace penstock::bind
