// Python's handle for a subscription of any kind: recv, try_recv, poll, iteration, borrow, Arrow batches, fileno, wait.
#include "subscription.hpp"

#include "ring_ends.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <optional>
#include <tuple>
#include <vector>

namespace penstock::bind {

namespace {

PyObject *receive_within(Subscription &subscription, int64_t timeout) {
    for (;;) {
        PyObject *bytes = subscription.receive();
        if (bytes != nullptr) return bytes;
        if (timeout == 0 || !subscription.wait_for_message(timeout)) {
            PyErr_Format(timeout_error(), "%s: no message within the timeout", subscription.end().path().c_str());
            return nullptr;
        } // another thread may have taken it: then wait again
    }
}

PyObject *subscription_recv(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        auto *subscription = nb::inst_ptr<Subscription>(self);
        PyObject *bytes = subscription->receive();
        if (bytes != nullptr) return bytes;
        return receive_within(*subscription, timeout_ns(optional_argument("recv", args, count, names, 0, "timeout")));
    } catch (...) {
        return raise_current();
    }
}

PyObject *subscription_try_recv(PyObject *self, PyObject *) {
    try {
        PyObject *bytes = nb::inst_ptr<Subscription>(self)->receive();
        if (bytes != nullptr) return bytes;
        Py_RETURN_NONE;
    } catch (...) {
        return raise_current();
    }
}

PyObject *subscription_next(PyObject *self) {
    try {
        auto *subscription = nb::inst_ptr<Subscription>(self);
        if (subscription->closed()) return nullptr;
        return receive_within(*subscription, for_ever);
    } catch (const Error &error) {
        if (error.code == Code::closed) return nullptr; // the loop ends
        return raise_current();
    } catch (...) {
        return raise_current();
    }
}

// A message read in place. In a log what it shows stays readable while any view of it lives; in a ring it may be overwritten,
// which the end of the block reports.
class BorrowView {
  public:
    BorrowView(nb::object owner, Subscription &subscription, int64_t timeout)
        : owner_(std::move(owner)), subscription_(subscription) {
        Receiver *reader = &subscription.reading();
        const Message *message = reader->peek();
        while (message == nullptr) {
            if (!subscription.wait_for_message(timeout)) {
                PyErr_Format(timeout_error(), "%s: no message within the timeout", subscription.end().path().c_str());
                throw nb::python_error();
            }
            message = reader->peek();
        }
        map_ = reader->mapping();
        generation_ = ForkGuard::generation();
        if (message->assembled) {
            copy_.assign(message->data, message->data + message->length);
            message_ = subscription.lend(*message);
            lent = {copy_.data(), copy_.size(), 0, {}};
        } else {
            message_ = subscription.lend(*message);
            lent = {const_cast<uint8_t *>(message_.data), message_.length, 0, {}};
            holding_ = true;
        }
    }
    ~BorrowView() { end(); }
    bool lent_now() const { return open_; }
    void returned() {
        if (!open_) let_go();
    }
    void end() {
        open_ = false;
        if (lent.exports == 0) let_go();
    }
    // Says if writers went over the message while it was borrowed.
    void check() {
        if (checked_ || message_.assembled || subscription_.closed() || generation_ != ForkGuard::generation()) return;
        checked_ = true;
        Receiver &reader = subscription_.ready();
        if (!reader.intact(message_))
            throw Error(Code::dropped, reader.path() + ": the borrowed message at position " + std::to_string(message_.position) +
                                           " was overwritten before its block ended: copy sooner, or use a larger capacity");
        if (!reader.keeps_lent() && lent.exports != 0)
            throw Error(Code::invalid, reader.path() +
                                           ": a view of the borrowed message outlives its block, and a ring goes on to "
                                           "overwrite it: copy what you keep");
    }
    Lent lent;

  private:
    void let_go() {
        if (!holding_) return;
        holding_ = false;
        if (subscription_.closed() || generation_ != ForkGuard::generation()) return;
        Receiver &reader = subscription_.ready();
        if (!checked_ && !reader.keeps_lent()) reader.intact(message_); // the block raised, or there was none: it is counted
        checked_ = true;
        reader.give_back(message_);
    }
    nb::object owner_;
    Subscription &subscription_;
    std::shared_ptr<Mapping> map_;
    std::vector<uint8_t> copy_;
    Message message_;
    uint32_t generation_ = 0;
    bool holding_ = false, open_ = true, checked_ = false;
};

PyMethodDef recv_method = {"recv", as_method(subscription_recv), METH_FASTCALL | METH_KEYWORDS,
                           "recv(timeout=None)\n--\n\n"
                           "The next message as bytes. Waits for it; TimeoutError after `timeout` seconds (None: for ever,\n"
                           "0: now or never)."};
PyMethodDef try_recv_method = {"try_recv", as_method(subscription_try_recv), METH_NOARGS,
                               "try_recv()\n--\n\nThe next message as bytes, or None if there is none yet. Never blocks."};

Start parse_start(const std::string &from, uint64_t position) {
    if (from == "newest") return {Start::From::newest, 0};
    if (from == "earliest") return {Start::From::earliest, 0};
    return {Start::From::position, position};
}

// Which of several subscriptions have something to read; waits until one has, or the timeout.
// `raw`: by frames, moving nothing, as the recorder reads.
std::vector<size_t> wait_any(const std::vector<Subscription *> &subscriptions, int64_t timeout, bool raw) {
    const int64_t begun = now_monotonic();
    const int64_t deadline = timeout >= for_ever - begun ? for_ever : begun + timeout;
    std::vector<size_t> found;
    std::vector<WaitEntry> entries;
    std::deque<Gate::Waiter> stepped; // a test says when this is over, not the clock
    if (timeout != 0)
        for (Subscription *subscription : subscriptions)
            if (subscription->end().passage.stepped()) stepped.emplace_back(*subscription->end().passage.gate());
    auto look = [&] {
        for (size_t i = 0; i < subscriptions.size(); ++i) {
            Receiver &reader = subscriptions[i]->ready();
            if (raw ? reader.readable() : reader.peek() != nullptr) found.push_back(i);
        }
    };
    look();
    if (!found.empty() || timeout == 0) return found;
    for (;;) {
        entries.clear();
        for (Subscription *subscription : subscriptions) {
            Atomic<uint32_t> &event = subscription->ready().event();
            const uint32_t expected = event_announce(event);
            if (entries.size() < wait_many_max) entries.push_back(wait_entry(event, expected));
        }
        event_announced();
        look();
        const int64_t now = now_monotonic();
        if (!found.empty() || (stepped.empty() && now >= deadline)) return found;
        for (const Gate::Waiter &waiter : stepped)
            if (waiter.over()) return found;
        const int64_t slice = subscriptions.size() > wait_many_max ? 1'000'000 : slice_ns_max;
        without_interpreter(
            [&] { event_sleep_many(entries.data(), entries.size(), stepped.empty() ? std::min(slice, deadline - now) : slice); });
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        for (Subscription *subscription : subscriptions) subscription->ready().repair();
    }
}

} // namespace

void bind_subscription(nb::module_ &m) {
    PyType_Slot borrow_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer<BorrowView, false>)},
                                  {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer<BorrowView>)},
                                  {0, nullptr}};
    nb::class_<BorrowView>(
        m, "Borrow", nb::type_slots(borrow_slots),
        "A message read in place: as a context manager it gives a read-only memoryview. The log keeps the bytes\n"
        "until the block has ended and every view of them (a NumPy array, say) is gone.")
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
    nb::class_<Receiver>(m, "Receiver", "The reading end of a channel, made for a Subscription.")
        .def("prefault", [](Receiver &self) { return self.mapping()->populate(); })
        .def(
            "lead_through",
            [](const std::shared_ptr<Receiver> &self, std::shared_ptr<Gate> gate) {
                gate->add(self);
                self->passage.lead_through(std::move(gate));
            },
            nb::arg("gate"));
    nb::class_<Gate>(m, "Gate", "Decides for a test when messages are delivered and waits return.")
        .def(nb::init<>())
        .def("hold", &Gate::hold)
        .def("deliver", &Gate::deliver, nb::arg("count"))
        .def("expire", &Gate::expire)
        .def("release", &Gate::release)
        .def_prop_ro("held", &Gate::held)
        .def_prop_ro("waiting", &Gate::waiting);
    m.def(
        "log_receiver",
        [](int fd, std::string path, const std::string &from, uint64_t position, double drop_after) -> std::shared_ptr<Receiver> {
            return std::make_shared<LogReceiver>(fd, std::move(path), parse_start(from, position), drop_after);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("start"), nb::arg("position"), nb::arg("drop_after"));
    m.def(
        "ring_receiver",
        [](int fd, std::string path, const std::string &from, uint64_t position, bool conflate) -> std::shared_ptr<Receiver> {
            return std::make_shared<RingReceiver>(fd, std::move(path), parse_start(from, position), conflate);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("start"), nb::arg("position"), nb::arg("conflate"));

    auto type =
        nb::class_<Subscription>(m, "Subscription", nb::type_slots(slots))
            .def(nb::init<std::shared_ptr<Receiver>, double>(), nb::arg("receiver"), nb::arg("spin"))
            .def("poll", &Subscription::poll, nb::arg("limit") = 1000,
                 "What is there now, at most `limit` messages, as a list of bytes. Never blocks.")
            .def("poll_arrow_capsules", &Subscription::poll_arrow, nb::arg("limit"), nb::arg("max_bytes"))
            .def(
                "borrow",
                [](nb::object self, nb::object timeout) {
                    return new BorrowView(self, nb::cast<Subscription &>(self), timeout_ns(timeout.ptr()));
                },
                nb::arg("timeout") = nb::none(), nb::rv_policy::take_ownership,
                "The next message without a copy, as a context manager; waits like recv. Messages that came in fragments are\n"
                "copied.")
            .def("fileno", &Subscription::fileno,
                 "A descriptor that is readable while there is something to receive, for selectors. Starts the process's one\n"
                 "bridge thread on first use.")
            .def("close", &Subscription::close, "Gives the slot back; writers no longer wait for it. Safe to call twice.")
            .def_prop_ro("closed", &Subscription::closed)
            .def_prop_ro(
                "position", [](Subscription &self) { return self.ready().position(); }, "Where reading goes on.")
            .def_prop_ro(
                "lag", [](Subscription &self) { return self.ready().lag(); }, "Bytes of the stream between here and its end.")
            .def_prop_ro(
                "lost", [](Subscription &self) { return self.ready().lost(); },
                "Bytes of the stream that this subscription missed: by being lapped (ring) or let go (log, drop_after).")
            .def_prop_ro(
                "lost_messages",
                [](Subscription &self) -> std::optional<int64_t> {
                    const int64_t lost = self.ready().lost_messages();
                    if (lost < 0) return std::nullopt;
                    return lost;
                },
                "Messages that it missed; None where only the bytes are known (a log that let it go).")
            .def_prop_ro(
                "conflated", [](Subscription &self) { return self.ready().conflated(); },
                "Messages passed over because newer ones were there (conflate=True); they do not count as lost.")
            .def_prop_ro(
                "restarts", [](Subscription &self) { return self.ready().restarts(); },
                "How many publications of a ring followed the first one heard.")
            .def_prop_ro(
                "incomplete", [](Subscription &self) { return self.ready().incomplete(); },
                "Messages of which only some fragments came: their sender died or gave up.")
            .def_prop_ro(
                "last",
                [](Subscription &self) {
                    const Message &message = self.last();
                    return std::make_tuple(message.position, message.time_ns, message.session);
                },
                "(position, time_ns, session) of the message received last.");
    add_method(type, &recv_method);
    add_method(type, &try_recv_method);

    m.def(
        "wait_any",
        [](const std::vector<Subscription *> &subscriptions, nb::object timeout, bool raw) {
            return wait_any(subscriptions, timeout_ns(timeout.ptr()), raw);
        },
        nb::arg("subscriptions"), nb::arg("timeout").none(), nb::arg("raw") = false);
}

} // namespace penstock::bind
