// A sync queue's two ends: a log's, over messages with a sender and a type before their body.
#pragma once

#include "ends/log_ends.hpp"

#include "sync/sync_queue.hpp"

#include <unordered_map>
#include <utility>
#include <vector>

namespace penstock {

// Gives bodies. Sender and type of the message taken last are kept beside it.
class SyncReaderEnd : public LogReaderEnd {
  public:
    SyncReaderEnd(int fd, std::string path, Start start, double drop_after, MemberName name)
        : LogReaderEnd(fd, std::move(path), start, drop_after, Kind::sync, std::move(name)), sync_(*reader_) {}
    SyncReaderEnd(std::shared_ptr<TermLog> log, LogReader::Early early, double drop_after, MemberName name)
        : LogReaderEnd(std::move(log), early, drop_after, std::move(name)), sync_(*reader_) {}

    SyncReader &reader() { return sync_; }
    const MemberEvents &events() const { return *file_->events(); }
    const SyncParts &parts() const { return sync_.parts(); }
    void rejoin() override {
        LogReaderEnd::rejoin();
        sync_.read_from(*reader_);
    }
    const Message *peek() override { return sync_.peek(); }
    void consume() override {
        last_.set(parts());
        sync_.consume();
    }
    void check_run() override {
        if (!sync_.is_spilled()) LogReaderEnd::check_run();
    }
    bool readable() const override { return sync_.readable(); }
    uint64_t position() const override { return sync_.position(); }
    uint64_t lag() const override {
        const uint64_t tail = file_->tail(), at = position();
        return tail > at ? tail - at : 0;
    }

    Envelope envelope() const override { return {last_.sender, last_.type}; }
    void defer_ack() override { // the message taken last is not handed out: the one before it is the last
        if (!std::exchange(held_back_, true)) std::swap(last_, before_);
    }
    void resume_ack() override {
        if (std::exchange(held_back_, false)) std::swap(last_, before_);
    }
    void continue_batch() override { before_ = last_; }

  private:
    struct Names {
        void set(const SyncParts &parts) {
            sender.assign(parts.sender);
            type.assign(parts.type);
        }
        std::string sender, type;
    };

    SyncReader sync_;
    Names last_, before_; // of the message taken last, and of the one before it in a batch
    bool held_back_ = false;
};

// Writes messages of one sender. A Publication's messages have no type; a member names one.
class SyncWriterEnd : public LogWriterEnd {
  public:
    SyncWriterEnd(int fd, std::string path, std::shared_ptr<ManualClock> clock, MemberName name)
        : LogWriterEnd(fd, std::move(path), false, std::move(clock), Kind::sync, name), sync_(writer_), name_(std::move(name)),
          untyped_(sync_prefix(name_.now(), {})) {}

    void rejoin() override {
        LogWriterEnd::rejoin();
        untyped_ = sync_prefix(name_.now(), {});
    }

    SyncWriter &writer() { return sync_; }
    const std::string &untyped() const { return untyped_; }
    bool claim(std::string_view prefix, size_t length, ClaimedRange &range) {
        needs_ = prefix.size() + length;
        return !writer_.sending_fragments() && sync_.claim(prefix, length, writer_.open_index(), range);
    }
    // A message that goes out in fragments needs its prefix in front of it, in one piece.
    void begin(PendingSend &sending, std::string_view prefix) {
        sync_.refuse_oversize(prefix, sending.length, sync_.message_max(prefix), "Give the queue a larger capacity");
        auto whole = std::make_unique<Whole>();
        whole->bytes.reserve(prefix.size() + sending.length);
        whole->bytes.assign(prefix.begin(), prefix.end());
        whole->bytes.insert(whole->bytes.end(), sending.data, sending.data + sending.length);
        whole->sending = PendingSend{whole->bytes.data(), whole->bytes.size()};
        sending.begun = true;
        wholes_[&sending] = std::move(whole);
    }

    int64_t offer(const void *data, size_t length) override {
        needs_ = untyped_.size() + length;
        return sync_.offer(untyped_, data, length);
    }
    size_t offer_many(const IoVec *pieces, size_t count) override { return sync_.offer_many(untyped_, pieces, count); }
    bool claim(size_t length, ClaimedRange &range) override { return claim(untyped_, length, range); }
    bool advance(PendingSend &sending) override {
        if (!sending.begun) begin(sending, untyped_);
        Whole &whole = *wholes_.at(&sending);
        needs_ = whole.sending.length - whole.sending.done;
        if (!LogWriterEnd::advance(whole.sending)) return false;
        sending.position = whole.sending.position;
        wholes_.erase(&sending);
        return true;
    }
    void give_up(PendingSend &sending) override {
        const auto found = wholes_.find(&sending);
        if (found == wholes_.end()) return;
        LogWriterEnd::give_up(found->second->sending);
        wholes_.erase(found);
    }
    void repair() override { refuse_waiting(*file_, needs_); }

    size_t payload_max() const override { return sync_.payload_max(untyped_); }
    size_t message_max() const override { return sync_.message_max(untyped_); }

  private:
    struct Whole {
        std::vector<uint8_t> bytes;
        PendingSend sending{nullptr, 0};
    };

    SyncWriter sync_;
    const MemberName name_;
    std::string untyped_;
    std::unordered_map<const PendingSend *, std::unique_ptr<Whole>> wholes_;
    size_t needs_ = 0; // bytes that found no room last
};

} // namespace penstock
