// Python's handle for a subscription of any kind: recv, try_recv, poll, iteration, borrow, Arrow batches, fileno.
#include "bind/handles/subscription.hpp"

#include "bind/ground/arguments.hpp"
#include "bind/handles/borrow_view.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>

namespace penstock::bind {

namespace {

// After an attempt that failed.
PyObject *receive_within(Subscription &subscription, int64_t timeout) {
    PyObject *bytes = subscription.receive_within(timeout);
    if (bytes == nullptr) subscription.set_timed_out();
    return bytes;
}

PyObject *subscription_recv(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        auto *subscription = nb::inst_ptr<Subscription>(self);
        const int64_t timeout =
            count == 0 && names == nullptr
                ? for_ever
                : timeout_ns(optional_argument("recv", args, count, names, 0, "timeout"), &subscription->end());
        PyObject *bytes = subscription->receive();
        return subscription->decoded(self, bytes != nullptr ? bytes : receive_within(*subscription, timeout));
    } catch (...) {
        return raise_current();
    }
}

PyObject *subscription_try_recv(PyObject *self, PyObject *) {
    try {
        auto *subscription = nb::inst_ptr<Subscription>(self);
        PyObject *bytes = subscription->receive();
        if (bytes != nullptr) return subscription->decoded(self, bytes);
        Py_RETURN_NONE;
    } catch (...) {
        return raise_current();
    }
}

PyObject *subscription_next(PyObject *self) {
    try {
        auto *subscription = nb::inst_ptr<Subscription>(self);
        if (subscription->closed()) return nullptr;
        PyObject *bytes = subscription->receive();
        return subscription->decoded(self, bytes != nullptr ? bytes : receive_within(*subscription, for_ever));
    } catch (const Error &error) {
        if (error.code == Code::closed || error.code == Code::end_of_stream) return nullptr; // the loop ends
        return raise_current();
    } catch (...) {
        return raise_current();
    }
}

PyObject *next_bytes(PyObject *, PyObject *given) {
    try {
        if (!nb::isinstance<Subscription>(given)) throw nb::type_error("next_bytes takes a subscription");
        PyObject *bytes = nb::inst_ptr<Subscription>(given)->receive();
        if (bytes != nullptr) return bytes;
        Py_RETURN_NONE;
    } catch (...) {
        return raise_current();
    }
}

PyMethodDef recv_method = {"recv", as_method(subscription_recv), METH_FASTCALL | METH_KEYWORDS,
                           "recv(timeout=None)\n--\n\n"
                           "The next message: bytes, or an object on a channel with a codec. Waits for it: `TimedOut` after "
                           "`timeout` seconds (None: waits for ever, 0: never waits)."};
PyMethodDef try_recv_method = {"try_recv", as_method(subscription_try_recv), METH_NOARGS,
                               "try_recv()\n--\n\nThe next message, or None if there is none yet. Never blocks."};

PyMethodDef next_bytes_function = {"next_bytes", as_method(next_bytes), METH_O,
                                   "next_bytes(subscription)\n--\n\n"
                                   "The bytes of the next message, not decoded, or None if there is none yet."};

} // namespace

void bind_subscription(nb::module_ &m) {
    PyType_Slot borrow_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer<BorrowView, false>)},
                                  {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer<BorrowView>)},
                                  {0, nullptr}};
    nb::class_<BorrowView>(
        m, "Borrow", nb::type_slots(borrow_slots),
        "A message read in place: as a context manager it gives a read-only memoryview. The log keeps the bytes\n"
        "until the block has ended and every view of them (a NumPy array, say) is gone.")
        .def_prop_ro(
            "received",
            [](const BorrowView &self) {
                return std::make_tuple(self.message().position, self.message().time_ns, self.message().session);
            },
            "(position, time_ns, session) of the message that is borrowed.")
        .def_prop_ro(
            "envelope",
            [](const BorrowView &self) {
                return std::make_tuple(nb::bytes(self.sender().data(), self.sender().size()),
                                       nb::bytes(self.type().data(), self.type().size()));
            },
            "Sender and type of the message that is borrowed; empty where messages have none.")
        .def("__enter__", [](nb::handle self) { return nb::inst_ptr<BorrowView>(self)->lent.enter(self); })
        .def(
            "__exit__",
            [](BorrowView &self, nb::handle type, nb::handle, nb::handle) {
                self.lent.exit();
                if (!type.is_none()) {
                    self.end();
                    return false;
                }
                try {
                    self.check();
                } catch (...) {
                    self.end();
                    throw;
                }
                self.end();
                return false;
            },
            nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());

    PyType_Slot slots[] = {{Py_tp_iter, reinterpret_cast<void *>(PyObject_SelfIter)},
                           {Py_tp_iternext, reinterpret_cast<void *>(subscription_next)},
                           {0, nullptr}};

    auto type =
        nb::class_<Subscription, StreamHandle>(m, "Subscription", nb::type_slots(slots))
            .def(nb::init<std::shared_ptr<ReaderEnd>, double, bool, std::optional<bool>>(), nb::arg("reader"), nb::arg("spin"),
                 nb::arg("until_end") = false, nb::arg("decodes").none() = false,
                 "decodes: whether calls give what `_decoded(bytes)` returns; None: `_decide()` is called when the channel has "
                 "its "
                 "first publication, and calls `decide`.")
            .def(
                "poll",
                [](nb::object self, Whole limit) {
                    auto &subscription = nb::cast<Subscription &>(self);
                    return subscription.poll(self.ptr(), limit.within(&subscription.end(), "poll", "limit", 0, INT64_MAX));
                },
                nb::arg("limit").none() = 1000,
                "The messages that are there now, at most `limit`, as a list. Never blocks. The next call raises an "
                "error behind the first message, so that no message before it is lost.")
            .def(
                "borrow",
                [](nb::object self, nb::object timeout) {
                    auto &subscription = nb::cast<Subscription &>(self);
                    return new BorrowView(self, subscription, timeout_ns(timeout.ptr(), &subscription.end()));
                },
                nb::arg("timeout") = nb::none(), nb::rv_policy::take_ownership,
                "The next message without a copy, as a context manager; waits like recv. Messages that came in fragments are\n"
                "copied.")
            .def("fileno", &Subscription::fileno,
                 "A descriptor that is readable while there is something to receive, for selectors. Starts the process's one\n"
                 "bridge thread on first use.")
            .def("close", &Subscription::close, "Gives the slot back; writers no longer wait for it. Safe to call twice.")
            .def_prop_ro(
                "conflated", [](Subscription &self) { return self.ready().conflated(); },
                "Messages skipped because newer ones were there (conflate=True); they do not count as lost.")
            .def_prop_ro(
                "restarts", [](Subscription &self) { return self.ready().restarts(); },
                "How many publications of a ring followed the first one that this subscription read.")
            .def_prop_ro(
                "incomplete", [](Subscription &self) { return self.ready().incomplete(); },
                "Messages without all their fragments: their publication died or gave up.");
    add_method(type, &recv_method);
    add_method(type, &try_recv_method);
    m.def(
        "last_of",
        [](Subscription &subscription) {
            const Message &message = subscription.last();
            const Envelope envelope = subscription.end().envelope();
            return std::make_tuple(message.position, message.time_ns, message.session,
                                   nb::bytes(envelope.sender.data(), envelope.sender.size()),
                                   nb::bytes(envelope.type.data(), envelope.type.size()));
        },
        nb::arg("subscription"),
        "(position, time_ns, session, sender, type) of the message received last; the last two empty where messages have none.");
    m.def(
        "has_kept", [](Subscription &subscription) { return subscription.ready().has_kept(); }, nb::arg("subscription"),
        "Whether last values are still to be given, from before the subscription's position.");
    add_function(m, &next_bytes_function);
    m.def(
        "poll_arrow",
        [](Subscription &subscription, Whole limit, Whole max_bytes) {
            const End *end = &subscription.end();
            return subscription.poll_arrow(limit.within(end, "poll_arrow", "limit", 0, INT64_MAX),
                                           max_bytes.within(end, "poll_arrow", "max_bytes", 0, INT64_MAX));
        },
        nb::arg("subscription"), nb::arg("limit").none(), nb::arg("max_bytes").none(),
        nb::sig("def poll_arrow(subscription: Subscription, limit: int, max_bytes: int) -> tuple[Any, Any]"));
    m.def(
        "position_of", [](Subscription &subscription, nb::bytes message) { return subscription.position_of(message); },
        nb::arg("subscription"), nb::arg("message"), "The position of a message that was received a moment ago.");
    m.def(
        "keep_back", [](Subscription &subscription, nb::object error) { subscription.keep_back(error); }, nb::arg("subscription"),
        nb::arg("error"), "The message taken last is not returned: the next call raises this error instead.");
    m.def(
        "decide", [](Subscription &subscription, bool decodes) { subscription.decide(decodes); }, nb::arg("subscription"),
        nb::arg("decodes"), "From now on a subscription to a channel that was open gives objects, or bytes.");
}

} // namespace penstock::bind
