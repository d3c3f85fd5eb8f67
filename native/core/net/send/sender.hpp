// The sender of one session, as a state machine: the time, datagrams and ticks go in, datagrams come out. It knows no socket,
// no clock, no randomness and no members; it reads committed frames from the terms that it is given. After Aeron's network
// publication. States, order of events and crash table: docs/design/network_log.md.
#pragma once

#include "ground/error.hpp"
#include "net/send/nak_budget.hpp"
#include "net/send/path_probe.hpp"
#include "net/send/retransmits.hpp"
#include "net/wire/data_frame.hpp"
#include "net/wire/error_frame.hpp"
#include "net/wire/extension_frame.hpp"
#include "net/wire/flow_control.hpp"
#include "net/wire/nak_frame.hpp"
#include "net/wire/rtt_frame.hpp"
#include "net/wire/setup_frame.hpp"
#include "net/wire/status_frame.hpp"
#include "net/wire/terms.hpp"

#include <string>

namespace penstock {

struct SenderOptions {
    int32_t session = 0;
    int32_t stream = 0;
    uint32_t mtu = wire::mtu_default;
    int32_t ttl = 0;
    FlowControl flow_control = FlowControl::max;
    int64_t group_tag = 0;          // of FlowControl::tagged
    std::string description;        // sent to receivers in an extension frame; empty: none
    uint32_t window = 128 * 1024;   // the receivers' usual window: bounds retransmits
    int64_t setup_ns = 100'000'000; // between SETUPs, between heartbeats
    int64_t liveness_ns = 5'000'000'000;
    int64_t linger_ns = 5'000'000'000;
    int64_t retransmit_ns = 10'000'000; // a range is not retransmitted sooner, unless receivers have reported shorter round trips
    int64_t retransmit_min_ns = 80'000;
    int64_t describe_ns = 1'000'000'000;
    int64_t probe_ns = 30'000'000'000; // between two looks at a path that drops long datagrams
};

// All of them grow only.
struct SenderCounts {
    uint64_t datagrams = 0, bytes = 0; // everything that was sent
    uint64_t setups = 0, heartbeats = 0, descriptions = 0, rtt_replies = 0;
    uint64_t retransmits = 0, retransmitted_bytes = 0;
    uint64_t statuses = 0, statuses_refused = 0; // outside every window
    uint64_t setup_requests = 0;
    uint64_t naks = 0, naks_ignored = 0; // asked already, too much at once, from a stranger, or no longer kept
    uint64_t naks_refused = 0;           // beyond the receiver's budget; ignored too
    uint64_t errors = 0;
    uint64_t malformed = 0, rejected = 0; // of another session, stream or type
    uint64_t receivers_refused = 0, replies_dropped = 0;
    uint64_t no_room = 0; // the way out was full
};

// `Out`: send(bytes, length) puts a datagram on the way to every receiver; false if it has no room now.
class Sender {
  public:
    enum class State { unconnected, active, draining, lingering, closed };
    static constexpr uint32_t datagrams_per_tick = 64, windows_per_retransmit = 16;
    static constexpr size_t replies_max = 32, replies_of_source_max = 4; // measurements of round trips, per tick

    // `position`: where the stream continues; the start of a frame.
    Sender(Terms terms, SenderOptions options, uint64_t position, int64_t now)
        : terms_(terms), options_(std::move(options)), receivers_(options_.flow_control, options_.liveness_ns),
          retransmits_(options_.retransmit_ns, uint64_t{windows_per_retransmit} * options_.window),
          nak_budget_(options_.window,
                      std::max<uint64_t>(uint64_t{windows_per_retransmit} * options_.window, terms.term_length() / 2)),
          position_(position), limit_(position), start_(position), end_(0), probe_(options_.mtu), path_mtu_(options_.mtu),
          now_(now), setup_at_(now), heartbeat_at_(now), describe_at_(now) {
        if (options_.mtu < wire::mtu_min || options_.mtu > wire::datagram_max || options_.mtu % frame_alignment != 0)
            throw Error(Code::invalid, "an MTU is a multiple of 32, from 32 to 65504, not " + std::to_string(options_.mtu));
        const size_t room =
            std::min<size_t>(wire::extension_text_max, options_.mtu - std::min(options_.mtu, wire::extension_header));
        if (options_.description.size() > room)
            throw Error(Code::too_large, "with an MTU of " + std::to_string(options_.mtu) +
                                             " a stream's description has at most " + std::to_string(room) + " bytes, not " +
                                             std::to_string(options_.description.size()));
    }

    uint64_t position() const { return position_; } // everything below it was sent once
    uint64_t limit() const { return limit_; }
    uint64_t consumed() const { return consumed_; }         // everything below it was read by receivers
    bool replaced() const { return receivers_.replaced(); } // a receiver by another one, which lacks what was not read
    State state() const { return state_; }
    bool connected() const { return receivers_.size() != 0; }
    size_t receivers() const { return receivers_.size(); }
    bool hears(const Address &from) const { return receivers_.knows(from); } // a receiver there, lately
    uint32_t readers() const { return receivers_.readers(); }                // subscriptions, as far as receivers report
    const SenderCounts &counts() const { return counts_; }
    const std::string &last_error() const { return last_error_; }
    const Address &nak_refused_from() const { return nak_refused_from_; }           // the last one beyond its budget
    const Address &receiver_refused_from() const { return receiver_refused_from_; } // the last one beyond its share
    const std::vector<FlowLimit::Entry> &receiver_entries() const { return receivers_.entries(); }
    uint32_t mtu() const { return options_.mtu; }
    // The wall clock now: for a receiver that asks for it in the next datagram.
    void set_wall_clock(int64_t ns) { wall_ns_ = ns; }

    void datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length) {
        advance(now);
        wire::Type type;
        if (!wire::parse_type(bytes, length, type)) {
            ++counts_.malformed;
            return;
        }
        if (type == wire::Type::status) on_status(from, bytes, length);
        else if (type == wire::Type::nak) on_nak(from, bytes, length);
        else if (type == wire::Type::rtt) on_rtt(from, bytes, length);
        else if (type == wire::Type::error) on_error(bytes, length);
        else if (type == wire::Type::extension) on_extension(from, bytes, length);
        else ++counts_.rejected;
    }

    // The system reports that no socket has the destination's port.
    void on_unreachable() { receivers_.on_unreachable(); }
    // The next tick sends a heartbeat, to find out whether a receiver listens.
    void request_heartbeat() { heartbeat_at_ = now_; }
    // A receiver asks for SETUP that knows no session yet; a newcomer has proved its address.
    void request_setup() { setup_requested_ = true; }
    // SETUP and the description are due at once: a receiver takes nothing that was sent before.
    void introduce(int64_t now) {
        advance(now);
        setup_requested_ = true;
        setup_at_ = now_;
    }
    void schedule_description(int64_t now) {
        advance(now);
        describe_at_ = now_;
    }

    // Sends what is due, a bounded number of datagrams. True if there is more to send at once.
    template <class Out> bool tick(int64_t now, Out &out) {
        advance(now);
        if (state_ == State::closed) return false;
        receivers_.forget(now_);
        const bool more = send_control(out) && probe(out) && retransmit(out) && send_data(out);
        update_state();
        heartbeat(out);
        return more;
    }

    // When the next tick is due, if nothing arrives and nothing is committed until then.
    int64_t next() const {
        if (state_ == State::closed) return INT64_MAX;
        if (!replies_.empty() || clocks_asked_ != 0 || retransmits_.pending()) return now_;
        int64_t next = state_ == State::unconnected || setup_requested_ ? setup_at_ : INT64_MAX;
        next = std::min(next, probe_.next());
        if (state_ != State::unconnected) next = std::min(next, heartbeat_at_);
        if (!options_.description.empty()) next = std::min(next, describe_at_);
        if (state_ == State::lingering || (state_ == State::draining && !connected()) ||
            (closing_ && state_ == State::unconnected))
            next = std::min(next, linger_until_);
        return std::max(next, now_);
    }

    // No frame is committed at or above `end`. Frames below it are still sent, while there is a receiver, or until one comes:
    // for that it waits as long as it lingers.
    void close(int64_t now, uint64_t end) {
        advance(now);
        if (closing_ || state_ == State::draining || state_ == State::lingering || state_ == State::closed) return;
        end_ = end;
        closing_ = state_ == State::unconnected && end > position_;
        linger_until_ = now_ + options_.linger_ns;
        if (!closing_) state_ = state_ == State::unconnected ? State::closed : State::draining; // there was never a receiver
        heartbeat_at_ = now_;
    }

  private:
    // A clock that jumps back is taken to stand still.
    void advance(int64_t now) { now_ = std::max(now_, now); }

    template <class Frame> bool mine(const Frame &frame) {
        if (frame.session == options_.session && frame.stream == options_.stream) return true;
        ++counts_.rejected;
        return false;
    }

    void on_status(const Address &from, const uint8_t *bytes, size_t length) {
        wire::StatusFrame frame;
        bool tagged;
        if (!wire::parse(bytes, length, frame, tagged)) ++counts_.malformed;
        else if (!mine(frame)) return;
        else if ((frame.start.flags & wire::flag_send_setup) != 0) {
            ++counts_.setup_requests;
            setup_requested_ = true;
        } else accept_status(from, frame, tagged);
    }
    void accept_status(const Address &from, const wire::StatusFrame &frame, bool tagged) {
        const uint64_t half = terms_.term_length() / 2;
        const auto offset = static_cast<uint32_t>(frame.term_offset), window = static_cast<uint32_t>(frame.window);
        uint64_t at;
        if (offset > terms_.term_length() || window > half || !terms_.find_position(frame.term_id, offset, position_, at) ||
            at > position_ + half || at < oldest()) {
            ++counts_.statuses_refused;
            return;
        }
        const bool end_of_stream = (frame.start.flags & wire::flag_status_eos) != 0;
        const bool in_group = tagged && frame.group_tag == options_.group_tag;
        if (!receivers_.on_status(now_, {from, frame.receiver, at + window, in_group, end_of_stream, at, window})) {
            ++counts_.receivers_refused;
            receiver_refused_from_ = from;
            return;
        }
        ++counts_.statuses;
        nak_budget_.on_consumed(now_, from, std::min(at, position_), position_);
        limit_ = receivers_.limit(limit_);
        consumed_ = receivers_.consumed(consumed_);
        if (state_ != State::unconnected) return;
        state_ = closing_ ? State::draining : State::active;
        heartbeat_at_ = now_ + options_.setup_ns;
        describe_at_ = std::min(describe_at_, now_ + options_.setup_ns); // the frames beside SETUP may be lost
    }

    void on_nak(const Address &from, const uint8_t *bytes, size_t length) {
        wire::NakFrame frame;
        if (!wire::parse(bytes, length, frame)) ++counts_.malformed;
        else if (mine(frame)) {
            ++counts_.naks;
            receivers_.on_nak(from);
            if (!accept_nak(from, frame)) ++counts_.naks_ignored;
        }
    }
    bool accept_nak(const Address &from, const wire::NakFrame &frame) {
        if (!receivers_.knows(from)) return false; // 28 bytes must not draw megabytes to anybody else
        const auto offset = static_cast<uint32_t>(frame.term_offset);
        uint64_t at;
        if (offset >= terms_.term_length() || !terms_.find_position(frame.term_id, offset, position_, at)) return false;
        if (at >= position_ || at < oldest()) return false;
        const uint64_t most = std::min(terms_.left_in_term(at), uint64_t{windows_per_retransmit} * options_.window);
        const uint64_t end = std::min(at + std::min(static_cast<uint64_t>(frame.length), most), position_);
        if (!begins_frame(at)) return false; // a NAK that names no frame
        const uint64_t least = std::min<uint64_t>(room_of(terms_.frame(at)->word0.relaxed()), options_.mtu); // it is sent whole
        const uint64_t allowed = nak_budget_.allowed(now_, from, std::max(end - at, least), position_);
        if (allowed < least) {
            ++counts_.naks_refused;
            nak_refused_from_ = from;
            starved_ = true;
            return false;
        }
        // The frame that the range ends in is sent whole, too.
        const uint64_t length =
            allowed >= end - at ? end - at : std::max(least, allowed - std::min<uint64_t>(allowed, options_.mtu));
        if (!retransmits_.request(now_, at, at + length)) return false;
        nak_budget_.on_request(now_, from, allowed, position_);
        return true;
    }
    static uint64_t room_of(uint64_t word0) { return align_frame(static_cast<uint64_t>(frame_length(word0))); }
    // Bytes below it are not retransmitted: writers may overwrite them.
    uint64_t oldest() const {
        const uint64_t kept = terms_.term_length() / 2 + std::max<uint64_t>(options_.mtu, terms_.term_length() / 8);
        return position_ - start_ > kept ? position_ - kept : start_;
    }

    void on_rtt(const Address &from, const uint8_t *bytes, size_t length) {
        wire::RttFrame frame;
        if (!wire::parse(bytes, length, frame)) ++counts_.malformed;
        else if (!mine(frame)) return;
        else if ((frame.start.flags & wire::flag_reply) == 0) ++counts_.rejected;
        else if (replies_.size() == replies_max || std::count_if(replies_.begin(), replies_.end(), [&](const Reply &one) {
                                                       return one.to == from;
                                                   }) == replies_of_source_max)
            ++counts_.replies_dropped;
        else {
            frame.start.flags = 0;
            frame.delta = 0;
            replies_.push_back({from, frame});
        }
    }
    void on_error(const uint8_t *bytes, size_t length) {
        wire::ErrorFrame frame;
        std::string text;
        if (!wire::parse(bytes, length, frame, text)) ++counts_.malformed;
        else if (mine(frame)) {
            ++counts_.errors;
            last_error_ = std::move(text);
        }
    }

    void on_extension(const Address &from, const uint8_t *bytes, size_t length) {
        wire::ExtensionFrame frame;
        std::string text;
        uint32_t number = 0;
        if (!wire::parse(bytes, length, frame, text)) ++counts_.malformed;
        else if (!mine(frame)) return;
        else if (frame.noun == wire::extension_clock_request) on_clock_request(from, text);
        else if (!wire::read_number(text, number)) ++counts_.rejected;
        else if (frame.noun == wire::extension_readers) receivers_.on_readers(from, number);
        else if (frame.noun == wire::extension_round_trip) receivers_.on_round_trip(from, number);
        else if (frame.noun == wire::extension_probe_echo && number <= options_.mtu) receivers_.on_probe_echo(from, number);
        else ++counts_.rejected;
    }
    void on_clock_request(const Address &from, const std::string &text) {
        uint64_t number = 0;
        if (!receivers_.knows(from) || !wire::read_number(text, number)) ++counts_.rejected;
        else if (clocks_asked_ == clocks_.size()) ++counts_.replies_dropped;
        else clocks_[clocks_asked_++] = {number, wall_ns_};
    }

    template <class Out> bool put(Out &out, const uint8_t *bytes, size_t length) {
        if (!out.send(bytes, length)) {
            ++counts_.no_room;
            return false;
        }
        ++counts_.datagrams;
        counts_.bytes += length;
        return true;
    }

    // SETUP, the description, replies; false when the way is full.
    template <class Out> bool send_control(Out &out) {
        if ((state_ == State::unconnected || setup_requested_) && now_ >= setup_at_) {
            const wire::SetupFrame frame = setup();
            if (!put(out, wire::bytes_of(frame), sizeof frame)) return false;
            ++counts_.setups;
            setup_requested_ = false;
            setup_at_ = now_ + options_.setup_ns;
            describe_at_ = now_;
        }
        if (!options_.description.empty() && now_ >= describe_at_) {
            const std::string frame =
                wire::write_extension(wire::extension_description, options_.session, options_.stream, options_.description);
            if (!put(out, reinterpret_cast<const uint8_t *>(frame.data()), frame.size())) return false;
            ++counts_.descriptions;
            describe_at_ = state_ == State::unconnected ? INT64_MAX : now_ + options_.describe_ns;
        }
        for (; !replies_.empty(); replies_.pop_back(), ++counts_.rtt_replies)
            if (!put(out, wire::bytes_of(replies_.back().frame), sizeof(wire::RttFrame))) return false;
        for (; clocks_asked_ != 0; --clocks_asked_) {
            const ClockRequest &one = clocks_[clocks_asked_ - 1];
            const std::string text = std::to_string(one.number) + ' ' + std::to_string(one.wall_ns);
            if (!put_extension(out, wire::extension_clock_answer, text)) return false;
        }
        return true;
    }
    template <class Out> bool put_extension(Out &out, uint16_t noun, const std::string &text) {
        const std::string frame = wire::write_extension(noun, options_.session, options_.stream, text);
        return put(out, reinterpret_cast<const uint8_t *>(frame.data()), frame.size());
    }
    // The same bytes are asked for again and again: do datagrams of this length arrive at all? False when the way is full.
    template <class Out> bool probe(Out &out) {
        const bool stuck = retransmits_.take_stuck(), starved = std::exchange(starved_, false);
        const bool wanted = stuck || starved || now_ >= probe_again_at_;
        if (wanted && probe_.begin(now_)) receivers_.begin_probe();
        bool room = true;
        const bool over = probe_.tick(now_, receivers_.round_trip(0), [&](uint32_t length) {
            return room = !receivers_.echoes() || put_extension(out, wire::extension_probe, wire::probe_text(length));
        });
        if (!over) return room;
        path_mtu_ = receivers_.end_probe(options_.mtu);
        probe_again_at_ = path_mtu_ < options_.mtu ? now_ + options_.probe_ns : INT64_MAX; // the path may change
        return room;
    }
    wire::SetupFrame setup() const {
        auto frame = wire::make<wire::SetupFrame>(wire::Type::setup);
        frame.term_offset = static_cast<int32_t>(terms_.offset(position_));
        frame.session = options_.session;
        frame.stream = options_.stream;
        frame.initial_term_id = terms_.initial_term_id();
        frame.active_term_id = terms_.term_id(position_);
        frame.term_length = static_cast<int32_t>(terms_.term_length());
        frame.mtu = static_cast<int32_t>(options_.mtu);
        frame.ttl = options_.ttl;
        return frame;
    }

    // Whole committed frames from `position` to `end`, for one datagram of at most `most` bytes; a pad ends it. Frames that the
    // log would not have written end it too, and clear `valid`.
    wire::DataFrame gather(uint64_t position, uint64_t end, uint64_t most, bool &valid) const {
        wire::DataFrame found;
        const uint64_t left = std::min(terms_.left_in_term(position), end - position);
        while (found.room < left) {
            // SYNC 1: pairs with LogWriter::commit; forbids reading a frame before its length
            const uint64_t word0 = terms_.frame(position + found.room)->word0.acquire();
            if (frame_length(word0) <= 0) break;
            valid = fits(position + found.room, word0);
            if (!valid) break;
            const uint64_t room = align_frame(static_cast<uint64_t>(frame_length(word0)));
            const bool pad = frame_type(word0) == static_cast<uint16_t>(FrameType::pad);
            const uint64_t wire = pad ? header_length : room;
            if (found.wire + wire > most) break;
            found.room += static_cast<uint32_t>(room);
            found.wire += static_cast<uint32_t>(wire);
            if (pad) break;
        }
        return found;
    }
    // The same; no longer than what the path lets through, if the first frame is not.
    wire::DataFrame gather_for_path(uint64_t position, uint64_t end, uint64_t most, bool &valid) const {
        const wire::DataFrame found = gather(position, end, std::min<uint64_t>(most, path_mtu_), valid);
        return found.room != 0 || !valid || path_mtu_ >= most ? found : gather(position, end, most, valid);
    }
    bool fits(uint64_t position, uint64_t word0) const {
        if (frame_length(word0) < static_cast<int32_t>(header_length) || frame_version(word0) != 0) return false;
        const uint64_t room = align_frame(static_cast<uint64_t>(frame_length(word0)));
        if (room > terms_.left_in_term(position)) return false;
        if (frame_type(word0) == static_cast<uint16_t>(FrameType::pad)) return room == static_cast<uint64_t>(frame_length(word0));
        return frame_type(word0) == static_cast<uint16_t>(FrameType::data) && room <= options_.mtu;
    }
    [[noreturn]] void throw_corrupt(uint64_t position) const {
        throw Error(Code::corrupt, "session " + std::to_string(options_.session) + ": the frame at position " +
                                       std::to_string(position) + " fits no datagram of " + std::to_string(options_.mtu) +
                                       " bytes: the shared memory was overwritten by something else");
    }
    const uint8_t *bytes_at(uint64_t position) const { return reinterpret_cast<const uint8_t *>(terms_.frame(position)); }

    template <class Out> bool retransmit(Out &out) {
        return retransmits_.serve(now_, retransmit_linger_ns(), [&](uint64_t at, uint64_t to) {
            if (at < oldest() || !begins_frame(at)) return to; // writers went on meanwhile
            bool valid = true;
            const wire::DataFrame found = gather_for_path(at, to, options_.mtu, valid);
            if (found.room == 0) return to;
            if (!put(out, bytes_at(at), found.wire)) return at;
            ++counts_.retransmits;
            counts_.retransmitted_bytes += found.wire;
            return at + found.room;
        });
    }
    // A range that was sent once more may be asked for when it must have arrived: after a round trip and half of one.
    int64_t retransmit_linger_ns() const {
        const int64_t measured = receivers_.round_trip(options_.retransmit_ns);
        return std::clamp(measured + measured / 2, options_.retransmit_min_ns, options_.retransmit_ns);
    }
    // A NAK may name any place: the bytes there must be a header of this place.
    bool begins_frame(uint64_t position) const {
        const FrameHeader *frame = terms_.frame(position);
        // SYNC 1: pairs with LogWriter::commit; forbids reading the header before the length says that it is complete
        const uint64_t word0 = frame->word0.acquire();
        return frame_length(word0) > 0 && fits(position, word0) && frame->term_offset == terms_.offset(position) &&
               frame->term_id == terms_.term_id(position) && frame->session == options_.session &&
               frame->stream == options_.stream;
    }

    // New frames, up to the limit. True if there was more than one tick sends.
    template <class Out> bool send_data(Out &out) {
        if (state_ == State::unconnected || state_ == State::lingering) return false;
        for (uint32_t sent = 0; sent < datagrams_per_tick; ++sent) {
            if (position_ >= limit_) return false;
            bool valid = true;
            const uint64_t most = std::min<uint64_t>(options_.mtu, limit_ - position_);
            const wire::DataFrame found = gather_for_path(position_, UINT64_MAX, most, valid);
            if (found.room == 0 && !valid) throw_corrupt(position_);
            if (found.room == 0 || !put(out, bytes_at(position_), found.wire)) return false;
            position_ += found.room;
            heartbeat_at_ = now_ + options_.setup_ns;
        }
        return true;
    }

    template <class Out> void heartbeat(Out &out) {
        if (state_ == State::unconnected || state_ == State::closed || now_ < heartbeat_at_) return;
        const uint8_t end = state_ == State::lingering ? wire::flag_end_of_stream : 0;
        auto frame = wire::make<wire::DataHeader>(wire::Type::data, static_cast<uint8_t>(flags_whole | end));
        frame.start.length = 0;
        frame.term_offset = static_cast<int32_t>(terms_.offset(position_));
        frame.session = options_.session;
        frame.stream = options_.stream;
        frame.term_id = terms_.term_id(position_);
        if (!put(out, wire::bytes_of(frame), sizeof frame)) return;
        ++counts_.heartbeats;
        heartbeat_at_ = now_ + options_.setup_ns;
    }

    void update_state() {
        if (closing_ && state_ == State::unconnected && now_ >= linger_until_) state_ = State::closed;
        if (state_ == State::draining && (position_ >= end_ || connected())) linger_until_ = now_ + options_.linger_ns;
        if (state_ == State::draining && position_ >= end_) {
            state_ = State::lingering;
            heartbeat_at_ = now_;
        } else if (state_ == State::draining && now_ >= linger_until_)
            state_ = State::closed; // the end of the stream is not final
        if (state_ == State::lingering && (now_ >= linger_until_ || receivers_.all_at_end())) state_ = State::closed;
    }

    const Terms terms_;
    const SenderOptions options_;
    FlowLimit receivers_;
    Retransmits retransmits_;
    NakBudget nak_budget_;
    uint64_t position_, limit_;
    uint64_t consumed_ = 0;
    const uint64_t start_;
    uint64_t end_; // of the stream, once it is closed
    PathProbe probe_;
    uint32_t path_mtu_; // the longest datagram that arrives
    int64_t now_, setup_at_, heartbeat_at_, describe_at_;
    int64_t linger_until_ = 0, probe_again_at_ = INT64_MAX;
    State state_ = State::unconnected;
    bool setup_requested_ = false, closing_ = false; // closing: closed before a receiver was heard
    bool starved_ = false; // a known receiver asks for more than its budget: perhaps nothing of it arrives
    struct Reply {
        Address to;
        wire::RttFrame frame;
    };
    std::vector<Reply> replies_;
    Address nak_refused_from_, receiver_refused_from_;
    struct ClockRequest {
        uint64_t number = 0;
        int64_t wall_ns = 0;
    };
    std::array<ClockRequest, 8> clocks_;
    size_t clocks_asked_ = 0;
    int64_t wall_ns_ = 0;
    SenderCounts counts_;
    std::string last_error_;
};

} // namespace penstock
