// Frames channels: their files, what a file says, their ends, frames claimed and frames read by lease.
#include "bind/frames/frame_objects.hpp"
#include "bind/ground/arguments.hpp"
#include "bind/handles/subscription.hpp"
#include "bind/ring/ring_status.hpp"

#include "status/frame_status.hpp"

#include <nanobind/stl/shared_ptr.h>

namespace penstock::bind {

namespace {

FrameReaderEnd &frames_of(ReaderEnd &reader) {
    auto *frames = dynamic_cast<FrameReaderEnd *>(&reader);
    if (frames == nullptr) throw Error(Code::invalid, reader.where() + ": this is no subscription to frames");
    return *frames;
}

using Factory = nb::handle_t<FrameFactory>;

nb::object received(Factory factory, FrameReaderEnd &reader, Frame &&frame) {
    auto *lease = new Lease(std::static_pointer_cast<FrameReaderEnd>(reader.shared_from_this()), std::move(frame));
    return FrameFactory::made(nb::inst_ptr<FrameFactory>(factory)->received,
                              ReceivedFrame{nb::borrow(factory), nb::cast(lease, nb::rv_policy::take_ownership), {}, {}});
}

// The next frame, or null.
nb::object consume(Subscription &subscription, ReaderEnd &ready, Factory factory) {
    FrameReaderEnd &reader = frames_of(ready);
    Frame frame;
    if (reader.delivery_gate.allowed() == 0 || !reader.consume(frame)) {
        subscription.nothing(reader);
        subscription.throw_if_ended(reader);
        return {};
    }
    subscription.took(frame.message);
    return received(factory, reader, std::move(frame));
}

nb::object take_within(Subscription &subscription, Factory factory, PyObject *timeout) {
    const int64_t limit = timeout_ns(timeout, &subscription.end()); // a bad one is an error, also where there is a frame already
    nb::object frame = consume(subscription, subscription.reading(), factory);
    // A frame that is recycled before it can be leased counts as lost: the wait continues.
    auto attempt = [&] { return (frame = consume(subscription, subscription.reading_on(), factory)).is_valid(); };
    if (frame.is_valid() || subscription.wait(limit, attempt)) return frame;
    PyErr_Format(timeout_error(), "%s: no frame within the timeout%s", subscription.end().where().c_str(),
                 subscription.end().take_reason().c_str());
    throw nb::python_error();
}

nb::dict inspect_frames(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedFrames opened = read_frames_header(map.bytes(), map.size(), path);
    const ChannelStatus status = read_frame_status(fd, map, opened);
    nb::dict about = describe_ring(opened, status);
    const PoolGeometry &g = opened.pool;
    about["buffers"] = g.buffers;
    about["frame_bytes"] = g.frame_bytes;
    about["cell"] = g.cell();
    about["leased"] = status.buffers_leased;
    return about;
}

} // namespace

void bind_frames(nb::module_ &m) {
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
        [](uint32_t capacity, uint32_t slots, uint32_t buffers, uint64_t frame_bytes, uint64_t start_position, uint64_t fields) {
            const PoolGeometry g{{capacity, slots, start_position, 0, 0}, buffers, frame_bytes};
            check_geometry(g, Code::invalid);
            check_fields(g, fields);
            return g.file_size();
        },
        nb::kw_only(), nb::arg("capacity"), nb::arg("slots"), nb::arg("buffers"), nb::arg("frame_bytes"),
        nb::arg("start_position"), nb::arg("fields") = 0, "Checks the options; bytes that a frames channel's file takes.");
    m.def(
        "frames_writer",
        [](int fd, std::string path, std::shared_ptr<ManualClock> clock, bool waits) -> std::shared_ptr<WriterEnd> {
            return std::make_shared<FrameWriterEnd>(fd, path, std::move(clock), waits);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("clock").none(), nb::arg("waits"));
    m.def(
        "frames_reader",
        [](int fd, const std::string &path, const std::string &from, uint64_t position, bool conflate, uint32_t waits,
           bool pixels) -> std::shared_ptr<ReaderEnd> {
            const Start start = parse_start(from, position);
            return std::make_shared<FrameReaderEnd>(fd, path, start, conflate, waits, pixels);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("start"), nb::arg("position"), nb::arg("conflate"), nb::arg("waits"),
        nb::arg("pixels"));
    m.def(
        "try_take_frame",
        [](Subscription &subscription, Factory factory) {
            const nb::object frame = consume(subscription, subscription.reading(), factory);
            return frame.is_valid() ? frame : nb::none();
        },
        nb::arg("subscription"), nb::arg("factory"),
        nb::sig("def try_take_frame(subscription: Subscription, factory: FrameFactory) -> typing.Any"));
    m.def(
        "take_frame",
        [](Subscription &subscription, Factory factory, nb::object timeout) {
            return take_within(subscription, factory, timeout.ptr());
        },
        nb::arg("subscription"), nb::arg("factory"), nb::arg("timeout").none(),
        nb::sig("def take_frame(subscription: Subscription, factory: FrameFactory, timeout: float | None) -> typing.Any"));
    m.def(
        "newest_frame",
        [](Subscription &subscription, Factory factory) {
            FrameReaderEnd &reader = frames_of(subscription.ready());
            Frame frame;
            return reader.newest(frame) ? received(factory, reader, std::move(frame)) : nb::none();
        },
        nb::arg("subscription"), nb::arg("factory"),
        nb::sig("def newest_frame(subscription: Subscription, factory: FrameFactory) -> typing.Any"));
    bind_frame_objects(m);
    m.def("leases", [](Subscription &subscription) { return frames_of(subscription.ready()).leases(); }, nb::arg("subscription"));
}

} // namespace penstock::bind
