// An image: one remote session's log, rebuilt in three terms of memory. Datagrams are inserted at their position in any
// order; gaps are asked for again. A state machine: the time and datagrams go in, datagrams come out. It knows no socket, no
// clock and no members. After Aeron's publication image. docs/design/network_log.md.
#pragma once

#include "net/receive/session/clock_offset.hpp"
#include "net/receive/session/image_state.hpp"
#include "net/receive/session/loss_scan.hpp"
#include "net/receive/session/round_trips.hpp"
#include "net/receive/session/source_credit.hpp"
#include "net/wire/address.hpp"
#include "net/wire/data_frame.hpp"
#include "net/wire/extension_frame.hpp"
#include "net/wire/nak_frame.hpp"
#include "net/wire/rtt_frame.hpp"
#include "net/wire/setup_frame.hpp"
#include "net/wire/status_frame.hpp"
#include "net/wire/terms.hpp"

#include <optional>
#include <string>

namespace penstock {

inline wire::StatusFrame make_status(const ReceiverOptions &options, int32_t session, uint8_t flags) {
    auto frame = wire::make<wire::StatusFrame>(wire::Type::status, flags);
    if (!options.group_tag) frame.start.length = wire::status_length;
    frame.session = session;
    frame.stream = options.stream;
    frame.receiver = options.receiver;
    frame.group_tag = options.group_tag.value_or(0);
    return frame;
}
inline size_t status_size(const ReceiverOptions &options) {
    return options.group_tag ? wire::tagged_status_length : wire::status_length;
}

// `Out`: send(address, bytes, length); false if it has no room now.
class Image {
  public:
    enum class State { active, draining, lingering, done };
    static constexpr uint32_t eos_status_messages = 5;
    // A sender sends nothing again that lies further back than this.
    static uint64_t retained_bytes(const wire::SetupFrame &setup) {
        return uint64_t{static_cast<uint32_t>(setup.term_length)} / 2 + static_cast<uint32_t>(setup.term_length) / 8;
    }

    // `terms`: zeroed. `setup`: checked by parse(). `proved`: the source receives at its address.
    Image(Terms terms, const ReceiverOptions &options, const wire::SetupFrame &setup, const Address &from, int64_t now,
          bool proved = false)
        : terms_(terms), options_(options), setup_(setup), source_(from),
          join_((uint64_t{static_cast<uint32_t>(setup.active_term_id) - static_cast<uint32_t>(setup.initial_term_id)} *
                 terms.term_length()) +
                static_cast<uint32_t>(setup.term_offset)),
          window_(static_cast<uint32_t>(std::min<uint64_t>(options.window, terms.term_length() / 2))), ranges_(join_),
          loss_(options.loss), high_(join_), bound_(join_), consumed_(join_), status_(join_),
          clean_(join_ - terms.offset(join_) + terms.size()), last_datagram_ns_(now), status_at_(now), rtt_at_(now),
          clock_at_(now), active_ns_(now), source_verified_(proved) {}

    // Continues an image of a process that died or handed over.
    Image(Terms terms, const ReceiverOptions &options, const wire::SetupFrame &setup, const Address &from, int64_t now,
          const ImageState &state)
        : Image(terms, options, setup, from, now) {
        ranges_ = Ranges(state.rebuilt);
        high_ = bound_ = state.rebuilt;
        consumed_ = status_ = std::min(state.status, state.rebuilt);
        clean_ = state.clean;
        end_ = state.end;
        received_from_source_ = state.received;
        sent_to_source_ = state.replied;
        source_verified_ = state.source_verified;
        unmeasured_ = false;
        if (state.lost) state_ = State::draining;
        lost_ = stopped_ = state.lost;
        ahead_ = true;                  // how far is the sender?
        reported_readers_ = UINT32_MAX; // unknown: the last owner may have sent a count, and it may not have arrived
        multiple_readers_ = true;
    }

    ImageState image_state() const {
        return {rebuilt(), status_, clean_, received_from_source_, sent_to_source_, source_verified_, end_, lost_};
    }
    // Tells it whenever memory may have been written beyond the last edge, before it is.
    void set_clean_word(Atomic<uint64_t> &word) { clean_word_ = &word; }
    uint64_t status_position() const { return status_; }
    uint64_t clean() const { return clean_; }
    uint64_t bytes_from_source() const { return received_from_source_; }
    uint64_t bytes_sent_to_source() const { return sent_to_source_; }
    // What the source sent, and was sent, before it had an image.
    void add_credit(uint64_t received, uint64_t sent) {
        received_from_source_ += received;
        sent_to_source_ += sent;
    }

    int32_t session() const { return setup_.session; }
    const wire::SetupFrame &setup() const { return setup_; }
    const Address &source() const { return source_; }
    const Terms &terms() const { return terms_; }
    uint64_t join() const { return join_; }
    uint64_t rebuilt() const { return ranges_.floor(); } // everything below it is there
    uint64_t high() const { return high_; }              // the highest position seen
    uint64_t consumed() const { return consumed_; }
    int64_t status_at() const { return status_at_; } // when the next status message is due in any case
    uint32_t window() const { return window_; }
    const std::optional<uint64_t> &end() const { return end_; } // of the stream
    State state() const { return state_; }
    // It ended, but its sender has not said so, or not all was there then. A source that never proved itself, and of which
    // nothing was received, may be forged: it is no loss.
    bool lost() const { return lost_; }
    bool stopped() const { return stopped_; } // without a word of its sender: nothing more is taken
    bool overrun() const { return overrun_; } // overrun, or the sender was replaced: it may be joined again at once
    bool source_verified() const { return source_verified_; } // the source receives at the address that it sends from
    bool ever_verified() const { return source_verified_ || verified_source_; } // or did, before the session moved
    int64_t active_ns() const { return active_ns_; } // when it was made, or its source sent frames last
    int64_t round_trip_ns() const { return round_trips_.median_ns(); }
    const ClockOffset &clock() const { return clock_; }
    int64_t heard_ns() const { return last_datagram_ns_; }
    // Datagrams of the sender's MTU do not arrive; this is the longest that does, as its probes show. 0: they do, as far as is
    // known.
    uint32_t path_limit(int64_t now) const {
        const bool told = probe_arrived_ != 0 && now - probe_at_ >= options_.status_ns;
        return told && probe_arrived_ < static_cast<uint32_t>(setup_.mtu) ? probe_arrived_ : 0;
    }
    const std::string &description() const { return description_; }
    const ImageCounts &counts() const { return counts_; }

    // It goes on with a session that was lost: that one has not ended if this one gets nothing.
    void continue_lost() { continues_lost_ = true; }

    // Gives its place to another session, at once: local readers read what they have mapped.
    void displace() {
        if (state_ == State::active) drain();
        state_ = State::done;
    }

    // Takes the slowest local reader's position. It only moves forward, and never beyond rebuilt().
    void consume(uint64_t position) {
        if (position > consumed_ && position <= rebuilt()) consumed_ = position;
    }

    // The number of local subscriptions; the next status message carries it. 0: all have left, and it is the last word.
    void set_readers(uint32_t readers) {
        if (readers == readers_) return;
        readers_ = readers;
        multiple_readers_ |= readers > 1;
        status_requested_ = true;
    }

    // ---- datagrams of this session ----

    void on_setup(int64_t now, const Address &from, const wire::SetupFrame &setup, SourceCredit &credit) {
        const bool same = setup.term_length == setup_.term_length && setup.initial_term_id == setup_.initial_term_id &&
                          setup.mtu == setup_.mtu && setup.stream == setup_.stream;
        uint64_t at = 0;
        const bool found = terms_.find_position(setup.active_term_id, static_cast<uint32_t>(setup.term_offset), rebuilt(), at);
        // Terms never change. Positions never go back, but a SETUP of the same source may be late.
        const bool other = !same || (found && at < rebuilt() && !(from == source_));
        if (other && state_ == State::active &&
            now - last_datagram_ns_ >= options_.moved_ns) { // another publication with the same number
            overrun_ = true;
            drain();
        }
        if (!same || state_ != State::active || !is_source(now, from, true)) {
            ++counts_.rejected;
            return;
        }
        count_datagram(now, sizeof setup, credit);
        status_requested_ = true;
        if (!found) return;
        if (at > rebuilt() + retained_bytes(setup_)) { // the sender has dropped some of the missing bytes
            overrun_ = true;
            drain();
        } else if (at > rebuilt()) on_sender_position(at);
    }

    // The session's source is silent, and another one sends: it may have moved, and its SETUP may be lost.
    bool may_have_moved(int64_t now, const Address &from) const {
        return state_ == State::active && !(from == source_) && now - last_datagram_ns_ >= options_.moved_ns;
    }
    void on_data(int64_t now, const Address &from, const uint8_t *bytes, size_t length, SourceCredit &credit) {
        if (!is_source(now, from, false)) {
            ++counts_.rejected;
            return;
        }
        wire::DataRun run;
        uint64_t at;
        if (length > static_cast<size_t>(setup_.mtu) || !wire::parse(bytes, length, terms_.term_length(), run) ||
            run.stream != setup_.stream || !terms_.find_position(run.term_id, run.term_offset, rebuilt(), at)) {
            ++counts_.malformed;
            return;
        }
        count_datagram(now, length, credit);
        if (state_ != State::active) return;
        if (run.room == 0) on_heartbeat(at, run.end_of_stream);
        else {
            active_ns_ = now;
            on_frames(at, run, bytes, length);
        }
    }

    void on_rtt(int64_t now, const Address &from, const wire::RttFrame &frame) {
        const bool answer = (frame.start.flags & wire::flag_reply) == 0 && frame.receiver == options_.receiver;
        if (!answer || !(from == source_)) {
            ++counts_.rejected;
            return;
        }
        if (!round_trips_.on_reply(now, frame.echo, frame.delta)) { // doubled on the way, or very late
            ++counts_.duplicates;
            return;
        }
        source_verified_ = true;
        status_requested_ |= std::exchange(status_held_, false);
        rtt_at_ = now + (round_trips_.has_enough() ? options_.round_trip_ns : options_.status_ns / 10);
        round_trip_due_ = true;
    }

    // `length`: of the datagram. `wall_ns`: this machine's clock at `now`; 0: unknown.
    void on_extension(int64_t now, int64_t wall_ns, const Address &from, uint16_t noun, std::string text, size_t length,
                      SourceCredit &credit) {
        if (!(from == source_)) return;
        received_from_source_ += credit.take();
        if (noun == wire::extension_description && description_.empty()) description_ = std::move(text);
        else if (noun == wire::extension_clock_answer) on_clock_answer(now, wall_ns, text);
        else if (noun == wire::extension_probe) on_probe(now, static_cast<uint32_t>(length));
    }

    // Sends what is due. `random()` gives 64 bits.
    template <class Out, class Random> void tick(int64_t now, Out &out, Random &&random) {
        if (state_ == State::done) return;
        if (state_ == State::active) {
            if (end_ && consumed_ >= *end_) {
                state_ = State::lingering;
                status_at_ = now;
            } else if (now - last_datagram_ns_ >= options_.liveness_ns) drain();
        }
        if (state_ == State::active) {
            send_status(now, out);
            request_setup(now, out);
            request_rtt(now, out, random);
            if (round_trip_due_) send_round_trip(out);
            request_clock(now, out, random);
            send_probe_echoes(out);
            scan(now, out, random);
        } else if (state_ == State::lingering) send_eos_status(now, out);
        else if (consumed_ >= rebuilt()) state_ = State::done;
    }
    int64_t next() const {
        if (state_ == State::done || state_ == State::draining) return INT64_MAX;
        if (state_ == State::lingering) return status_at_;
        int64_t next = status_is_due() ? INT64_MIN : std::min(status_at_, last_datagram_ns_ + options_.liveness_ns);
        if (end_ && consumed_ >= *end_) next = INT64_MIN;
        if (measures() || round_trip_due_) next = std::min(next, round_trip_due_ ? INT64_MIN : rtt_at_);
        if (ahead_) next = std::min(next, setup_at_);
        if (ranges_.is_contiguous() && high_ <= rebuilt()) return next;
        return std::min(next, loss_.next() == INT64_MAX ? last_datagram_ns_ + options_.loss.delay_ns : loss_.next());
    }

  private:
    // Others may forge a session's datagrams, so they are taken from one source. It may move once it has been silent.
    // Until the new source has proved itself, a word from the one that had takes the session back.
    bool is_source(int64_t now, const Address &from, bool may_move) {
        if (from == source_) {
            source_.local = from.local; // it may ask at another of this machine's addresses
            return true;
        }
        const bool back = !source_verified_ && verified_source_ && *verified_source_ == from;
        if (!back && (!may_move || now - last_datagram_ns_ < options_.moved_ns)) return false;
        if (source_verified_) verified_source_ = source_;
        source_ = from;
        source_verified_ = back;
        round_trips_ = {};
        clock_ = {};
        clock_at_ = now;
        received_from_source_ = sent_to_source_ = 0;
        rtt_at_ = now;
        return true;
    }
    void count_datagram(int64_t now, size_t length, SourceCredit &credit) {
        last_datagram_ns_ = now;
        received_from_source_ += credit.take();
        ++counts_.datagrams;
        counts_.bytes += length;
    }
    // Inserted is what lies below it: memory is clean up to here.
    uint64_t edge() const { return status_ + terms_.term_length() / 2; }

    void on_heartbeat(uint64_t at, bool end_of_stream) {
        ++counts_.heartbeats;
        if (at < rebuilt()) return; // an old one
        if (end_of_stream && !end_ && at >= ranges_.end() && at <= edge() + terms_.term_length()) {
            end_ = at;
            high_ = std::min(high_, at); // heartbeats may have lied
            bound_ = std::min(bound_, at);
        }
        if (at > edge()) ahead_ = true;
        on_sender_position(at);
    }
    // Nothing more is taken; local readers read on to the last end of a frame that is known, also beyond the edge. The next image
    // of this session begins there, and a sender sends nothing again from within a frame.
    void drain() {
        state_ = State::draining;
        stopped_ = true;
        const bool complete = end_ && rebuilt() >= *end_;
        lost_ = !complete && (source_verified_ || verified_source_ || continues_lost_ || ranges_.end() > join_);
        make_clean(bound_);
        fill_gaps(bound_);
    }
    // The sender is there. Gaps are asked for up to the edge.
    void on_sender_position(uint64_t at) {
        if (end_) at = std::min(at, *end_);
        high_ = std::max(high_, std::min(at, edge()));
        if (at <= edge() + terms_.term_length()) bound_ = std::max(bound_, at); // as far as memory can be clean
    }
    void on_received(uint64_t to) {
        high_ = std::max(high_, to);
        bound_ = std::max(bound_, to);
    }

    void on_frames(uint64_t at, const wire::DataRun &run, const uint8_t *bytes, size_t length) {
        const uint64_t to = at + run.room;
        if (to <= rebuilt()) {
            ++counts_.duplicates;
            return;
        }
        if (at + length > edge() || (end_ && to > *end_)) {
            ++counts_.overruns;
            ahead_ = true;
            return;
        }
        on_received(to);
        make_clean(to); // padding may reach beyond the window
        if (ranges_.is_free(at, to)) {
            if (ranges_.add(at, to)) insert(at, bytes, length);
            else ++counts_.overruns;
            return;
        }
        uint64_t fresh = 0;
        wire::each_frame(bytes, length, [&](const wire::DataFrame &frame, uint32_t room) {
            const uint64_t from = at + room;
            if (!ranges_.is_free(from, from + frame.room)) {
                counts_.overlaps += ranges_.has(from, from + frame.room) ? 0 : 1;
                return;
            }
            if (!ranges_.add(from, from + frame.room)) return;
            insert(from, bytes + frame.at, frame.wire);
            ++fresh;
        });
        if (fresh == 0) ++counts_.duplicates;
    }

    // A run of frames whose place is free. Only its first length makes it reachable, so that is stored last.
    void insert(uint64_t at, const uint8_t *bytes, size_t length) {
        if (at < asked_to_) counts_.repaired += length;
        auto *to = reinterpret_cast<uint8_t *>(terms_.frame(at));
        uint64_t word0;
        std::memcpy(&word0, bytes, sizeof word0);
        copy_in(to + sizeof word0, bytes + sizeof word0, length - sizeof word0);
        // SYNC 1: pairs with LogReader::peek; forbids the length being seen before header and payload
        terms_.frame(at)->word0.release(word0);
    }

    bool status_is_due() const { return status_requested_ || consumed_ - status_ >= window_ / 4; }

    template <class Out> void send_status(int64_t now, Out &out) {
        const bool in_time = now >= status_at_;
        if (!status_is_due() && !in_time) return;
        make_clean(consumed_ + terms_.term_length() / 2);
        status_ = consumed_;
        status_requested_ = false;
        const bool sent = send(out, status(0), status_size(options_), proof_reserve(now));
        const bool soon =
            !source_verified_ && (!sent || awaits_proof()); // a sender that never heard of this receiver keeps asking
        status_at_ = now + (soon ? options_.status_ns / 10 : options_.status_ns);
        if (sent) ++counts_.statuses;
        else status_held_ = true;
        if (readers_ != reported_readers_ || (in_time && multiple_readers_)) send_reader_count(out);
    }
    // The sender does not send anything again sooner. Told after each measurement, which is made where something is missing.
    template <class Out> void send_round_trip(Out &out) {
        const auto median = static_cast<uint32_t>(std::min<int64_t>(round_trips_.median_ns(), UINT32_MAX));
        if (send_extension(out, wire::extension_round_trip, std::to_string(median))) round_trip_due_ = false;
    }
    // Only of sources of this library: they have said what the stream is. The first answers may be 20 ms apart.
    template <class Out, class Random> void request_clock(int64_t now, Out &out, Random &&random) {
        if (now < clock_at_ || !source_verified_ || description_.empty()) return;
        const uint64_t number = (random() >> 1) | 1;
        if (!send_extension(out, wire::extension_clock_request, std::to_string(number))) return;
        clock_.on_request(now, number);
        clock_at_ = now + (++clock_requests_ < ClockOffset::samples_max ? options_.status_ns / 10 : options_.clock_ns);
    }
    void on_clock_answer(int64_t now, int64_t wall_ns, const std::string &text) {
        uint64_t number = 0;
        int64_t source_ns = 0;
        if (wall_ns == 0 || !wire::read_numbers(text, number, source_ns) || source_ns <= 0 ||
            !clock_.on_answer(now, wall_ns, number, source_ns))
            return;
        round_trips_.add(clock_.round_trip_ns());
        round_trip_due_ = true;
    }
    void on_probe(int64_t now, uint32_t length) {
        if (length > static_cast<uint32_t>(setup_.mtu)) return;
        if (now - probe_at_ >= options_.moved_ns) probe_arrived_ = 0; // other probes than the last ones
        probe_at_ = now;
        probe_arrived_ = std::max(probe_arrived_, length);
        if (probe_echoes_ < probe_echo_.size()) probe_echo_[probe_echoes_++] = length;
    }
    template <class Out> void send_probe_echoes(Out &out) {
        for (; probe_echoes_ != 0; --probe_echoes_)
            if (!send_extension(out, wire::extension_probe_echo, std::to_string(probe_echo_[probe_echoes_ - 1]))) return;
    }
    template <class Out> bool send_extension(Out &out, uint16_t noun, const std::string &text) {
        const std::string frame = wire::write_extension(noun, session(), setup_.stream, text);
        return send_bytes(out, reinterpret_cast<const uint8_t *>(frame.data()), frame.size(), rtt_reserve);
    }
    template <class Out> void send_reader_count(Out &out) {
        if (send_extension(out, wire::extension_readers, std::to_string(readers_))) reported_readers_ = readers_;
    }
    wire::StatusFrame status(uint8_t flags) const {
        wire::StatusFrame frame = make_status(options_, session(), flags);
        frame.term_id = terms_.term_id(consumed_);
        frame.term_offset = static_cast<int32_t>(terms_.offset(consumed_));
        frame.window = static_cast<int32_t>(window_);
        return frame;
    }

    // Before the sender gets a new limit: frames up to the limit, and a reader behind them, find zeros.
    void make_clean(uint64_t end) {
        const uint64_t to = end + header_length;
        if (to <= clean_) return;
        terms_.clean(clean_ - terms_.size(), to - terms_.size());
        clean_ = to;
        if (clean_word_ == nullptr) return;
        clean_word_->relaxed(to);
        full_fence(); // SYNC -: of all orders only the compiler's: a process that dies behind this has stored it
    }

    // The sender is beyond its limit. Its SETUP shows whether it still has the bytes that are missing here.
    template <class Out> void request_setup(int64_t now, Out &out) {
        if (!ahead_ || now < setup_at_) return;
        ahead_ = false;
        setup_at_ = now + options_.status_ns;
        if (send(out, make_status(options_, session(), wire::flag_send_setup), status_size(options_), rtt_reserve))
            ++counts_.setup_requests;
    }

    template <class Out> void send_eos_status(int64_t now, Out &out) {
        if (now < status_at_) return;
        if (eos_statuses_sent_ == eos_status_messages) {
            state_ = State::done;
            return;
        }
        if (send(out, status(wire::flag_status_eos), status_size(options_), 0)) ++counts_.statuses;
        ++eos_statuses_sent_;
        status_at_ = now + options_.status_ns;
    }

    // Proof that the source is there: it sends a number back that it cannot guess.
    template <class Out, class Random> void request_rtt(int64_t now, Out &out, Random &&random) {
        const bool misses = options_.reliable && (!ranges_.is_contiguous() || high_ > rebuilt());
        if ((!measures() && !misses) || now < rtt_at_) return;
        const auto number = static_cast<int64_t>(random() | 1);
        auto frame = wire::make<wire::RttFrame>(wire::Type::rtt, wire::flag_reply);
        frame.session = session();
        frame.stream = setup_.stream;
        frame.echo = number;
        frame.receiver = options_.receiver;
        const bool sent = send(out, frame, sizeof frame, 0);
        if (sent) {
            ++counts_.rtt_requests;
            round_trips_.on_request(now, number);
        }
        const bool rarely = sent && !source_verified_ && !awaits_proof(); // it does not answer: other replies need the bytes
        rtt_at_ = now + (rarely ? options_.liveness_ns / 10
                         : sent ? round_trips_.wait_ns(options_.status_ns / 10, options_.status_ns)
                                : options_.status_ns / 10);
    }

    template <class Out, class Random> void scan(int64_t now, Out &out, Random &&random) {
        loss_.scan(now, ranges_, high_, round_trips_, random, [&](uint64_t from, uint64_t to) {
            if (!options_.reliable) {
                fill_gap(from, to);
                return;
            }
            auto frame = wire::make<wire::NakFrame>(wire::Type::nak);
            frame.session = session();
            frame.stream = setup_.stream;
            frame.term_id = terms_.term_id(from);
            frame.term_offset = static_cast<int32_t>(terms_.offset(from));
            frame.length = static_cast<int32_t>(std::min(to - from, terms_.left_in_term(from)));
            if (!send(out, frame, sizeof frame, proof_reserve(now) + status_size(options_))) return;
            ++counts_.naks;
            asked_to_ = std::max(asked_to_, to);
        });
    }

    void fill_gaps(uint64_t high) {
        while (rebuilt() < high) {
            ranges_.gaps(high, [&](uint64_t from, uint64_t to) {
                fill_gap(from, to);
                return false; // the ranges have changed
            });
        }
    }
    // A gap is lost: padding for the readers, one pad per term, and a count for people.
    void fill_gap(uint64_t from, uint64_t to) {
        ++counts_.losses;
        counts_.bytes_lost += to - from;
        for (uint64_t step; from < to; from += step) {
            step = std::min(to - from, terms_.left_in_term(from));
            pad(from, step);
        }
    }
    void pad(uint64_t at, uint64_t room) {
        FrameHeader *frame = terms_.frame(at);
        terms_.write_header(frame, at, session(), 0);
        // SYNC 1: pairs with LogReader::peek, LogReader::skip_lost; forbids the length being seen before the memory behind the
        // padding is clean
        frame->word0.release(pack_word0(static_cast<uint32_t>(room), flags_whole | flag_lost, FrameType::pad));
        ranges_.add(at, at + room);
    }

    // No more goes to a source than has come from there until it has proved that it receives at its address. `left`: bytes that
    // stay for what matters more. The proof comes first, since it ends the limit, then status messages, then NAKs, which are
    // many. A source that does not answer is asked less often, and gets status messages instead.
    static constexpr size_t rtt_reserve = sizeof(wire::RttFrame);
    static constexpr uint32_t proofs_first = 2;
    bool awaits_proof() const { return round_trips_.unanswered() < proofs_first; }
    size_t proof_reserve(int64_t now) const { return awaits_proof() || now >= rtt_at_ ? rtt_reserve : 0; }
    // The source has still to prove itself, or no round trip was ever measured.
    bool measures() const { return !source_verified_ || (unmeasured_ && !round_trips_.has_any()); }
    template <class Out, class Frame> bool send(Out &out, const Frame &frame, size_t length, size_t left) {
        return send_bytes(out, wire::bytes_of(frame), length, left);
    }
    template <class Out> bool send_bytes(Out &out, const uint8_t *bytes, size_t length, size_t left) {
        if (!source_verified_ && sent_to_source_ + length + left > received_from_source_) {
            ++counts_.held;
            return false;
        }
        if ((!source_verified_ && !has_unproved_room(out)) || !out.send(source_, bytes, length)) {
            ++counts_.no_room;
            return false;
        }
        sent_to_source_ += length;
        return true;
    }

    const Terms terms_;
    const ReceiverOptions &options_;
    const wire::SetupFrame setup_;
    Address source_;
    std::optional<Address> verified_source_; // before the session moved
    const uint64_t join_;
    const uint32_t window_;
    Ranges ranges_;
    LossScan loss_;
    uint64_t high_;  // asked for up to here, which may be within a frame
    uint64_t bound_; // the last known end of a frame
    uint64_t consumed_;
    uint64_t status_; // the position of the last status message
    uint64_t clean_;  // memory is zero from what has arrived up to here
    std::optional<uint64_t> end_;
    int64_t last_datagram_ns_, status_at_, rtt_at_, clock_at_, setup_at_ = INT64_MIN;
    int64_t active_ns_;
    RoundTrips round_trips_;
    ClockOffset clock_;
    uint32_t clock_requests_ = 0;
    std::array<uint32_t, 32> probe_echo_; // lengths of probes that have arrived, to be echoed
    size_t probe_echoes_ = 0;
    uint32_t probe_arrived_ = 0; // the longest of the last probes
    int64_t probe_at_ = INT64_MIN / 2;
    uint64_t asked_to_ = 0;                                  // the highest position that was asked for again
    uint64_t received_from_source_ = 0, sent_to_source_ = 0; // bytes, from and to the source
    uint32_t eos_statuses_sent_ = 0;
    uint32_t readers_ = 1, reported_readers_ = 1;
    bool multiple_readers_ = false; // more than one has read here: the count is sent repeatedly, since a frame may be lost
    State state_ = State::active;
    bool source_verified_;
    bool unmeasured_ = true; // it is a new image
    bool status_requested_ = true, round_trip_due_ = false;
    bool status_held_ = false;             // the source had not sent enough for a status message
    bool ahead_ = false, overrun_ = false; // the sender is beyond the window; it no longer has the missing bytes
    bool stopped_ = false, lost_ = false, continues_lost_ = false;
    Atomic<uint64_t> *clean_word_ = nullptr;
    std::string description_;
    ImageCounts counts_;
};

} // namespace penstock
