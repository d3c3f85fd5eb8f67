// An image's file and its entry in the endpoint's list, as the owner of the socket has them: made at SETUP, continued after
// another owner's death, shown to readers, removed. The state machine itself is image.hpp. Crash table:
// docs/design/network_log.md.
#pragma once

#include "log/term_log.hpp"
#include "net/io/new_file.hpp"
#include "net/receive/files/endpoint_file.hpp"
#include "net/receive/session/image.hpp"

namespace penstock {

// ---- the words of an entry ----

inline void write_source(ImageEntry &entry, const Address &source) {
    const uint32_t other = (entry.which.relaxed() & 1) ^ 1;
    SourceWords &words = entry.source[other];
    uint64_t host[2];
    std::memcpy(host, source.host.data(), 16);
    words.host[0].relaxed(host[0]);
    words.host[1].relaxed(host[1]);
    words.scope.relaxed(source.scope);
    words.port.relaxed(source.port);
    entry.which.release(other); // SYNC 28: pairs with read_source; forbids the copy being valid before it is whole
}
inline Address read_source(const ImageEntry &entry) {
    // SYNC 28: pairs with write_source; forbids reading the copy before the word that says which one is valid
    const SourceWords &words = entry.source[entry.which.acquire() & 1];
    const uint64_t host[2] = {words.host[0].relaxed(), words.host[1].relaxed()};
    Address source;
    std::memcpy(source.host.data(), host, 16);
    source.scope = words.scope.relaxed();
    source.port = static_cast<uint16_t>(words.port.relaxed());
    return source;
}
inline void write_setup(ImageEntry &entry, const wire::SetupFrame &setup) {
    entry.session.relaxed(static_cast<uint32_t>(setup.session));
    entry.initial_term_id.relaxed(static_cast<uint32_t>(setup.initial_term_id));
    entry.active_term_id.relaxed(static_cast<uint32_t>(setup.active_term_id));
    entry.term_offset.relaxed(static_cast<uint32_t>(setup.term_offset));
    entry.term_length.relaxed(static_cast<uint32_t>(setup.term_length));
    entry.mtu.relaxed(static_cast<uint32_t>(setup.mtu));
    entry.ttl.relaxed(static_cast<uint32_t>(setup.ttl));
    entry.stream.relaxed(static_cast<uint32_t>(setup.stream));
}
// False: this library did not write these words.
inline bool read_setup(const ImageEntry &entry, wire::SetupFrame &setup) {
    setup = wire::make<wire::SetupFrame>(wire::Type::setup);
    setup.session = static_cast<int32_t>(entry.session.relaxed());
    setup.initial_term_id = static_cast<int32_t>(entry.initial_term_id.relaxed());
    setup.active_term_id = static_cast<int32_t>(entry.active_term_id.relaxed());
    setup.term_offset = static_cast<int32_t>(entry.term_offset.relaxed());
    setup.term_length = static_cast<int32_t>(entry.term_length.relaxed());
    setup.mtu = static_cast<int32_t>(entry.mtu.relaxed());
    setup.ttl = static_cast<int32_t>(entry.ttl.relaxed());
    setup.stream = static_cast<int32_t>(entry.stream.relaxed());
    const wire::SetupFrame copy = setup;
    return wire::parse(wire::bytes_of(copy), sizeof copy, setup);
}
// Once. True if it did.
inline bool write_description(ImageEntry &entry, const std::string &text) {
    if (text.empty() || entry.description_length.relaxed() != 0 || text.size() > description_max) return false;
    std::string padded = text;
    padded.resize((text.size() + 7) & ~size_t{7});
    copy_words_in(entry.description, padded.data(), padded.size());
    // SYNC 28: pairs with read_description; forbids the length being visible before the text
    entry.description_length.release(static_cast<uint32_t>(text.size()));
    return true;
}
inline std::string read_description(const ImageEntry &entry) {
    // SYNC 28: pairs with write_description; forbids reading the text before its length
    const uint32_t length = std::min(entry.description_length.acquire(), description_max);
    std::string text((length + 7) & ~size_t{7}, '\0');
    copy_words_out(text.data(), entry.description, text.size());
    text.resize(length);
    return text;
}

inline void clear_words(SessionWords &words) {
    if (!platform::keeps_latencies) return; // the model checker has no use for them: nothing depends on them
    auto *all = reinterpret_cast<Atomic<uint64_t> *>(&words);
    for (size_t i = 0; i < offsetof(SessionWords, window) / sizeof *all; ++i) all[i].relaxed(0);
    words.window.relaxed(0);
    words.path_limit.relaxed(0);
    words.state.relaxed(0);
}

// The position where an image begins, and the start of its term.
inline uint64_t join_position_of(const wire::SetupFrame &setup) {
    const uint32_t round = static_cast<uint32_t>(setup.active_term_id) - static_cast<uint32_t>(setup.initial_term_id);
    return uint64_t{round} * static_cast<uint32_t>(setup.term_length) + static_cast<uint32_t>(setup.term_offset);
}

// ---- the file ----

inline LogGeometry image_geometry(const wire::SetupFrame &setup, uint32_t slots) {
    LogGeometry g;
    g.term_length = static_cast<uint32_t>(setup.term_length);
    g.window = g.term_length / 2;
    g.slot_count = slots;
    g.initial_term_id = setup.initial_term_id;
    g.stream = setup.stream;
    g.start_position = join_position_of(setup) & ~uint64_t{g.term_length - 1};
    g.max_frame = std::max<uint32_t>(2 * header_length, std::min(static_cast<uint32_t>(setup.mtu), g.term_length / 4));
    return g;
}

// Everything below the join is padding, so that readers begin at the term's start.
inline void format_image(const Mapping &map, const wire::SetupFrame &setup, const LogGeometry &g) {
    auto *control = reinterpret_cast<Control *>(map.bytes() + control_offset);
    const uint64_t join = join_position_of(setup);
    if (const uint64_t room = join - g.start_position; room != 0) {
        const TermBuffer buffer(map.bytes() + terms_offset(g.slot_count), g.term_length, g.max_frame, g.initial_term_id,
                                g.stream);
        FrameHeader *frame = buffer.frame(g.start_position);
        buffer.write_header(frame, g.start_position, setup.session, 0);
        frame->word0.relaxed(pack_word0(static_cast<uint32_t>(room), flags_whole, FrameType::pad));
    }
    control->sessions.value.relaxed(static_cast<uint32_t>(setup.session) | 1);
    control->tail.value.relaxed(join);
    control->limit.value.relaxed(join + 2 * uint64_t{g.term_length});
}

class ImageOwner {
  public:
    // `file`: of the image; it lives in the entry at `index`.
    ImageOwner(int fd, const EndpointFile &endpoint, uint32_t index, uint64_t number, const wire::SetupFrame &setup)
        : index_(index), number_(number), entry_(endpoint.entry(index)), setup_(setup),
          log_(std::make_shared<TermLog>(fd, endpoint.uri() + " (" + endpoint.image_file(number) + ")")) {
        const LogGeometry &g = log_->geometry();
        if (g.term_length != static_cast<uint32_t>(setup.term_length) || g.initial_term_id != setup.initial_term_id ||
            g.stream != setup.stream)
            throw Error(Code::corrupt, log_->where() + ": an image of another session");
        log_->attach(Role::exclusive, 0, [] {}); // to hold the log's lock; nothing is claimed
    }

    uint32_t index() const { return index_; }
    uint64_t number() const { return number_; }
    int32_t session() const { return setup_.session; }
    const wire::SetupFrame &setup() const { return setup_; }
    TermLog &log() const { return *log_; }
    ImageEntry &entry() const { return entry_; }
    bool listed() const { return entry_.number.relaxed() == number_; }
    Terms terms() const {
        const LogGeometry &g = log_->geometry();
        return {log_->mapping()->bytes() + terms_offset(g.slot_count), g.term_length, static_cast<uint32_t>(setup_.mtu),
                g.initial_term_id, g.stream};
    }

    // After an owner that died at any instruction, or gave up: whole frames are kept up to the first hole, everything
    // behind it is zeroed. No reader can be behind that hole.
    ImageState recover() {
        const uint64_t join = join_position_of(setup_), start = log_->geometry().start_position;
        const Terms terms = this->terms();
        ImageState state;
        state.clean = entry_.clean.relaxed();
        state.status = entry_.status.relaxed();
        state.received = entry_.received.relaxed();
        state.replied = entry_.replied.relaxed();
        state.source_verified = entry_.source_verified.relaxed() != 0;
        lost_before_ = entry_.bytes_lost.relaxed();
        const auto *counts = reinterpret_cast<const Atomic<uint64_t> *>(&entry_.words);
        for (size_t i = 0; i < SessionWords::counts_max; ++i) counted_before_[i] = counts[i].relaxed();
        const SessionEnd end = SessionEnd::of(log_->control().session_end.value.relaxed());
        state.lost = end.how == SessionEnd::How::lost;
        if (end.how == SessionEnd::How::closed) state.end = end.position;
        uint64_t at = log_->control().tail.value.relaxed();
        const bool sound = at % frame_alignment == 0 && at >= join && state.status % frame_alignment == 0 &&
                           state.status >= join && state.status <= at && state.clean >= at &&
                           state.clean % frame_alignment == 0 && state.clean - start >= terms.size() &&
                           state.clean - state.status <= terms.size();
        if (!sound) throw Error(Code::corrupt, log_->where() + ": its positions were overwritten by something else");
        while (at < state.clean) {
            const uint64_t room = whole_frame(terms, at);
            if (room == 0 || room > state.clean - at) break;
            at += room;
        }
        state.rebuilt = at;
        if (state.end && *state.end < at) state.end.reset();
        if (at == state.clean) return state;
        terms.frame(at)->word0.relaxed(0); // readers look at this word, and at nothing behind it
        // Nothing was inserted beyond half a term behind the position in the entry: that is as far as an owner takes frames.
        const uint64_t from = at + sizeof(FrameHeader::word0), to = std::min(state.clean, state.status + terms.term_length() / 2);
        if (from < to) terms.clean(from, to);
        return state;
    }

    // Publishes to readers in all processes, and for the next owner. True if readers have something new.
    bool publish(const Image &image) {
        bool changed = false;
        if (image.rebuilt() != published_) {
            published_ = image.rebuilt();
            log_->control().tail.value.relaxed(published_); // a subscription that begins here acquires each frame
            changed = true;
        }
        if (image.status_position() != entry_.status.relaxed()) {
            entry_.status.relaxed(image.status_position());
            // New subscriptions find nothing older. Up to three terms before the limit may be gone.
            log_->control().limit.value.relaxed(image.status_position() + 2 * log_->buffer().term_length());
        }
        entry_.high.relaxed(image.high());
        entry_.received.relaxed(image.bytes_from_source());
        entry_.replied.relaxed(image.bytes_sent_to_source());
        entry_.source_verified.relaxed(image.source_verified() ? 1 : 0);
        if (const uint64_t lost = lost_before_ + image.counts().bytes_lost; lost != entry_.bytes_lost.relaxed())
            entry_.bytes_lost.relaxed(lost);
        if (!(source_ == image.source())) write_source(entry_, source_ = image.source());
        if (platform::keeps_latencies && image.counts().datagrams != shown_datagrams_) show_words(image);
        changed |= write_description(entry_, image.description()); // a subscription may wait for it with all messages there
        return publish_end(image) || changed;
    }
    // Publishes where the session ends, and how, once that is known. Subscriptions that have read everything look at it also
    // when the image is listed no more.
    bool publish_end(const Image &image) {
        SessionEnd end;
        if (image.lost()) end = {SessionEnd::How::lost, image.rebuilt()};
        else if (image.stopped()) end = {SessionEnd::How::closed, image.rebuilt()};
        else if (image.end()) end = {SessionEnd::How::closed, *image.end()};
        Atomic<uint64_t> &word = log_->control().session_end.value;
        if (word.relaxed() == end.word()) return false;
        if (platform::keeps_latencies) entry_.words.state.relaxed(static_cast<uint32_t>(end.how));
        word.relaxed(end.word()); // only its value counts: the subscription has read up to there itself
        return true;
    }

    // How far every subscription has read, `rebuilt` at most. It never waits: a slot that is locked counts as unread.
    // `all_joined`: whether each subscription of the endpoint has a slot here.
    uint64_t consumed(const Image &image, bool all_joined) {
        const uint64_t before = image.consumed();
        if (!all_joined || !log_->acquire_lock(50'000)) return before;
        const RobustLockGuard held(log_->control().lock.value);
        uint64_t slowest = log_->slowest(image.rebuilt());
        const bool stalls =
            slowest < image.rebuilt() && image.high() + image.window() / 8 >= image.status_position() + image.window();
        if (stalls && log_->drop_slow(slowest + log_->geometry().window + 1)) slowest = log_->slowest(image.rebuilt());
        return std::max(before, slowest);
    }
    // A look without the lock: whether `consumed` is worth it.
    uint64_t estimate_consumed(uint64_t rebuilt) const { return log_->slowest(rebuilt); }

    uint64_t last_estimate = 0;  // estimate_consumed() at the last check
    bool clean_word_set = false; // the image writes to its entry how far it cleans

  private:
    // For people. What only grows goes on where the owner before stopped; its measurements stay until there are new ones.
    void show_words(const Image &image) {
        SessionWords &words = entry_.words;
        const ImageCounts &c = image.counts();
        shown_datagrams_ = c.datagrams;
        const uint64_t counts[SessionWords::counts_max] = {c.datagrams, c.bytes, c.naks, c.repaired, c.losses, c.duplicates};
        auto *to = reinterpret_cast<Atomic<uint64_t> *>(&words);
        for (size_t i = 0; i < SessionWords::counts_max; ++i) to[i].relaxed(counted_before_[i] + counts[i]);
        if (const int64_t ns = image.round_trip_ns(); ns != 0) words.round_trip.relaxed(static_cast<uint64_t>(ns));
        if (const ClockOffset &clock = image.clock(); clock.known()) {
            words.clock_offset.relaxed(static_cast<uint64_t>(clock.offset_ns()));
            words.clock_error.relaxed(static_cast<uint64_t>(clock.error_ns()));
            words.clock_correction.relaxed(static_cast<uint64_t>(clock.correction_ns()));
        }
        words.heard.relaxed(static_cast<uint64_t>(image.heard_ns()));
        words.consumed.relaxed(image.consumed());
        words.window.relaxed(image.window());
        words.path_limit.relaxed(image.path_limit(image.heard_ns()));
    }
    uint64_t whole_frame(const Terms &terms, uint64_t at) const {
        const FrameHeader *frame = terms.frame(at);
        const uint64_t word0 = frame->word0.relaxed(); // the owner's kernel lock orders its writer before us
        if (frame_length(word0) < static_cast<int32_t>(header_length) || frame_version(word0) != 0 ||
            frame_type(word0) > static_cast<uint16_t>(FrameType::data) || frame->term_offset != terms.offset(at) ||
            frame->term_id != terms.term_id(at))
            return 0;
        const uint64_t room = align_frame(static_cast<uint64_t>(frame_length(word0)));
        return room <= terms.left_in_term(at) ? room : 0;
    }

    const uint32_t index_;
    const uint64_t number_;
    ImageEntry &entry_;
    const wire::SetupFrame setup_;
    const std::shared_ptr<TermLog> log_;
    uint64_t published_ = 0, lost_before_ = 0; // lost_before_: bytes, by the owners before
    std::array<uint64_t, SessionWords::counts_max> counted_before_{};
    uint64_t shown_datagrams_ = 0;
    Address source_;
};

} // namespace penstock
