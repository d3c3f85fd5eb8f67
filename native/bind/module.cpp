// The extension module: channel files, and the rooms bound by the other files here.
#include "bind.hpp"

#include "../core/checksum.hpp"
#include "../core/term_log.hpp"

#include <nanobind/stl/shared_ptr.h>

namespace penstock::bind {

namespace {

nb::dict describe(const OpenedLog &log) {
    nb::dict about;
    const LogGeometry &g = log.geometry;
    about["term_length"] = g.term_length;
    about["window"] = g.window;
    about["slots"] = g.slot_count;
    about["initial_term_id"] = g.initial_term_id;
    about["stream_id"] = g.stream;
    about["start_position"] = g.start_position;
    about["epoch"] = g.epoch;
    about["created_ns"] = log.created_ns;
    about["creator_pid"] = log.creator_pid;
    about["metadata"] = nb::bytes(log.metadata.data(), log.metadata.size());
    about["boot_id"] = nb::bytes(log.boot_id, 16);
    about["max_payload"] = g.max_frame() - header_length;
    return about;
}

// Reads header and counters through a read-only mapping: changes nothing, disturbs nobody.
nb::dict inspect(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedLog log = read_header(map.bytes(), map.size(), path);
    nb::dict about = describe(log);
    auto *control = reinterpret_cast<Control *>(map.bytes() + control_offset);
    about["tail"] = control->tail.value.acquire();
    about["limit"] = control->limit.value.acquire();
    nb::dict totals;
    const auto &t = control->totals;
    uint64_t sent = t.messages_sent.relaxed(), sent_bytes = t.bytes_sent.relaxed(), refused = t.back_pressure.relaxed();
    uint64_t received = t.messages_received.relaxed(), received_bytes = t.bytes_received.relaxed(), lost = t.bytes_lost.relaxed();
    nb::list members;
    for (uint32_t i = 0; i < log.geometry.slot_count; ++i) {
        const Slot &s = *reinterpret_cast<const Slot *>(map.bytes() + slots_offset + size_t{i} * sizeof(Slot));
        const uint32_t state = s.identity.state.acquire(), role = s.identity.role.acquire();
        if (state == 0 || state > 2 || role == 0 || role > 3) continue;
        const bool reads = role == static_cast<uint32_t>(Role::subscription);
        const uint64_t messages = s.counters.messages.relaxed(), bytes = s.counters.bytes.relaxed();
        (reads ? received : sent) += messages;
        (reads ? received_bytes : sent_bytes) += bytes;
        refused += s.counters.back_pressure.relaxed();
        lost += s.counters.bytes_lost.relaxed();
        nb::dict member;
        member["slot"] = i;
        member["role"] = reads ? "subscription" : role == static_cast<uint32_t>(Role::exclusive) ? "exclusive" : "publication";
        member["dropped"] = state == static_cast<uint32_t>(State::dropped);
        member["pid"] = s.identity.pid.relaxed();
        member["session"] = static_cast<int32_t>(s.identity.session.relaxed());
        member["joined_ns"] = s.identity.joined_ns.relaxed();
        member["position"] = reads ? nb::object(nb::int_(s.reader.position.acquire())) : nb::object(nb::none());
        member["messages"] = messages;
        member["bytes"] = bytes;
        member["back_pressure"] = s.counters.back_pressure.relaxed();
        member["bytes_lost"] = s.counters.bytes_lost.relaxed();
        members.append(member);
    }
    totals["messages_sent"] = sent;
    totals["bytes_sent"] = sent_bytes;
    totals["messages_received"] = received;
    totals["bytes_received"] = received_bytes;
    totals["back_pressure"] = refused;
    totals["bytes_lost"] = lost;
    totals["repaired"] = t.repaired.relaxed();
    totals["dropped"] = t.dropped.relaxed();
    totals["reaped"] = t.reaped.relaxed();
    about["totals"] = totals;
    about["members"] = members;
    return about;
}

} // namespace

void bind_log(nb::module_ &m) {
    m.def(
        "format_log",
        [](int fd, uint32_t term_length, uint32_t window, uint32_t slots, int32_t initial_term_id, int32_t stream_id,
           uint64_t start_position, uint64_t epoch, nb::bytes metadata, nb::bytes boot_id) {
            LogGeometry g;
            g.term_length = term_length;
            g.window = window;
            g.slot_count = slots;
            g.initial_term_id = initial_term_id;
            g.stream = stream_id;
            g.start_position = start_position;
            g.epoch = epoch;
            if (boot_id.size() != 16) throw Error(Code::invalid, "a boot id has 16 bytes");
            format_log(fd, g, std::string(metadata.c_str(), metadata.size()), static_cast<const uint8_t *>(boot_id.data()),
                       system_ns(CLOCK_REALTIME));
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("term_length"), nb::arg("window"), nb::arg("slots"), nb::arg("initial_term_id"),
        nb::arg("stream_id"), nb::arg("start_position"), nb::arg("epoch"), nb::arg("metadata"), nb::arg("boot_id"));
    m.def("log_file_size", &log_file_size, nb::arg("slots"), nb::arg("term_length"), "Bytes that a log channel's file takes.");
    m.def("inspect_log", &inspect, nb::arg("fd"), nb::arg("path"),
          "Header, counters and members, read without disturbing anyone.");
    m.def(
        "check_log_options",
        [](uint32_t term_length, uint32_t window, uint32_t slots, uint64_t start_position) {
            LogGeometry g;
            g.term_length = term_length;
            g.window = window;
            g.slot_count = slots;
            g.start_position = start_position;
            check_geometry(g, Code::invalid);
        },
        nb::arg("term_length"), nb::arg("window"), nb::arg("slots"), nb::arg("start_position"));
    m.def(
        "crc32c", [](nb::bytes data, uint32_t before) { return crc32c(data.data(), data.size(), before); }, nb::arg("data"),
        nb::arg("before") = 0);
}

} // namespace penstock::bind

NB_MODULE(core, m) {
    using namespace penstock::bind;
    m.doc() = "Penstock's compiled core: shared bytes, atomics, recordings. Private: use penstock.";
    nb::set_leak_warnings(false); // threads parked at the exit gate keep their handles, rightly
    bind_errors(m);
    bind_gate(m);
    bind_log(m);
    bind_publication(m);
    bind_subscription(m);
    bind_recording(m);
}
