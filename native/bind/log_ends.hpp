// The log's two ends, as Python's handles need them.
#pragma once

#include "bind.hpp"
#include "ends.hpp"

#include "../core/log_reader.hpp"
#include "../core/log_writer.hpp"
#include "../core/sync_message.hpp"

#include <optional>
#include <set>

namespace penstock::bind {

inline constexpr size_t copy_without_interpreter = 256 * 1024;

inline void disturb_log(TermLog &log) {
    for (Atomic<uint32_t> *event : {&log.control().data.value, &log.control().space.value}) {
        event->add(2);
        event_wake(*event);
    }
}

class LogWatched final : public Watched {
  public:
    explicit LogWatched(std::shared_ptr<TermLog> log) : log_(std::move(log)) {}
    Atomic<uint32_t> &event() override { return log_->control().data.value; }
    bool readable(uint64_t position) const override { return frame_length(log_->frame(position)->word0.acquire()) > 0; }
    bool stalled(uint64_t position) const override { return log_->tail() > position; }

  private:
    std::shared_ptr<TermLog> log_;
};

// The parts of a message that is still in the log. If it is none of a sync queue's, perhaps it was overwritten: then that is
// said.
template <class Reader> SyncParts sync_parts(Reader &reader, const Message &message) {
    try {
        return read_sync(message.data, message.length);
    } catch (const Error &) {
        reader.check_run();
        throw;
    }
}

// What a member of a sync queue does not want to see.
struct Screen {
    bool hides(std::string_view sender, std::string_view type) const {
        return senders.find(sender) != senders.end() || types.find(type) != types.end();
    }
    bool looks_inside() const { return !senders.empty() || !types.empty(); }
    std::optional<int32_t> own; // the session of its own publication
    std::set<std::string, std::less<>> senders, types;
};

class LogReceiver final : public Receiver {
  public:
    // `drop_after`: seconds; below 0: writers fail instead of waiting. `name`: of a member of a sync queue, whose kind this is.
    LogReceiver(int fd, std::string path, Start start, double drop_after, Kind kind = Kind::log, std::string name = {})
        : log_(std::make_shared<TermLog>(fd, std::move(path), nullptr, kind)),
          drop_after_ns_(drop_after < 0 ? refuses_to_wait : static_cast<uint64_t>(seconds_to_ns(drop_after))),
          name_(std::move(name)), reader_(std::make_unique<LogReader>(log_, start, drop_after_ns_, name_)) {}
    void screen(std::shared_ptr<const Screen> screen) { screen_ = std::move(screen); }
    uint64_t screened() const { return screened_; }
    ~LogReceiver() override { log_->detach(); }

    const std::string &path() const override { return log_->path(); }
    std::shared_ptr<Mapping> mapping() const override { return log_->mapping(); }
    void rejoin() override {
        log_->forget_slot();
        log_->return_after_fork();
        const uint64_t position = reader_->position();
        reader_ = std::make_unique<LogReader>(log_, Start{Start::From::position, position}, drop_after_ns_, name_);
    }
    void leave() override { log_->detach(); }
    void disturb() override { disturb_log(*log_); }
    Atomic<uint32_t> &event() override { return log_->control().data.value; }
    std::shared_ptr<Watched> watched() override { return std::make_shared<LogWatched>(log_); }
    void glance(Glance &at) override { at.add(log_->frame(reader_->position())->word0, 0); }

    const Message *look() override {
        for (;;) {
            const Message *message = reader_->look();
            if (message == nullptr || screen_ == nullptr || !hidden(*message)) return message;
            reader_->take();
            ++screened_;
        }
    }
    bool copy(void *to, const Message &message) override {
        std::memcpy(to, message.data, message.length);
        check_run();
        return true;
    }
    void take() override { reader_->take(); }
    bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) override {
        return fill_batch(*this, batch, limit, most, last, [&](const BatchRow &row, const Message &message) {
            if (drop_after_ns_ == 0) batch.add(row, message.data, message.length, !message.assembled);
            else batch.add_copied(row, message.length, [&](uint8_t *to) { return copy(to, message); });
            return true;
        });
    }
    void fetch(void *to, const Message &message) const override { std::memcpy(to, message.data, message.length); }
    void lend(const Message &message) override {
        reader_->hold(message.position);
        reader_->take();
    }
    bool intact(const Message &) override {
        check_run();
        return true;
    }
    void give_back(const Message &message) override { reader_->let_go(message.position); }
    bool keeps_lent() const override { return true; }

    bool repair() override { return reader_->unblock(); }
    bool readable() const override { return reader_->readable(); }
    Run run(uint64_t max) override { return reader_->run(max); }
    void check_run() override {
        if (reader_->droppable()) reader_->still_mine();
    }
    void take_run(const Run &run) override { reader_->take_run(run); }
    void show_position() override { reader_->show_position(); }

    uint64_t position() const override { return reader_->position(); }
    uint64_t lag() const override { return reader_->lag(); }
    uint64_t lost() const override { return reader_->lost(); }
    int64_t lost_messages() const override { return reader_->lost() == 0 ? 0 : -1; }
    uint64_t incomplete() const override { return reader_->incomplete(); }

  private:
    bool hidden(const Message &message) {
        if (screen_->own && message.session == *screen_->own) return true;
        if (!screen_->looks_inside()) return false;
        const SyncParts parts = sync_parts(*this, message);
        return screen_->hides(parts.sender, parts.type);
    }

    std::shared_ptr<TermLog> log_;
    const uint64_t drop_after_ns_;
    const std::string name_;
    std::unique_ptr<LogReader> reader_;
    std::shared_ptr<const Screen> screen_;
    uint64_t screened_ = 0;
};

class LogSender final : public Sender {
  public:
    LogSender(int fd, std::string path, bool exclusive, std::shared_ptr<ManualClock> clock, Kind kind = Kind::log,
              std::string name = {})
        : log_(std::make_shared<TermLog>(fd, std::move(path), nullptr, kind)),
          writer_(log_, exclusive, std::move(clock), std::move(name)) {}
    TermLog &log() { return *log_; }
    ~LogSender() override { log_->detach(); }

    const std::string &path() const override { return log_->path(); }
    std::shared_ptr<Mapping> mapping() const override { return log_->mapping(); }
    void rejoin() override {
        log_->forget_slot();
        log_->return_after_fork();
        writer_.join();
    }
    void leave() override { log_->detach(); }
    void disturb() override { disturb_log(*log_); }
    Atomic<uint32_t> &room() override { return log_->control().space.value; }
    void glance(Glance &at) override {
        log_->positions([&](const Atomic<uint64_t> &word) { at.add(word, word.relaxed()); });
    }
    Atomic<uint32_t> &members() override { return log_->control().space.value; }

    int64_t offer(const void *data, size_t length) override { return writer_.offer(data, length); }
    size_t offer_many(const Piece *pieces, size_t count) override { return writer_.offer_many(pieces, count); }
    bool reserve(size_t length, Reservation &place) override {
        return !writer_.sending_fragments() && writer_.reserve(static_cast<uint32_t>(length), writer_.open_index(), place);
    }
    int64_t commit(const Reservation &place) override { return writer_.commit(place); }
    void abort(const Reservation &place) override { writer_.abort(place); }

    // Copies large frames without the interpreter, each under a claim word of its own.
    bool advance(Sending &sending) override {
        while (sending.position == no_room) {
            const size_t left = sending.length - sending.done;
            if (left < copy_without_interpreter) return writer_.send_some(sending);
            Reservation place;
            if (!writer_.next_fragment(sending, place, writer_.open_index())) return false;
            without_interpreter([&] { std::memcpy(place.payload, sending.data + sending.done, place.length); });
            writer_.finish_fragment(sending, place);
        }
        return true;
    }
    void give_up(Sending &sending) override { writer_.give_up(sending); }

    size_t payload_max() const override { return writer_.payload_max(); }
    size_t message_max() const override { return size_t{1} << 30; }
    uint64_t position() const override { return writer_.position(); }
    int32_t session() const override { return writer_.session(); }
    uint32_t readers() override {
        return log_->subscriptions([](uint64_t) { return true; });
    }
    uint64_t lag() override {
        const uint64_t tail = log_->tail();
        uint64_t most = 0;
        log_->subscriptions([&](uint64_t position) {
            if (position < tail) most = std::max(most, tail - position);
            return true;
        });
        return most;
    }

  private:
    std::shared_ptr<TermLog> log_;
    LogWriter writer_;
};

} // namespace penstock::bind
