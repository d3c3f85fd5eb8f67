// The receiver of one stream, as a state machine: it takes datagrams apart by session, makes an image per session, asks for the
// SETUP of sessions that it does not know, and forgets those that have ended. Bounded in sessions, memory and replies, of which
// every source has a share. docs/design/network_log.md.
#pragma once

#include "net/receive/session/image.hpp"
#include "net/receive/session/source_challenges.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace penstock {

// All of them grow only.
struct ReceiverCounts {
    uint64_t malformed = 0, rejected = 0; // of another stream or type
    uint64_t images = 0;                  // ever made
    uint64_t sessions_refused = 0;        // the source's share was used up, or the store had no room
    uint64_t sessions_displaced = 0;      // images that gave way to another source's
    uint64_t sessions_challenged = 0;     // SETUPs whose source was asked first to prove that it receives at its address
    uint64_t cooled = 0;                  // datagrams of sessions that have ended, or from before they fell silent
    uint64_t unknown = 0;                 // data of sessions without an image
    uint64_t setup_requests = 0, requests_dropped = 0;
    uint64_t sessions_closed = 0, sessions_lost = 0; // that have ended, and were read
    uint64_t skips = 0, bytes_skipped = 0;           // bytes between two images of a session that its sender had dropped
};

// `Store`: optional<Terms> open(setup, address) gives zeroed terms for a new image, or none; close(image) takes them back.
template <class Store> class Receiver {
  public:
    static constexpr size_t pending_max = 256, cooling_max = 1024;
    static constexpr int64_t no_room_ns = 20'000'000; // until the next try

    Receiver(ReceiverOptions options, Store &store, int64_t now)
        : options_(options), store_(store), control_(options.control), now_(now) {}
    ~Receiver() {
        for (const auto &image : images_) store_.close(*image);
    }
    Receiver(const Receiver &) = delete;
    Receiver &operator=(const Receiver &) = delete;

    const ReceiverOptions &options() const { return options_; }
    // The time and the wall clock now, of which the last tick knows nothing: for a sender's clock in the next datagram.
    void set_clock(int64_t now, int64_t wall_ns) {
        clock_now_ = now;
        wall_ns_ = wall_ns;
    }
    // The publication that is asked for its stream has another address now.
    void move_control(const Address &to) {
        control_ = to;
        control_request_at_ = now_;
    }
    const std::vector<std::unique_ptr<Image>> &images() const { return images_; }
    // When a source without an image was last asked for a proof of its address, or gave one: its session may be about to come.
    int64_t coming_ns() const { return coming_ns_; }
    const ReceiverCounts &counts() const { return counts_; }
    const ImageCounts &closed_counts() const { return closed_counts_; } // of images that are gone
    const Address &refused_from() const { return refused_from_; }       // the last one that was refused for want of a share
    const Address &displaced_from() const { return displaced_from_; }   // the last one that gave way
    uint64_t memory() const { return memory_; }
    Image *image(int32_t session) const {
        for (const auto &image : images_)
            if (image->session() == session) return image.get();
        return nullptr;
    }

    void datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length) {
        now_ = std::max(now_, now);
        wire::Type type;
        SourceCredit credit(length);
        if (!wire::parse_type(bytes, length, type)) ++counts_.malformed;
        else if (type == wire::Type::data || type == wire::Type::pad) on_data(from, bytes, length, credit);
        else if (type == wire::Type::setup) on_setup(from, bytes, length, credit);
        else if (type == wire::Type::rtt) on_rtt(from, bytes, length);
        else if (type == wire::Type::extension) on_extension(from, bytes, length, credit);
        else ++counts_.rejected;
    }

    template <class Out, class Random> void tick(int64_t now, Out &out, Random &&random) {
        now_ = std::max(now_, now);
        for (const auto &image : images_) image->tick(now_, out, random);
        remove_done_images();
        std::erase_if(cooling_, [&](const Cooling &old) { return now_ >= old.until; });
        send_setup_requests(out);
        std::erase_if(pending_, [&](const Pending &one) { return now_ >= one.until; });
        challenges_.send(now_, options_.stream, options_.receiver, out, random);
        if (control_ && now_ >= control_request_at_) send_control_request(out);
    }

    // An image that another process began. `terms`: cleaned behind `state.rebuilt`.
    Image &adopt(Terms terms, const wire::SetupFrame &setup, const Address &from, const ImageState &state) {
        images_.push_back(std::make_unique<Image>(terms, options_, setup, from, now_, state));
        memory_ += terms.size();
        return *images_.back();
    }

    // When the next tick is due if nothing arrives and no reader moves.
    int64_t next() const {
        int64_t next = INT64_MAX;
        for (const auto &image : images_) next = std::min(next, image->next());
        for (const Pending &one : pending_)
            next = std::min(next, is_due(one) ? now_ : now_ < no_room_until_ ? no_room_until_ : one.until);
        if (challenges_.pending()) next = now_;
        if (control_) next = std::min(next, control_request_at_);
        return std::max(next, now_);
    }

  private:
    struct Pending { // a session without an image, and what its source may draw
        int32_t session;
        Address from;
        int64_t at, until;
        uint64_t received;
        uint64_t sent = 0;
        bool proved = false;
        bool is_due(uint64_t length) const { return sent == 0 && (proved || received >= length); }
    };
    struct Cooling {
        int32_t session, initial_term_id;
        int64_t until;
    };
    // A session that fell silent before its end, and how far it was received: it may speak again.
    struct Silent {
        wire::SetupFrame at;
        Address from;
        int64_t until; // a SETUP from before that arrives earlier has been on its way, or in the socket, for long
        bool proved, lost;
    };

    bool is_cooling(int32_t session) const {
        return std::any_of(cooling_.begin(), cooling_.end(),
                           [&](const Cooling &old) { return old.session == session && now_ < old.until; });
    }
    // Another publication may have the number by now: its terms are others.
    bool is_cooling(const wire::SetupFrame &setup) const {
        return std::any_of(cooling_.begin(), cooling_.end(), [&](const Cooling &old) {
            return old.session == setup.session && old.initial_term_id == setup.initial_term_id && now_ < old.until;
        });
    }

    void on_data(const Address &from, const uint8_t *bytes, size_t length, SourceCredit &credit) {
        int32_t session, stream;
        if (!wire::parse_session(bytes, length, session, stream)) ++counts_.malformed;
        else if (stream != options_.stream) ++counts_.rejected;
        else if (Image *known = image(session)) {
            if (known->may_have_moved(now_, from)) queue_setup_request(from, session, credit.take());
            known->on_data(now_, from, bytes, length, credit);
        } else if (is_cooling(session)) ++counts_.cooled;
        else {
            ++counts_.unknown;
            queue_setup_request(from, session, credit.take());
        }
    }
    // One request per session, source and second, once the source has sent as many bytes.
    Pending *queue_setup_request(const Address &from, int32_t session, uint64_t bytes) {
        const auto is_same = [&](const Pending &one) { return one.session == session && one.from == from; };
        const auto found = std::find_if(pending_.begin(), pending_.end(), is_same);
        if (found != pending_.end()) {
            found->received += bytes;
            return &*found;
        }
        if (pending_.size() == pending_max && !give_way(pending_, now_, from, options_.pending_ns / 10)) {
            ++counts_.requests_dropped;
            return nullptr;
        }
        pending_.push_back({session, from, now_, now_ + options_.pending_ns, bytes});
        return &pending_.back();
    }
    // ---- proof ----

    bool is_proved(const Address &from) const {
        if (options_.authentic || (control_ && *control_ == from)) return true; // the program has named the control address
        return challenges_.has_proved(now_, from);
    }
    void challenge(const Address &from, int32_t session, SourceCredit &credit) {
        if (challenges_.add(from, session, credit)) ++counts_.sessions_challenged;
    }
    // Its next SETUP makes an image.
    void on_proof(const Address &from, int32_t session) {
        if (Pending *one = queue_setup_request(from, session, 0)) {
            one->proved = true;
            one->sent = 0;
            coming_ns_ = now_;
        }
    }
    bool is_due(const Pending &one) const {
        return one.is_due(status_size(options_)) && (now_ >= no_room_until_ || one.proved || is_proved(one.from));
    }
    // In turn. Data alone draw them, which are easier to forge than a SETUP: so they leave room for the other answers.
    template <class Out> void send_setup_requests(Out &out) {
        const size_t count = pending_.size(), first = count == 0 ? 0 : counts_.setup_requests % count;
        for (size_t i = 0; i < count; ++i) {
            Pending &one = pending_[(first + i) % count];
            if (!is_due(one)) continue;
            if (!one.proved && !is_proved(one.from) && !has_unproved_room(out, 4)) {
                no_room_until_ = now_ + no_room_ns;
                continue;
            }
            if (!out.send(one.from, wire::bytes_of(setup_request(one.session)), status_size(options_))) continue;
            one.sent = status_size(options_);
            ++counts_.setup_requests;
        }
    }
    wire::StatusFrame setup_request(int32_t session) const { return make_status(options_, session, wire::flag_send_setup); }

    // The publication there sends to every receiver that asks: of no session yet, repeatedly, since it may start later.
    template <class Out> void send_control_request(Out &out) {
        wire::StatusFrame frame = setup_request(0);
        frame.stream = 0;                                // Aeron's senders answer only to this
        frame.start.length = wire::tagged_status_length; // not shorter than SETUP: a stranger draws no more than it sends
        if (out.send(*control_, wire::bytes_of(frame), wire::tagged_status_length)) ++counts_.setup_requests;
        control_request_at_ = now_ + (images_.empty() ? options_.control_request_ns : options_.control_repeat_ns);
    }

    void on_setup(const Address &from, const uint8_t *bytes, size_t length, SourceCredit &credit) {
        wire::SetupFrame setup;
        if (!wire::parse(bytes, length, setup)) ++counts_.malformed;
        else if (setup.stream != options_.stream) ++counts_.rejected;
        else if (Image *known = image(setup.session); known && !gives_way(*known, from)) {
            known->on_setup(now_, from, setup, credit); // it may move there, and asks for a proof by itself
            if (!known->ever_verified() && !(known->source() == from)) challenge(from, setup.session, credit);
        } else if (is_cooling(setup) || is_late(from, setup)) ++counts_.cooled;
        else {
            if (known) displace({known});
            make_image(from, setup, credit);
        }
    }
    // A source that never proved itself does not keep a session's number from one that has.
    bool gives_way(const Image &image, const Address &from) const {
        return !image.ever_verified() && !(image.source() == from) && is_proved(from);
    }
    // An image that began where this SETUP says would have messages a second time.
    bool is_late(const Address &from, const wire::SetupFrame &setup) const {
        return std::any_of(silent_.begin(), silent_.end(), [&](const Silent &one) {
            return now_ < one.until && one.from == from && distance_ahead(one, setup).value_or(0) < 0;
        });
    }
    void make_image(const Address &from, const wire::SetupFrame &setup, SourceCredit &credit) {
        const uint64_t size = uint64_t{3} * static_cast<uint32_t>(setup.term_length);
        const bool proved = is_proved(from);
        const bool fits = (proved || make_unproved_room(from, size)) && make_room(from, size, proved);
        if (!fits && !proved && size <= options_.memory_max) {
            challenge(from, setup.session, credit);
            coming_ns_ = now_;
            return;
        }
        const wire::SetupFrame begin = resume_setup(setup);
        const std::optional<Terms> terms = fits ? store_.open(begin, from) : std::nullopt;
        if (!terms) {
            ++counts_.sessions_refused;
            if (!fits) refused_from_ = from;
            return;
        }
        images_.push_back(std::make_unique<Image>(*terms, options_, begin, from, now_, proved));
        images_.back()->on_setup(now_, from, setup, credit);
        if (std::any_of(silent_.begin(), silent_.end(),
                        [&](const Silent &one) { return one.lost && distance_ahead(one, setup).has_value(); }))
            images_.back()->continue_lost();
        memory_ += size;
        ++counts_.images;
        for (const Pending &one : pending_)
            if (one.session == setup.session && one.from == from) images_.back()->add_credit(one.received, one.sent);
        std::erase_if(pending_, [&](const Pending &one) { return one.session == setup.session && one.from == from; });
        drop_silent(setup);
    }

    // ---- shares ----

    // Images that `which` names give way until `newcomer` has room, by `size`: one for each, or its bytes.
    template <class Which, class Size> bool share(const Shareholder &newcomer, uint64_t capacity, Which &&which, Size &&size_of) {
        std::vector<Image *> images;
        std::vector<Shareholder> holders;
        uint64_t used = 0;
        for (const auto &one : images_) {
            if (!which(*one)) continue;
            images.push_back(one.get());
            holders.push_back({one->source(), size_of(*one), one->ever_verified(), one->active_ns()});
            used += holders.back().size;
        }
        const auto chosen = Shares::choose(now_, holders, newcomer, capacity, capacity - std::min(used, capacity));
        if (!chosen) return false;
        std::vector<Image *> gone;
        for (const size_t i : *chosen) gone.push_back(images[i]);
        displace(gone);
        return true;
    }
    static uint64_t bytes_of(const Image &image) { return image.terms().size(); }
    static uint64_t one_of(const Image &) { return 1; }
    // Room for one more image, of its memory too.
    bool make_room(const Address &from, uint64_t size, bool proved) {
        const auto any = [](const Image &) { return true; };
        return size <= options_.memory_max && share({from, 1, proved, now_}, options_.sessions_max, any, one_of) &&
               share({from, size, proved, now_}, options_.memory_max, any, bytes_of);
    }
    // The same for an image of a source that has not proved itself: it holds little.
    bool make_unproved_room(const Address &from, uint64_t size) {
        const auto unproved = [](const Image &one) { return !one.ever_verified(); };
        const auto is_unproved = [&](const auto &one) { return unproved(*one); };
        if (images_.size() >= options_.sessions_max && std::none_of(images_.begin(), images_.end(), is_unproved)) return false;
        return size <= options_.unproved_memory_max && share({from, 1, false, now_}, options_.unproved_max, unproved, one_of) &&
               share({from, size, false, now_}, options_.unproved_memory_max, unproved, bytes_of);
    }
    void displace(const std::vector<Image *> &images) {
        for (Image *one : images) {
            displaced_from_ = one->source();
            one->displace();
            ++counts_.sessions_displaced;
        }
        if (!images.empty()) remove_done_images();
    }
    // Where a new image begins: at the SETUP's position, or where the session was when it fell silent, if its sender still keeps
    // all that it has sent since.
    wire::SetupFrame resume_setup(const wire::SetupFrame &setup) const {
        wire::SetupFrame begin = setup;
        for (const Silent &one : silent_) {
            const int64_t ahead = distance_ahead(one, setup).value_or(-1);
            if (ahead < 0 || static_cast<uint64_t>(ahead) > Image::retained_bytes(setup)) continue;
            begin.active_term_id = one.at.active_term_id;
            begin.term_offset = one.at.term_offset;
        }
        return begin;
    }
    // How far SETUP is beyond what has been received of the same publication; none if it is another one's. Its address may
    // have changed while it was silent; each publication begins at a random term.
    static std::optional<int64_t> distance_ahead(const Silent &one, const wire::SetupFrame &setup) {
        if (one.at.session != setup.session || one.at.term_length != setup.term_length ||
            one.at.initial_term_id != setup.initial_term_id || one.at.mtu != setup.mtu)
            return std::nullopt;
        const auto terms =
            static_cast<int32_t>(static_cast<uint32_t>(setup.active_term_id) - static_cast<uint32_t>(one.at.active_term_id));
        return int64_t{terms} * setup.term_length + setup.term_offset - one.at.term_offset;
    }
    void drop_silent(const wire::SetupFrame &setup) {
        std::erase_if(silent_, [&](const Silent &one) {
            if (one.at.session != setup.session) return false;
            const int64_t ahead = distance_ahead(one, setup).value_or(-1);
            if (ahead > 0 && static_cast<uint64_t>(ahead) > Image::retained_bytes(setup)) {
                ++counts_.skips;
                counts_.bytes_skipped += static_cast<uint64_t>(ahead);
            }
            return true;
        });
    }
    // Late datagrams of a session that has ended make no image. One that fell silent, or behind, is welcome at any time.
    void record_ended(const Image &image) {
        if (image.end() && image.rebuilt() >= *image.end()) {
            if (image.overrun()) return;
            if (cooling_.size() == cooling_max) cooling_.erase(cooling_.begin());
            cooling_.push_back({image.session(), image.setup().initial_term_id, now_ + options_.cool_down_ns});
            return;
        }
        wire::SetupFrame at = image.setup();
        at.active_term_id = image.terms().term_id(image.rebuilt());
        at.term_offset = static_cast<int32_t>(image.terms().offset(image.rebuilt()));
        if (silent_.size() == cooling_max) { // one that may be forged goes first
            const auto is_forged = [](const Silent &one) { return !one.proved; };
            const auto forged = std::find_if(silent_.begin(), silent_.end(), is_forged);
            silent_.erase(forged == silent_.end() ? silent_.begin() : forged);
        }
        silent_.push_back({at, image.source(), now_ + options_.moved_ns, image.ever_verified(), image.lost()});
    }
    void remove_done_images() {
        for (const auto &image : images_) {
            if (image->state() != Image::State::done) continue;
            record_ended(*image);
            if (!image->overrun()) ++(image->lost() ? counts_.sessions_lost : counts_.sessions_closed);
            memory_ -= image->terms().size();
            add(closed_counts_, image->counts());
            store_.close(*image);
        }
        std::erase_if(images_, [](const auto &image) { return image->state() == Image::State::done; });
    }

    void on_rtt(const Address &from, const uint8_t *bytes, size_t length) {
        wire::RttFrame frame;
        if (!wire::parse(bytes, length, frame)) ++counts_.malformed;
        else if (frame.stream != options_.stream) ++counts_.rejected;
        else if (Image *known = image(frame.session); known && known->source() == from) known->on_rtt(now_, from, frame);
        else if (challenges_.on_answer(now_, from, frame, options_.receiver)) on_proof(from, frame.session);
        else ++counts_.rejected;
    }
    void on_extension(const Address &from, const uint8_t *bytes, size_t length, SourceCredit &credit) {
        wire::ExtensionFrame frame;
        std::string text;
        if (!wire::parse(bytes, length, frame, text)) ++counts_.malformed;
        else if (Image *known = frame.stream == options_.stream ? image(frame.session) : nullptr)
            known->on_extension(std::max(now_, clock_now_), wall_ns_, from, frame.noun, std::move(text), length, credit);
        else ++counts_.rejected;
    }

    const ReceiverOptions options_;
    Store &store_;
    std::vector<std::unique_ptr<Image>> images_;
    std::vector<Pending> pending_;
    int64_t no_room_until_ = INT64_MIN; // for requests to sources that proved nothing
    SourceChallenges challenges_;
    int64_t coming_ns_ = 0;
    Address refused_from_, displaced_from_;
    std::vector<Cooling> cooling_;
    std::vector<Silent> silent_;
    uint64_t memory_ = 0;
    std::optional<Address> control_;
    int64_t control_request_at_ = INT64_MIN;
    int64_t now_;
    int64_t clock_now_ = INT64_MIN, wall_ns_ = 0;
    ReceiverCounts counts_;
    ImageCounts closed_counts_;
};

} // namespace penstock
