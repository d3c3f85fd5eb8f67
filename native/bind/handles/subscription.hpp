// The state behind Python's subscription handle; shared by its binding and the recorder's.
#pragma once

#include "bind/ends/end_target.hpp"
#include "bind/ground/arrow_capsules.hpp"
#include "bind/handles/handle.hpp"

#include "threads/bridge.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace penstock::bind {

inline constexpr uint32_t empties_between_checks = 32;

// Objects on their way into a list: its length is known when the last one is there, so that the list is made once.
class Batch {
  public:
    Batch() = default;
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;
    ~Batch() {
        for (PyObject *object : objects_) Py_DECREF(object);
    }
    void add(PyObject *object) { // takes over the reference
        if (objects_.size() == objects_.capacity()) objects_.reserve(std::max<size_t>(2 * objects_.size(), 64));
        objects_.push_back(object);
    }
    nb::list list() {
        PyObject *made = PyList_New(static_cast<Py_ssize_t>(objects_.size()));
        if (made == nullptr) throw nb::python_error();
        for (size_t i = 0; i < objects_.size(); ++i) PyList_SET_ITEM(made, static_cast<Py_ssize_t>(i), objects_[i]);
        objects_.clear();
        return nb::steal<nb::list>(made);
    }

  private:
    std::vector<PyObject *> objects_;
};

class Subscription : public StreamHandle {
  public:
    // `decodes`: whether calls give objects in place of bytes; none: the channel has no publication yet, which decides it.
    Subscription(std::shared_ptr<ReaderEnd> end, double spin, bool until_end, std::optional<bool> decodes)
        : StreamHandle(std::move(end)), spin_ns_(seconds_to_ns(spin)), until_end_(until_end),
          opened_ns_(system_ns(CLOCK_REALTIME)), decided_(decodes.has_value()), decodes_(decodes.value_or(false)) {}
    ~Subscription() override { stop_watching(); }
    ReaderEnd &ready() { return static_cast<ReaderEnd &>(StreamHandle::ready()); } // it was made with no other
    ReaderEnd &end() const { return static_cast<ReaderEnd &>(StreamHandle::end()); }

    // Its descriptor stays open, and readable, as long as this object lives: an event loop that waits on it has to wake.
    void close() {
        if (!closed()) stop_watching();
        Handle::close();
    }

    // Ready to read; throws what an earlier call kept back because it had messages to give.
    ReaderEnd &reading() {
        ReaderEnd &reader = source();
        reader.begin_call();
        if (!deferred_.empty()) [[unlikely]]
            throw_deferred(reader);
        return reader;
    }
    ReaderEnd &reading_on() { // later in the same call
        ReaderEnd &reader = source();
        if (!deferred_.empty()) [[unlikely]]
            throw_deferred(reader);
        return reader;
    }
    // Whether a call finds something: a message, an error that was kept back, or the end of the stream.
    bool has_news(ReaderEnd &reader) {
        return !deferred_.empty() || reader.peek_allowed() != nullptr || (until_end_ && reader.ended());
    }
    // Whether only an event brings what it waits for.
    bool is_calm() { return platform::registered_for_fences && !until_end_ && end().settled(); }
    // After a call that found nothing: says so if there will never be more, and the owner asked for that.
    void throw_if_ended(ReaderEnd &reader) {
        if (!until_end_ || !deferred_.empty() || !reader.ended()) return;
        moved(); // threads that wait on the descriptor notice, too
        if (const std::string lost = reader.why_lost(); !lost.empty())
            throw Error(Code::disconnected, reader.where() + ": " + lost);
        throw Error(Code::end_of_stream, reader.where() + ": " + reader.why_ended());
    }
    // Sets the error of a call that waited in vain.
    void set_timed_out() {
        std::string why = until_end_ ? end().why_waiting() : std::string();
        if (!decided_ && why.empty()) why = "nothing was published yet";
        const nb::object text = nb::steal(
            text_of(end().where() + ": no message within the timeout" + (why.empty() ? "" : ": " + why) + end().take_reason()));
        if (text.is_valid()) PyErr_SetObject(timeout_error(), text.ptr());
    }

    // A new reference to the next message as bytes, or null with no error set.
    PyObject *receive() { return receive_or_end(reading()); }
    // The same, waiting; the caller has tried already.
    PyObject *receive_within(int64_t timeout) {
        PyObject *bytes = nullptr;
        wait(timeout, [&] { return (bytes = receive_or_end(reading_on())) != nullptr; });
        return bytes;
    }
    PyObject *receive_or_end(ReaderEnd &reader) {
        PyObject *bytes = nullptr;
        if (decided_ || decide(reader)) [[likely]]
            bytes = receive_from(reader);
        else nothing(reader);
        if (bytes == nullptr) throw_if_ended(reader);
        return bytes;
    }
    // A message as this subscription, whose handle is `self`, gives it. Takes over the reference; null with an error set.
    PyObject *decoded(PyObject *self, PyObject *bytes) {
        if (bytes == nullptr || !decodes_) [[likely]]
            return bytes;
        static PyObject *const name = PyUnicode_InternFromString("_decode");
        PyObject *arguments[] = {self, bytes};
        PyObject *object = PyObject_VectorcallMethod(name, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        Py_DECREF(bytes);
        return object;
    }
    // From now on.
    void decide(bool decodes) {
        decodes_ = decodes;
        decided_ = true;
    }
    PyObject *receive_from(ReaderEnd &reader) {
        for (;;) {
            const Message *message = reader.peek_allowed();
            if (message == nullptr) {
                nothing(reader);
                return nullptr;
            }
            const bool large = message->length >= large_copy && !message->assembled;
            PyObject *bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(message->length));
            if (bytes == nullptr) throw nb::python_error();
            const uint64_t position = message->position;
            if (large ? copy_large(reader, *message, bytes) : copy_small(reader, *message, bytes)) {
                given_[given_count_++ % given_.size()] = {bytes, position};
                return bytes;
            }
            Py_DECREF(bytes);
        }
    }

    // Waits until `attempt` succeeds. A wait asks for no new message: attempts begin with reading_on().
    template <class Attempt> bool wait(int64_t timeout, Attempt &&attempt) {
        const Busy busy(*this);
        return wait_for(timeout, MessageTarget<ExplainedTarget, Subscription>(*this, timeout), attempt);
    }
    int64_t spin_ns() const { return spin_ns_; }
    // Whether the next wait spins before it sleeps. Those that are to spin for ever do.
    bool worth_spinning() { return spin_ns_ == for_ever || spin_habit_.worth(ready().event()); }
    void spun(bool found) { spin_habit_.spun(found); }

    nb::list poll(PyObject *self, int64_t limit) {
        Batch batch;
        ready();
        for (int64_t i = 0; i < limit; ++i) {
            PyObject *bytes = next_of_batch(i == 0);
            if (bytes == nullptr) break;
            PyObject *message = decoded(self, bytes);
            if (message == nullptr && !keep_undecodable(i == 0)) throw nb::python_error();
            if (message == nullptr) break;
            batch.add(message);
        }
        return batch.list();
    }
    // The next message of a batch, or null with no error set. An error behind the first one is kept for the next call.
    PyObject *next_of_batch(bool first) {
        if (first) return receive();
        if (!continue_batch()) return nullptr;
        try {
            return receive_from(source());
        } catch (...) {
            keep_current();
            return nullptr;
        }
    }
    // Whether a batch continues: not behind an error that was kept for the next call.
    bool continue_batch() {
        if (!deferred_.empty()) return false;
        before_ = last_;
        end().continue_batch();
        return true;
    }
    void keep_current() { // inside a catch block: the next call throws it
        deferred_.push_back({std::current_exception(), {}});
        signal_watch();
    }
    // The message taken last cannot be handed out as it is: the next call raises `error` instead.
    void keep_back(nb::handle error) {
        end().defer_ack();
        const Message bad = std::exchange(last_, before_);
        PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error.ptr())), error.ptr());
        deferred_.push_back({std::make_exception_ptr(nb::python_error()), bad});
        signal_watch();
    }
    // The same for a message that does not decode, as the error that is set says, behind the first of a batch. False: it stays
    // set.
    bool keep_undecodable(bool first) {
        if (first) return false;
        nb::python_error error;
        const nb::module_ errors = nb::module_::import_("penstock.errors");
        if (!error.matches(errors.attr("DecodeError"))) {
            error.restore();
            return false;
        }
        keep_back(errors.attr("without_frames")(error.value()));
        return true;
    }

    nb::tuple poll_arrow(int64_t limit, int64_t max_bytes) {
        ReaderEnd &reader = reading();
        BatchBuilder batch(reader.columns());
        const auto most = static_cast<size_t>(std::clamp<int64_t>(max_bytes, 1, INT32_MAX - static_cast<int64_t>(1)));
        batch.reserve(std::min<size_t>(rows_before_, static_cast<size_t>(std::max<int64_t>(limit, 0))),
                      std::min(bytes_before_, most));
        try {
            const auto allowed = static_cast<int64_t>(std::min<uint64_t>(reader.delivery_gate.allowed(), INT64_MAX));
            const bool emptied = reader.fill(batch, std::min(limit, allowed), most, last_);
            latency_.on_message(batch.times(), batch.rows(), [&] { return reader.clock_correction(last_.session); });
            if (emptied) nothing(reader);
        } catch (...) { // messages that were read already go out first
            if (batch.rows() == 0) throw;
            keep_current();
        }
        reader.delivery_gate.used(batch.rows());
        spin_habit_.took(batch.rows());
        if (batch.rows() != 0) moved();
        else if (limit > 0) throw_if_ended(reader);
        rows_before_ = batch.rows();
        bytes_before_ = batch.payload_bytes();
        return arrow_capsules(std::move(batch));
    }

    int fileno() {
        ReaderEnd &reader = ready();
        const bool first = !watch_;
        if (first)
            watch_ = Bridge::instance().watch(
                reader.delivery_gate.gate() == nullptr
                    ? reader.watched(until_end_)
                    : std::make_shared<GatedWatched>(std::static_pointer_cast<ReaderEnd>(end_), until_end_));
        if (!has_news(reader)) {
            if (!watch_->armed()) Bridge::instance().arm(*watch_, reader.position());
        } else if (first) {
            Bridge::instance().signal(*watch_);
        }
        return watch_->fd();
    }

    // The next message is the caller's, its bytes lent until it asks for them to be given back.
    Message lend(const Message &found) {
        ReaderEnd &reader = ready();
        const Message message = last_ = found;
        latency_.on_message(message.time_ns, [&] { return reader.clock_correction(message.session); });
        reader.lender().lend(message);
        reader.delivery_gate.used(1);
        spin_habit_.took();
        moved();
        return message;
    }

    // A message was taken from the reader itself.
    void took(const Message &message) {
        last_ = message;
        latency_.on_message(message.time_ns, [&] { return end().clock_correction(message.session); });
        end().delivery_gate.used(1);
        spin_habit_.took();
        moved();
    }

    void moved() {
        if (watch_ && watch_->armed()) Bridge::instance().signal(*watch_); // it watches a position that we left
    }

    const Message &last() const { return last_; }
    // Where one of the messages stood that were received last, whichever thread got which.
    uint64_t position_of(nb::handle bytes) const {
        for (size_t i = given_count_; i != 0 && given_count_ - i < given_.size(); --i)
            if (given_[(i - 1) % given_.size()].bytes == bytes.ptr()) return given_[(i - 1) % given_.size()].position;
        return last_.position;
    }

  private:
    // Whether the channel's first publication has decided it. Python then says by decide() whether this subscription decodes.
    [[gnu::noinline]] bool decide(ReaderEnd &reader) {
        if (!reader.decided()) return false;
        nb::find(this).attr("_decide")();
        return decided_;
    }
    // The end that messages are taken from, ready for a call. Once the channel is decided, no early end stands in between; a
    // test's gate stays where it is.
    ReaderEnd &source() {
        ReaderEnd &reader = ready();
        if (source_ == nullptr) {
            ReaderEnd *resolved = reader.delivery_gate.gate() == nullptr ? reader.resolved() : &reader;
            if (resolved == nullptr) return reader;
            source_ = resolved;
            // A test sets the times of its messages.
            latency_.begin(reader.delivery_gate.gate() == nullptr ? resolved->latency() : nullptr, opened_ns_);
        }
        return *source_;
    }
    [[gnu::noinline]] void throw_deferred(ReaderEnd &reader) {
        const DeferredError first = std::move(deferred_.front());
        deferred_.erase(deferred_.begin());
        if (deferred_.empty()) reader.resume_ack();
        if (first.message) last_ = *first.message;
        std::rethrow_exception(first.error);
    }

    bool copy_small(ReaderEnd &reader, const Message &message, PyObject *bytes) {
        if (!reader.copy(PyBytes_AS_STRING(bytes), message)) return false;
        taken(reader, message);
        return true;
    }
    bool copy_large(ReaderEnd &reader, const Message &found, PyObject *bytes) {
        const Busy busy(*this);
        const Message message = lend(found);
        Lender &lender = reader.lender();
        char *to = PyBytes_AS_STRING(bytes);
        without_interpreter([&] { lender.fetch(to, message); });
        try {
            const bool intact = lender.intact(message);
            lender.give_back(message);
            return intact;
        } catch (...) {
            Py_DECREF(bytes);
            lender.give_back(message);
            throw;
        }
    }

    void taken(ReaderEnd &reader, const Message &message) {
        last_ = message;
        latency_.on_message(message.time_ns, [&] { return reader.clock_correction(message.session); });
        reader.consume();
        reader.delivery_gate.used(1);
        spin_habit_.took();
        moved();
    }
    void signal_watch() { // there is something to be had beside messages
        moved();
        if (busy() != 0) end().interrupt(); // threads of this handle's sleep
    }

  public:
    // There was no message: goes back to watching, and looks for the dead now and then.
    void nothing(ReaderEnd &reader) {
        latency_.on_empty();
        if (watch_ && !watch_->armed()) {
            if (deferred_.empty()) Bridge::instance().arm(*watch_, reader.position());
            reader.repair();
        } else if (++empties_ % empties_between_checks == 0) {
            const int64_t now = monotonic_ns();
            if (now - checked_ns_ < 1'000'000) return;
            checked_ns_ = now;
            reader.repair();
        }
    }

  private:
    void forked() override { // the messages kept back are the parent's, as those that it took
        watch_.reset();
        deferred_.clear();
        source_ = nullptr;
        latency_.end();
    }
    void stop_watching() {
        if (watch_ && generation() == ForkGuard::generation()) Bridge::instance().forget(watch_);
    }

    struct Given {
        const PyObject *bytes = nullptr; // to compare only: it may be gone
        uint64_t position = 0;
    };

    ReaderEnd *source_ = nullptr; // end_ keeps it
    std::shared_ptr<Bridge::Watch> watch_;
    Message last_, before_;
    std::array<Given, 16> given_;
    size_t given_count_ = 0;
    struct DeferredError {
        std::exception_ptr error;
        std::optional<Message> message; // which it is about
    };
    std::vector<DeferredError> deferred_; // several where threads read side by side
    const int64_t spin_ns_;
    SpinHabit spin_habit_;
    const bool until_end_;
    const int64_t opened_ns_;
    bool decided_, decodes_;
    LatencyMeter latency_;
    int64_t checked_ns_ = 0;
    size_t rows_before_ = 0, bytes_before_ = 0;
    uint32_t empties_ = 0;
};

} // namespace penstock::bind
