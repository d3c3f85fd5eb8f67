// The work of a pipe channel's sockets per message: to one peer or any, with a number and a kind; questions and answers.
#include "bind/handles/publication.hpp"
#include "bind/handles/subscription.hpp"
#include "bind/pipe/socket_ends.hpp"

#include <typeinfo>

namespace penstock::bind {

namespace {

constexpr int64_t reply_slice_ns = 20'000'000; // between two looks for dead servers

// The end as what it is. Most calls come with the very class that they are for: a look at its name is all then.
template <class Role, class From> Role *end_as(From &end) {
    return typeid(end) == typeid(Role) ? static_cast<Role *>(&end) : dynamic_cast<Role *>(&end);
}

PipeReaderEnd &pipe_reader_of(Subscription &subscription) {
    auto *reader = dynamic_cast<PipeReaderEnd *>(&subscription.ready().target());
    if (reader == nullptr) throw Error(Code::invalid, subscription.end().where() + ": this is no pipe");
    return *reader;
}
SocketReaderEnd &socket_reader_of(Subscription &subscription) {
    auto *reader = end_as<SocketReaderEnd>(subscription.ready().target());
    if (reader == nullptr) throw Error(Code::invalid, subscription.end().where() + ": this is no socket");
    return *reader;
}
PipeWriterEnd &pipe_writer_of(Publication &publication) {
    auto *writer = end_as<PipeWriterEnd>(publication.ready());
    if (writer == nullptr) throw Error(Code::invalid, publication.end().where() + ": this is no pipe");
    return *writer;
}

// The publication's position after a message, and the peer that it went to.
struct Went {
    int64_t position = no_room; // there was no room before the timeout
    uint64_t peer = 0;
};
Went send_to(Publication &publication, uint64_t to, uint64_t id, int32_t kind, const BytesArgument &bytes, PyObject *timeout) {
    const int64_t limit = timeout_ns(timeout, &publication.end()); // a bad one is an error, also where there is room already
    Went went;
    auto attempt = [&] {
        PipeWriterEnd &writer = pipe_writer_of(publication);
        if (!writer.send_to(to, id, kind, bytes.data(), bytes.size())) return false;
        went = {static_cast<int64_t>(writer.position()), writer.peer().outgoing().chosen()};
        return true;
    };
    if (attempt()) return went;
    publication.wait_for_room(limit, attempt);
    return went;
}

// A tuple for the next message. Making it may run the collector, and with it code that lets other threads in: so it is made
// before the look that counts.
nb::object tuple_for_message() {
    nb::object made = nb::steal(PyTuple_New(5));
    if (!made.is_valid()) throw nb::python_error();
    PyObject_GC_UnTrack(made.ptr()); // it cannot be found while it is empty, and its items will refer to nothing
    return made;
}

// Null: there is no message yet. Throws if there will be none.
PyObject *no_message(Subscription &subscription, ReaderEnd &ready) {
    subscription.nothing(ready);
    subscription.throw_if_ended(ready);
    return nullptr;
}
nb::object bytes_of(const Message &message) {
    nb::object made = nb::steal(
        PyBytes_FromStringAndSize(reinterpret_cast<const char *>(message.data), static_cast<Py_ssize_t>(message.length)));
    if (!made.is_valid()) throw nb::python_error();
    return made;
}
// Passes a message that was copied. One to a single peer is never redelivered to another.
void pass(Subscription &subscription, ReaderEnd &ready, PipePeer &peer, const Message &taken) {
    ready.consume();
    subscription.took(taken);
    peer.acknowledge();
}

// (who sent it, id, kind, body, the sender's name) of the next message, or null with no error set. From the look to the
// take nothing runs but this. The name is the pipe's own note of it: the sender may be dead, and its place another's. Without
// `named` it is empty.
PyObject *consume(Subscription &subscription, ReaderEnd &ready, bool named, nb::object &made) {
    const Message *message = ready.peek_allowed();
    if (message == nullptr) return no_message(subscription, ready);
    PipePeer &peer = socket_reader_of(subscription).peer();
    const FairQueue::Pipe &pipe = peer.incoming().current();
    const Message taken = *message;
    char name[name_max];
    if (named) copy_words_out(name, pipe.reader.ends().name, sizeof name);
    PyObject *items[] = {PyLong_FromUnsignedLongLong(pipe.from), PyLong_FromUnsignedLongLong(pipe.reader.tag().id),
                         PyLong_FromLong(pipe.reader.tag().kind), bytes_of(taken).release().ptr(),
                         PyBytes_FromStringAndSize(name, named ? static_cast<Py_ssize_t>(strnlen(name, sizeof name)) : 0)};
    bool whole = true;
    for (Py_ssize_t i = 0; i < 5; ++i) {
        whole = whole && items[i] != nullptr;
        PyTuple_SET_ITEM(made.ptr(), i, items[i]); // null is allowed in a tuple that goes away at once
    }
    if (!whole) throw nb::python_error();
    pass(subscription, ready, peer, taken);
    return made.release().ptr();
}

// The same, waiting; null when the timeout passed first.
PyObject *take_within(Subscription &subscription, PyObject *timeout, bool named) {
    const int64_t limit =
        timeout_ns(timeout, &subscription.end()); // a bad one is an error, also where there is a message already
    nb::object made = tuple_for_message();
    PyObject *found = consume(subscription, subscription.reading(), named, made);
    if (found != nullptr) return found;
    subscription.wait(limit, [&] { return (found = consume(subscription, subscription.reading_on(), named, made)) != nullptr; });
    return found;
}

// The bytes of the reply with that id, where it comes next and is whole bytes; else what consume() gives.
PyObject *consume_reply(Subscription &subscription, ReaderEnd &ready, uint64_t id) {
    const Message *message = ready.peek_allowed();
    if (message == nullptr) return no_message(subscription, ready);
    PipePeer &peer = socket_reader_of(subscription).peer();
    const auto tag = peer.incoming().current().reader.tag();
    if (tag.id != id || tag.kind != 0) {
        nb::object made = tuple_for_message();
        return consume(subscription, ready, false, made);
    }
    const Message taken = *message;
    nb::object bytes = bytes_of(taken);
    pass(subscription, ready, peer, taken);
    return bytes.release().ptr();
}

uint64_t word_of(PyObject *number) {
    const uint64_t word = PyLong_AsUnsignedLongLong(number);
    if (word == ~uint64_t{0} && PyErr_Occurred() != nullptr) throw nb::python_error();
    return word;
}
int32_t kind_of(PyObject *number) { return static_cast<int32_t>(word_of(number)); }

// The ends of a call that takes them and four more arguments.
struct Ends {
    Publication &publication;
    Subscription &subscription;
};
Ends ends_of(PyObject *const *args, Py_ssize_t count) {
    if (count != 6 || !nb::isinstance<Publication>(args[0]) || !nb::isinstance<Subscription>(args[1]))
        throw nb::type_error("it takes a publication, a subscription and 4 more");
    return {*nb::inst_ptr<Publication>(args[0]), *nb::inst_ptr<Subscription>(args[1])};
}

// Sends a message to one peer, which may be gone, and then receives the next one.
PyObject *pipe_answer(PyObject *, PyObject *const *args, Py_ssize_t count) {
    try {
        const auto [publication, subscription] = ends_of(args, count);
        try {
            const BytesArgument bytes(args[5], &publication.end());
            send_to(publication, word_of(args[2]), word_of(args[3]), kind_of(args[4]), bytes, Py_None);
        } catch (const Error &error) {
            if (error.code != Code::disconnected) throw;
        }
        for (;;)
            if (PyObject *found = take_within(subscription, Py_None, false)) return found;
    } catch (...) {
        return raise_current();
    }
}

// Sends a request to any peer in turn, and waits for its reply.
PyObject *pipe_ask(PyObject *, PyObject *const *args, Py_ssize_t count) {
    try {
        const Ends ends = ends_of(args, count); // clang 15 and older capture no structured bindings
        Publication &publication = ends.publication;
        Subscription &subscription = ends.subscription;
        const uint64_t id = word_of(args[2]);
        const int64_t limit = std::min(timeout_ns(args[5], &publication.end()), reply_slice_ns);
        const BytesArgument bytes(args[4], &publication.end());
        const Went went = send_to(publication, 0, id, kind_of(args[3]), bytes, args[5]);
        if (went.position == no_room) Py_RETURN_NONE;
        PyObject *found = consume_reply(subscription, subscription.reading(), id);
        if (found == nullptr)
            subscription.wait(limit,
                              [&] { return (found = consume_reply(subscription, subscription.reading_on(), id)) != nullptr; });
        if (found != nullptr && PyBytes_CheckExact(found)) return found;
        return nb::make_tuple(went.peer, found != nullptr ? nb::steal(found) : nb::none()).release().ptr();
    } catch (...) {
        return raise_current();
    }
}

PyMethodDef ask_function = {
    "pipe_ask", as_method(pipe_ask), METH_FASTCALL,
    "pipe_ask(publication, subscription, id, kind, data, timeout)\n--\n\n"
    "Sends to any peer in turn, and waits a little for the message with the same id: its bytes, if its kind is 0.\n"
    "Else the peer, and the message that came, as pipe_take but without a name, or None if none came. None in\n"
    "place of all that if it found no room before the timeout."};
PyMethodDef answer_function = {"pipe_answer", as_method(pipe_answer), METH_FASTCALL,
                               "pipe_answer(publication, subscription, to, id, kind, data)\n--\n\n"
                               "Sends to one peer, unless it is gone, and then waits for the next message: as pipe_take, but "
                               "without a name."};

} // namespace

void bind_pipe_sockets(nb::module_ &m) {
    m.def(
        "pipe_send",
        [](Publication &publication, uint64_t to, uint64_t id, int32_t kind, nb::handle data, nb::handle timeout) -> nb::object {
            const BytesArgument bytes(data.ptr(), &publication.end());
            const Went went = send_to(publication, to, id, kind, bytes, timeout.ptr());
            return went.position != no_room ? nb::object(nb::int_(went.position)) : nb::object(nb::none());
        },
        nb::arg("publication"), nb::arg("to"), nb::arg("id"), nb::arg("kind"), nb::arg("data").none(), nb::arg("timeout").none(),
        nb::sig("def pipe_send(publication: Publication, to: int, id: int, kind: int, data: object, timeout: object | None) -> "
                "int | None"),
        "The publication's position after the message, or None if it found no room before the timeout. to: one peer, or 0:\n"
        "any in turn.");
    m.def(
        "pipe_submit",
        [](Publication &publication, uint64_t id, int32_t kind, nb::handle data, nb::handle timeout) -> nb::object {
            const BytesArgument bytes(data.ptr(), &publication.end());
            const uint64_t peer = send_to(publication, 0, id, kind, bytes, timeout.ptr()).peer;
            return peer != 0 ? nb::object(nb::int_(peer)) : nb::object(nb::none());
        },
        nb::arg("publication"), nb::arg("id"), nb::arg("kind"), nb::arg("data").none(), nb::arg("timeout").none(),
        nb::sig("def pipe_submit(publication: Publication, id: int, kind: int, data: object, timeout: object | None) -> "
                "int | None"),
        "Sends to any peer in turn, and returns that peer, or None if it found no room before the timeout.");
    m.def(
        "pipe_take",
        [](Subscription &subscription, nb::handle timeout) -> nb::object {
            PyObject *found = take_within(subscription, timeout.ptr(), true);
            return found != nullptr ? nb::steal(found) : nb::none();
        },
        nb::arg("subscription"), nb::arg("timeout").none(),
        nb::sig("def pipe_take(subscription: Subscription, timeout: object | None) -> tuple[int, int, int, bytes, bytes] | "
                "None"),
        "(peer, id, kind, bytes, the sender's name) of the next message, or None when the timeout passed first.");
    add_function(m, &answer_function);
    add_function(m, &ask_function);
    m.def(
        "pipe_acknowledge",
        [](Subscription &subscription) {
            if (subscription.ready().decided()) pipe_reader_of(subscription).peer().acknowledge();
        },
        nb::arg("subscription"), "Acknowledges the messages received so far.");
    m.def(
        "pipe_pause",
        [](Subscription &subscription) {
            if (subscription.ready().decided()) pipe_reader_of(subscription).peer().pause();
        },
        nb::arg("subscription"),
        "Acknowledges, and lets others take the messages that wait for this handle until it reads again.");
    m.def(
        "pipe_requeue_on_close",
        [](Subscription &subscription) {
            if (subscription.ready().decided()) pipe_reader_of(subscription).peer().acknowledger().requeue_on_close();
        },
        nb::arg("subscription"), "Messages received and not acknowledged are redelivered to others when this handle closes.");
    m.def(
        "pipe_redelivered",
        [](Subscription &subscription) {
            return subscription.ready().decided() && pipe_reader_of(subscription).peer().acknowledger().redelivered();
        },
        nb::arg("subscription"), "Whether the message received last had been given to a reader that died with it.");
    m.def(
        "pipe_unread", [](Publication &publication) { return pipe_writer_of(publication).peer().waiting(); },
        nb::arg("publication"), "Messages written here that no reader has acknowledged.");
    m.def(
        "pipe_named",
        [](Publication &publication, const nb::bytes &name) {
            return pipe_writer_of(publication).peer().named(std::string(name.c_str(), name.size()));
        },
        nb::arg("publication"), nb::arg("name"), "The living peer of that name, or 0.");
    m.def(
        "pipe_name_of",
        [](Publication &publication, uint64_t peer) {
            const std::string name = pipe_writer_of(publication).peer().peers().name_of(peer);
            return nb::bytes(name.data(), name.size());
        },
        nb::arg("publication"), nb::arg("peer"));
    m.def(
        "pipe_others",
        [](Publication &publication) {
            nb::list found;
            PipePeer &self = pipe_writer_of(publication).peer();
            self.repair();
            self.refresh();
            for (const uint64_t peer : self.outgoing().alive()) found.append(peer);
            return found;
        },
        nb::arg("publication"), "The living peers that this one sends to.");
}

} // namespace penstock::bind
