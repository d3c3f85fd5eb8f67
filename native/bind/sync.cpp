// Sync queues: messages with a sender and a type, read and written by one member.
#include "publication.hpp"
#include "subscription.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

namespace penstock::bind {

namespace {

nb::object text(std::string_view bytes) {
    nb::object made = nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape"));
    if (!made.is_valid()) throw nb::python_error();
    return made;
}

// (sender, type, body, position, time_ns) of the next message, or none.
nb::object take(Subscription &subscription) {
    Receiver &reader = subscription.reading();
    const Message *message = reader.peek();
    if (message == nullptr) {
        subscription.nothing(reader);
        return nb::none();
    }
    const SyncParts parts = read_sync(message->data, message->length);
    nb::object made =
        nb::make_tuple(text(parts.sender), text(parts.type), nb::bytes(reinterpret_cast<const char *>(parts.body), parts.length),
                       message->position, message->time_ns);
    reader.check_run();
    const Message taken = *message;
    reader.take();
    subscription.took(taken);
    return made;
}

LogReceiver &log_of(Subscription &subscription) {
    auto *log = dynamic_cast<LogReceiver *>(&subscription.ready());
    if (log == nullptr) throw Error(Code::invalid, subscription.end().path() + ": this is no sync queue");
    return *log;
}

// One attempt to write; no_room, or the position after the message.
int64_t attempt(Publication &publication, const BytesArgument &prefix, const BytesArgument &body, Sending &sending,
                std::vector<uint8_t> &whole) {
    Sender &sender = publication.ready();
    const size_t length = prefix.size() + body.size();
    if (length <= sender.payload_max()) {
        Reservation place;
        if (!sender.reserve(length, place)) return no_room;
        std::memcpy(place.payload, prefix.data(), prefix.size());
        if (body.size() != 0) std::memcpy(place.payload + prefix.size(), body.data(), body.size());
        return sender.commit(place);
    }
    if (whole.empty()) {
        whole.assign(prefix.data(), prefix.data() + prefix.size());
        whole.insert(whole.end(), body.data(), body.data() + body.size());
        sending.data = whole.data();
        sending.length = whole.size();
    }
    return sender.advance(sending) ? sending.position : no_room;
}

// Writes a message; waits for room. `spill` moves what this member has not read yet into its own memory, and says whether
// there was anything: without that, members that all write would wait for each other.
PyObject *send(Publication &publication, nb::handle prefix_object, nb::handle body_object, nb::handle timeout_object,
               nb::object spill, Subscription *subscription) {
    const BytesArgument prefix(prefix_object.ptr()), body(body_object.ptr());
    Sending sending{nullptr, 0};
    std::vector<uint8_t> whole;
    int64_t position = attempt(publication, prefix, body, sending, whole);
    if (position != no_room) return PyLong_FromLongLong(position);
    auto &log = dynamic_cast<LogSender &>(publication.end()).log();
    const int64_t timeout = timeout_ns(timeout_object.ptr()), begun = now_monotonic();
    const int64_t deadline = timeout >= for_ever - begun ? for_ever : begun + timeout;
    const Publication::Busy busy(publication);
    auto give_up = [&] {
        if (!whole.empty() && !publication.closed()) publication.end().give_up(sending);
    };
    try {
        for (int64_t slice = 1'000'000;; slice = std::min(slice * 2, slice_ns_max)) {
            std::vector<WaitEntry> entries{wait_entry(publication.end().room(), event_prepare(publication.end().room()))};
            if (subscription != nullptr) {
                Atomic<uint32_t> &data = subscription->end().event();
                entries.push_back(wait_entry(data, event_prepare(data)));
            }
            position = attempt(publication, prefix, body, sending, whole);
            if (position != no_room) return PyLong_FromLongLong(position);
            if (!spill.is_none() && nb::cast<bool>(spill())) continue;
            std::string who;
            if (log.refused(prefix.size() + body.size() + header_length, who))
                throw Error(Code::busy,
                            publication.end().path() + ": no room, and member '" + who + "' does not let writers wait for it");
            const int64_t now = now_monotonic();
            if (now >= deadline) {
                give_up();
                Py_RETURN_NONE;
            }
            without_interpreter([&] { event_sleep_many(entries.data(), entries.size(), std::min(slice, deadline - now)); });
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
        }
    } catch (...) {
        give_up();
        throw;
    }
}

} // namespace

void bind_sync(nb::module_ &m) {
    nb::class_<Screen>(m, "Screen", "What a member of a sync queue does not want to see.")
        .def(
            "__init__",
            [](Screen *self, std::optional<int32_t> own, const std::vector<nb::bytes> &senders,
               const std::vector<nb::bytes> &types) {
                new (self) Screen{own, {}, {}};
                for (const nb::bytes &name : senders) self->senders.emplace(name.c_str(), name.size());
                for (const nb::bytes &name : types) self->types.emplace(name.c_str(), name.size());
            },
            nb::arg("own").none(), nb::arg("senders"), nb::arg("types"));
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
    m.def(
        "sync_screen",
        [](Subscription &subscription, std::shared_ptr<Screen> screen) { log_of(subscription).screen(std::move(screen)); },
        nb::arg("subscription"), nb::arg("screen"));
    m.def("sync_screened", [](Subscription &subscription) { return log_of(subscription).screened(); }, nb::arg("subscription"));
    m.def("sync_take", &take, nb::arg("subscription"));
    m.def(
        "sync_wait",
        [](Subscription &subscription, nb::object timeout) { return subscription.wait_for_message(timeout_ns(timeout.ptr())); },
        nb::arg("subscription"), nb::arg("timeout").none(), "Whether a message came within the timeout.");
    m.def(
        "sync_send",
        [](Publication &publication, nb::handle prefix, nb::handle body, nb::handle timeout, nb::object spill,
           nb::object subscription) {
            Subscription *reads = subscription.is_none() ? nullptr : nb::cast<Subscription *>(subscription);
            return nb::steal(send(publication, prefix, body, timeout, std::move(spill), reads));
        },
        nb::arg("publication"), nb::arg("prefix"), nb::arg("body"), nb::arg("timeout").none(), nb::arg("spill").none(),
        nb::arg("subscription").none(), "The position after the message, or None when the timeout passed first.");
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
