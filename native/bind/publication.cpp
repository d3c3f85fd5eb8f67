// Python's handle for a publication of any kind: send, offer, offer_many, claim.
#include "publication.hpp"
#include "frame_ends.hpp"
#include "log_ends.hpp"
#include "ring_ends.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <vector>

namespace penstock::bind {

namespace {

PyObject *publication_send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        PyObject *timeout =
            count == 1 && names == nullptr ? nullptr : optional_argument("send", args, count, names, 1, "timeout");
        const BytesArgument data(args[0]);
        auto *publication = nb::inst_ptr<Publication>(self);
        const int64_t position = publication->send(data, timeout);
        if (position != no_room) return PyLong_FromLongLong(position);
        PyErr_Format(timeout_error(), "%s: no room within the timeout: a subscription is behind by the whole window",
                     publication->end().path().c_str());
        return nullptr;
    } catch (...) {
        return raise_current();
    }
}

PyObject *publication_offer(PyObject *self, PyObject *data) {
    try {
        const BytesArgument bytes(data);
        const int64_t position = nb::inst_ptr<Publication>(self)->ready().offer(bytes.data(), bytes.size());
        if (position == no_room) Py_RETURN_NONE;
        return PyLong_FromLongLong(position);
    } catch (...) {
        return raise_current();
    }
}

// A list or tuple of messages, each bytes or a buffer; or one 2-D buffer whose rows are messages.
PyObject *publication_offer_many(PyObject *self, PyObject *messages) {
    try {
        Sender &writer = nb::inst_ptr<Publication>(self)->ready();
        std::vector<Piece> pieces;
        std::vector<Py_buffer> views;
        struct Release {
            std::vector<Py_buffer> &views;
            ~Release() {
                for (Py_buffer &view : views) PyBuffer_Release(&view);
            }
        } release{views};
        nb::object sequence;
        if (PyObject_CheckBuffer(messages) != 0 && !PyBytes_Check(messages)) {
            views.emplace_back();
            if (PyObject_GetBuffer(messages, &views.back(), PyBUF_C_CONTIGUOUS) != 0) {
                views.pop_back();
                return nullptr;
            }
            const Py_buffer &view = views.back();
            if (view.ndim < 1)
                throw Error(Code::invalid, "offer_many takes a list of messages or an array whose rows are messages");
            const auto rows = static_cast<size_t>(view.shape[0]);
            const size_t row = rows == 0 ? 0 : static_cast<size_t>(view.len) / rows;
            for (size_t i = 0; i < rows; ++i) pieces.push_back({static_cast<const uint8_t *>(view.buf) + i * row, row});
        } else {
            if (PyBytes_Check(messages) || PyUnicode_Check(messages))
                throw Error(Code::invalid, "offer_many takes a list of messages, not one message: use offer");
            sequence = nb::steal(PySequence_Fast(messages, "offer_many takes a list of messages"));
            if (!sequence.is_valid()) return nullptr;
            const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.ptr());
            PyObject **items = PySequence_Fast_ITEMS(sequence.ptr());
            pieces.reserve(static_cast<size_t>(count));
            for (Py_ssize_t i = 0; i < count; ++i) {
                if (PyBytes_CheckExact(items[i])) {
                    pieces.push_back({PyBytes_AS_STRING(items[i]), static_cast<size_t>(PyBytes_GET_SIZE(items[i]))});
                    continue;
                }
                views.emplace_back();
                if (PyObject_GetBuffer(items[i], &views.back(), PyBUF_SIMPLE) != 0) {
                    views.pop_back();
                    return nullptr;
                }
                pieces.push_back({views.back().buf, static_cast<size_t>(views.back().len)});
            }
        }
        return PyLong_FromSize_t(writer.offer_many(pieces.data(), pieces.size()));
    } catch (...) {
        return raise_current();
    }
}

// A frame being written in place.
class ClaimView {
  public:
    ClaimView(nb::object owner, Publication &publication, size_t length, int64_t timeout)
        : owner_(std::move(owner)), publication_(publication), map_(publication.end().mapping()) {
        auto attempt = [&] {
            Sender &writer = publication.ready();
            if (length > writer.payload_max())
                throw Error(Code::too_large, publication.end().path() + ": claim takes up to " +
                                                 std::to_string(writer.payload_max()) + " bytes here, not " +
                                                 std::to_string(length));
            return writer.reserve(length, place_);
        };
        if (!attempt() && !publication.wait_for_room(timeout, attempt)) {
            PyErr_Format(timeout_error(), "%s: no room for the claim within the timeout", publication.end().path().c_str());
            throw nb::python_error();
        }
        open_ = true;
        generation_ = ForkGuard::generation();
        lent = {place_.payload, length, 0, {}};
    }
    ~ClaimView() {
        if (usable()) publication_.ready().abort(place_);
    }

    int64_t commit() {
        if (!usable()) throw Error(Code::closed, publication_.end().path() + ": the claim has ended already");
        open_ = false;
        return publication_.ready().commit(place_);
    }
    void describe(std::optional<uint64_t> id, int64_t start_ns, int64_t end_ns, const std::string &fields) {
        if (!usable()) throw Error(Code::closed, publication_.end().path() + ": the claim has ended already");
        publication_.ready().describe(place_, id, start_ns, end_ns, fields);
    }
    void abort() {
        if (!usable()) return;
        open_ = false;
        publication_.ready().abort(place_);
    }
    bool lent_now() const { return open_; }
    // Closing the publication, or a fork, ended the claim elsewhere.
    bool usable() const { return open_ && !publication_.closed() && generation_ == ForkGuard::generation(); }
    void returned() {}
    uint64_t position() const { return place_.position; }

    Lent lent;

  private:
    nb::object owner_;
    Publication &publication_;
    std::shared_ptr<Mapping> map_;
    Reservation place_;
    uint32_t generation_ = 0;
    bool open_ = false;
};

PyMethodDef send_method = {"send", as_method(publication_send), METH_FASTCALL | METH_KEYWORDS,
                           "send(data, timeout=None)\n--\n\n"
                           "Publishes one message (bytes or any contiguous buffer) and returns the stream position after it.\n"
                           "Waits while the slowest subscription is a whole window behind; TimeoutError after `timeout`\n"
                           "seconds (None: for ever, 0: now or never). Messages above max_payload go out in fragments."};
PyMethodDef offer_method = {"offer", as_method(publication_offer), METH_O,
                            "offer(data)\n--\n\n"
                            "Publishes one message of at most max_payload bytes without ever blocking: the stream position\n"
                            "after it, or None if there is no room."};
PyMethodDef offer_many_method = {"offer_many", as_method(publication_offer_many), METH_O,
                                 "offer_many(messages)\n--\n\n"
                                 "Publishes messages in order until there is no room, without blocking, and returns how many.\n"
                                 "Takes a sequence of buffers, or one C-contiguous array whose rows are the messages."};

} // namespace

void bind_publication(nb::module_ &m) {
    nb::class_<ManualClock>(m, "ManualClock",
                            "A wall clock for tests: stands still until it is set. Nanoseconds since the epoch.")
        .def(
            "__init__",
            [](ManualClock *self, int64_t now_ns) {
                new (self) ManualClock();
                self->now.relaxed(now_ns);
            },
            nb::arg("now_ns") = 0)
        .def_prop_rw(
            "now_ns", [](const ManualClock &self) { return self.now.relaxed(); },
            [](ManualClock &self, int64_t now_ns) { self.now.relaxed(now_ns); });

    PyType_Slot claim_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer<ClaimView, true>)},
                                 {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer<ClaimView>)},
                                 {0, nullptr}};
    nb::class_<ClaimView>(
        m, "Claim", nb::type_slots(claim_slots),
        "A message being written in place. As a context manager it gives a writable memoryview, commits at the end\n"
        "of the block and aborts if the block raises. Writing after the block is undefined for readers.")
        .def("__enter__", [](nb::handle self) { return nb::inst_ptr<ClaimView>(self)->lent.enter(self); })
        .def(
            "__exit__",
            [](ClaimView &self, nb::handle type, nb::handle, nb::handle) {
                self.lent.exit();
                if (type.is_none()) self.commit();
                else self.abort();
                return false;
            },
            nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
        .def("commit", &ClaimView::commit, "Makes the message visible; returns the stream position after it.")
        .def("abort", &ClaimView::abort, "Gives the claim up; readers skip it.")
        .def("describe", &ClaimView::describe, nb::arg("id").none(), nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("fields"),
             "Frames: what is said of the frame beside its bytes; before commit.")
        .def_prop_ro("ended", [](const ClaimView &self) { return !self.usable(); })
        .def_prop_ro("position", &ClaimView::position, "Where the message's frame begins.");

    nb::class_<Sender>(m, "Sender", "The writing end of a channel, made for a Publication.").def("prefault", [](Sender &self) {
        return self.mapping()->populate();
    });
    m.def(
        "log_sender",
        [](int fd, std::string path, bool exclusive, std::shared_ptr<ManualClock> clock) -> std::shared_ptr<Sender> {
            return std::make_shared<LogSender>(fd, std::move(path), exclusive, std::move(clock));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("exclusive"), nb::arg("clock").none());
    m.def(
        "ring_sender",
        [](int fd, std::string path, std::shared_ptr<ManualClock> clock) -> std::shared_ptr<Sender> {
            return std::make_shared<RingSender>(fd, std::move(path), std::move(clock));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("clock").none());
    m.def(
        "frames_sender",
        [](int fd, std::string path, std::shared_ptr<ManualClock> clock) -> std::shared_ptr<Sender> {
            return std::make_shared<FrameSender>(fd, path, std::move(clock));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("clock").none());

    auto type = nb::class_<Publication>(m, "Publication")
                    .def(nb::init<std::shared_ptr<Sender>>(), nb::arg("sender"))
                    .def(
                        "claim",
                        [](nb::object self, int64_t length, nb::object timeout) {
                            if (length < 0) throw Error(Code::invalid, "claim takes a length from 0 on");
                            auto &publication = nb::cast<Publication &>(self);
                            if (static_cast<uint64_t>(length) > publication.ready().payload_max())
                                throw Error(Code::too_large, publication.end().path() + ": claim takes up to " +
                                                                 std::to_string(publication.ready().payload_max()) +
                                                                 " bytes here, not " + std::to_string(length));
                            return new ClaimView(self, publication, static_cast<size_t>(length), timeout_ns(timeout.ptr()));
                        },
                        nb::arg("length"), nb::arg("timeout") = nb::none(), nb::rv_policy::take_ownership,
                        "Room for one message of `length` bytes, to be written in place; waits for room like send.")
                    .def("close", &Publication::close, "Gives the slot back and aborts open claims. Safe to call twice.")
                    .def_prop_ro("closed", &Publication::closed)
                    .def_prop_ro(
                        "session", [](Publication &self) { return self.ready().session(); },
                        "This publication's id in every frame it writes.")
                    .def_prop_ro(
                        "position", [](Publication &self) { return self.ready().position(); },
                        "The stream's end: where the next message goes.")
                    .def_prop_ro(
                        "max_payload", [](Publication &self) { return self.ready().payload_max(); },
                        "Bytes that offer and claim take at most; send takes up to 1 GiB.")
                    .def_prop_ro(
                        "connected", [](Publication &self) { return self.ready().readers() != 0; },
                        "Whether anybody subscribes at this moment.")
                    .def_prop_ro(
                        "readers", [](Publication &self) { return self.ready().readers(); },
                        "How many subscriptions there are at this moment.")
                    .def_prop_ro(
                        "lag", [](Publication &self) { return self.ready().lag(); },
                        "Bytes by which the slowest subscription is behind; 0 without any.")
                    .def_prop_ro(
                        "all_read", [](Publication &self) { return self.ready().all_read(); },
                        "Whether every subscription has read all that was sent; also true without any. A log's subscriptions\n"
                        "show how far they are when they find nothing more.")
                    .def(
                        "wait_for_readers",
                        [](Publication &self, int64_t count, nb::object timeout) {
                            if (count < 0 || count > UINT32_MAX) throw Error(Code::invalid, "count is a number from 0 on");
                            if (self.wait_for_readers(static_cast<uint32_t>(count), timeout_ns(timeout.ptr()))) return;
                            PyErr_Format(timeout_error(), "%s: fewer than %lld subscriptions came within the timeout",
                                         self.end().path().c_str(), static_cast<long long>(count));
                            throw nb::python_error();
                        },
                        nb::arg("count") = 1, nb::arg("timeout") = nb::none(),
                        "Waits until so many subscriptions are there; TimeoutError after `timeout` seconds.");
    add_method(type, &send_method);
    add_method(type, &offer_method);
    add_method(type, &offer_many_method);
}

} // namespace penstock::bind
