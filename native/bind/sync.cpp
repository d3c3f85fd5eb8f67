// Sync queues: a member that reads and writes messages with a sender and a type.
#include "sync_member.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

namespace penstock::bind {

namespace {

// The arguments of append and offer: body, type, and where it is known a timeout.
struct AppendArguments {
    AppendArguments(const char *method, PyObject *const *args, Py_ssize_t positional, PyObject *names, bool timed) {
        PyObject **places[] = {&body, &type, &timeout};
        static constexpr const char *known[] = {"body", "type", "timeout"};
        const Py_ssize_t keywords = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
        bool fine = positional <= 2;
        for (Py_ssize_t i = 0; i < positional && fine; ++i) *places[i] = args[i];
        for (Py_ssize_t i = 0; i < keywords && fine; ++i) {
            const int last = timed ? 3 : 2;
            int at = 0;
            while (at < last && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), known[at]) != 0) ++at;
            fine = at < last && *places[at] == nullptr;
            if (fine) *places[at] = args[positional + i];
        }
        if (fine) return;
        PyErr_Format(PyExc_TypeError, "%s() takes a body and a type%s", method, timed ? ", and timeout by its name" : "");
        throw nb::python_error();
    }
    PyObject *body = nullptr, *type = nullptr, *timeout = nullptr;
};

SyncBody body_of(PyObject *given) {
    if (given != nullptr) return SyncBody(given);
    const nb::object nothing = nb::steal(PyBytes_FromStringAndSize(nullptr, 0));
    return SyncBody(nothing.ptr());
}

PyObject *member_append(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        const AppendArguments given("append", args, count, names, true);
        auto *member = nb::inst_ptr<SyncMember>(self);
        const int64_t position = member->append(body_of(given.body), given.type, timeout_ns(given.timeout));
        if (position != no_room) return PyLong_FromLongLong(position);
        PyErr_Format(timeout_error(), "%U", nb::object(nb::handle(self).attr("_no_room")()).ptr());
        return nullptr;
    } catch (...) {
        return raise_current();
    }
}

PyObject *member_offer(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        const AppendArguments given("offer", args, count, names, false);
        const int64_t position = nb::inst_ptr<SyncMember>(self)->append(body_of(given.body), given.type, 0);
        if (position == no_room) Py_RETURN_NONE;
        return PyLong_FromLongLong(position);
    } catch (...) {
        return raise_current();
    }
}

PyObject *member_pop(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        auto *member = nb::inst_ptr<SyncMember>(self);
        return member->pop(timeout_ns(optional_argument("pop", args, count, names, 0, "timeout"))).release().ptr();
    } catch (...) {
        return raise_current();
    }
}

PyObject *member_try_pop(PyObject *self, PyObject *) {
    try {
        nb::object found = nb::inst_ptr<SyncMember>(self)->try_pop();
        if (!found.is_valid()) Py_RETURN_NONE;
        return found.release().ptr();
    } catch (...) {
        return raise_current();
    }
}

PyMethodDef append_method = {
    "append", as_method(member_append), METH_FASTCALL | METH_KEYWORDS,
    "append(body=b\"\", type=\"\", *, timeout=None)\n--\n\n"
    "Writes a message (text, bytes or any buffer) for everybody else; the position after it.\n\n"
    "Waits while somebody has not read what the room is needed for; TimeoutError after `timeout` seconds (0: now or\n"
    "never). `Busy` when the slowest member does not let writers wait, or when this member's own unread messages fill\n"
    "its memory too: then read before you write. `TooLarge` for what can never fit."};
PyMethodDef offer_method = {"offer", as_method(member_offer), METH_FASTCALL | METH_KEYWORDS,
                            "offer(body=b\"\", type=\"\")\n--\n\nThe same without ever blocking: None if there is no room."};
PyMethodDef pop_method = {
    "pop", as_method(member_pop), METH_FASTCALL | METH_KEYWORDS,
    "pop(timeout=None)\n--\n\n"
    "The next message that is not screened. TimeoutError after `timeout` seconds (None: for ever, 0: now or never)."};
PyMethodDef try_pop_method = {"try_pop", as_method(member_try_pop), METH_NOARGS,
                              "try_pop()\n--\n\nThe next message, or None if there is none yet. Never blocks."};

} // namespace

void bind_sync(nb::module_ &m) {
    m.def(
        "sync_sender",
        [](int fd, std::string path, const nb::bytes &name, std::shared_ptr<ManualClock> clock) -> std::shared_ptr<Sender> {
            return std::make_shared<LogSender>(fd, std::move(path), false, std::move(clock), Kind::sync,
                                               std::string(name.c_str(), name.size()));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("name"), nb::arg("clock").none());
    m.def(
        "sync_receiver",
        [](int fd, std::string path, const nb::bytes &name, const std::string &from, uint64_t position,
           double drop_after) -> std::shared_ptr<Receiver> {
            const Start start{from == "newest"     ? Start::From::newest
                              : from == "earliest" ? Start::From::earliest
                                                   : Start::From::position,
                              position};
            return std::make_shared<LogReceiver>(fd, std::move(path), start, drop_after, Kind::sync,
                                                 std::string(name.c_str(), name.size()));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("name"), nb::arg("start"), nb::arg("position"), nb::arg("drop_after"));
    auto type =
        nb::class_<SyncMember>(m, "SyncMember", "What a member of a sync queue does per message; penstock.join makes them.")
            .def(
                "__init__",
                [](SyncMember *self, nb::object publication, nb::object subscription, nb::type_object message,
                   std::string channel, const nb::bytes &name, bool own, size_t spill_limit) {
                    new (self) SyncMember(std::move(publication), std::move(subscription), std::move(message), std::move(channel),
                                          std::string(name.c_str(), name.size()), own, spill_limit);
                },
                nb::arg("publication"), nb::arg("subscription"), nb::arg("message"), nb::arg("channel"), nb::arg("name"),
                nb::arg("own"), nb::arg("spill_limit"))
            .def("pop_many", &SyncMember::pop_many, nb::arg("limit") = 1000,
                 "What is there now, at most `limit` messages. Never blocks.")
            .def_prop_ro("screened", &SyncMember::screened,
                         "Messages passed over: its own, and those of screened senders and types.")
            .def_prop_ro("spilled", &SyncMember::spilled_bytes,
                         "Bytes of unread messages that were moved into this member's own memory while it waited to write.");
    for (PyMethodDef *method : {&append_method, &offer_method, &pop_method, &try_pop_method}) add_method(type, method);
    m.def(
        "sync_append_many",
        [](SyncMember &member, nb::object bodies, nb::object type, nb::object timeout) {
            return member.append_many(bodies.ptr(), type.ptr(), timeout_ns(timeout.ptr()));
        },
        nb::arg("member"), nb::arg("bodies"), nb::arg("type"), nb::arg("timeout").none(),
        "How many of the bodies found room before the timeout.");
    m.def(
        "sync_poll_arrow",
        [](SyncMember &member, int64_t limit, int64_t max_bytes) { return member.poll_arrow(limit, max_bytes); },
        nb::arg("member"), nb::arg("limit"), nb::arg("max_bytes"));
    m.def(
        "sync_keep_last", [](SyncMember &member, size_t count) { member.keep_last(count); }, nb::arg("member"), nb::arg("count"));
    m.def(
        "sync_screen",
        [](SyncMember &member, const std::vector<nb::bytes> &senders, const std::vector<nb::bytes> &types) {
            auto set = [](const std::vector<nb::bytes> &names) {
                std::set<std::string, std::less<>> made;
                for (const nb::bytes &name : names) made.emplace(name.c_str(), name.size());
                return made;
            };
            member.screen(set(senders), set(types));
        },
        nb::arg("member"), nb::arg("senders"), nb::arg("types"));
    m.def(
        "sync_before_change", [](SyncMember &member) { return member.before_change(); }, nb::arg("member"),
        "What sync_wait_change takes to sleep until somebody comes after this call.");
    m.def(
        "sync_wait_change",
        [](SyncMember &member, uint32_t before, double timeout) { member.wait_change(before, seconds_to_ns(timeout)); },
        nb::arg("member"), nb::arg("before"), nb::arg("timeout"));
    m.def("sync_forget", [](SyncMember &member) { member.forget(); }, nb::arg("member"));
    m.def(
        "sync_first_spilled", [](SyncMember &member) { return member.first_spilled(); }, nb::arg("member"),
        "Where reading goes on in the member's own memory, or None.");
    m.def(
        "lock_byte",
        [](int fd, uint64_t byte, bool exclusive, bool wait) {
            struct flock range = {};
            range.l_type = exclusive ? F_WRLCK : F_RDLCK;
            range.l_whence = SEEK_SET;
            range.l_start = static_cast<off_t>(byte);
            range.l_len = 1;
            int done = 0;
            without_interpreter([&] { // who holds it may be another thread of this process
                do done = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &range);
                while (done != 0 && errno == EINTR && wait);
            });
            return done == 0;
        },
        nb::arg("fd"), nb::arg("byte"), nb::arg("exclusive"), nb::arg("wait"),
        "A kernel lock on one byte of a file, for as long as this description is open. False if it was not to be had.");
}

} // namespace penstock::bind
