// Pipe channels: their files, what a file says of its peers, and the peers' ends.
#include "bind/ground/status.hpp"
#include "bind/pipe/socket_ends.hpp"

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
    nb::dict about;
    describe_common(about, pipe, g.capacity, g.max_members, g.start_position, g.epoch, g.max_frame());
    about["capacity"] = g.capacity;
    about["max_pipes"] = g.max_pipes;
    about["max_messages"] = g.max_messages;
    about["initial_term_id"] = 0;
    about["stream_id"] = 1;
    const auto *control = reinterpret_cast<const PipeControl *>(map.bytes() + control_offset);
    const auto &t = control->totals;
    const SlotTable<PeerSlot> slots(fd, map, g.max_members);
    const auto [sent, sent_bytes, received, received_bytes, refused, dropped, dropped_bytes, written, redelivered] = add_up(
        [&] {
            return std::array{t.messages_sent.relaxed(),  t.bytes_sent.relaxed(),    t.messages_received.relaxed(),
                              t.bytes_received.relaxed(), t.back_pressure.relaxed(), t.messages_dropped.relaxed(),
                              t.bytes_dropped.relaxed(),  t.written.relaxed(),       t.redelivered.relaxed()};
        },
        [&](auto &sum) {
            for (uint32_t i = 0; i < g.max_members; ++i) {
                if (slots[i].identity.state.acquire() != 1) continue; // SYNC -: add_up looks again if a peer left
                const PeerSlot::Counters &counts = slots[i].counters;
                sum[0] += count_of(counts.messages_sent);
                sum[1] += count_of(counts.bytes_sent);
                sum[2] += count_of(counts.messages_received);
                sum[3] += count_of(counts.bytes_received);
                sum[4] += count_of(counts.back_pressure);
                sum[5] += count_of(counts.messages_dropped);
                sum[6] += count_of(counts.bytes_dropped);
                sum[7] += count_of(counts.written);
                sum[8] += count_of(counts.redelivered);
            }
        });
    auto link = [&](uint32_t i) -> const PipeLink & {
        return *reinterpret_cast<const PipeLink *>(map.bytes() + g.links_offset() + size_t{i} * sizeof(PipeLink));
    };
    nb::list members, dead;
    const LatencyTable latencies(map, g.max_members);
    about["latency"] = latencies.all();
    for (uint32_t i = 0; i < g.max_members; ++i) {
        const PeerSlot &s = slots[i];
        // SYNC -: for people; nothing is decided by it
        if (s.identity.state.acquire() != 1) continue;
        const PeerSlot::Counters &counts = s.counters;
        const auto role = static_cast<PeerRole>(s.identity.role.relaxed());
        if (!slots.held(i)) {
            add_dead(dead, role_name(role), s.identity.pid.relaxed(), s.identity.joined_ns.relaxed());
            continue;
        }
        const bool reads = role == PeerRole::pull || role == PeerRole::tap;
        const uint64_t id = participant_id(s.identity.generation.relaxed(), i);
        uint64_t unread = 0;
        for (uint32_t k = 0; k < g.max_pipes; ++k) unread += unread_in(link(k), id);
        add_member(members, i, role_name(role), false, s.identity.pid.relaxed(), session_of(id), s.identity.joined_ns.relaxed(),
                   role == PeerRole::push ? nb::object(nb::none()) : nb::object(nb::int_(counts.read.relaxed())),
                   (reads ? counts.messages_received : counts.messages_sent).relaxed(),
                   (reads ? counts.bytes_received : counts.bytes_sent).relaxed(), counts.back_pressure.relaxed(),
                   counts.bytes_dropped.relaxed(), nb::int_(counts.messages_dropped.relaxed()),
                   role == PeerRole::push ? nb::object(nb::none()) : latencies.of(i, s.identity.joined_ns.relaxed()));
        auto member = nb::cast<nb::dict>(members[nb::len(members) - 1]);
        member["name"] = name_text(read_name(s.identity));
        member["lag"] = role == PeerRole::push ? nb::object(nb::none()) : nb::object(nb::int_(unread));
    }
    uint64_t unread = 0, pipes = 0;
    for (uint32_t i = 0; i < g.max_pipes; ++i) {
        const PipeLink &l = link(i);
        if (l.ends.state.acquire() != 1) continue; // SYNC -: for people; nothing is decided by it
        ++pipes;
        const uint64_t there = l.writer.messages.relaxed(), read = l.reader.messages.relaxed();
        unread += there > read ? there - read : 0;
    }
    about["position"] = written;
    nb::dict details;
    details["pipes"] = pipes;
    details["max_pipes"] = g.max_pipes;
    details["max_messages"] = g.max_messages;
    details["unread_messages"] = unread;
    details["redelivered"] = redelivered;
    details["taken_over"] = t.returned.relaxed();
    about["details"] = details;
    const uint64_t reaped = slots.died([](const PeerSlot &s) -> const Deaths & { return s.counters.deaths; },
                                       // SYNC -: for people; nothing is decided by it
                                       [](const PeerSlot &s) { return s.identity.state.acquire() == 1; });
    about["totals"] = totals_dict(sent, sent_bytes, received, received_bytes, refused, t.bytes_lost.relaxed() + dropped_bytes,
                                  nb::int_(t.messages_lost.relaxed() + dropped), 0, 0, reaped);
    about["members"] = members;
    about["dead"] = dead;
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
