// Sync queues: a member that reads and writes messages with a sender and a type.
#include "bind/ground/arguments.hpp"
#include "bind/ground/status.hpp"
#include "bind/ground/strict.hpp"
#include "bind/sync/sync_member.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

namespace penstock::bind {

namespace {

// The arguments of send and offer: the body, for send a timeout, and by its name the type.
struct SendArguments {
    SendArguments(const char *method, PyObject *const *args, Py_ssize_t positional, PyObject *names, bool timed) {
        PyObject **places[] = {&body, &type, &timeout};
        static constexpr const char *known[] = {"data", "type", "timeout"};
        const Py_ssize_t keywords = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
        bool fine = positional <= (timed ? 2 : 1);
        if (fine && positional > 0) body = args[0];
        if (fine && positional > 1) timeout = args[1];
        for (Py_ssize_t i = 0; i < keywords && fine; ++i) {
            const int last = timed ? 3 : 2;
            int at = 0;
            while (at < last && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), known[at]) != 0) ++at;
            fine = at < last && *places[at] == nullptr;
            if (fine) *places[at] = args[positional + i];
        }
        if (fine && body != nullptr) return;
        PyErr_Format(PyExc_TypeError, "%s() takes data%s, and type by its name", method, timed ? ", an optional timeout" : "");
        throw nb::python_error();
    }
    PyObject *body = nullptr, *type = nullptr, *timeout = nullptr;
};

PyObject *position_or_none(int64_t position) {
    if (position == no_room) Py_RETURN_NONE;
    return PyLong_FromLongLong(position);
}

PyObject *member_send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        const SendArguments given("send", args, count, names, true);
        auto *member = nb::inst_ptr<SyncMember>(self);
        const End *end = &member->publication().end();
        const int64_t position = member->send(BytesArgument(given.body, end), given.type, timeout_ns(given.timeout, end));
        if (position != no_room) return PyLong_FromLongLong(position);
        PyErr_Format(timeout_error(), "%U", nb::object(nb::handle(self).attr("_no_room")()).ptr());
        return nullptr;
    } catch (...) {
        return raise_current();
    }
}

PyObject *member_offer(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        const SendArguments given("offer", args, count, names, false);
        auto *member = nb::inst_ptr<SyncMember>(self);
        return position_or_none(member->offer(BytesArgument(given.body, &member->publication().end()), given.type));
    } catch (...) {
        return raise_current();
    }
}

PyObject *member_recv(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    try {
        auto *member = nb::inst_ptr<SyncMember>(self);
        const End *end = &member->publication().end();
        return member->recv(timeout_ns(optional_argument("recv", args, count, names, 0, "timeout"), end)).release().ptr();
    } catch (...) {
        return raise_current();
    }
}

PyObject *member_try_recv(PyObject *self, PyObject *) {
    try {
        nb::object found = nb::inst_ptr<SyncMember>(self)->try_recv();
        if (!found.is_valid()) Py_RETURN_NONE;
        return found.release().ptr();
    } catch (...) {
        return raise_current();
    }
}

PyObject *member_next(PyObject *self) {
    try {
        auto *member = nb::inst_ptr<SyncMember>(self);
        if (member->closed()) return nullptr;
        return member->recv(for_ever).release().ptr();
    } catch (const Error &error) {
        if (error.code == Code::closed) return nullptr; // the loop ends
        return raise_current();
    } catch (...) {
        return raise_current();
    }
}

PyMethodDef send_method = {
    "send", as_method(member_send), METH_FASTCALL | METH_KEYWORDS,
    "send(data, timeout=None, *, type=\"\")\n--\n\n"
    "Writes a message (bytes or any buffer) for everybody else; the stream position after it.\n\n"
    "Waits while somebody has not read what the room is needed for; TimeoutError after `timeout` seconds (None: for\n"
    "ever, 0: now or never). `Busy` when the slowest member does not let writers wait, or when this member's own unread\n"
    "messages fill its memory too: then read before you write. `TooLarge` for what can never fit."};
PyMethodDef offer_method = {"offer", as_method(member_offer), METH_FASTCALL | METH_KEYWORDS,
                            "offer(data, *, type=\"\")\n--\n\n"
                            "The same without ever blocking, for at most max_payload bytes: None if there is no room."};
PyMethodDef recv_method = {
    "recv", as_method(member_recv), METH_FASTCALL | METH_KEYWORDS,
    "recv(timeout=None)\n--\n\n"
    "The next message that is not screened. `TimedOut` after `timeout` seconds (None: waits for ever, 0: never waits)."};
PyMethodDef try_recv_method = {"try_recv", as_method(member_try_recv), METH_NOARGS,
                               "try_recv()\n--\n\nThe next message, or None if there is none yet. Never blocks."};

} // namespace

void bind_sync(nb::module_ &m) {
    m.def(
        "sync_writer",
        [](int fd, std::string path, const MemberName &name, std::shared_ptr<ManualClock> clock) -> std::shared_ptr<WriterEnd> {
            return std::make_shared<SyncWriterEnd>(fd, std::move(path), std::move(clock), name);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("name"), nb::arg("clock").none());
    m.def(
        "sync_reader",
        [](int fd, std::string path, const MemberName &name, const std::string &from, uint64_t position,
           double drop_after) -> std::shared_ptr<ReaderEnd> {
            return std::make_shared<SyncReaderEnd>(fd, std::move(path), parse_start(from, position), drop_after, name);
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("name"), nb::arg("start"), nb::arg("position"), nb::arg("drop_after"));
    PyType_Slot slots[] = {{Py_tp_iter, reinterpret_cast<void *>(PyObject_SelfIter)},
                           {Py_tp_iternext, reinterpret_cast<void *>(member_next)},
                           strict_slot,
                           {0, nullptr}};
    auto type =
        nb::class_<SyncMember>(m, "SyncMember", nb::type_slots(slots),
                               "A sync queue member's work per message. penstock.join makes members.")
            .def(
                "__init__",
                [](SyncMember *self, nb::object publication, nb::object subscription, nb::type_object message, bool own,
                   size_t spill_limit) {
                    new (self) SyncMember(std::move(publication), std::move(subscription), std::move(message), own, spill_limit);
                },
                nb::arg("publication"), nb::arg("subscription"), nb::arg("message"), nb::arg("own"), nb::arg("spill_limit"))
            .def(
                "offer_many",
                [](SyncMember &self, nb::object bodies, nb::object type) {
                    return self.offer_many(MessagesArgument(self.publication().end(), "offer_many", bodies.ptr()), type.ptr());
                },
                nb::arg("messages").none(), nb::kw_only(), nb::arg("type") = "",
                "Writes messages of one type in order until there is no room, without blocking, and returns how many. Takes a\n"
                "sequence of buffers, or one array whose rows are the messages.")
            .def(
                "claim",
                [](nb::object self, Whole given, nb::object timeout, nb::object type) {
                    auto &member = nb::cast<SyncMember &>(self);
                    const End *end = &member.publication().end();
                    const auto length = static_cast<size_t>(given.within(end, "claim", "length", 0, INT64_MAX));
                    ClaimedRange range;
                    if (member.claim(length, type.ptr(), timeout_ns(timeout.ptr(), end), range))
                        return new ClaimView(self, member.publication(), length, range);
                    PyErr_Format(timeout_error(), "%U", nb::object(self.attr("_no_room")()).ptr());
                    throw nb::python_error();
                },
                nb::arg("length").none(), nb::arg("timeout") = nb::none(), nb::kw_only(), nb::arg("type") = "",
                nb::rv_policy::take_ownership,
                "Room for one body of `length` bytes, to be written in place. Waits for room as `send` does.")
            .def(
                "poll",
                [](SyncMember &self, Whole limit) {
                    return self.poll(limit.within(&self.publication().end(), "poll", "limit", 0, INT64_MAX));
                },
                nb::arg("limit").none() = 1000,
                "The messages that are there now, at most `limit`. Never blocks. The next call raises an error behind the first "
                "message, so that no message before it is lost.")
            .def_prop_ro("screened", &SyncMember::screened,
                         "Messages passed over: its own, and those of screened senders and types.")
            .def_prop_ro("spilled", &SyncMember::spilled_bytes,
                         "Bytes of unread messages that were moved into this member's own memory while it waited to write.");
    for (PyMethodDef *method : {&send_method, &offer_method, &recv_method, &try_recv_method}) add_method(type, method);
    m.def(
        "sync_next_of_batch",
        [](SyncMember &member, bool first) -> nb::object {
            nb::object found = member.next_of_batch(first);
            return found.is_valid() ? found : nb::none();
        },
        nb::arg("member"), nb::arg("first"),
        "One message of a batch, or None. The next call raises an error behind the first message.");
    m.def(
        "sync_try_send",
        [](SyncMember &member, nb::object body, nb::object type) {
            return nb::steal(
                position_or_none(member.send(BytesArgument(body.ptr(), &member.publication().end()), type.ptr(), 0)));
        },
        nb::arg("member"), nb::arg("body").none(), nb::arg("type").none(),
        "`send` with a timeout of 0, which returns None if there is no room.");
    m.def(
        "sync_here", [](SyncMember &member) { member.here(); }, nb::arg("member"),
        "Before its subscription is read directly: in a forked child the member takes slots of its own.");
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
        "sync_wait_for_members",
        [](SyncMember &member, nb::handle attempt, nb::handle timeout) {
            return member.wait_for_members(attempt, timeout_ns(timeout.ptr(), &member.publication().end()));
        },
        nb::arg("member"), nb::arg("attempt"), nb::arg("timeout").none(),
        nb::sig("def sync_wait_for_members(member: SyncMember, attempt: collections.abc.Callable[[], bool], timeout: float | "
                "None) -> bool"),
        "Waits until `attempt` returns true. Calls it again when a member has joined. False when the timeout has passed.");
    m.def(
        "sync_changes",
        [](SyncMember &member, uint64_t since) {
            nb::list changes;
            uint64_t missed = 0;
            const uint64_t next = read_events(member.events(), since, missed, [&](const MemberChange &change) {
                const std::string name(change.name, strnlen(change.name, sizeof change.name));
                changes.append(nb::make_tuple(change.came != 0, change.slot, change.joined_ns, change.pid, name_text(name)));
            });
            return nb::make_tuple(next, missed, changes);
        },
        nb::arg("member"), nb::arg("since"),
        nb::sig("def sync_changes(member: SyncMember, since: int) -> tuple[int, int, list[tuple[bool, int, int, int, str]]]"),
        "The members that read and came (True) or went since event number `since`: the number of the next event, how many are no "
        "longer kept, and the slot, the time of joining, the process and the name of each. A number beyond the end is the end.");
    m.def("sync_forget", [](SyncMember &member) { member.forget(); }, nb::arg("member"));
    m.def(
        "lock_byte",
        [](int fd, uint64_t byte, bool exclusive, bool wait) {
            struct flock range = {};
            range.l_type = exclusive ? F_WRLCK : F_RDLCK;
            range.l_whence = SEEK_SET;
            range.l_start = static_cast<off_t>(byte);
            range.l_len = 1;
            bool held = false;
            wait_for(wait ? for_ever : 0, NapTarget(), [&] { // another thread of this process may hold it
                held = fcntl(fd, F_OFD_SETLK, &range) == 0;
                return held || (errno != EAGAIN && errno != EACCES);
            });
            return held;
        },
        nb::arg("fd"), nb::arg("byte"), nb::arg("exclusive"), nb::arg("wait"),
        "Takes a kernel lock on one byte of a file, for as long as this description is open. False if another process has it.");
}

} // namespace penstock::bind
