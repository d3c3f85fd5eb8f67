// A message read in place, as Python sees it.
#pragma once

#include "bind/handles/subscription.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock::bind {

// In a log what it shows stays readable while any view of it lives; in a ring it may be overwritten,
// which the end of the block reports.
class BorrowView {
  public:
    BorrowView(nb::object owner, Subscription &subscription, int64_t timeout)
        : owner_(std::move(owner)), subscription_(subscription) {
        ReaderEnd *reader = &subscription.reading();
        const Message *message = reader->peek_allowed();
        auto attempt = [&] {
            reader = &subscription.reading_on();
            message = reader->peek_allowed();
            if (message == nullptr) subscription.throw_if_ended(*reader);
            return message != nullptr;
        };
        if (message == nullptr && !subscription.wait(timeout, attempt)) {
            subscription.set_timed_out();
            throw nb::python_error();
        }
        map_ = reader->mapping();
        generation_ = ForkGuard::generation();
        if (message->assembled) {
            copy_.assign(message->data, message->data + message->length);
            message_ = subscription.lend(*message);
            lent = {copy_.data(), copy_.size(), 0, {}};
        } else {
            const uint8_t *bytes = reader->lender().readable_bytes(*message, map_);
            message_ = subscription.lend(*message);
            lent = {const_cast<uint8_t *>(bytes), message_.length, 0, {}};
        }
        holding_ = true;
        const Envelope envelope = reader->envelope();
        sender_ = envelope.sender;
        type_ = envelope.type;
    }
    ~BorrowView() { end(); }
    const Message &message() const { return message_; }
    const std::string &sender() const { return sender_; }
    const std::string &type() const { return type_; }
    bool is_lending() const { return open_; }
    void exported() {}
    void returned() {
        if (!open_) end_hold();
    }
    void end() {
        open_ = false;
        if (lent.exports == 0) end_hold();
    }
    // Says if writers went over the message while it was borrowed.
    void check() {
        if (checked_ || message_.assembled || subscription_.closed() || generation_ != ForkGuard::generation()) return;
        checked_ = true;
        ReaderEnd &reader = subscription_.ready();
        Lender &lender = reader.lender();
        if (!lender.intact(message_))
            throw Error(Code::too_slow, reader.where() + ": the borrowed message at position " +
                                            std::to_string(message_.position) +
                                            " was overwritten before its block ended: copy sooner, or use a larger capacity");
        if (!lender.lends_stable_bytes() && lent.exports != 0)
            throw Error(Code::invalid, reader.where() +
                                           ": a view of the borrowed message outlives its block, and a ring goes on to "
                                           "overwrite it: copy what you keep");
    }
    Lent lent;

  private:
    void end_hold() {
        if (!holding_) return;
        holding_ = false;
        if (subscription_.closed() || generation_ != ForkGuard::generation()) return;
        Lender &lender = subscription_.ready().lender();
        if (!checked_ && !lender.lends_stable_bytes())
            lender.intact(message_); // the block raised, or there was none: it is counted
        checked_ = true;
        lender.give_back(message_);
    }
    nb::object owner_;
    Subscription &subscription_;
    std::shared_ptr<Mapping> map_;
    std::vector<uint8_t> copy_;
    Message message_;
    std::string sender_, type_;
    uint32_t generation_ = 0;
    bool holding_ = false, open_ = true, checked_ = false;
};

} // namespace penstock::bind
