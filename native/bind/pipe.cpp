// Pipe channels: peers, what they send to each other, what the channel's file says of them.
#include "pipe_ends.hpp"
#include "publication.hpp"
#include "status.hpp"
#include "subscription.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

namespace penstock::bind {

namespace {

PipeGeometry geometry(uint32_t capacity, uint32_t peers, uint32_t pipes, uint32_t mark, uint64_t start_position) {
    PipeGeometry g;
    g.capacity = capacity;
    g.peers = peers;
    g.links = pipes;
    g.mark = mark;
    g.start_position = start_position;
    return g;
}

nb::dict inspect_pipe(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedPipe pipe = read_pipe_header(map.bytes(), map.size(), path);
    const PipeGeometry &g = pipe.geometry;
    nb::dict about;
    describe_common(about, pipe, g.capacity, g.peers, g.start_position, g.epoch, g.max_frame());
    about["capacity"] = g.capacity;
    about["peers"] = g.peers;
    about["pipes"] = g.links;
    about["mark"] = g.mark;
    about["window"] = g.capacity;
    about["initial_term_id"] = 0;
    about["stream_id"] = 1;
    const auto *control = reinterpret_cast<const PipeControl *>(map.bytes() + control_offset);
    const auto &t = control->totals;
    auto slot = [&](uint32_t i) -> const PeerSlot & {
        return *reinterpret_cast<const PeerSlot *>(map.bytes() + slots_offset + size_t{i} * sizeof(PeerSlot));
    };
    const auto [sent, sent_bytes, received, received_bytes, refused, dropped] = add_up(
        [&] {
            return std::array{t.messages_sent.relaxed(),  t.bytes_sent.relaxed(),    t.messages_received.relaxed(),
                              t.bytes_received.relaxed(), t.back_pressure.relaxed(), t.messages_dropped.relaxed()};
        },
        [&](auto &sum) {
            for (uint32_t i = 0; i < g.peers; ++i) {
                if (slot(i).identity.state.acquire() != 1) continue;
                const PeerSlot::Counters &counts = slot(i).counters;
                sum[0] += count_of(counts.messages_sent);
                sum[1] += count_of(counts.bytes_sent);
                sum[2] += count_of(counts.messages_received);
                sum[3] += count_of(counts.bytes_received);
                sum[4] += count_of(counts.back_pressure);
                sum[5] += count_of(counts.messages_dropped);
            }
        });
    nb::list members;
    for (uint32_t i = 0; i < g.peers; ++i) {
        const PeerSlot &s = slot(i);
        if (s.identity.state.acquire() != 1 || !lives(fd, slots_offset + uint64_t{i} * sizeof(PeerSlot))) continue;
        const PeerSlot::Counters &counts = s.counters;
        const auto role = static_cast<PeerRole>(s.identity.role.relaxed());
        const bool reads = role == PeerRole::pull || role == PeerRole::tap;
        add_member(members, i, role_name(role), false, s.identity.pid.relaxed(),
                   session_of(peer_id(s.identity.generation.relaxed(), i)), s.identity.joined_ns.relaxed(), nb::none(),
                   (reads ? counts.messages_received : counts.messages_sent).relaxed(),
                   (reads ? counts.bytes_received : counts.bytes_sent).relaxed(), counts.back_pressure.relaxed(), 0,
                   nb::int_(counts.messages_dropped.relaxed()));
        nb::cast<nb::dict>(members[nb::len(members) - 1])["name"] = read_name(s.identity);
    }
    uint64_t waiting = 0, laid = 0;
    for (uint32_t i = 0; i < g.links; ++i) {
        const auto &l = *reinterpret_cast<const PipeLink *>(map.bytes() + g.links_offset() + size_t{i} * sizeof(PipeLink));
        if (l.ends.state.acquire() != 1) continue;
        ++laid;
        const uint64_t written = l.writer.messages.relaxed(), read = l.reader.messages.relaxed();
        waiting += written > read ? written - read : 0;
    }
    about["tail"] = sent;
    about["limit"] = 0;
    about["buffers"] = laid;
    about["leased"] = waiting;
    nb::dict totals;
    totals["messages_sent"] = sent;
    totals["bytes_sent"] = sent_bytes;
    totals["messages_received"] = received;
    totals["bytes_received"] = received_bytes;
    totals["back_pressure"] = refused;
    totals["bytes_lost"] = 0;
    totals["messages_lost"] = t.messages_lost.relaxed() + dropped;
    totals["repaired"] = t.returned.relaxed();
    totals["dropped"] = 0;
    totals["reaped"] = t.reaped.relaxed();
    about["totals"] = totals;
    about["members"] = members;
    return about;
}

PipeReceiver &receiver_of(Subscription &subscription) {
    auto *receiver = dynamic_cast<PipeReceiver *>(&subscription.ready());
    if (receiver == nullptr) throw Error(Code::invalid, subscription.end().path() + ": this is no pipe");
    return *receiver;
}
PipeSender &sender_of(Publication &publication) {
    auto *sender = dynamic_cast<PipeSender *>(&publication.ready());
    if (sender == nullptr) throw Error(Code::invalid, publication.end().path() + ": this is no pipe");
    return *sender;
}

// Who the message went to, or 0 if it found no room before the timeout.
uint64_t send_to(Publication &publication, uint64_t to, uint64_t id, int32_t kind, const BytesArgument &bytes,
                 PyObject *timeout) {
    auto attempt = [&] { return sender_of(publication).send_to(to, id, kind, bytes.data(), bytes.size()); };
    if (attempt()) return sender_of(publication).peer().chosen();
    const int64_t limit = timeout_ns(timeout);
    return limit != 0 && publication.wait_for_room(limit, attempt) ? sender_of(publication).peer().chosen() : 0;
}

// (who sent it, id, kind, body, `went`) of the next message, or null with no error set when the timeout passed first.
PyObject *take_from(Subscription &subscription, PyObject *timeout, uint64_t went) {
    for (bool waited = false;; waited = true) {
        Receiver &reader = waited ? subscription.ready() : subscription.reading();
        const Message *message = reader.peek();
        if (message != nullptr) {
            PipePeer &peer = receiver_of(subscription).peer();
            const Message taken = *message;
            nb::object made = nb::steal(PyTuple_New(5));
            if (!made.is_valid()) throw nb::python_error();
            PyObject *items[] = {PyLong_FromUnsignedLongLong(peer.from()), PyLong_FromUnsignedLongLong(peer.tag().id),
                                 PyLong_FromLong(peer.tag().kind),
                                 PyBytes_FromStringAndSize(reinterpret_cast<const char *>(message->data),
                                                           static_cast<Py_ssize_t>(message->length)),
                                 PyLong_FromUnsignedLongLong(went)};
            bool whole = true;
            for (Py_ssize_t i = 0; i < 5; ++i) {
                whole = whole && items[i] != nullptr;
                PyTuple_SET_ITEM(made.ptr(), i, items[i]); // null is allowed in a tuple that goes away at once
            }
            if (!whole) throw nb::python_error();
            reader.take();
            subscription.took(taken);
            peer.acknowledge(); // nobody inherits what is sent to one peer
            return made.release().ptr();
        }
        subscription.nothing(reader);
        const int64_t limit = timeout_ns(timeout);
        if (limit == 0 || !subscription.wait_for_message(limit)) return nullptr;
    }
}

// The two handles of a socket, as the first of a call's arguments.
std::pair<Publication *, Subscription *> handles_of(const char *name, PyObject *const *args, Py_ssize_t count,
                                                    Py_ssize_t wanted) {
    if (count != wanted || !nb::isinstance<Publication>(args[0]) || !nb::isinstance<Subscription>(args[1]))
        throw nb::type_error(
            (std::string(name) + " takes a publication, a subscription and " + std::to_string(wanted - 2) + " more").c_str());
    return {nb::inst_ptr<Publication>(args[0]), nb::inst_ptr<Subscription>(args[1])};
}

uint64_t word_of(PyObject *number) {
    const uint64_t word = PyLong_AsUnsignedLongLong(number);
    if (word == ~uint64_t{0} && PyErr_Occurred() != nullptr) throw nb::python_error();
    return word;
}
int32_t kind_of(PyObject *number) { return static_cast<int32_t>(word_of(number)); }

// A message to any peer, and what comes within `patience` seconds of it.
PyObject *pipe_ask(PyObject *, PyObject *const *args, Py_ssize_t count) {
    try {
        const auto [publication, subscription] = handles_of("pipe_ask", args, count, 7);
        uint64_t went;
        {
            const BytesArgument bytes(args[4]);
            went = send_to(*publication, 0, word_of(args[2]), kind_of(args[3]), bytes, args[5]);
        }
        if (went == 0) Py_RETURN_NONE;
        PyObject *found = take_from(*subscription, args[6], went);
        return found != nullptr ? found : PyLong_FromUnsignedLongLong(went);
    } catch (...) {
        return raise_current();
    }
}

// A message to one peer, which may be gone, and then the next one that comes.
PyObject *pipe_answer(PyObject *, PyObject *const *args, Py_ssize_t count) {
    try {
        const auto [publication, subscription] = handles_of("pipe_answer", args, count, 6);
        try {
            const BytesArgument bytes(args[5]);
            send_to(*publication, word_of(args[2]), word_of(args[3]), kind_of(args[4]), bytes, Py_None);
        } catch (const Error &error) {
            if (error.code != Code::closed || publication->closed()) throw;
        }
        for (;;)
            if (PyObject *found = take_from(*subscription, Py_None, 0)) return found;
    } catch (...) {
        return raise_current();
    }
}

PyMethodDef ask_function = {
    "pipe_ask", as_method(pipe_ask), METH_FASTCALL,
    "pipe_ask(publication, subscription, id, kind, data, timeout, patience)\n--\n\n"
    "Sends to any peer, then takes what comes within `patience` seconds: as pipe_take, with the peer it went\n"
    "to; that peer alone if nothing came; None if it found no room."};
PyMethodDef answer_function = {"pipe_answer", as_method(pipe_answer), METH_FASTCALL,
                               "pipe_answer(publication, subscription, to, id, kind, data)\n--\n\n"
                               "Sends to one peer, unless it is gone, and then waits for the next message: as pipe_take."};

} // namespace

void bind_pipe(nb::module_ &m) {
    m.def(
        "format_pipe",
        [](int fd, uint32_t capacity, uint32_t peers, uint32_t pipes, uint32_t mark, uint64_t start_position, uint64_t epoch,
           nb::bytes metadata, nb::bytes boot_id) {
            PipeGeometry g = geometry(capacity, peers, pipes, mark, start_position);
            g.epoch = epoch;
            format_pipe(fd, g, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("capacity"), nb::arg("peers"), nb::arg("pipes"), nb::arg("mark"),
        nb::arg("start_position"), nb::arg("epoch"), nb::arg("metadata"), nb::arg("boot_id"));
    m.def(
        "pipe_file_size",
        [](uint32_t capacity, uint32_t peers, uint32_t pipes, uint32_t mark, uint64_t start_position) {
            const PipeGeometry g = geometry(capacity, peers, pipes, mark, start_position);
            check_geometry(g, Code::invalid);
            return g.file_size();
        },
        nb::kw_only(), nb::arg("capacity"), nb::arg("peers"), nb::arg("pipes"), nb::arg("mark"), nb::arg("start_position"),
        "Checks the options; bytes that a pipe channel's file takes.");
    m.def("inspect_pipe", &inspect_pipe, nb::arg("fd"), nb::arg("path"),
          "Header, counters and members, read without disturbing anyone.");

    nb::class_<PipePeer>(m, "PipePeer", "A peer of a pipe channel, for the handles of its two directions.")
        .def(
            "__init__",
            [](PipePeer *self, int fd, std::string path, uint32_t role, const nb::bytes &name, uint32_t when_full,
               std::shared_ptr<ManualClock> clock) {
                new (self) PipePeer(fd, std::move(path), static_cast<PeerRole>(role), std::string(name.c_str(), name.size()),
                                    static_cast<WhenFull>(when_full), std::move(clock));
            },
            nb::arg("fd"), nb::arg("path"), nb::arg("role"), nb::arg("name"), nb::arg("when_full"), nb::arg("clock").none())
        .def("prefault", [](PipePeer &self) { return self.mapping()->populate(); });
    m.def(
        "pipe_sender",
        [](std::shared_ptr<PipePeer> peer) -> std::shared_ptr<Sender> { return std::make_shared<PipeSender>(std::move(peer)); },
        nb::arg("peer"));
    m.def(
        "pipe_receiver",
        [](std::shared_ptr<PipePeer> peer, bool by_hand) -> std::shared_ptr<Receiver> {
            return std::make_shared<PipeReceiver>(std::move(peer), by_hand);
        },
        nb::arg("peer"), nb::arg("by_hand"));
    m.def(
        "pipe_tap",
        [](std::shared_ptr<PipePeer> peer, uint64_t position) -> std::shared_ptr<Receiver> {
            return std::make_shared<TapReceiver>(std::move(peer), position);
        },
        nb::arg("peer"), nb::arg("position"), "For a recorder whose positions go on from there.");
    m.def(
        "pipe_send",
        [](Publication &publication, uint64_t to, uint64_t id, int32_t kind, nb::handle data, nb::handle timeout) -> nb::object {
            const BytesArgument bytes(data.ptr());
            const uint64_t went = send_to(publication, to, id, kind, bytes, timeout.ptr());
            return went != 0 ? nb::object(nb::int_(went)) : nb::object(nb::none());
        },
        nb::arg("publication"), nb::arg("to"), nb::arg("id"), nb::arg("kind"), nb::arg("data"), nb::arg("timeout").none(),
        "The peer that it went to, or None if it found no room before the timeout. to: one peer, or 0: any in turn.");
    m.def(
        "pipe_take",
        [](Subscription &subscription, nb::handle timeout) -> nb::object {
            PyObject *found = take_from(subscription, timeout.ptr(), 0);
            return found != nullptr ? nb::steal(found) : nb::none();
        },
        nb::arg("subscription"), nb::arg("timeout").none(),
        "(peer, id, kind, bytes, 0) of the next message, or None when the timeout passed first.");
    add_function(m, &ask_function);
    add_function(m, &answer_function);
    m.def(
        "pipe_acknowledge", [](Subscription &subscription) { receiver_of(subscription).peer().acknowledge(); },
        nb::arg("subscription"), "What was received so far is done with.");
    m.def(
        "pipe_keep", [](Subscription &subscription) { receiver_of(subscription).peer().keep(); }, nb::arg("subscription"),
        "What was received and not acknowledged goes to others when this handle closes.");
    m.def(
        "pipe_redelivered", [](Subscription &subscription) { return receiver_of(subscription).peer().redelivered(); },
        nb::arg("subscription"), "Whether the message received last had been given to a reader that died with it.");
    m.def(
        "pipe_waiting", [](Publication &publication) { return sender_of(publication).peer().waiting(); }, nb::arg("publication"),
        "Messages written here that nobody has acknowledged.");
    m.def(
        "pipe_named",
        [](Publication &publication, const nb::bytes &name) {
            return sender_of(publication).peer().named(std::string(name.c_str(), name.size()));
        },
        nb::arg("publication"), nb::arg("name"), "The living peer of that name, or 0.");
    m.def(
        "pipe_name_of",
        [](Publication &publication, uint64_t peer) {
            const std::string name = sender_of(publication).peer().name_of(peer);
            return nb::bytes(name.data(), name.size());
        },
        nb::arg("publication"), nb::arg("peer"));
    m.def(
        "pipe_others",
        [](Publication &publication) {
            nb::list found;
            sender_of(publication).repair();
            for (const uint64_t peer : sender_of(publication).peer().others()) found.append(peer);
            return found;
        },
        nb::arg("publication"), "The living peers that this one sends to.");
}

} // namespace penstock::bind
