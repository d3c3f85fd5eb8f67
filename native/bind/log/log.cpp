// Log channels, and the log under a sync queue: their files, what a file says, and their ends.
#include "bind/ends/end_target.hpp"
#include "bind/ends/look.hpp"
#include "bind/ground/arguments.hpp"
#include "bind/ground/status.hpp"
#include "bind/handles/handle.hpp"
#include "bind/log/last_ends.hpp"
#include "ends/log_ends.hpp"

#include "ground/files/open_channel.hpp"
#include "log/log_look.hpp"
#include "log/term_log.hpp"
#include "status/log_status.hpp"

#include <nanobind/stl/shared_ptr.h>

namespace penstock::bind {

namespace {

// Reads header and counters through a read-only mapping: changes nothing.
nb::dict inspect_log(int fd, const std::string &path, bool sync) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedLog log = read_header(map.bytes(), map.size(), path, sync ? Kind::sync : Kind::log);
    const LogGeometry &g = log.geometry;
    const ChannelStatus status = read_log_status(fd, map, log, sync);
    nb::dict about;
    describe_common(about, log, g.term_length, g.slot_count, g.start_position, g.epoch, g.max_frame);
    about["initial_term_id"] = g.initial_term_id;
    about["stream_id"] = g.stream;
    about["last_keys"] = g.last.keys;
    about["last_max"] = g.last.max;
    about["last_count"] = last_count(map, g);
    about["limit"] = status.limit;
    about["slots_taken"] = status.slots_taken;
    describe_status(about, status);
    // Once the members are known: a publication of the network says that it ends before it leaves. Only the value counts.
    const auto &control = *reinterpret_cast<const Control *>(map.bytes() + control_offset);
    const SessionEnd end = SessionEnd::of(control.session_end.value.relaxed());
    about["closed_at"] = end.how == SessionEnd::How::closed ? nb::object(nb::int_(end.position)) : nb::object(nb::none());
    return about;
}

} // namespace

void bind_log(nb::module_ &m) {
    m.def(
        "format_log",
        [](int fd, uint32_t term_length, uint32_t capacity, uint32_t slots, int32_t initial_term_id, int32_t stream_id,
           uint64_t start_position, uint64_t epoch, nb::bytes metadata, nb::bytes boot_id, bool sync, OpenHold *hold,
           uint32_t last_keys, uint32_t last_max) {
            LogGeometry g;
            g.term_length = term_length;
            g.window = capacity;
            g.slot_count = slots;
            g.initial_term_id = initial_term_id;
            g.stream = stream_id;
            g.start_position = start_position;
            g.epoch = epoch;
            g.last = {last_keys, last_max};
            const Kind kind = sync ? Kind::sync : Kind::log;
            if (hold == nullptr) return format_log(fd, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME), kind);
            check_geometry(g, Code::invalid);
            decide_file(fd, hold->locks().path(), hold->locks(), sync ? sync_kind : log_kind, slots,
                        log_file_size(slots, term_length, kind, g.last), true, [&](const Mapping &map, const OpenPart &part) {
                            decide_log(map, part, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
                        });
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("term_length"), nb::arg("capacity"), nb::arg("slots"), nb::arg("initial_term_id"),
        nb::arg("stream_id"), nb::arg("start_position"), nb::arg("epoch"), nb::arg("metadata"), nb::arg("boot_id"),
        nb::arg("sync") = false, nb::arg("hold") = nb::none(), nb::arg("last_keys") = 0, nb::arg("last_max") = 0);
    m.def(
        "log_file_size",
        [](uint64_t slots, uint64_t term_length, bool sync, uint32_t last_keys, uint32_t last_max) {
            return log_file_size(slots, term_length, sync ? Kind::sync : Kind::log, {last_keys, last_max});
        },
        nb::arg("slots"), nb::arg("term_length"), nb::arg("sync") = false, nb::arg("last_keys") = 0, nb::arg("last_max") = 0,
        "Bytes that the file of a log, or of a sync queue, takes.");
    m.def("inspect_log", &inspect_log, nb::arg("fd"), nb::arg("path"), nb::arg("sync") = false,
          "Header, counters and members, read without disturbing anyone.");
    m.def(
        "log_look",
        [](int fd, const std::string &path, bool sync) -> std::shared_ptr<Look> {
            return std::make_shared<LookOf<LogLook>>(map_to_look(fd), path, sync ? Kind::sync : Kind::log);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("sync") = false, "Looks at a log, or at a sync queue, without a slot.");
    m.def(
        "check_log_options",
        [](uint32_t term_length, uint32_t capacity, uint32_t slots, uint64_t start_position, uint32_t last_keys,
           uint32_t last_max) {
            LogGeometry g;
            g.term_length = term_length;
            g.window = capacity;
            g.slot_count = slots;
            g.start_position = start_position;
            g.last = {last_keys, last_max};
            check_geometry(g, Code::invalid);
        },
        nb::arg("term_length"), nb::arg("capacity"), nb::arg("slots"), nb::arg("start_position"), nb::arg("last_keys") = 0,
        nb::arg("last_max") = 0);
    m.def(
        "log_writer",
        [](int fd, std::string path, bool exclusive, std::shared_ptr<ManualClock> clock) -> std::shared_ptr<WriterEnd> {
            auto log = std::make_shared<TermLog>(fd, std::move(path));
            if (log->geometry().last.keys != 0)
                return std::make_shared<LastWriterEnd>(std::move(log), exclusive, std::move(clock));
            return std::make_shared<WithoutInterpreter<LogWriterEnd>>(std::move(log), exclusive, std::move(clock));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("exclusive"), nb::arg("clock").none());
    m.def(
        "log_reader",
        [](int fd, std::string path, const std::string &from, uint64_t position,
           double drop_after) -> std::shared_ptr<ReaderEnd> {
            if (from == "keys") return std::make_shared<LastReaderEnd>(fd, std::move(path), drop_after);
            return std::make_shared<LogReaderEnd>(fd, std::move(path), parse_start(from, position), drop_after);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("start"), nb::arg("position"), nb::arg("drop_after"));
    m.def(
        "last_values",
        [](StreamHandle &stream) {
            nb::list kept;
            auto *reader = dynamic_cast<ReaderEnd *>(&stream.ready());
            auto *end = reader == nullptr ? nullptr : dynamic_cast<LogReaderEnd *>(&reader->target());
            if (end == nullptr || end->log()->geometry().last.keys == 0) return kept;
            uint64_t tail = 0;
            for (const LastValue &one : LastValues(end->log()).snapshot(tail))
                if (one.position < end->position())
                    kept.append(nb::make_tuple(one.position, one.time_ns, one.session,
                                               nb::bytes(one.payload.data(), one.payload.size())));
            return kept;
        },
        nb::arg("stream"), nb::sig("def last_values(stream: StreamHandle) -> list[tuple[int, int, int, bytes]]"),
        "The newest message of each key of a log from before the subscription's position, in order: position, send time, "
        "session, "
        "payload.");
}

} // namespace penstock::bind
