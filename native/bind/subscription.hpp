// The state behind Python's subscription handle; shared by its binding and the recorder's.
#pragma once

#include "arrow_capsules.hpp"
#include "handle.hpp"
#include "log_ends.hpp"

#include "../core/bridge.hpp"

namespace penstock::bind {

inline constexpr uint32_t empties_between_checks = 32;

class Subscription : public Handle<Receiver> {
  public:
    Subscription(std::shared_ptr<Receiver> end, double spin) : Handle(std::move(end)), spin_ns_(seconds_to_ns(spin)) {}
    ~Subscription() override { stop_watching(); }

    // Its descriptor stays open, and readable, as long as this object lives: an event loop that waits on it has to wake.
    void close() {
        if (!closed()) stop_watching();
        Handle::close();
    }

    // Ready to read; throws what an earlier call kept back because it had messages to give.
    Receiver &reading() {
        Receiver &reader = ready();
        if (kept_back_) std::rethrow_exception(std::exchange(kept_back_, nullptr));
        reader.begin_call();
        return reader;
    }

    // A new reference to the next message as bytes, or null with no error set.
    PyObject *receive() { return receive_from(reading()); }
    PyObject *receive_from(Receiver &reader) {
        for (;;) {
            const Message *message = reader.peek();
            if (message == nullptr) {
                nothing(reader);
                return nullptr;
            }
            const bool large = message->length >= copy_without_interpreter && !message->assembled;
            PyObject *bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(message->length));
            if (bytes == nullptr) throw nb::python_error();
            if (large ? copy_large(reader, *message, bytes) : copy_small(reader, *message, bytes)) return bytes;
            Py_DECREF(bytes);
        }
    }

    bool wait_for_message(int64_t timeout) {
        const Busy busy(*this);
        Glance watched;
        auto attempt = [&] {
            Receiver &reader = ready();
            if (reader.peek() != nullptr) return true;
            watched.clear();
            reader.glance(watched);
            return false;
        };
        if (end().passage.stepped()) return wait_stepped(attempt);
        auto glance = [&] { return watched.changed(); };
        return wait_until(end().event(), timeout, spin_ns_, slice_ns_max, attempt, glance, [&] {
            if (!closed()) ready().repair();
        });
    }

    nb::list poll(int64_t limit) {
        nb::list list;
        for (int64_t i = 0; i < limit; ++i) {
            PyObject *bytes = nullptr;
            try {
                bytes = i == 0 ? receive() : receive_from(ready());
            } catch (const Error &error) {
                keep_back(error, list.size() != 0);
            }
            if (bytes == nullptr) break;
            list.append(nb::steal(bytes));
        }
        return list;
    }

    nb::tuple poll_arrow(int64_t limit, int64_t max_bytes) {
        Receiver &reader = reading();
        BatchBuilder batch(column_position | column_session | column_payload | column_time_ns);
        const auto most = static_cast<size_t>(std::clamp<int64_t>(max_bytes, 1, INT32_MAX - static_cast<int64_t>(1)));
        batch.reserve(std::min<size_t>(rows_before_, static_cast<size_t>(std::max<int64_t>(limit, 0))),
                      std::min(bytes_before_, most));
        try {
            const auto allowed = static_cast<int64_t>(std::min<uint64_t>(reader.passage.allowed(), INT64_MAX));
            if (reader.fill(batch, std::min(limit, allowed), most, last_)) nothing(reader);
            reader.passage.used(batch.rows());
        } catch (const Error &error) {
            keep_back(error, batch.rows() != 0);
        }
        if (batch.rows() != 0) moved();
        rows_before_ = batch.rows();
        bytes_before_ = batch.payload_bytes();
        return arrow_capsules(std::move(batch));
    }

    int fileno() {
        Receiver &reader = ready();
        const bool first = !watch_;
        if (first)
            watch_ = Bridge::instance().watch(reader.passage.gate() == nullptr ? reader.watched()
                                                                               : std::make_shared<GatedWatched>(end_));
        if (reader.peek() == nullptr) {
            if (!watch_->armed()) Bridge::instance().arm(*watch_, reader.position());
        } else if (first) {
            Bridge::instance().signal(*watch_);
        }
        return watch_->fd();
    }

    // The next message is the caller's, its bytes lent until it asks for them to be given back.
    Message lend(const Message &found) {
        Receiver &reader = ready();
        const Message message = last_ = found;
        reader.check_run();
        if (message.assembled) reader.take();
        else reader.lend(message);
        reader.passage.used(1);
        moved();
        return message;
    }

    // A message was taken from the receiver itself.
    void took(const Message &message) {
        last_ = message;
        end().passage.used(1);
        moved();
    }

    const Message &last() const { return last_; }

  private:
    // A test says when this is over, not the clock.
    template <class Attempt> bool wait_stepped(Attempt &&attempt) {
        const std::shared_ptr<Gate> gate = end().passage.gate();
        const Gate::Waiter waiter(*gate);
        for (;;) {
            const uint32_t expected = event_prepare(end().event());
            if (attempt()) return true;
            if (waiter.over()) return false;
            without_interpreter([&] { event_sleep(end().event(), expected, slice_ns_max); });
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
        }
    }

    // Inside a catch block: what was read already goes out first, the news that this subscription was let go with the next call.
    void keep_back(const Error &error, bool has_messages) {
        if (error.code != Code::dropped || !has_messages) throw;
        kept_back_ = std::current_exception();
    }

    bool copy_small(Receiver &reader, const Message &message, PyObject *bytes) {
        if (!reader.copy(PyBytes_AS_STRING(bytes), message)) return false;
        taken(reader, message);
        return true;
    }
    bool copy_large(Receiver &reader, const Message &found, PyObject *bytes) {
        const Busy busy(*this);
        const Message message = lend(found);
        char *to = PyBytes_AS_STRING(bytes);
        without_interpreter([&] { reader.fetch(to, message); });
        try {
            const bool intact = reader.intact(message);
            reader.give_back(message);
            return intact;
        } catch (...) {
            Py_DECREF(bytes);
            reader.give_back(message);
            throw;
        }
    }

    void taken(Receiver &reader, const Message &message) {
        last_ = message;
        reader.take();
        reader.passage.used(1);
        moved();
    }
    void moved() {
        if (watch_ && watch_->armed()) Bridge::instance().signal(*watch_); // it watches a position that we left
    }

  public:
    // There was no message: goes back to watching, and looks for the dead now and then.
    void nothing(Receiver &reader) {
        if (watch_ && !watch_->armed()) {
            Bridge::instance().arm(*watch_, reader.position());
            reader.repair();
        } else if (++empties_ % empties_between_checks == 0) {
            const int64_t now = now_monotonic();
            if (now - checked_ns_ < 1'000'000) return;
            checked_ns_ = now;
            reader.repair();
        }
    }

  private:
    void forked() override { watch_.reset(); }
    void stop_watching() {
        if (watch_ && generation() == ForkGuard::generation()) Bridge::instance().forget(watch_);
    }

    std::shared_ptr<Bridge::Watch> watch_;
    Message last_;
    std::exception_ptr kept_back_;
    const int64_t spin_ns_;
    int64_t checked_ns_ = 0;
    size_t rows_before_ = 0, bytes_before_ = 0;
    uint32_t empties_ = 0;
};

} // namespace penstock::bind
