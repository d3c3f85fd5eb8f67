// Channel files of every kind: made, and read without disturbing anyone.
#include "status.hpp"

#include "frames/frame_pool.hpp"
#include "ground/checksum.hpp"
#include "ground/open_channel.hpp"
#include "log/term_log.hpp"
#include "ring/ring.hpp"

namespace penstock::bind {

namespace {

nb::dict describe(const OpenedLog &log) {
    nb::dict about;
    const LogGeometry &g = log.geometry;
    describe_common(about, log, g.term_length, g.slot_count, g.start_position, g.epoch, g.max_frame);
    about["capacity"] = g.window;
    about["initial_term_id"] = g.initial_term_id;
    about["stream_id"] = g.stream;
    return about;
}

// Reads header and counters through a read-only mapping: changes nothing, disturbs nobody.
nb::dict inspect_log(int fd, const std::string &path, bool sync) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedLog log = read_header(map.bytes(), map.size(), path, sync ? Kind::sync : Kind::log);
    nb::dict about = describe(log);
    auto *control = reinterpret_cast<Control *>(map.bytes() + control_offset);
    about["position"] = control->tail.value.acquire(); // SYNC -: for people; no frame is read at it
    about["limit"] = control->limit.value.acquire();   // SYNC -: for people; nothing is claimed up to it
    nb::dict totals;
    const auto &t = control->totals;
    auto slot = [&](uint32_t i) -> const Slot & {
        return *reinterpret_cast<const Slot *>(map.bytes() + slots_offset + size_t{i} * sizeof(Slot));
    };
    auto taken = [](const Slot &s) {
        // SYNC -: for people; add_up looks again if a member left
        const uint32_t state = s.identity.state.acquire(), role = s.identity.role.acquire();
        return state != 0 && state <= 2 && role != 0 && role <= 3;
    };
    auto reading = [](const Slot &s) { return s.identity.role.relaxed() == static_cast<uint32_t>(Role::subscription); };
    const auto [sent, sent_bytes, received, received_bytes, refused, lost] = add_up(
        [&] {
            return std::array{t.messages_sent.relaxed(),  t.bytes_sent.relaxed(),    t.messages_received.relaxed(),
                              t.bytes_received.relaxed(), t.back_pressure.relaxed(), t.bytes_lost.relaxed()};
        },
        [&](auto &sum) {
            for (uint32_t i = 0; i < log.geometry.slot_count; ++i) {
                const Slot &s = slot(i);
                if (!taken(s)) continue;
                const size_t first = reading(s) ? 2 : 0;
                sum[first] += count_of(s.counters.messages);
                sum[first + 1] += count_of(s.counters.bytes);
                sum[4] += count_of(s.counters.back_pressure);
                sum[5] += count_of(s.counters.bytes_lost);
            }
        });
    nb::list members;
    const LatencyTable latencies(map, log.geometry.slot_count);
    about["latency"] = latencies.all();
    for (uint32_t i = 0; i < log.geometry.slot_count; ++i) {
        const Slot &s = slot(i);
        if (!taken(s) || (sync && !lives(fd, slots_offset + uint64_t{i} * sizeof(Slot)))) continue;
        const bool reads = reading(s);
        add_member(members, i,
                   reads                                                                 ? "subscription"
                   : s.identity.role.relaxed() == static_cast<uint32_t>(Role::exclusive) ? "exclusive"
                                                                                         : "publication",
                   s.identity.state.relaxed() == static_cast<uint32_t>(State::dropped), s.identity.pid.relaxed(),
                   static_cast<int32_t>(s.identity.session.relaxed()), s.identity.joined_ns.relaxed(),
                   // SYNC -: for people; nothing is cleaned by it
                   reads ? nb::object(nb::int_(s.reader.position.acquire())) : nb::object(nb::none()),
                   s.counters.messages.relaxed(), s.counters.bytes.relaxed(), s.counters.back_pressure.relaxed(),
                   s.counters.bytes_lost.relaxed(), nb::none(),
                   reads ? latencies.of(i, s.identity.joined_ns.relaxed()) : nb::object(nb::none()));
        if (sync) nb::cast<nb::dict>(members[nb::len(members) - 1])["name"] = name_text(read_name(s.identity));
    }
    totals["messages_sent"] = sent;
    totals["bytes_sent"] = sent_bytes;
    totals["messages_received"] = received;
    totals["bytes_received"] = received_bytes;
    totals["back_pressure"] = refused;
    totals["bytes_lost"] = lost;
    totals["messages_lost"] = nb::none();
    totals["repaired"] = t.repaired.relaxed();
    totals["dropped"] = t.dropped.relaxed();
    totals["reaped"] = t.reaped.relaxed();
    about["totals"] = totals;
    about["members"] = members;
    return about;
}

nb::dict describe_ring(int fd, const Mapping &map, const OpenedRing &ring) {
    const RingGeometry &g = ring.geometry;
    const auto *control = reinterpret_cast<const RingControl *>(map.bytes() + control_offset);
    const auto *frames = map.bytes() + ring_data_offset(g.slot_count);
    nb::dict about;
    describe_common(about, ring, g.capacity, g.slot_count, g.start_position, g.epoch, g.max_frame());
    about["capacity"] = g.capacity;
    about["initial_term_id"] = 0;
    about["stream_id"] = 1;
    about["start_sequence"] = g.start_sequence;
    // SYNC 11: pairs with RingWriter::advance; forbids reading the number of the next message before its position: it would be
    // that of an earlier lap
    const uint64_t end = control->writer.write.acquire();
    const uint64_t next = reinterpret_cast<const RingFrame *>(frames + (end & (g.capacity - 1) & ~uint64_t{frame_alignment - 1}))
                              ->sequence.relaxed();
    about["position"] = end;
    about["limit"] = control->claimed.value.relaxed();
    const auto session = static_cast<int32_t>(control->writer.session.relaxed());
    nb::list members;
    // SYNC -: for people; the kernel says whether the publication lives
    const bool publishing = control->writer.state.acquire() == 1 && lives(fd, control_offset);
    about["publishing"] = publishing;
    if (publishing)
        add_member(members, g.slot_count, "publication", false, control->writer.pid.relaxed(), session,
                   control->writer.joined_ns.relaxed(), nb::none(), next - g.start_sequence, control->writer.bytes_sent.relaxed(),
                   0, 0, nb::int_(0), nb::none());
    const LatencyTable latencies(map, g.slot_count);
    about["latency"] = latencies.all();
    uint64_t received = 0, received_bytes = 0, lost = 0, lost_bytes = 0, restarts = 0, conflated = 0;
    for (uint32_t i = 0; i < g.slot_count; ++i) {
        const auto &s = *reinterpret_cast<const RingSlot *>(map.bytes() + slots_offset + size_t{i} * sizeof(RingSlot));
        const RingCounts &now = s.reader.counts, &before = s.identity.before;
        received += now.messages.relaxed();
        received_bytes += now.bytes.relaxed();
        lost += now.lost_messages.relaxed();
        lost_bytes += now.lost_bytes.relaxed();
        restarts += now.restarts.relaxed();
        conflated += now.conflated.relaxed();
        // SYNC 12: pairs with Ring::attach_reader; forbids reading the slot's words before they are its new owner's
        const bool here = s.identity.state.acquire() == 1;
        if (!here || !lives(fd, slots_offset + uint64_t{i} * sizeof(RingSlot))) continue;
        add_member(members, i, "subscription", false, s.identity.pid.relaxed(), 0, s.identity.joined_ns.relaxed(),
                   // SYNC 13: pairs with RingReader::show_position; forbids showing a position before the reader is done with the
                   // messages below it
                   nb::int_(s.reader.position.acquire()), now.messages.relaxed() - before.messages.relaxed(),
                   now.bytes.relaxed() - before.bytes.relaxed(), 0, now.lost_bytes.relaxed() - before.lost_bytes.relaxed(),
                   nb::int_(now.lost_messages.relaxed() - before.lost_messages.relaxed()),
                   latencies.of(i, s.identity.joined_ns.relaxed()));
    }
    nb::dict totals;
    totals["messages_sent"] = next - g.start_sequence;
    totals["bytes_sent"] = control->writer.bytes_sent.relaxed();
    totals["messages_received"] = received;
    totals["bytes_received"] = received_bytes;
    totals["back_pressure"] = 0;
    totals["bytes_lost"] = lost_bytes;
    totals["messages_lost"] = lost;
    totals["repaired"] = 0;
    totals["dropped"] = 0;
    totals["reaped"] = control->reaped.value.relaxed();
    totals["restarts"] = restarts;
    totals["conflated"] = conflated;
    about["totals"] = totals;
    about["members"] = members;
    return about;
}

nb::dict inspect_ring(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    return describe_ring(fd, map, read_ring_header(map.bytes(), map.size(), path));
}

nb::dict inspect_frames(int fd, const std::string &path) {
    const auto map = std::make_shared<Mapping>(fd, size_of_file(fd), false);
    const FramePool pool(fd, path, map);
    nb::dict about = describe_ring(fd, *map, pool.opened());
    about["buffers"] = pool.geometry().buffers;
    about["frame_bytes"] = pool.geometry().frame_bytes;
    about["leased"] = pool.leased_count();
    return about;
}

} // namespace

void bind_channels(nb::module_ &m) {
    m.def(
        "format_log",
        [](int fd, uint32_t term_length, uint32_t capacity, uint32_t slots, int32_t initial_term_id, int32_t stream_id,
           uint64_t start_position, uint64_t epoch, nb::bytes metadata, nb::bytes boot_id, bool sync, OpenHold *hold) {
            LogGeometry g;
            g.term_length = term_length;
            g.window = capacity;
            g.slot_count = slots;
            g.initial_term_id = initial_term_id;
            g.stream = stream_id;
            g.start_position = start_position;
            g.epoch = epoch;
            const Kind kind = sync ? Kind::sync : Kind::log;
            if (hold == nullptr) return format_log(fd, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME), kind);
            check_geometry(g, Code::invalid);
            decide_file(fd, hold->seat().path(), hold->seat(), kind, slots, log_file_size(slots, term_length), true,
                        [&](const Mapping &map, const OpenPart &part) {
                            decide_log(map, part, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
                        });
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("term_length"), nb::arg("capacity"), nb::arg("slots"), nb::arg("initial_term_id"),
        nb::arg("stream_id"), nb::arg("start_position"), nb::arg("epoch"), nb::arg("metadata"), nb::arg("boot_id"),
        nb::arg("sync") = false, nb::arg("hold") = nb::none());
    m.def("log_file_size", &log_file_size, nb::arg("slots"), nb::arg("term_length"), "Bytes that a log channel's file takes.");
    m.def("inspect_log", &inspect_log, nb::arg("fd"), nb::arg("path"), nb::arg("sync") = false,
          "Header, counters and members, read without disturbing anyone.");
    m.def(
        "check_log_options",
        [](uint32_t term_length, uint32_t capacity, uint32_t slots, uint64_t start_position) {
            LogGeometry g;
            g.term_length = term_length;
            g.window = capacity;
            g.slot_count = slots;
            g.start_position = start_position;
            check_geometry(g, Code::invalid);
        },
        nb::arg("term_length"), nb::arg("capacity"), nb::arg("slots"), nb::arg("start_position"));
    m.def(
        "crc32c", [](nb::bytes data, uint32_t before) { return crc32c(data.data(), data.size(), before); }, nb::arg("data"),
        nb::arg("before") = 0);
    m.def(
        "format_ring",
        [](int fd, uint32_t capacity, uint32_t slots, uint64_t start_position, uint64_t start_sequence, uint64_t epoch,
           nb::bytes metadata, nb::bytes boot_id, OpenHold *hold) {
            const RingGeometry g{capacity, slots, start_position, start_sequence, epoch};
            if (hold == nullptr) return format_ring(fd, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
            check_geometry(g, Code::invalid);
            decide_file(fd, hold->seat().path(), hold->seat(), Kind::ring, slots, ring_file_size(slots, capacity), false,
                        [&](const Mapping &map, const OpenPart &part) {
                            decide_ring(map, part, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
                        });
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("capacity"), nb::arg("slots"), nb::arg("start_position"), nb::arg("start_sequence"),
        nb::arg("epoch"), nb::arg("metadata"), nb::arg("boot_id"), nb::arg("hold") = nb::none());
    m.def("ring_file_size", &ring_file_size, nb::arg("slots"), nb::arg("capacity"), "Bytes that a ring channel's file takes.");
    m.def(
        "format_frames",
        [](int fd, uint32_t capacity, uint32_t slots, uint32_t buffers, uint64_t frame_bytes, uint64_t start_position,
           uint64_t start_sequence, uint64_t epoch, nb::bytes metadata, nb::bytes boot_id) {
            const PoolGeometry g{{capacity, slots, start_position, start_sequence, epoch}, buffers, frame_bytes};
            format_frames(fd, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("capacity"), nb::arg("slots"), nb::arg("buffers"), nb::arg("frame_bytes"),
        nb::arg("start_position"), nb::arg("start_sequence"), nb::arg("epoch"), nb::arg("metadata"), nb::arg("boot_id"));
    m.def("inspect_frames", &inspect_frames, nb::arg("fd"), nb::arg("path"),
          "Header, counters and members, read without disturbing anyone.");
    m.def(
        "frames_file_size",
        [](uint32_t capacity, uint32_t slots, uint32_t buffers, uint64_t frame_bytes, uint64_t start_position) {
            const PoolGeometry g{{capacity, slots, start_position, 0, 0}, buffers, frame_bytes};
            check_geometry(g, Code::invalid);
            return g.file_size();
        },
        nb::kw_only(), nb::arg("capacity"), nb::arg("slots"), nb::arg("buffers"), nb::arg("frame_bytes"),
        nb::arg("start_position"), "Checks the options; bytes that a frames channel's file takes.");
    m.def(
        "latency_bucket", [](uint64_t ns) { return latency_bucket(ns); }, nb::arg("ns"),
        "The bucket of a latency in a subscription's histogram.");
    m.def("inspect_ring", &inspect_ring, nb::arg("fd"), nb::arg("path"),
          "Header, counters and members, read without disturbing anyone.");
    m.def(
        "check_ring_options",
        [](uint32_t capacity, uint32_t slots, uint64_t start_position) {
            check_geometry(RingGeometry{capacity, slots, start_position}, Code::invalid);
        },
        nb::arg("capacity"), nb::arg("slots"), nb::arg("start_position"));
}

} // namespace penstock::bind
