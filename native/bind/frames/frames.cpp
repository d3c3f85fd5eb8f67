// Frames channels: their files, what a file says, their writing end, frames read by lease, and the lease that keeps a buffer as
// it is.
#include "bind/ground/arguments.hpp"
#include "bind/handles/subscription.hpp"
#include "bind/ring/ring_status.hpp"
#include "ends/frame_ends.hpp"

#include "status/frame_status.hpp"

#include <nanobind/stl/shared_ptr.h>

namespace penstock::bind {

namespace {

// A frame whose buffer is not reused while this, or anything made from it, lives. Thread-safe under the GIL.
class Lease {
  public:
    Lease(std::shared_ptr<FrameReaderEnd> end, Frame frame)
        : end_(std::move(end)), frame_(std::move(frame)), generation_(ForkGuard::generation()) {
        lent.data = const_cast<uint8_t *>(frame_.data);
        lent.length = frame_.bytes();
    }
    ~Lease() { give_back(); }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    bool is_lending() const { return held_; }
    void exported() {}
    void returned() {}
    void release() {
        if (lent.exports != 0) {
            PyErr_SetString(PyExc_BufferError, "an array of this frame is still in use; the lease ends when it is gone");
            throw nb::python_error();
        }
        give_back();
    }
    const Frame &frame() const { return frame_; }
    Lent lent;

  private:
    void give_back() {
        if (!held_) return;
        held_ = false;
        if (generation_ == ForkGuard::generation()) end_->give_back(frame_.note.buffer); // a forked child's is its parent's
    }
    std::shared_ptr<FrameReaderEnd> end_;
    Frame frame_;
    const uint32_t generation_;
    bool held_ = true;
};

// A frame's own shape; None if it has the channel's.
nb::object shape_of(const Lease &lease) {
    const Frame &frame = lease.frame();
    if (frame.note.dimensions == 0) return nb::none();
    nb::list sizes;
    for (uint32_t dimension = 0; dimension < frame.note.dimensions; ++dimension) sizes.append(frame.size(dimension));
    return nb::tuple(sizes);
}

FrameReaderEnd &frames_of(ReaderEnd &reader) {
    auto *frames = dynamic_cast<FrameReaderEnd *>(&reader);
    if (frames == nullptr) throw Error(Code::invalid, reader.where() + ": this is no subscription to frames");
    return *frames;
}

// The next frame, or null.
Lease *consume(Subscription &subscription, ReaderEnd &ready) {
    FrameReaderEnd &reader = frames_of(ready);
    Frame frame;
    if (reader.delivery_gate.allowed() == 0 || !reader.consume(frame)) {
        subscription.nothing(reader);
        subscription.throw_if_ended(reader);
        return nullptr;
    }
    subscription.took(frame.message);
    return new Lease(std::static_pointer_cast<FrameReaderEnd>(reader.shared_from_this()), std::move(frame));
}

Lease *take_within(Subscription &subscription, PyObject *timeout) {
    const int64_t limit = timeout_ns(timeout, &subscription.end()); // a bad one is an error, also where there is a frame already
    Lease *lease = consume(subscription, subscription.reading());
    // A frame that is recycled before it can be leased counts as lost: the wait continues.
    auto attempt = [&] { return (lease = consume(subscription, subscription.reading_on())) != nullptr; };
    if (lease != nullptr || subscription.wait(limit, attempt)) return lease;
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
    PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer<Lease, false>)},
                           {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer<Lease>)},
                           {0, nullptr}};
    nb::class_<Lease>(m, "Lease", nb::type_slots(slots),
                      "A lease of a frame's buffer, which does not change while this exists. Read-only.")
        .def("release", &Lease::release)
        .def_prop_ro("sequence", [](const Lease &self) { return self.frame().sequence; })
        .def_prop_ro("position", [](const Lease &self) { return self.frame().message.position; })
        .def_prop_ro("time_ns", [](const Lease &self) { return self.frame().message.time_ns; })
        .def_prop_ro("session", [](const Lease &self) { return self.frame().message.session; })
        .def_prop_ro("buffer", [](const Lease &self) { return self.frame().note.buffer; })
        .def_prop_ro("id", [](const Lease &self) { return self.frame().note.id; })
        .def_prop_ro("start_ns", [](const Lease &self) { return self.frame().note.start_ns; })
        .def_prop_ro("end_ns", [](const Lease &self) { return self.frame().note.end_ns; })
        .def_prop_ro("length", [](const Lease &self) { return self.frame().bytes(); })
        .def_prop_ro("shape", &shape_of, nb::for_getter(nb::sig("def shape(self) -> tuple[int, ...] | None")),
                     "None: the channel's.")
        .def_prop_ro("dtype", [](const Lease &self) { return self.frame().note.dtype; })
        .def_prop_ro("fields", [](const Lease &self) {
            const std::string_view fields = self.frame().fields();
            return nb::bytes(fields.data(), fields.size());
        });

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
        "try_take_frame", [](Subscription &subscription) { return consume(subscription, subscription.reading()); },
        nb::arg("subscription"), nb::rv_policy::take_ownership);
    m.def(
        "take_frame", [](Subscription &subscription, nb::object timeout) { return take_within(subscription, timeout.ptr()); },
        nb::arg("subscription"), nb::arg("timeout").none(), nb::rv_policy::take_ownership);
    m.def(
        "newest_frame",
        [](Subscription &subscription) -> Lease * {
            FrameReaderEnd &reader = frames_of(subscription.ready());
            Frame frame;
            return reader.newest(frame)
                       ? new Lease(std::static_pointer_cast<FrameReaderEnd>(reader.shared_from_this()), std::move(frame))
                       : nullptr;
        },
        nb::arg("subscription"), nb::rv_policy::take_ownership);
    m.def("leases", [](Subscription &subscription) { return frames_of(subscription.ready()).leases(); }, nb::arg("subscription"));
}

} // namespace penstock::bind
