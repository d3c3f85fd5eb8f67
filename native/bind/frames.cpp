// Frames read by lease: taking them, and the lease that keeps a buffer as it is.
#include "frame_ends.hpp"
#include "subscription.hpp"

#include <nanobind/stl/shared_ptr.h>

namespace penstock::bind {

namespace {

// A frame that nobody writes to while this lives, or anything made from it. Thread-safe under the interpreter's lock.
class Lease {
  public:
    Lease(std::shared_ptr<FrameReceiver> end, Frame frame)
        : end_(std::move(end)), frame_(std::move(frame)), generation_(ForkGuard::generation()) {
        lent.data = const_cast<uint8_t *>(frame_.data);
        lent.length = end_->frame_bytes();
    }
    ~Lease() { give_back(); }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    bool lent_now() const { return held_; }
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
    std::shared_ptr<FrameReceiver> end_;
    Frame frame_;
    const uint32_t generation_;
    bool held_ = true;
};

FrameReceiver &frames_of(Receiver &reader) {
    auto *frames = dynamic_cast<FrameReceiver *>(&reader);
    if (frames == nullptr) throw Error(Code::invalid, reader.path() + ": this is no subscription to frames");
    return *frames;
}

// The next frame, or null.
Lease *take(Subscription &subscription) {
    FrameReceiver &reader = frames_of(subscription.reading());
    Frame frame;
    if (reader.passage.allowed() == 0 || !reader.take(frame)) {
        subscription.nothing(reader);
        return nullptr;
    }
    subscription.took(frame.message);
    return new Lease(reader.shared_from_this(), std::move(frame));
}

} // namespace

void bind_frames(nb::module_ &m) {
    PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer<Lease, false>)},
                           {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer<Lease>)},
                           {0, nullptr}};
    nb::class_<Lease>(m, "Lease", nb::type_slots(slots), "A frame's buffer, which stays as it is while this lives. Read-only.")
        .def("release", &Lease::release)
        .def_prop_ro("sequence", [](const Lease &self) { return self.frame().sequence; })
        .def_prop_ro("position", [](const Lease &self) { return self.frame().message.position; })
        .def_prop_ro("time_ns", [](const Lease &self) { return self.frame().message.time_ns; })
        .def_prop_ro("session", [](const Lease &self) { return self.frame().message.session; })
        .def_prop_ro("buffer", [](const Lease &self) { return self.frame().note.buffer; })
        .def_prop_ro("id", [](const Lease &self) { return self.frame().note.id; })
        .def_prop_ro("start_ns", [](const Lease &self) { return self.frame().note.start_ns; })
        .def_prop_ro("end_ns", [](const Lease &self) { return self.frame().note.end_ns; })
        .def_prop_ro("fields", [](const Lease &self) { return nb::bytes(self.frame().meta.data(), self.frame().meta.size()); });

    m.def(
        "frames_receiver",
        [](int fd, const std::string &path, const std::string &from, uint64_t position, bool conflate,
           bool pixels) -> std::shared_ptr<Receiver> {
            const Start start{from == "newest" ? Start::From::newest : Start::From::position, position};
            return std::make_shared<FrameReceiver>(fd, path, start, conflate, pixels);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("start"), nb::arg("position"), nb::arg("conflate"), nb::arg("pixels"));
    m.def(
        "try_take_frame", [](Subscription &subscription) { return take(subscription); }, nb::arg("subscription"),
        nb::rv_policy::take_ownership);
    m.def(
        "take_frame",
        [](Subscription &subscription, nb::object timeout) {
            Lease *lease = take(subscription);
            if (lease != nullptr) return lease;
            const int64_t ns = timeout_ns(timeout.ptr());
            const int64_t begun = now_monotonic(), deadline = ns >= for_ever - begun ? for_ever : begun + ns;
            for (;;) {
                const int64_t left = deadline == for_ever ? for_ever : std::max<int64_t>(deadline - now_monotonic(), 0);
                if (left == 0 || !subscription.wait_for_message(left)) {
                    PyErr_Format(timeout_error(), "%s: no frame within the timeout", subscription.end().path().c_str());
                    throw nb::python_error();
                }
                lease = take(subscription);
                if (lease != nullptr) return lease; // else it was recycled before it could be leased, and counted as lost
            }
        },
        nb::arg("subscription"), nb::arg("timeout").none(), nb::rv_policy::take_ownership);
    m.def(
        "newest_frame",
        [](Subscription &subscription) -> Lease * {
            FrameReceiver &reader = frames_of(subscription.ready());
            Frame frame;
            return reader.newest(frame) ? new Lease(reader.shared_from_this(), std::move(frame)) : nullptr;
        },
        nb::arg("subscription"), nb::rv_policy::take_ownership);
    m.def("leases", [](Subscription &subscription) { return frames_of(subscription.ready()).leases(); }, nb::arg("subscription"));
}

} // namespace penstock::bind
