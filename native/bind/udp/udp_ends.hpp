// The network log's two ends, as Python's handles need them.
#pragma once

#include "bind/ground/bind.hpp"
#include "bind/ground/status.hpp"
#include "ends/ends.hpp"

#include "net/udp_ends.hpp"

#include <algorithm>
#include <net/if.h>

namespace penstock::bind {

class UdpWatched final : public Waitable {
  public:
    UdpWatched(std::shared_ptr<UdpWatch> watch, Atomic<uint32_t> &event, bool until_end)
        : watch_(std::move(watch)), event_(event), until_end_(until_end) {}
    Atomic<uint32_t> &event() override { return event_; }
    bool readable(uint64_t) const override { return watch_->readable(); }
    // Only the reader's own thread decides that the stream has ended, or which codec it has: it looks now and then.
    bool stalled(uint64_t) const override { return (until_end_ || watch_->withheld()) && rate_limit_.allows(); }

  private:
    const std::shared_ptr<UdpWatch> watch_; // keeps the event mapped
    Atomic<uint32_t> &event_;
    const bool until_end_;
    mutable RateLimit rate_limit_; // the bridge's thread
};

// A function of Python that decides for a subscription. It may let other threads in.
template <class... Facts> nb::object ask_policy(const char *function, const Facts &...facts) {
    const PythonCall call;
    return nb::module_::import_("penstock.kinds.udp.policy").attr(function)(facts...);
}
inline nb::bytes bytes_of(const std::string &text) { return nb::bytes(text.data(), text.size()); }

// A subscription. It has a codec once its owner named one, or Python chose one from the sessions' descriptions.
class UdpReaderEnd final : public InPlaceReader {
  public:
    // `metadata`: of the codec that the owner named, or empty.
    UdpReaderEnd(int fd, std::string path, Start start, uint64_t drop_after_ns, Keys keys, std::string control_host,
                 std::string metadata)
        : metadata_(std::move(metadata)), reader_(std::make_unique<UdpReader>(fd, std::move(path), start, drop_after_ns,
                                                                              std::move(keys), std::move(control_host))),
          where_(reader_->where()) {}

    UdpReader &reader() { return *reader_; }
    const std::string &where() const override { return where_; }
    std::shared_ptr<Mapping> mapping() const override { return reader_->mapping(); }
    const ByteLocks &locks() const override { return reader_->locks(); }
    std::string metadata() override { return metadata_; }
    void rejoin() override { reader_->rejoin(); }
    void leave() override { reader_->leave(); }
    void interrupt() override { reader_->interrupt(); }
    bool sleeps() const override { return true; }
    uint32_t prepare() override { return reader_->prepare(); }
    void sleep(uint32_t ticket, int64_t ns) override {
        reader_->sleep(ticket, reader_->watch()->withheld() ? std::min(ns, end_interval_ns) : ns);
    }
    void serve_socket() override { reader_->serve_socket(); }
    void end_wait() override { reader_->end_wait(); }

    bool decided() override { return !metadata_.empty() || choose_codec(); }
    bool is_resolved() const override { return !metadata_.empty(); }
    Atomic<uint64_t> *wait_word() override { return &reader_->wait_word(); }
    Atomic<uint32_t> &event() override { return reader_->event(); }
    bool readable() const override { return reader_->watch()->readable(); }
    bool repair() override {
        reader_->run_duty_cycle();
        if (const std::string told = reader_->refusal(); !told.empty()) ask_policy("log_refusal", nb::steal(text_of(told)));
        return false;
    }
    LatencySlot *latency() override {
        const EndpointFile &file = reader_->file();
        return latency_of(file.mapping()->bytes(), file.mapping()->size(), file.options().slot_count, reader_->slot());
    }
    int64_t clock_correction(int32_t session) const override { return reader_->clock_correction(session); }
    RunSource *runs() override { return nullptr; } // a recorder reads each image separately
    std::shared_ptr<Waitable> watched(bool until_end) override {
        return std::make_shared<UdpWatched>(reader_->watch(), reader_->event(), until_end);
    }
    void add_watches(WatchSet &at) override { at.add(reader_->activity(), reader_->seen()); }
    bool ended() override { return reader_->ended(); }
    std::string why_lost() const override {
        std::string lost = reader_->lost_session();
        if (!lost.empty())
            lost += " fell silent before it closed: messages may be missing. If its sender comes back, this subscription goes on "
                    "with what the sender still keeps";
        return lost;
    }

    const Message *peek() override {
        if (!decided()) return nullptr;
        for (;;) {
            const Message *message = reader_->peek();
            if (message == nullptr || message->session == agreed_ || compare_codecs(*message)) return message;
        }
    }
    void consume() override { reader_->consume(); }
    void give_back(const Message &message) override { reader_->end_hold(message); }

    uint64_t position() const override { return reader_->position(); }
    uint64_t lag() const override {
        reader_->run_duty_cycle(true); // datagrams in the socket count, and so do sessions that were not looked at yet
        reader_->peek();
        return reader_->lag();
    }
    uint64_t lost() const override { return reader_->lost(); }
    uint64_t incomplete() const override { return reader_->incomplete(); }

  private:
    bool droppable() const override { return reader_->droppable(); }
    void check_dropped() override {
        if (reader_->droppable()) reader_->check_not_dropped();
    }
    void hold(const Message &message) override { reader_->hold(message); }

    bool choose_codec() {
        const Message *message = reader_->peek();
        nb::list told;
        bool any = message != nullptr;
        for (const UdpSession &session : reader_->sessions()) {
            told.append(bytes_of(session.description));
            any = any || !session.description.empty();
        }
        if (!any) return false;
        const int64_t now = monotonic_ns();
        if (message != nullptr && first_ns_ == 0) first_ns_ = now;
        const nb::object time = message == nullptr ? nb::object(nb::none()) : nb::object(nb::int_(message->time_ns));
        const nb::object chosen = ask_policy("choose_codec", told, time, first_ns_ == 0 ? 0 : now - first_ns_);
        if (!metadata_.empty()) return true; // another thread was faster
        reader_->watch()->set_withheld(chosen.is_none());
        if (chosen.is_none()) return false;
        metadata_ = text_of(nb::cast<nb::bytes>(chosen));
        return true;
    }

    // A message of another session than the last one's. Throws if Python refuses its codec; the message is passed over then.
    // False if other threads may have taken it meanwhile: it must be looked at again.
    bool compare_codecs(const Message &message) {
        const auto sessions = reader_->sessions();
        const auto from =
            std::find_if(sessions.begin(), sessions.end(), [&](const UdpSession &one) { return one.session == message.session; });
        if (from == sessions.end()) return true;
        if (from->description.empty()) { // nothing to compare, and perhaps never
            if (message.time_ns == 0) agreed_ = message.session;
            return true;
        }
        if (from->description == metadata_) {
            agreed_ = message.session;
            return true;
        }
        const uint64_t position = message.position;
        const nb::object why = ask_policy("refuse_codec", bytes_of(from->description), bytes_of(metadata_),
                                          nb::steal(text_of(from->source)), from->session, position);
        const Message *now = reader_->peek();
        if (now == nullptr || now->session != from->session || now->position != position) return false;
        if (!why.is_none()) {
            reader_->consume();
            throw Error(Code::mismatch, where() + ": " + nb::cast<std::string>(why));
        }
        agreed_ = from->session;
        return false;
    }

    std::string metadata_;
    const std::unique_ptr<UdpReader> reader_;
    const std::string where_;
    int64_t first_ns_ = 0;       // since when a message has waited for its codec
    int64_t agreed_ = INT64_MIN; // the session whose codec was compared last
};

// A recorder's view of an endpoint: it reads each session separately.
class UdpTapEnd : public StreamEnd {
  public:
    explicit UdpTapEnd(std::shared_ptr<UdpReader> reader) : reader_(std::move(reader)), where_(reader_->where()) {}

    UdpReader &reader() { return *reader_; }
    const std::shared_ptr<UdpReader> &shared() const { return reader_; }
    const std::string &where() const override { return where_; }
    std::shared_ptr<Mapping> mapping() const override { return reader_->mapping(); }
    const ByteLocks &locks() const override { return reader_->locks(); }
    void rejoin() override { throw Error(Code::invalid, where_ + ": a recorder does not go on in a forked child"); }
    void leave() override { reader_->leave(); }
    void interrupt() override { reader_->interrupt(); }
    Atomic<uint32_t> &event() override { return reader_->event(); }
    bool readable() const override { return reader_->has_changes(); }
    bool repair() override {
        reader_->run_duty_cycle();
        return false;
    }
    RunSource *runs() override { return nullptr; }
    uint64_t position() const override { return 0; }
    uint64_t lag() const override { return 0; }
    uint64_t lost() const override { return 0; }
    int64_t lost_messages() const override { return 0; }

  protected:
    const std::shared_ptr<UdpReader> reader_;
    const std::string where_;
};

// One session of it. It ends with the endpoint's tap.
class UdpStreamEnd final : public UdpTapEnd, public RunSource {
  public:
    UdpStreamEnd(std::shared_ptr<UdpReader> reader, uint64_t number) : UdpTapEnd(std::move(reader)), number_(number) {}

    void leave() override {}
    bool readable() const override {
        const LogReader *log = reader_->stream(number_);
        return log != nullptr && log->readable();
    }
    RunSource *runs() override { return this; }
    bool skips() const override { return true; } // over lost messages
    FrameBlock run(uint64_t max) override {
        LogReader *log = reader_->stream(number_);
        if (log == nullptr) return {};
        FrameBlock found = log->run(max);
        if (found.length != 0 || reader_->skip_lost(*log) != 0) return found;
        return reader_->run_duty_cycle() ? log->run(max) : found;
    }
    void check_run() override {
        LogReader *log = reader_->stream(number_);
        if (log != nullptr && log->droppable()) log->check_not_dropped();
    }
    void take_run(const FrameBlock &run) override {
        LogReader &log = *reader_->stream(number_);
        log.take_run(run);
        log.show_position();
        last_ = log.position();
        reader_->count(run.begins, run.payload);
    }
    uint64_t position() const override {
        const LogReader *log = reader_->stream(number_);
        return log == nullptr ? last_ : last_ = log->position();
    }
    uint64_t lag() const override {
        reader_->run_duty_cycle(true);
        const LogReader *log = reader_->stream(number_);
        return log == nullptr ? 0 : log->lag();
    }
    uint64_t lost() const override {
        const LogReader *log = reader_->stream(number_);
        return log == nullptr ? 0 : log->lost();
    }
    int64_t lost_messages() const override { return lost() == 0 ? 0 : -1; }
    SessionEnd::How how_it_ended() const { return reader_->end_reached(number_); }

  private:
    const uint64_t number_;
    mutable uint64_t last_ = 0; // once the session was left
};

class UdpWriterEnd final : public WriterEnd {
  public:
    UdpWriterEnd(std::string uri, std::string prefix, UdpWriterOptions options, std::shared_ptr<ManualClock> clock)
        : stays_here_(is_multicast(options.to) && options.interface.scope == if_nametoindex("lo")),
          writer_(std::move(uri), std::move(prefix), std::move(options), std::move(clock)) {}

    UdpWriter &writer() { return writer_; }
    std::string why_no_readers() const override {
        return stays_here_ ? ": the group is sent on loopback only; for other machines, name an interface" : "";
    }
    const std::string &where() const override { return writer_.where(); }
    std::shared_ptr<Mapping> mapping() const override { return writer_.mapping(); }
    const ByteLocks &locks() const override { return writer_.log().locks(); }
    void rejoin() override { writer_.rejoin(); }
    void leave() override { writer_.leave(); }
    void interrupt() override { writer_.interrupt(); }
    bool sleeps() const override { return true; }
    uint32_t prepare() override { return writer_.prepare(); }
    void sleep(uint32_t ticket, int64_t ns) override { writer_.sleep(ticket, ns); }

    Atomic<uint32_t> &room() override { return writer_.room(); }
    Atomic<uint32_t> &members() override { return writer_.room(); }
    Atomic<uint64_t> *wait_word() override { return &writer_.log().me().counters.wait; }
    void repair() override {
        writer_.flush();
        if (const std::string told = writer_.refusal(); !told.empty()) ask_policy("log_refusal", nb::steal(text_of(told)));
    }

    int64_t offer(const void *data, size_t length) override { return writer_.offer(data, length); }
    size_t offer_many(const IoVec *pieces, size_t count) override { return writer_.offer_many(pieces, count); }
    bool claim(size_t length, ClaimedRange &range) override { return writer_.claim(static_cast<uint32_t>(length), range); }
    int64_t commit(const ClaimedRange &range) override { return writer_.commit(range); }
    void abort(const ClaimedRange &range) override { writer_.abort(range); }
    // Frames are at most a datagram long, so none is worth a copy without the GIL.
    bool advance(PendingSend &sending) override {
        for (;;) {
            const size_t before = sending.done;
            if (writer_.send_some(sending)) return true;
            if (sending.done == before) return false;
        }
    }
    void give_up(PendingSend &sending) override { writer_.give_up(sending); }

    size_t payload_max() const override { return writer_.payload_max(); }
    size_t message_max() const override { return size_t{1} << 30; }
    std::string why_full() const override {
        return "no receiver is there, or the slowest that is waited for is behind by its window";
    }
    uint64_t position() const override { return writer_.position(); }
    int32_t session() const override { return writer_.session(); }
    uint32_t readers() override { return writer_.receivers(); }
    uint64_t lag() override { return writer_.lag(); }

  private:
    const bool stays_here_; // a multicast group on loopback
    UdpWriter writer_;
};

} // namespace penstock::bind
