// The state behind Python's subscription handle; shared by its binding and the recorder's.
#pragma once

#include "arrow_capsules.hpp"
#include "handle.hpp"

#include "../core/bridge.hpp"
#include "../core/log_reader.hpp"

namespace penstock::bind {

inline constexpr size_t copy_without_interpreter = 256 * 1024;
inline constexpr uint32_t empties_between_checks = 32;

class ReaderEnd : public LogReader {
  public:
    using LogReader::LogReader;
    using Owner = class Subscription;
};

class Subscription : public Handle<ReaderEnd> {
  public:
    Subscription(int fd, std::string path, Start start, double drop_after, double spin)
        : drop_after_ns_(static_cast<uint64_t>(seconds_to_ns(drop_after))), spin_ns_(seconds_to_ns(spin)) {
        log_ = std::make_shared<TermLog>(fd, std::move(path));
        end_ = std::make_unique<ReaderEnd>(log_, start, drop_after_ns_);
    }
    ~Subscription() { stop_watching(); }

    void rejoin() {
        log_->forget_slot();
        log_->return_after_fork();
        watch_.reset();
        const uint64_t position = end_->position();
        end_ = std::make_unique<ReaderEnd>(log_, Start{Start::From::position, position}, drop_after_ns_);
    }
    void close() {
        stop_watching();
        Handle::close();
    }

    // A new reference to the next message as bytes, or null with no error set.
    PyObject *receive() {
        ReaderEnd &reader = ready();
        const Message *message = reader.look();
        if (message == nullptr) {
            nothing(reader);
            return nullptr;
        }
        if (message->length >= copy_without_interpreter && !message->assembled) return receive_large(reader, *message);
        PyObject *bytes =
            PyBytes_FromStringAndSize(reinterpret_cast<const char *>(message->data), static_cast<Py_ssize_t>(message->length));
        if (bytes == nullptr) throw nb::python_error();
        taken(reader, *message);
        return bytes;
    }

    bool wait_for_message(int64_t timeout) {
        const Busy busy(*this);
        const FrameHeader *watched = nullptr;
        auto attempt = [&] {
            ReaderEnd &reader = ready();
            if (reader.look() != nullptr) return true;
            watched = log_->frame(reader.position());
            return false;
        };
        auto glance = [&] { return watched == nullptr || frame_length(watched->word0.relaxed()) > 0; };
        return wait_until(log_->control().data.value, timeout, spin_ns_, slice_ns_max, attempt, glance, [&] {
            if (!closed_) ready().unblock();
        });
    }

    nb::list poll(int64_t limit) {
        nb::list list;
        for (int64_t i = 0; i < limit; ++i) {
            PyObject *bytes = receive();
            if (bytes == nullptr) break;
            list.append(nb::steal(bytes));
        }
        return list;
    }

    nb::tuple poll_arrow(int64_t limit, int64_t max_bytes) {
        ReaderEnd &reader = ready();
        BatchBuilder batch(column_position | column_session | column_payload | column_time_ns);
        const auto most = static_cast<size_t>(std::clamp<int64_t>(max_bytes, 1, INT32_MAX - static_cast<int64_t>(1)));
        batch.reserve(std::min<size_t>(rows_before_, static_cast<size_t>(std::max<int64_t>(limit, 0))),
                      std::min(bytes_before_, most));
        for (int64_t i = 0; i < limit; ++i) {
            const Message *message = reader.look();
            if (message == nullptr) {
                nothing(reader);
                break;
            }
            if (batch.payload_bytes() + message->length > most && batch.rows() != 0) break;
            BatchRow row;
            row.position = message->position;
            row.time_ns = message->time_ns;
            row.session = message->session;
            batch.add(row, message->data, message->length, !message->assembled);
            taken(reader, *message);
        }
        rows_before_ = batch.rows();
        bytes_before_ = batch.payload_bytes();
        return arrow_capsules(std::move(batch));
    }

    int fileno() {
        ReaderEnd &reader = ready();
        if (!watch_) {
            watch_ = Bridge::instance().watch(log_);
            if (reader.look() != nullptr) Bridge::instance().signal(*watch_);
            else Bridge::instance().arm(*watch_, reader.position());
        }
        return watch_->fd();
    }

    const Message &last() const { return last_; }

    // After every message that goes out.
    void taken(ReaderEnd &reader, const Message &message) {
        last_ = message;
        if (reader.droppable()) reader.still_mine();
        reader.take();
        if (watch_ && watch_->armed()) Bridge::instance().signal(*watch_); // it watches a position that we left
    }

  private:
    PyObject *receive_large(ReaderEnd &reader, const Message &seen) {
        const Busy busy(*this);
        const Message message = seen;
        PyObject *bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(message.length));
        if (bytes == nullptr) throw nb::python_error();
        reader.hold(message.position);
        taken(reader, message);
        char *to = PyBytes_AS_STRING(bytes);
        without_interpreter([&] { std::memcpy(to, message.data, message.length); });
        try {
            if (reader.droppable()) reader.still_mine();
        } catch (...) {
            Py_DECREF(bytes);
            reader.let_go(message.position);
            throw;
        }
        reader.let_go(message.position);
        return bytes;
    }

    void nothing(ReaderEnd &reader) {
        if (watch_ && !watch_->armed()) {
            Bridge::instance().arm(*watch_, reader.position());
            reader.unblock();
        } else if (++empties_ % empties_between_checks == 0) {
            const int64_t now = now_monotonic();
            if (now - checked_ns_ < 1'000'000) return;
            checked_ns_ = now;
            reader.unblock();
        }
    }

    void stop_watching() {
        if (!watch_) return;
        if (!log_->forked()) Bridge::instance().forget(watch_);
        watch_.reset();
    }

    std::shared_ptr<Bridge::Watch> watch_;
    Message last_;
    const uint64_t drop_after_ns_;
    const int64_t spin_ns_;
    int64_t checked_ns_ = 0;
    size_t rows_before_ = 0, bytes_before_ = 0;
    uint32_t empties_ = 0;
};

} // namespace penstock::bind
