// Pipe channels: their files, what a file says of its peers, and the peers' ends.
#include "bind/ground/status.hpp"
#include "bind/pipe/socket_ends.hpp"

#include "status/pipe_status.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

namespace penstock::bind {

namespace {

PipeGeometry geometry(uint32_t capacity, uint32_t max_members, uint32_t max_pipes, uint32_t max_messages,
                      uint64_t start_position) {
    PipeGeometry g;
    g.capacity = capacity;
    g.max_members = max_members;
    g.max_pipes = max_pipes;
    g.max_messages = max_messages;
    g.start_position = start_position;
    return g;
}

nb::dict inspect_pipe(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedPipe pipe = read_pipe_header(map.bytes(), map.size(), path);
    const PipeGeometry &g = pipe.geometry;
    const ChannelStatus status = read_pipe_status(fd, map, pipe);
    nb::dict about;
    describe_common(about, pipe, g.capacity, g.max_members, g.start_position, g.epoch, g.max_frame());
    about["max_pipes"] = g.max_pipes;
    about["max_messages"] = g.max_messages;
    about["initial_term_id"] = 0;
    about["stream_id"] = 1;
    nb::dict details;
    details["pipes"] = status.pipes;
    details["max_pipes"] = g.max_pipes;
    details["max_messages"] = g.max_messages;
    details["unread_messages"] = status.messages_unread;
    details["redelivered"] = status.messages_redelivered;
    details["taken_over"] = status.pipes_taken_over;
    about["details"] = details;
    describe_status(about, status);
    return about;
}

} // namespace

void bind_pipe(nb::module_ &m) {
    m.def(
        "format_pipe",
        [](int fd, uint32_t capacity, uint32_t max_members, uint32_t max_pipes, uint32_t max_messages, uint64_t start_position,
           uint64_t epoch, nb::bytes metadata, nb::bytes boot_id, OpenHold *hold) {
            PipeGeometry g = geometry(capacity, max_members, max_pipes, max_messages, start_position);
            g.epoch = epoch;
            if (hold == nullptr) return format_pipe(fd, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
            check_geometry(g, Code::invalid);
            decide_file(fd, hold->locks().path(), hold->locks(), pipe_kind, max_members, g.file_size(), true,
                        [&](const Mapping &map, const OpenPart &part) {
                            decide_pipe(map, part, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
                        });
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("capacity"), nb::arg("max_members"), nb::arg("max_pipes"), nb::arg("max_messages"),
        nb::arg("start_position"), nb::arg("epoch"), nb::arg("metadata"), nb::arg("boot_id"), nb::arg("hold") = nb::none());
    m.def(
        "pipe_file_size",
        [](uint32_t capacity, uint32_t max_members, uint32_t max_pipes, uint32_t max_messages, uint64_t start_position) {
            const PipeGeometry g = geometry(capacity, max_members, max_pipes, max_messages, start_position);
            check_geometry(g, Code::invalid);
            return g.file_size();
        },
        nb::kw_only(), nb::arg("capacity"), nb::arg("max_members"), nb::arg("max_pipes"), nb::arg("max_messages"),
        nb::arg("start_position"), "Checks the options; bytes that a pipe channel's file takes.");
    m.def("inspect_pipe", &inspect_pipe, nb::arg("fd"), nb::arg("path"),
          "Header, counters and members, read without disturbing anyone.");

    nb::class_<PipePeer>(m, "PipePeer", "A peer of a pipe channel, for the handles of its two directions.")
        .def(nb::new_([](int fd, std::string path, uint32_t role, const MemberName &name, uint32_t when_full,
                         std::shared_ptr<ManualClock> clock) {
                 return std::make_shared<PipePeer>(fd, std::move(path), static_cast<PeerRole>(role), name,
                                                   static_cast<WhenFull>(when_full), std::move(clock));
             }),
             nb::arg("fd"), nb::arg("path"), nb::arg("role"), nb::arg("name"), nb::arg("when_full"), nb::arg("clock").none())
        .def("prefault", [](PipePeer &self) { return self.file().mapping()->populate(); });
    m.def(
        "pipe_writer",
        [](std::shared_ptr<PipePeer> peer) -> std::shared_ptr<WriterEnd> {
            return std::make_shared<PipeWriterEnd>(std::move(peer));
        },
        nb::arg("peer"));
    m.def(
        "pipe_reader",
        [](std::shared_ptr<PipePeer> peer, bool by_hand) -> std::shared_ptr<ReaderEnd> {
            return std::make_shared<PipeReaderEnd>(std::move(peer), by_hand);
        },
        nb::arg("peer"), nb::arg("by_hand"));
    m.def(
        "socket_reader",
        [](std::shared_ptr<PipePeer> peer, bool named) -> std::shared_ptr<ReaderEnd> {
            return std::make_shared<SocketReaderEnd>(std::move(peer), named);
        },
        nb::arg("peer"), nb::arg("named"), "named: whether Arrow batches have a column `sender`.");
    m.def(
        "pipe_tap",
        [](std::shared_ptr<PipePeer> peer, uint64_t position) -> std::shared_ptr<StreamEnd> {
            return std::make_shared<PipeTapEnd>(std::move(peer), position);
        },
        nb::arg("peer"), nb::arg("position"), "A recorder's end, whose positions continue from `position`.");
}

} // namespace penstock::bind
