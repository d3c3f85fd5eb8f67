// A member of a sync queue, as Python sees it: texts, tuples and Python's waiting around core/sync/sync_queue.hpp.
#pragma once

#include "bind/handles/claim_view.hpp"
#include "bind/handles/subscription.hpp"
#include "bind/sync/sync_ends.hpp"

namespace penstock::bind {

// Text of a sender or a type, as bytes; Python's text keeps bytes that are not UTF-8 as surrogate escapes.
inline std::string sync_text(nb::handle given, const char *what) {
    if (PyBytes_Check(given.ptr())) return {PyBytes_AS_STRING(given.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(given.ptr()))};
    if (!PyUnicode_Check(given.ptr()))
        throw Error(Code::invalid, std::string(what) + " is text or bytes, not " + class_name(given));
    nb::object bytes = nb::steal(PyUnicode_AsEncodedString(given.ptr(), "utf-8", "surrogateescape"));
    if (!bytes.is_valid()) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
        PyErr_Clear();
        throw Error(Code::invalid, std::string(what) + " has half of a character: no UTF-8 says that");
    }
    return sync_text(bytes, what);
}

class SyncMember {
  public:
    // `message`: the named tuple (sender, type, body, position, time_ns) that a message becomes.
    SyncMember(nb::object publication, nb::object subscription, nb::type_object message, bool own, size_t spill_limit)
        : keeps_publication_(publication), keeps_subscription_(subscription), message_(std::move(message)),
          publication_(nb::cast<Publication &>(publication)), subscription_(nb::cast<Subscription &>(subscription)), own_(own),
          spill_limit_(spill_limit), generation_(ForkGuard::generation()) {
        if (PyType_IsSubtype(reinterpret_cast<PyTypeObject *>(message_.ptr()), &PyTuple_Type) == 0)
            throw Error(Code::invalid, "a message becomes a named tuple");
        rescreen();
    }

    // ---- writing ----

    // The position after the message, or no_room when the timeout passed.
    int64_t send(const BytesArgument &body, PyObject *type, int64_t timeout) {
        const std::string_view own = prefix_of(type);
        SyncWriter &writer = writing().writer();
        const size_t most = writer.payload_max(own);
        const bool small = body.size() <= most && body.size() < large_copy;
        if (small) { // the path that has to be short
            const int64_t position = writer.offer(own, body.data(), body.size());
            if (position != no_room) return position;
        }
        const std::string prefix(own); // other threads may change what is kept while this one waits
        PendingSend sending{body.data(), body.size()};
        if (small) {
            auto attempt = [&] {
                return (sending.position = writing().writer().offer(prefix, body.data(), body.size())) != no_room;
            };
            wait_for_room(prefix.size() + body.size(), timeout, attempt);
        } else if (body.size() <= most) {
            ClaimedRange range;
            auto attempt = [&] { return writing().claim(prefix, body.size(), range); };
            if (!attempt() && !wait_for_room(prefix.size() + body.size(), timeout, attempt)) return no_room;
            {
                const Publication::Busy busy(publication_);
                without_interpreter([&] { copy_bytes(range.payload, body.data(), body.size()); });
            }
            sending.position = writing().commit(range);
        } else {
            send_fragments(prefix, sending, timeout);
        }
        return sending.position;
    }
    // The same without waiting. Full is not an error, for whatever reason.
    int64_t offer(const BytesArgument &body, PyObject *type) {
        const std::string_view own = prefix_of(type);
        const int64_t position = writing().writer().offer(own, body.data(), body.size());
        if (position != no_room) return position;
        const std::string prefix(own); // other threads may change what is kept while this one spills
        return spill_for_room() ? writing().writer().offer(prefix, body.data(), body.size()) : no_room;
    }
    // How many of the bodies, in order, found room.
    size_t offer_many(const MessagesArgument &bodies, PyObject *type) {
        const std::string prefix(prefix_of(type));
        size_t done = 0;
        do done += writing().writer().offer_many(prefix, bodies.data() + done, bodies.size() - done);
        while (done < bodies.size() && spill_for_room());
        return done;
    }
    // Room for a body of `length` bytes; false when the timeout passed.
    bool claim(size_t length, PyObject *type, int64_t timeout, ClaimedRange &range) {
        const std::string prefix(prefix_of(type));
        const SyncWriter &writer = writing().writer();
        writer.refuse_oversize(prefix, length, writer.payload_max(prefix), "Claim less, or give the queue a larger capacity");
        auto attempt = [&] { return writing().claim(prefix, length, range); };
        return attempt() || wait_for_room(prefix.size() + length, timeout, attempt);
    }
    Publication &publication() { return publication_; }

    // ---- reading ----

    // The next message that is not passed over, or an invalid object.
    nb::object try_recv() {
        here();
        return consume(subscription_.reading());
    }
    nb::object recv(int64_t timeout) {
        nb::object found = try_recv();
        auto attempt = [&] {
            here();
            found = consume(subscription_.reading_on());
            return found.is_valid();
        };
        if (found.is_valid() || subscription_.wait(timeout, attempt)) return found;
        PyErr_Format(timeout_error(), "%s: no message within the timeout%s", subscription_.end().where().c_str(),
                     subscription_.end().take_reason().c_str());
        throw nb::python_error();
    }
    // The next message of a batch, or an invalid object. An error behind the first one is kept for the next call.
    nb::object next_of_batch(bool first) {
        if (first) return try_recv();
        if (!subscription_.continue_batch()) return {};
        try {
            here();
            return consume(subscription_.ready());
        } catch (...) {
            subscription_.keep_current();
            return {};
        }
    }
    nb::list poll(int64_t limit) {
        Batch batch;
        for (int64_t i = 0; i < limit; ++i) {
            nb::object found = next_of_batch(i == 0);
            if (!found.is_valid()) break;
            batch.add(found.release().ptr());
        }
        return batch.list();
    }
    bool closed() const { return subscription_.closed(); }

    // ---- screening ----

    void screen(std::set<std::string, std::less<>> senders, std::set<std::string, std::less<>> types) {
        here();
        senders_ = std::move(senders);
        types_ = std::move(types);
        rescreen();
    }
    uint64_t screened() const { return reading().screened(); }

    // Waits until `attempt` returns true; tries again when a member joined. False when the timeout passed.
    bool wait_for_members(nb::handle attempt, int64_t timeout) {
        here();
        return publication_.wait_for_members(timeout, [&] { return nb::cast<bool>(attempt()); });
    }

    const MemberEvents &events() { // of members that joined and left
        here();
        return reader_end().events();
    }
    size_t spilled_bytes() const { return reading().spilled_bytes(); }
    void forget() { reading().forget(); } // unread messages of a closed member count as read

    // In a forked child this becomes a separate member that continues at the same position.
    void here() {
        if (generation_ == ForkGuard::generation()) return;
        publication_.ready();
        subscription_.ready();
        generation_ = ForkGuard::generation();
        last_type_.reset(); // the sender in front of it may have another name here
        rescreen();
    }

  private:
    SyncReaderEnd &reader_end() const { return static_cast<SyncReaderEnd &>(subscription_.end()); }
    SyncReader &reading() const { return reader_end().reader(); }
    SyncWriterEnd &writing() { // ready for a call
        here();
        return static_cast<SyncWriterEnd &>(publication_.ready());
    }
    void rescreen() {
        SyncScreen screen{{}, senders_, types_};
        if (!own_) screen.own = publication_.ready().session();
        reading().screen(std::move(screen));
    }

    // As it is kept: until this thread lets others have the interpreter.
    std::string_view prefix_of(PyObject *type) {
        here();
        if (type == nullptr) return writing().untyped();
        if (type == last_type_.ptr()) return last_prefix_;
        const SyncParts own =
            read_sync(reinterpret_cast<const uint8_t *>(writing().untyped().data()), writing().untyped().size());
        const std::string &where = publication_.end().where();
        std::string made;
        try {
            made = sync_prefix(own.sender, sync_text(type, "a type"));
        } catch (const Error &error) {
            throw Error(error.code, where + ": " + error.what());
        }
        nb::object replaced = nb::borrow(type);
        last_prefix_ = std::move(made);
        std::swap(last_type_, replaced);
        replaced.reset();       // it may run code that keeps another type
        return prefix_of(type); // then it is made again
    }

    // Spills what is unread; whether that may have made room. Beyond spill_limit it has not.
    bool spill_for_room() {
        bool made = false;
        try {
            made = reading().spill(spill_limit_);
        } catch (const Error &error) {
            if (error.code != Code::busy) throw;
        }
        subscription_.moved(); // a descriptor that a thread waits on may watch a position that was left
        return made;
    }

    // Sleeps on room and on data; see core's RoomOrData.
    class RoomTarget : public Target {
      public:
        static constexpr WaitsFor what = WaitsFor::room;
        explicit RoomTarget(SyncMember &member) : member_(member) {}
        ~RoomTarget() { member_.subscription_.moved(); } // a descriptor that a thread waits on may watch a position that was left
        RoomTarget(const RoomTarget &) = delete;
        RoomTarget &operator=(const RoomTarget &) = delete;
        void failed() {
            member_.subscription_.moved();
            watched_.clear();
            member_.writing().add_watches(watched_);
            member_.subscription_.ready().add_watches(watched_);
        }
        bool changed() const { return watched_.changed(); }
        int64_t spin_ns() { return member_.room_spin_habit_.due() ? room_spin_ns : 0; }
        void spun(bool found) { member_.room_spin_habit_.spun(found); }
        static constexpr bool often = false;
        int64_t slice_ns() const { return first_slice_ns; }
        void prepare() { events_.announce(member_.writing().log()); }
        void note(uint64_t word) { note_wait(member_.publication_.end(), word); }
        void explain(WaitsFor what) { member_.publication_.end().reason = explain_wait(member_.publication_.end(), what); }
        void warn(int64_t waited_ns) { explain_wait(member_.publication_.end(), WaitsFor::nothing, waited_ns); }
        void sleep(int64_t ns) { event_sleep_many(events_.entries, 2, ns); }

      private:
        SyncMember &member_;
        RoomOrData events_;
        WatchSet watched_; // positions of readers, and the next frame that this member reads
    };

    template <class Attempt> bool wait_for_room(size_t length, int64_t timeout, Attempt &&attempt) {
        const Publication::Busy busy(publication_);
        const Subscription::Busy reads(subscription_);
        return wait_for(timeout, RoomTarget(*this),
                        [&] { return attempt_or_spill(writing().log(), reading(), length, spill_limit_, attempt); });
    }

    void send_fragments(const std::string &prefix, PendingSend &sending, int64_t timeout) {
        const size_t length = prefix.size() + sending.length;
        writing().begin(sending, prefix);
        auto attempt = [&] { return writing().advance(sending); };
        auto give_up = [&] {
            if (!publication_.closed() && publication_.generation() == ForkGuard::generation())
                publication_.end().give_up(sending);
        };
        try {
            if (!attempt() && !wait_for_room(length, timeout, attempt)) give_up();
        } catch (...) {
            give_up();
            throw;
        }
    }

    // The next message as a tuple. Steps that may run the collector, and with it code that lets other threads take messages, are
    // done before the reader looks. From the look that counts to the take nothing runs but this.
    nb::object consume(ReaderEnd &ready) {
        auto &reader = static_cast<SyncReaderEnd &>(ready);
        nb::object made = std::exchange(spare_, {});
        if (!made.is_valid()) {
            made = empty_tuple();
            subscription_.ready(); // it may have been closed meanwhile
        }
        for (;;) {
            const Message *message = reader.peek_allowed();
            if (message == nullptr) {
                spare_ = std::move(made);
                subscription_.nothing(reader);
                return {};
            }
            const auto [sender, type] = reader.texts();
            if (sender == nullptr) {
                subscription_.ready();
                continue;
            }
            PyObject *items[] = {Py_NewRef(sender->text.ptr()), Py_NewRef(type->text.ptr()),
                                 PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(message->length)),
                                 PyLong_FromUnsignedLongLong(message->position), PyLong_FromLongLong(message->time_ns)};
            for (int i = 0; i < 5; ++i) PyTuple_SET_ITEM(made.ptr(), i, items[i]);
            if (items[2] == nullptr || items[3] == nullptr || items[4] == nullptr) throw nb::python_error();
            const Message taken = *message;
            reader.copy(PyBytes_AS_STRING(items[2]), taken);
            reader.consume();
            subscription_.took(taken);
            return made;
        }
    }
    // The collector never sees it: it has no items yet, and will have none that refer to others.
    nb::object empty_tuple() const {
        auto *type = reinterpret_cast<PyTypeObject *>(message_.ptr());
        nb::object made = nb::steal(allocate(type, 5));
        if (!made.is_valid()) throw nb::python_error();
        PyObject_GC_UnTrack(made.ptr());
        return made;
    }

    nb::object keeps_publication_, keeps_subscription_, message_;
    Publication &publication_;
    Subscription &subscription_;
    const bool own_;
    const size_t spill_limit_;
    SpinHabit room_spin_habit_;
    uint32_t generation_;
    std::set<std::string, std::less<>> senders_, types_;
    std::string last_prefix_;
    nb::object last_type_, spare_; // spare: a tuple for the next message
};

} // namespace penstock::bind
