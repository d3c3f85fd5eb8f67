// A member of a sync queue: reads with one handle what others write, writes with another, and never waits for itself.
#pragma once

#include "publication.hpp"
#include "subscription.hpp"

#include "../core/sync_message.hpp"

#include <array>
#include <deque>
#include <unordered_map>
#include <vector>

namespace penstock::bind {

// Text of a sender or a type, as bytes; Python's text keeps bytes that are no UTF-8 as surrogate escapes.
inline std::string sync_text(nb::handle given, const char *what) {
    if (PyBytes_Check(given.ptr())) return {PyBytes_AS_STRING(given.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(given.ptr()))};
    if (!PyUnicode_Check(given.ptr()))
        throw Error(Code::invalid, std::string(what) + " is text or bytes, not " + Py_TYPE(given.ptr())->tp_name);
    nb::object bytes = nb::steal(PyUnicode_AsEncodedString(given.ptr(), "utf-8", "surrogateescape"));
    if (!bytes.is_valid()) throw nb::python_error();
    return sync_text(bytes, what);
}

// Few senders and types are many messages': each is made into text once.
class SyncTexts {
  public:
    struct Text {
        std::string bytes, clean; // as they travel; the same with what is no UTF-8 replaced
        nb::object text;
    };
    const Text &of(std::string_view bytes) {
        const size_t hash =
            bytes.empty() ? 0 : bytes.size() * 31 + static_cast<uint8_t>(bytes.front()) * 7 + static_cast<uint8_t>(bytes.back());
        Text &at = kept_[hash % kept_.size()];
        if (at.text.is_valid() && at.bytes == bytes) return at;
        std::string copy(bytes); // others may be writing there
        const auto size = static_cast<Py_ssize_t>(copy.size());
        nb::object text = nb::steal(PyUnicode_DecodeUTF8(copy.data(), size, "surrogateescape"));
        nb::object clean = nb::steal(PyUnicode_DecodeUTF8(copy.data(), size, "replace"));
        if (!text.is_valid() || !clean.is_valid()) throw nb::python_error();
        Py_ssize_t length = 0;
        const char *utf8 = PyUnicode_AsUTF8AndSize(clean.ptr(), &length);
        if (utf8 == nullptr) throw nb::python_error();
        at = {std::move(copy), std::string(utf8, static_cast<size_t>(length)), std::move(text)};
        return at;
    }

  private:
    std::array<Text, 64> kept_;
};

// A body is text or any buffer.
class SyncBody {
  public:
    explicit SyncBody(PyObject *given)
        : encoded_(PyUnicode_Check(given) ? nb::steal(PyUnicode_AsEncodedString(given, "utf-8", "surrogateescape"))
                                          : nb::borrow(given)),
          bytes_(checked(encoded_)) {}
    const uint8_t *data() const { return bytes_.data(); }
    size_t size() const { return bytes_.size(); }

  private:
    static PyObject *checked(const nb::object &object) {
        if (!object.is_valid()) throw nb::python_error();
        return object.ptr();
    }
    nb::object encoded_;
    BytesArgument bytes_;
};

class SyncMember {
  public:
    // `message`: the named tuple (sender, type, body, position, time_ns) that a message becomes.
    SyncMember(nb::object publication, nb::object subscription, nb::type_object message, std::string channel, std::string name,
               bool own, size_t spill_limit)
        : keeps_publication_(publication), keeps_subscription_(subscription), message_(std::move(message)),
          publication_(nb::cast<Publication &>(publication)), subscription_(nb::cast<Subscription &>(subscription)),
          channel_(std::move(channel)), name_(std::move(name)), own_(own), spill_limit_(spill_limit),
          generation_(ForkGuard::generation()) {
        if (PyType_IsSubtype(reinterpret_cast<PyTypeObject *>(message_.ptr()), &PyTuple_Type) == 0)
            throw Error(Code::invalid, "a message becomes a named tuple");
        rescreen();
    }

    // ---- writing ----

    // The position after the message, or no_room when the timeout passed.
    int64_t append(const SyncBody &body, PyObject *type, int64_t timeout) {
        here();
        return send(prefix_of(type), body, timeout);
    }

    // How many of the bodies found room before the timeout.
    size_t append_many(PyObject *bodies, PyObject *type, int64_t timeout) {
        here();
        if (PyBytes_Check(bodies) || PyUnicode_Check(bodies))
            throw Error(Code::invalid, "append_many takes a list of bodies, not one: use append");
        nb::object sequence = nb::steal(PySequence_Tuple(bodies));
        if (!sequence.is_valid()) throw nb::python_error();
        const auto count = static_cast<size_t>(PyTuple_GET_SIZE(sequence.ptr()));
        const std::string prefix = prefix_of(type);
        const int64_t begun = now_monotonic(), deadline = timeout >= for_ever - begun ? for_ever : begun + timeout;
        size_t done = 0;
        while (done < count) {
            const size_t now = offer_run(sequence, done, prefix);
            done += now;
            if (now != 0) continue;
            const SyncBody body(PyTuple_GET_ITEM(sequence.ptr(), static_cast<Py_ssize_t>(done)));
            const int64_t left = deadline == for_ever ? for_ever : std::max<int64_t>(deadline - now_monotonic(), 0);
            if (send(prefix, body, left) == no_room) return done;
            ++done;
        }
        return done;
    }

    // ---- reading ----

    // The next message that is not screened, or an invalid object.
    nb::object try_pop() {
        here();
        if (unread_ != nullptr) std::rethrow_exception(std::exchange(unread_, nullptr));
        while (!spilled_.empty()) {
            Spilled first = std::move(spilled_.front());
            spilled_.pop_front();
            spilled_bytes_ -= first.cost;
            if (screen_->hides(first.sender, first.type)) continue;
            return first.message;
        }
        return take(nullptr);
    }

    nb::object pop(int64_t timeout) {
        const int64_t begun = timeout == 0 ? 0 : now_monotonic();
        const int64_t deadline = timeout >= for_ever - begun ? for_ever : begun + timeout;
        for (;;) {
            nb::object found = try_pop();
            if (found.is_valid()) return found;
            const int64_t left = timeout == 0 ? 0 : deadline == for_ever ? for_ever : deadline - now_monotonic();
            if (left > 0 && subscription_.wait_for_message(left)) continue;
            PyErr_Format(timeout_error(), "%s: no message within the timeout", channel_.c_str());
            throw nb::python_error();
        }
    }

    nb::list pop_many(int64_t limit) {
        nb::list list;
        while (static_cast<int64_t>(list.size()) < limit) {
            nb::object found;
            try {
                found = try_pop();
            } catch (const Error &) { // what was read already goes out first
                if (list.size() == 0) throw;
                unread_ = std::current_exception();
            }
            if (!found.is_valid()) break;
            list.append(std::move(found));
        }
        return list;
    }

    // What is there as one Arrow batch: position, sender, type, payload, time.
    nb::tuple poll_arrow(int64_t limit, int64_t max_bytes) {
        BatchBuilder batch(column_position | column_sender | column_type | column_payload | column_time_ns);
        batch.reserve(std::min<size_t>(rows_before_, static_cast<size_t>(std::max<int64_t>(limit, 0))), bytes_before_);
        while (!spilled_.empty() && static_cast<int64_t>(batch.rows()) < limit) {
            const nb::object message = try_pop();
            if (!message.is_valid()) break;
            PyObject **parts = PySequence_Fast_ITEMS(message.ptr());
            add_row(batch, sync_text(parts[0], "a sender"), sync_text(parts[1], "a type"), PyBytes_AS_STRING(parts[2]),
                    static_cast<size_t>(PyBytes_GET_SIZE(parts[2])), nb::cast<uint64_t>(nb::handle(parts[3])),
                    nb::cast<int64_t>(nb::handle(parts[4])), nullptr);
        }
        here();
        if (unread_ != nullptr && batch.rows() == 0) std::rethrow_exception(std::exchange(unread_, nullptr));
        Receiver &reader = subscription_.reading();
        while (unread_ == nullptr && spilled_.empty() && static_cast<int64_t>(batch.rows()) < limit) {
            try {
                const Message *message = reader.peek();
                if (message == nullptr) {
                    subscription_.nothing(reader);
                    break;
                }
                if (batch.rows() != 0 && static_cast<int64_t>(batch.payload_bytes() + message->length) > max_bytes) break;
                const SyncParts parts = sync_parts(reader, *message);
                add_row(batch, parts.sender, parts.type, parts.body, parts.length, message->position, message->time_ns, &reader);
                const Message taken = *message;
                reader.take();
                subscription_.took(taken);
            } catch (const Error &) {
                if (batch.rows() == 0) throw;
                unread_ = std::current_exception();
            }
        }
        rows_before_ = batch.rows();
        bytes_before_ = batch.payload_bytes();
        return arrow_capsules(std::move(batch));
    }

    // Of what the queue keeps for this member, only the newest `count`.
    void keep_last(size_t count) {
        while (spill_one())
            if (spilled_.size() > count) {
                spilled_bytes_ -= spilled_.front().cost;
                spilled_.pop_front();
            }
    }

    // ---- screening ----

    void screen(std::set<std::string, std::less<>> senders, std::set<std::string, std::less<>> types) {
        here();
        senders_ = std::move(senders);
        types_ = std::move(types);
        rescreen();
    }
    uint64_t screened() const { return log_of().screened(); }

    // ---- waiting for members ----

    // What `wait_change` takes to sleep until somebody comes after this call.
    uint32_t before_change() { return event_prepare(publication_.ready().members()); }
    void wait_change(uint32_t before, int64_t timeout) {
        const Publication::Busy busy(publication_);
        Atomic<uint32_t> &event = publication_.ready().members();
        without_interpreter([&] { event_sleep(event, before, std::min(timeout, slice_ns_max)); });
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }

    size_t spilled_bytes() const { return spilled_bytes_; }
    nb::object first_spilled() const { // its position
        return spilled_.empty() ? nb::none() : nb::borrow(PyTuple_GET_ITEM(spilled_.front().message.ptr(), 3));
    }
    void forget() { // what a closed member has not read counts as read
        spilled_.clear();
        spilled_bytes_ = 0;
    }

  private:
    struct Spilled {
        nb::object message;
        std::string sender, type;
        size_t cost;
    };

    LogReceiver &log_of() const { return dynamic_cast<LogReceiver &>(subscription_.end()); }

    // In a forked child this becomes a member of its own, by the same name, that reads on at the same place.
    void here() {
        if (generation_ == ForkGuard::generation()) return;
        publication_.ready();
        subscription_.ready();
        generation_ = ForkGuard::generation();
        rescreen();
    }
    void rescreen() {
        auto screen = std::make_shared<Screen>();
        if (!own_) screen->own = publication_.ready().session();
        screen->senders = senders_;
        screen->types = types_;
        screen_ = screen;
        log_of().screen(std::move(screen));
    }

    const std::string &prefix_of(PyObject *type) {
        if (type == nullptr) return untyped_.empty() ? untyped_ = sync_prefix(name_, {}) : untyped_;
        if (type == last_type_.ptr()) return last_prefix_;
        last_prefix_ = sync_prefix(name_, sync_text(type, "a type"));
        last_type_ = nb::borrow(type);
        return last_prefix_;
    }

    // Bodies from `from` on that fit into one run, one after the other in a buffer; how many of them found room. 0 for one that
    // is too large for that, too.
    size_t offer_run(const nb::object &sequence, size_t from, const std::string &prefix) {
        constexpr size_t run_max = 64 * 1024;
        Sender &sender = publication_.ready();
        const auto count = static_cast<size_t>(PyTuple_GET_SIZE(sequence.ptr()));
        run_.clear();
        lengths_.clear();
        for (size_t i = from; i < count; ++i) {
            const SyncBody body(PyTuple_GET_ITEM(sequence.ptr(), static_cast<Py_ssize_t>(i)));
            const size_t length = prefix.size() + body.size();
            if (length > sender.payload_max() || length > run_max || (i != from && run_.size() + length > run_max)) break;
            run_.insert(run_.end(), prefix.begin(), prefix.end());
            run_.insert(run_.end(), body.data(), body.data() + body.size());
            lengths_.push_back(length);
        }
        pieces_.clear();
        const uint8_t *at = run_.data();
        for (const size_t length : lengths_) {
            pieces_.push_back({at, length});
            at += length;
        }
        return pieces_.empty() ? 0 : sender.offer_many(pieces_.data(), pieces_.size());
    }

    // One attempt to write; no_room, or the position after the message.
    int64_t attempt(const std::string &prefix, const SyncBody &body, Sending &sending, std::vector<uint8_t> &whole) {
        Sender &sender = publication_.ready();
        const size_t length = prefix.size() + body.size();
        if (length <= sender.payload_max()) {
            Reservation place;
            if (!sender.reserve(length, place)) return no_room;
            std::memcpy(place.payload, prefix.data(), prefix.size());
            uint8_t *to = place.payload + prefix.size();
            if (body.size() < copy_without_interpreter) std::memcpy(to, body.data(), body.size());
            else copy_apart(to, body);
            return sender.commit(place);
        }
        if (whole.empty()) {
            whole.assign(prefix.begin(), prefix.end());
            whole.insert(whole.end(), body.data(), body.data() + body.size());
            sending.data = whole.data();
            sending.length = whole.size();
        }
        return sender.advance(sending) ? sending.position : no_room;
    }
    void copy_apart(uint8_t *to, const SyncBody &body) {
        const Publication::Busy busy(publication_);
        without_interpreter([&] { std::memcpy(to, body.data(), body.size()); });
    }

    int64_t send(const std::string &prefix, const SyncBody &body, int64_t timeout) {
        Sending sending{nullptr, 0};
        std::vector<uint8_t> whole;
        refuse_oversize(prefix.size() + body.size());
        const int64_t position = attempt(prefix, body, sending, whole);
        return position != no_room ? position : send_patiently(std::string(prefix), body, sending, whole, timeout);
    }

    // Waits for room. What this member has not read yet moves into its own memory first: without that, members that all write
    // would wait for each other.
    int64_t send_patiently(const std::string &prefix, const SyncBody &body, Sending &sending, std::vector<uint8_t> &whole,
                           int64_t timeout) {
        const int64_t begun = now_monotonic(), deadline = timeout >= for_ever - begun ? for_ever : begun + timeout;
        const Publication::Busy busy(publication_);
        const Subscription::Busy reads(subscription_);
        auto give_up = [&] {
            if (!whole.empty() && !publication_.closed()) publication_.end().give_up(sending);
        };
        try {
            for (int64_t slice = 1'000'000;; slice = std::min(slice * 2, slice_ns_max)) {
                Atomic<uint32_t> &room = publication_.end().room(), &data = subscription_.end().event();
                WaitEntry entries[] = {wait_entry(room, event_announce(room)), wait_entry(data, event_announce(data))};
                event_announced();
                const int64_t position = attempt(prefix, body, sending, whole);
                if (position != no_room) return position;
                if (spill()) continue;
                std::string who;
                auto &log = dynamic_cast<LogSender &>(publication_.end()).log();
                if (log.refused(prefix.size() + body.size() + header_length, who))
                    throw Error(Code::busy, channel_ + ": no room, and member '" + who + "' does not let writers wait for it");
                const int64_t now = now_monotonic();
                if (now >= deadline) {
                    give_up();
                    return no_room;
                }
                without_interpreter([&] { event_sleep_many(entries, 2, std::min(slice, deadline - now)); });
                if (PyErr_CheckSignals() != 0) throw nb::python_error();
            }
        } catch (...) {
            give_up();
            throw;
        }
    }

    void refuse_oversize(size_t size) {
        if (window_ == 0) window_ = dynamic_cast<LogSender &>(publication_.ready()).log().geometry().window;
        if (size > window_ / 2)
            throw Error(Code::too_large, channel_ + ": a message of " + std::to_string(size) + " bytes; this queue takes up to " +
                                             std::to_string(window_ / 2));
    }

    // Moves what is unread into this member's own memory; whether anything moved.
    bool spill() {
        const uint64_t before = subscription_.end().position();
        bool moved = false;
        try {
            while (spill_one()) {
                moved = true;
                if (spilled_bytes_ > spill_limit_)
                    throw Error(Code::busy, channel_ + ": no room to write, and " + std::to_string(spilled_bytes_) +
                                                " bytes of messages are unread here: read before you write, or join with a "
                                                "larger spill_limit");
            }
        } catch (const Error &error) {
            if (error.code != Code::dropped) throw;
            unread_ = std::current_exception(); // the next pop says so
            return true;
        }
        return moved || subscription_.end().position() != before;
    }
    bool spill_one() {
        Spilled one;
        one.message = take(&one);
        if (!one.message.is_valid()) return false;
        spilled_bytes_ += one.cost;
        spilled_.push_back(std::move(one));
        return true;
    }

    // The log's next message as a tuple. `kept`: what is said of it beside, if it is to be kept.
    nb::object take(Spilled *kept) {
        Receiver &reader = subscription_.reading();
        const Message *message = reader.peek();
        if (message == nullptr) {
            subscription_.nothing(reader);
            return {};
        }
        const SyncParts parts = sync_parts(reader, *message);
        auto *type = reinterpret_cast<PyTypeObject *>(message_.ptr());
        nb::object made = nb::steal(type->tp_alloc(type, 5));
        if (!made.is_valid()) throw nb::python_error();
        PyTuple_SET_ITEM(made.ptr(), 0, nb::object(senders_seen_.of(parts.sender).text).release().ptr());
        PyTuple_SET_ITEM(made.ptr(), 1, nb::object(types_seen_.of(parts.type).text).release().ptr());
        PyObject *rest[] = {PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(parts.length)),
                            PyLong_FromUnsignedLongLong(message->position), PyLong_FromLongLong(message->time_ns)};
        for (int i = 0; i < 3; ++i) PyTuple_SET_ITEM(made.ptr(), i + 2, rest[i]);
        if (rest[0] == nullptr || rest[1] == nullptr || rest[2] == nullptr) throw nb::python_error();
        if (kept != nullptr) *kept = {{}, std::string(parts.sender), std::string(parts.type), parts.length + cost_of_one};
        const Message taken = *message;
        std::memcpy(PyBytes_AS_STRING(rest[0]), parts.body, parts.length);
        reader.check_run();
        reader.take();
        subscription_.took(taken);
        return made;
    }

    void add_row(BatchBuilder &batch, std::string_view sender, std::string_view type, const void *body, size_t length,
                 uint64_t position, int64_t time_ns, Receiver *reader) {
        BatchRow row;
        row.position = position;
        row.time_ns = time_ns;
        row.sender = senders_seen_.of(sender).clean;
        row.type = types_seen_.of(type).clean;
        batch.add_copied(row, length, [&](uint8_t *to) {
            std::memcpy(to, body, length);
            if (reader != nullptr) reader->check_run();
            return true;
        });
    }

    static constexpr size_t cost_of_one = 200; // about what a kept message takes beside its body

    nb::object keeps_publication_, keeps_subscription_, message_;
    Publication &publication_;
    Subscription &subscription_;
    const std::string channel_, name_;
    const bool own_;
    const size_t spill_limit_;
    uint32_t generation_;
    uint64_t window_ = 0;
    std::set<std::string, std::less<>> senders_, types_;
    std::shared_ptr<const Screen> screen_;
    std::deque<Spilled> spilled_;
    size_t spilled_bytes_ = 0, rows_before_ = 0, bytes_before_ = 0;
    std::exception_ptr unread_; // what an earlier call kept back because it had messages to give
    std::string untyped_, last_prefix_;
    nb::object last_type_;
    SyncTexts senders_seen_, types_seen_;
    std::vector<uint8_t> run_;
    std::vector<size_t> lengths_;
    std::vector<Piece> pieces_;
};

} // namespace penstock::bind
