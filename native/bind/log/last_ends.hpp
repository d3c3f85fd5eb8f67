// The ends of a log that keeps the last value of each key. A message comes to the writer's end as one byte with the length of its
// key, the key, and the body. docs/design/last_values.md.
#pragma once

#include "ends/log_ends.hpp"
#include "log/last_values.hpp"

namespace penstock::bind {

// For people: how many keys are kept.
inline uint32_t last_count(const Mapping &map, const LogGeometry &g) {
    return g.last.keys == 0 ? 0 : reinterpret_cast<const LastWords *>(map.bytes() + terms_end(g))->count.relaxed();
}

class LastWriterEnd final : public LogWriterEnd {
  public:
    LastWriterEnd(std::shared_ptr<TermLog> log, bool exclusive, std::shared_ptr<ManualClock> clock)
        : LogWriterEnd(std::move(log), exclusive, std::move(clock)), last_(file_) {}

    int64_t offer(const void *data, size_t length) override {
        const auto *bytes = static_cast<const uint8_t *>(data);
        if (length == 0 || size_t{bytes[0]} + 1 > length)
            throw Error(Code::invalid, where() + ": a message without its key: this channel keeps last values");
        const size_t before = size_t{bytes[0]} + 1;
        return last_.send(bytes + 1, bytes[0], bytes + before, length - before,
                          [&](const uint8_t *body, size_t size) { return writer_.offer(body, size); });
    }
    size_t offer_many(const IoVec *pieces, size_t count) override {
        for (size_t i = 0; i < count; ++i)
            if (offer(pieces[i].data, pieces[i].length) == no_room) return i;
        return count;
    }
    bool advance(PendingSend &sending) override { return WriterEnd::advance(sending); }
    void give_up(PendingSend &) override {}
    bool claim(size_t, ClaimedRange &) override {
        throw Error(Code::unsupported, where() + ": claim writes bytes that have no key yet, and this channel keeps the last "
                                                 "value of each key: use send or offer");
    }
    size_t payload_max() const override { return last_.shape().max; }
    size_t message_max() const override { return size_t{last_.shape().max} + 1 + last_key_max; }

  private:
    LastValues last_;
};

// Gives the kept messages first, then the stream behind them.
class LastReaderEnd final : public LogReaderEnd {
  public:
    LastReaderEnd(int fd, std::string path, double drop_after) : LogReaderEnd(fd, std::move(path), {}, drop_after) {
        if (file_->geometry().last.keys == 0)
            throw Error(Code::unsupported, where() + ": this channel keeps no last values: its first publication has to name "
                                                     "their key, as last='name'");
        uint64_t next = 0;
        kept_ = LastValues(file_).snapshot(next);
        reader_->skip_to(next);
    }

    bool readable() const override { return given_ < kept_.size() || LogReaderEnd::readable(); }
    bool ended() override { return given_ == kept_.size() && LogReaderEnd::ended(); }
    const Message *peek() override {
        if (given_ == kept_.size()) return LogReaderEnd::peek();
        const LastValue &next = kept_[given_];
        message_.data = next.payload.data();
        message_.length = next.payload.size();
        message_.position = next.position;
        message_.next = reader_->position();
        message_.time_ns = next.time_ns;
        message_.session = next.session;
        message_.assembled = true; // these bytes are not the log's
        return &message_;
    }
    void consume() override {
        if (given_ == kept_.size()) return LogReaderEnd::consume();
        Slot::Counters &counters = file_->me().counters;
        counters.messages.increment(1);
        counters.bytes.increment(kept_[given_].payload.size());
        ++given_;
    }
    bool has_kept() const override { return given_ != kept_.size(); }

  private:
    std::vector<LastValue> kept_;
    size_t given_ = 0;
    Message message_;
};

} // namespace penstock::bind
