// Open channels: made, looked at, joined; their subscriptions until the first publication.
#include "ends/early_ends.hpp"
#include "status/open_status.hpp"

#include "bind/ground/status.hpp"
#include "bind/ground/wait.hpp"
#include "bind/sync/sync_ends.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

namespace penstock::bind {

namespace {

constexpr int64_t hold_patience_ns = 10'000'000'000;

const KindLayout &kind_of(const std::string &name) {
    for (const KindLayout *kind : {&log_kind, &ring_kind, &sync_kind, &pipe_kind})
        if (name == kind_name(static_cast<uint32_t>(kind->number))) return *kind;
    throw Error(Code::invalid, "channels of kind " + name + " are never open");
}

std::shared_ptr<ReaderEnd> early(const OpenChannel &part, std::unique_ptr<EarlyMember> member) {
    return std::make_shared<EarlyReaderEnd>(part.map, std::move(member));
}

std::unique_ptr<EarlyMember> early_peer(int fd, const std::string &path, const OpenChannel &part, PeerRole role,
                                        const MemberName &name, uint32_t when_full, bool by_hand, uint64_t position) {
    EarlyPipe::PeerOptions options{role, name, static_cast<WhenFull>(when_full), by_hand, position};
    return std::make_unique<EarlyPipe>(fd, path, part.map, part.part, std::move(options));
}

nb::dict inspect_open(int fd, const std::string &path, const std::string &kind) {
    const OpenChannel file(fd, path, kind_of(kind), false);
    const ChannelStatus status = read_open_status(fd, file);
    nb::dict about;
    about["created_ns"] = status.created_ns;
    about["slots"] = file.part.slots;
    about["members"] = members_list(status.members);
    return about;
}

} // namespace

void bind_early(nb::module_ &m) {
    nb::class_<OpenHold>(m, "OpenHold", "Holds the byte that orders joining, leaving and deciding an open channel.")
        .def(
            "__init__",
            [](OpenHold *self, int fd, const std::string &path) {
                new (self) OpenHold(fd, path, 0);
                try {
                    if (wait_for(hold_patience_ns, NapTarget(), [&] { return self->held() || self->try_again(); })) return;
                } catch (...) { // a signal
                    self->~OpenHold();
                    throw;
                }
                self->~OpenHold();
                throw Error(Code::busy, path + ": a process that joins the channel does not run (stopped?)");
            },
            nb::arg("fd"), nb::arg("path"))
        .def("release", &OpenHold::release);
    m.def(
        "open_file_size", [](const std::string &kind, uint32_t slots) { return open_file_size(kind_of(kind), slots); },
        nb::arg("kind"), nb::arg("slots"), "Bytes that a channel's file takes while it is open.");
    m.def(
        "format_open",
        [](int fd, const std::string &kind, uint32_t slots, nb::bytes notes, nb::bytes boot_id) {
            format_open(fd, kind_of(kind), slots, text_of(notes), boot_of(boot_id), system_ns(CLOCK_REALTIME));
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("kind"), nb::arg("slots"), nb::arg("notes"), nb::arg("boot_id"));
    m.def(
        "is_open", [](int fd, const std::string &path, const std::string &kind) { return is_open(fd, path, kind_of(kind)); },
        nb::arg("fd"), nb::arg("path"), nb::arg("kind"), "Whether the channel waits for its first publication.");
    m.def("inspect_open", &inspect_open, nb::arg("fd"), nb::arg("path"), nb::arg("kind"));
    // All that follows: by the holder of the open byte.
    m.def(
        "read_notes",
        [](int fd, const std::string &path, const std::string &kind) {
            const std::string notes = read_notes(notes_of(*OpenChannel(fd, path, kind_of(kind), false).map), path);
            return nb::bytes(notes.data(), notes.size());
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("kind"), "The options and the codec that were named for an open channel so far.");
    m.def(
        "write_notes",
        [](int fd, const std::string &path, const std::string &kind, OpenHold &hold, nb::bytes notes,
           std::optional<uint32_t> slots) {
            const OpenChannel part(fd, path, kind_of(kind), true);
            if (slots) check_room(hold.locks(), part.part, *slots, false, path);
            write_notes(*part.map, text_of(notes));
            if (slots) limit_slots(*part.map, *slots);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("kind"), nb::arg("hold"), nb::arg("notes"), nb::arg("slots").none());
    m.def(
        "early_log",
        [](int fd, const std::string &path, const std::string &kind, const nb::bytes &name, double drop_after) {
            const OpenChannel part(fd, path, kind_of(kind), true);
            if (kind == "sync")
                return early(part,
                             std::make_unique<EarlyLog<SyncReaderEnd>>(fd, path, part.map, part.part, drop_after, text_of(name)));
            return early(part,
                         std::make_unique<EarlyLog<LogReaderEnd>>(fd, path, part.map, part.part, drop_after, text_of(name)));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("kind"), nb::arg("name"), nb::arg("drop_after"));
    m.def(
        "early_ring",
        [](int fd, const std::string &path, bool conflate) {
            const OpenChannel part(fd, path, kind_of("ring"), true);
            return early(part, std::make_unique<EarlyRing>(fd, path, part.map, part.part, conflate));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("conflate"));
    m.def(
        "early_pipe",
        [](int fd, const std::string &path, const MemberName &name, bool by_hand) {
            const OpenChannel part(fd, path, kind_of("pipe"), true);
            return early(part,
                         early_peer(fd, path, part, PeerRole::pull, name, static_cast<uint32_t>(WhenFull::wait), by_hand, 0));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("name"), nb::arg("by_hand"));
    m.def(
        "early_tap",
        [](int fd, const std::string &path, const MemberName &name, uint32_t when_full,
           uint64_t position) -> std::shared_ptr<StreamEnd> {
            const OpenChannel part(fd, path, kind_of("pipe"), true);
            return std::make_shared<EarlyTapEnd>(part.map,
                                                 early_peer(fd, path, part, PeerRole::tap, name, when_full, false, position));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("name"), nb::arg("when_full"), nb::arg("position"));
}

} // namespace penstock::bind
