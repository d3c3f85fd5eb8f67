// A publication on the network: writes a log, and sends it. Used by one thread at a time. Only sleep() waits: "no room" is a
// value. A message is sent at once if the last datagram left a while ago, and otherwise together with the messages that follow.
#pragma once

#include "net/send/network_publication.hpp"

namespace penstock {

class UdpWriter {
  public:
    UdpWriter(std::string uri, std::string prefix, UdpWriterOptions options, std::shared_ptr<ManualClock> clock = nullptr,
              NetCalls &calls = NetCalls::system())
        : uri_(std::move(uri)), prefix_(std::move(prefix)), options_(std::move(options)), clock_(std::move(clock)),
          calls_(calls) {
        open();
    }
    ~UdpWriter() { leave(); }

    const std::string &where() const { return uri_; }
    const std::string &path() const { return out_->path(); }
    const std::shared_ptr<Mapping> &mapping() const { return out_->mapping(); }
    TermLog &log() const { return *log_; }
    int32_t session() const { return out_->session(); }
    const UdpWriterOptions &options() const { return options_; }

    // ---- as LogWriter has them ----

    int64_t offer(const void *data, size_t length) {
        int64_t after = no_room;
        if (retry([&] { return (after = writer_->offer(data, length)) != no_room; }))
            on_commit(stamp(static_cast<uint64_t>(after) - align_frame(length + header_length)));
        return after;
    }
    size_t offer_many(const IoVec *pieces, size_t count) {
        size_t done = 0;
        for (bool has_run = false;;) { // a run at a time goes out, so that the receiver works meanwhile
            const size_t before = done;
            done += writer_->offer_many(pieces + done, std::min<size_t>(count - done, 1024));
            if (done != before) on_commit();
            if (done == count) return done;
            if (done != before) has_run = false;
            else if (has_run || !out_->run_duty_cycle(monotonic_ns(), true)) return done;
            else has_run = true;
        }
    }
    bool claim(size_t length, ClaimedRange &range) {
        return retry([&] {
            return !writer_->sending_fragments() && writer_->claim(static_cast<uint32_t>(length), writer_->open_index(), range);
        });
    }
    int64_t commit(const ClaimedRange &range) {
        const int64_t after = writer_->commit(range);
        on_commit(stamp(range.position));
        return after;
    }
    void abort(const ClaimedRange &range) {
        writer_->abort(range);
        on_commit();
    }
    bool send_some(PendingSend &sending) {
        if (!fit_in_term(sending)) return false;
        const bool all = retry([&] { return writer_->send_some(sending); });
        if (sending.begun) on_commit();
        return all;
    }
    bool next_fragment(PendingSend &sending, ClaimedRange &range, uint32_t index = 0) {
        if (!fit_in_term(sending)) return false;
        return retry([&] { return writer_->next_fragment(sending, range, index); });
    }
    void finish_fragment(PendingSend &sending, const ClaimedRange &range) {
        writer_->finish_fragment(sending, range);
        on_commit();
    }
    void give_up(PendingSend &sending) { writer_->give_up(sending); }
    uint32_t open_index() { return writer_->open_index(); }
    bool sending_fragments() const { return writer_->sending_fragments(); }
    uint32_t payload_max() const { return writer_->payload_max(); }
    uint64_t position() const { return writer_->position(); }

    // ---- the network ----

    // Sends committed messages now, as far as receivers allow.
    void flush() {
        out_->run_duty_cycle(monotonic_ns(), true);
        flushed_tail_ = log_->control().tail.value.relaxed();
        batch_messages_ = 0;
    }
    uint32_t receivers() { return out_->check_receivers(monotonic_ns()); } // that were heard of lately, and are still there
    uint64_t lag() const { return log_->tail() - out_->sent(); }           // bytes that were not sent yet
    UdpCounts counts() { return out_->counts(); }
    std::pair<uint64_t, bool> progress() { return out_->progress(); }
    const std::string &warning() const { return out_->warning(); }
    std::string last_error() { return out_->last_error(); }
    std::string refusal() { return out_->refusal(monotonic_ns()); }
    bool add_destination(const Address &to, const std::string &host) { return out_->add_destination(to, host); }
    bool remove_destination(const Address &to, const std::string &host) { return out_->remove_destination(to, host); }

    // ---- waiting for room, or for receivers ----

    Atomic<uint32_t> &room() { return log_->control().space.value; }
    // Call it before the last look. Whatever arrives afterwards ends the next sleep(), which takes the result.
    uint32_t prepare() {
        flush();
        if (has_slow_spy()) return event_prepare(room()); // never 0
        out_->waiter().announce();
        return 0;
    }
    // Sleeps until something arrives, for `ns` at most. Any thread may call it, during every other call.
    bool sleep(uint32_t ticket, int64_t ns) {
        if (ticket != 0) return event_sleep(room(), ticket, ns);
        const std::shared_ptr<NetworkPublication> out = out_;
        out->waiter().sleep(out->socket(), std::min(ns, out->next() - monotonic_ns()));
        out->run_duty_cycle(monotonic_ns(), true);
        out->waiter().end_wait();
        return true;
    }

    // ---- joining and leaving ----

    void rejoin() { // in a forked child: the log and the socket are its parent's
        log_->forget_slot();
        options_.session.reset(); // the number is the parent's
        open();
    }
    void leave() {
        if (closed_ || log_->forked()) return;
        closed_ = true;
        out_->end_log();
        log_->detach(); // the tail no longer moves
        out_->close(monotonic_ns());
        Conductor::instance().wake();
    }
    void interrupt() {
        event_interrupt(log_->control().data.value);
        event_interrupt(log_->control().space.value);
        out_->waiter().interrupt();
    }

  private:
    void open() {
        const int32_t session = options_.session ? *options_.session : random_session();
        auto out = std::make_shared<NetworkPublication>(uri_, prefix_, options_, session, calls_);
        auto log = std::make_shared<TermLog>(out->fd(), out->where(), out->mapping());
        writer_ = std::make_unique<LogWriter>(log, true, clock_);
        log_ = std::move(log);
        out_ = std::move(out);
        closed_ = false;
        flushed_tail_ = log_->control().tail.value.relaxed();
        Conductor::instance().add(out_);
    }
    static int32_t random_session() {
        NetRandom random;
        for (;;) {
            const auto session = static_cast<int32_t>(random());
            if (session < -1 || session > 1000) return session;
        }
    }

    // Aeron's receivers drop a message with padding between its fragments. So it begins in a term that holds all of it, unless
    // it is longer than the log's window.
    bool fit_in_term(const PendingSend &sending) {
        if (sending.begun || sending.length <= payload_max()) return true;
        const uint64_t whole = sending.length / payload_max() * log_->buffer().max_frame() +
                               align_frame(sending.length % payload_max() + header_length);
        if (whole > log_->geometry().window || whole <= log_->left_in_term(log_->tail())) return true;
        return retry([&] { return writer_->pad_rest(); });
    }
    // Tries. If there is no room, hears receivers and tries once more. Both attempts count as one refusal.
    template <class Try> bool retry(Try &&attempt) {
        Atomic<uint64_t> &refused = log_->me().counters.back_pressure;
        const uint64_t before = refused.relaxed();
        if (attempt()) return true;
        if (!out_->run_duty_cycle(monotonic_ns(), true)) return false;
        const uint64_t after = refused.relaxed();
        const bool good = attempt();
        refused.relaxed(good ? before : after);
        return good;
    }

    // The time stamp of the frame that was written just now: reading the clock again would cost as much as writing the frame.
    int64_t stamp(uint64_t position) { return clock_ == nullptr ? log_->frame(position)->reserved : wall_clock_.now_ns(); }
    void on_commit() { on_commit(wall_clock_.now_ns()); }
    void on_commit(int64_t now) {
        const uint64_t tail = log_->control().tail.value.relaxed();
        const uint64_t before = std::exchange(tail_, tail);
        const int64_t elapsed = now - flushed_ns_;
        ++batch_messages_;
        if (tail - flushed_tail_ < out_->burst() && elapsed < batch_ns_ && elapsed >= 0 && unbatched_left_ == 0) {
            Conductor::instance().wake_within(out_->flush_within_ns());
            return;
        }
        adapt_batching(out_->sent() >= before || elapsed >= 2 * batch_max_ns);
        flushed_tail_ = tail;
        // If the conductor runs the duty cycle now, it may be past these frames.
        if (!out_->run_duty_cycle(monotonic_ns(), false)) Conductor::instance().wake_within(batch_max_ns);
        flushed_ns_ = wall_clock_.now_ns(); // the end of the send: if a send takes longer than a gap, each message would go alone
    }
    // Adaptive batching, like Nagle's. Messages in quick succession wait for each other. If the conductor had to send a small
    // batch, the wait was in vain, as in an exchange of requests and replies: the next messages are sent at once, four times as
    // many after each such batch, until waiting pays. A large batch is the end of a burst.
    void adapt_batching(bool was_in_vain) {
        if (batch_messages_ == 1) {
            if (unbatched_left_ != 0) --unbatched_left_;
            else batch_ns_ = batch_min_ns;
        } else if (!was_in_vain) {
            batch_ns_ = std::min(2 * batch_ns_, batch_max_ns);
            unbatched_next_ = unbatched_min;
        } else if (batch_messages_ <= small_batch) {
            unbatched_left_ = unbatched_next_;
            unbatched_next_ = std::min(4 * unbatched_next_, unbatched_max);
        }
        batch_messages_ = 0;
    }
    // Whether writers wait for a local subscription (a spy), and not for the network.
    bool has_slow_spy() const {
        const uint64_t sent = out_->sent();
        return log_->subscriptions([&](uint64_t position) { return position < sent; }) != 0;
    }

    static constexpr int64_t batch_min_ns = 4'000, batch_max_ns = 50'000; // the longest wait of a small message for more
    static constexpr uint32_t small_batch = 4, unbatched_min = 4, unbatched_max = 1024;
    const std::string uri_, prefix_;
    UdpWriterOptions options_;
    const std::shared_ptr<ManualClock> clock_;
    NetCalls &calls_;
    std::shared_ptr<NetworkPublication> out_;
    std::shared_ptr<TermLog> log_;
    std::unique_ptr<LogWriter> writer_;
    WallClock wall_clock_;
    uint64_t tail_ = 0, flushed_tail_ = 0;
    int64_t flushed_ns_ = 0, batch_ns_ = batch_min_ns;
    uint32_t batch_messages_ = 0; // messages in the current batch
    uint32_t unbatched_left_ = unbatched_min,
             unbatched_next_ = unbatched_min; // messages left to send unbatched; how many after the next vain wait
    bool closed_ = false;
};

} // namespace penstock
