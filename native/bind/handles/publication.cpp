// Python's handle for a publication of any kind: send, offer, offer_many, claim.
#include "bind/handles/publication.hpp"
#include "bind/ground/arguments.hpp"
#include "bind/ground/strict.hpp"
#include "bind/handles/claim_view.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <utility>

namespace penstock::bind {

namespace {

PyObject *publication_send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        auto *publication = nb::inst_ptr<Publication>(self);
        const End *end = &publication->end();
        const int64_t timeout = count == 1 && names == nullptr
                                    ? for_ever
                                    : timeout_ns(optional_argument("send", args, count, names, 1, "timeout"), end);
        const BytesArgument data(args[0], end);
        const int64_t position = publication->send(data, timeout);
        if (position != no_room) return PyLong_FromLongLong(position);
        return raise_no_room(*publication, "no room");
    } catch (...) {
        return raise_current();
    }
}

PyObject *publication_offer(PyObject *self, PyObject *data) {
    try {
        auto *publication = nb::inst_ptr<Publication>(self);
        const BytesArgument bytes(data, &publication->end());
        const int64_t position = publication->ready().offer(bytes.data(), bytes.size());
        if (position == no_room) Py_RETURN_NONE;
        return PyLong_FromLongLong(position);
    } catch (...) {
        return raise_current();
    }
}

PyObject *publication_offer_many(PyObject *self, PyObject *given) {
    try {
        auto *publication = nb::inst_ptr<Publication>(self);
        const MessagesArgument messages(publication->end(), "offer_many", given);
        WriterEnd &writer = publication->ready(); // buffers may be anybody's code, which may close it
        return PyLong_FromSize_t(writer.offer_many(messages.data(), messages.size()));
    } catch (...) {
        return raise_current();
    }
}

PyMethodDef send_method = {"send", as_method(publication_send), METH_FASTCALL | METH_KEYWORDS,
                           "send(data, timeout=None)\n--\n\n"
                           "Publishes one message (bytes or any contiguous buffer) and returns the stream position after it.\n"
                           "Waits while there is no room: `TimedOut` after `timeout` seconds (None: waits for ever, 0: never "
                           "waits). Messages above max_payload go out in fragments."};
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
        .def(nb::new_([](Whole now_ns) {
                 auto made = std::make_shared<ManualClock>();
                 made->now.relaxed(now_ns.within(nullptr, "ManualClock", "now_ns", INT64_MIN, INT64_MAX));
                 return made;
             }),
             nb::arg("now_ns").none() = 0)
        .def_prop_rw(
            "now_ns", [](const ManualClock &self) { return self.now.relaxed(); },
            [](ManualClock &self, Whole now_ns) {
                self.now.relaxed(now_ns.within(nullptr, "ManualClock", "now_ns", INT64_MIN, INT64_MAX));
            },
            nb::for_setter(nb::arg("now_ns").none()));

    PyType_Slot claim_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer<ClaimView, true>)},
                                 {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer<ClaimView>)},
                                 {0, nullptr}};
    nb::class_<ClaimView>(
        m, "Claim", nb::type_slots(claim_slots),
        "A message being written in place. As a context manager it gives a writable memoryview, commits at the end\n"
        "of the block and aborts if the block raises. BufferError instead of a commit while an array or another view of it is in "
        "use: the message is not sent, and its range stays claimed until the view is gone.")
        .def("__enter__", [](nb::handle self) { return nb::inst_ptr<ClaimView>(self)->lent.enter(self); })
        .def(
            "__exit__",
            [](ClaimView &self, nb::handle type, nb::handle, nb::handle) {
                try {
                    if (type.is_none()) self.commit();
                    else self.abort();
                } catch (...) {
                    self.lent.exit();
                    self.abort();
                    throw;
                }
                return false;
            },
            nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
        .def("commit", &ClaimView::commit, "Makes the message visible; returns the stream position after it.")
        .def("abort", &ClaimView::abort, "Gives the claim up; readers skip it.")
        .def_prop_ro("ended", [](const ClaimView &self) { return !self.usable(); })
        .def_prop_ro("position", &ClaimView::position, "Where the message's frame begins.");

    nb::class_<WriterEnd>(m, "WriterEnd", "The writing end of a channel, made for a Publication.")
        .def("prefault", [](WriterEnd &self) { return self.mapping()->populate(); });

    auto type = nb::class_<Publication>(m, "Publication", nb::type_slots(strict_slots))
                    .def(nb::init<std::shared_ptr<WriterEnd>>(), nb::arg("writer"))
                    .def(
                        "claim",
                        [](nb::object self, Whole given, nb::object timeout) {
                            auto &publication = nb::cast<Publication &>(self);
                            const End *end = &publication.end();
                            const int64_t length = given.within(end, "claim", "length", 0, INT64_MAX);
                            const auto bytes = static_cast<size_t>(length);
                            ClaimedRange range;
                            claim_room(publication, bytes, timeout_ns(timeout.ptr(), end), range);
                            return new ClaimView(self, publication, bytes, range);
                        },
                        nb::arg("length").none(), nb::arg("timeout") = nb::none(), nb::rv_policy::take_ownership,
                        "Room for one message of `length` bytes, to be written in place. Waits for room as `send` does.")
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
                        "Whether there is a subscription at this moment.")
                    .def_prop_ro(
                        "readers", [](Publication &self) { return self.ready().readers(); },
                        "How many subscriptions there are at this moment.")
                    .def_prop_ro(
                        "lag", [](Publication &self) { return self.ready().lag(); },
                        "Bytes by which the slowest subscription is behind; 0 without any.")
                    .def_prop_ro(
                        "all_read", [](Publication &self) { return self.ready().all_read(); },
                        "Whether every subscription has read all messages; also true without any. A log's subscriptions store "
                        "their position when they find nothing more.")
                    .def(
                        "wait_for_readers",
                        [](Publication &self, Whole given, nb::object timeout) {
                            const int64_t count = given.within(&self.end(), "wait_for_readers", "count", 0, UINT32_MAX);
                            if (self.wait_for_readers(static_cast<uint32_t>(count), timeout_ns(timeout.ptr(), &self.end())))
                                return;
                            PyErr_Format(timeout_error(), "%s: fewer than %lld subscriptions came within the timeout%s%s",
                                         self.end().where().c_str(), static_cast<long long>(count),
                                         self.end().why_no_readers().c_str(), self.end().take_reason().c_str());
                            throw nb::python_error();
                        },
                        nb::arg("count").none() = 1, nb::arg("timeout") = nb::none(),
                        "Waits until at least `count` subscriptions are there. `TimedOut` after `timeout` seconds.");
    m.def(
        "why_no_readers", [](Publication &self) { return self.end().why_no_readers(); }, nb::arg("publication"),
        "The end of the text of a wait for subscriptions that was in vain; empty if nothing is known.");
    m.def(
        "why_full", [](Publication &publication) { return nb::steal<nb::str>(text_of(publication.end().why_full())); },
        nb::arg("publication"), "The reason why there is no room now, for an error.");
    add_method(type, &send_method);
    add_method(type, &offer_method);
    add_method(type, &offer_many_method);
}

} // namespace penstock::bind
