// The reading end of a pipe channel's sockets: a pipe's, over messages that may have several parts and whose sender matters.
#pragma once

#include "ends/pipe_ends.hpp"

namespace penstock::bind {

inline constexpr int32_t several_parts = 1 << 30; // in a message's kind; Python's codecs join and split them

// Borrows and batches give messages of one part. A message of several parts is left for `recv`.
class SocketReaderEnd final : public PipeReaderEnd {
  public:
    SocketReaderEnd(std::shared_ptr<PipePeer> peer, bool named) : PipeReaderEnd(std::move(peer), false), named_(named) {}

    bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) override {
        const Message *message = peer_->peek();
        for (; limit > 0 && message != nullptr; --limit, message = peer_->peek()) {
            if (batch.rows() != 0 && (in_parts() || batch.payload_bytes() + message->length > most)) break;
            read_in_place();
            BatchRow row;
            row.position = message->position;
            row.time_ns = message->time_ns;
            row.session = message->session;
            row.sender = clean_sender_;
            batch.add(row, message->data, message->length, true);
            last = *message;
            peer_->consume();
        }
        peer_->acknowledge(); // a message to one peer is never redelivered to another
        return message == nullptr;
    }
    uint32_t columns() const override { return PipeReaderEnd::columns() | (named_ ? uint32_t{column_sender} : 0U); }
    void lend(const Message &message) override {
        read_in_place();
        PipeReaderEnd::lend(message);
    }
    void give_back(const Message &message) override {
        PipeReaderEnd::give_back(message);
        peer_->acknowledge();
    }
    Envelope envelope() const override { return {sender_, {}}; }
    std::string why_ended() const override {
        return peer_->peers().role() == PeerRole::dealer ? "every router has left, and all was read"
                                                         : "the other peer has left, and all was read";
    }

  private:
    bool in_parts() const { return (peer_->incoming().current().reader.tag().kind & several_parts) != 0; }
    // Before the next message is read without `recv`: throws if it has several parts, and notes its sender.
    void read_in_place() {
        if (in_parts())
            throw Error(Code::invalid, where() + ": the next message has several parts, and there is room for one: use recv");
        char name[name_max];
        copy_words_out(name, peer_->incoming().current().reader.ends().name, sizeof name);
        const std::string_view found(name, strnlen(name, sizeof name));
        if (found == sender_) return;
        sender_ = found;
        // This error handler is built in: no Python code runs here that could let another thread take the message.
        nb::object text = nb::steal(PyUnicode_DecodeUTF8(found.data(), static_cast<Py_ssize_t>(found.size()), "replace"));
        if (!text.is_valid()) throw nb::python_error();
        Py_ssize_t length = 0;
        const char *utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &length);
        if (utf8 == nullptr) throw nb::python_error();
        clean_sender_.assign(utf8, static_cast<size_t>(length));
    }

    const bool named_;                  // whether batches have the sender of each message
    std::string sender_, clean_sender_; // of the message read last; the same with invalid UTF-8 replaced
};

} // namespace penstock::bind
