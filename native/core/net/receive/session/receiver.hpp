// The receiver of one stream, as a state machine: it takes datagrams apart by session, makes an image per session, asks for the
// SETUP of sessions that it does not know, and forgets those that have ended. Bounded in sessions, memory and replies.
// docs/design/network_log.md.
#pragma once

#include "net/receive/session/image.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace penstock {

// All of them grow only.
struct ReceiverCounts {
    uint64_t malformed = 0, rejected = 0; // of another stream or type
    uint64_t images = 0;                  // ever made
    uint64_t sessions_refused = 0;        // a cap was reached, or the store had no room
    uint64_t cooled = 0;                  // datagrams of sessions that have ended, or from before they fell silent
    uint64_t unknown = 0;                 // data of sessions without an image
    uint64_t setup_requests = 0, requests_dropped = 0;
    uint64_t skips = 0, bytes_skipped = 0; // bytes between two images of a session that its sender had dropped
};

// `Store`: optional<Terms> open(setup, address) gives zeroed terms for a new image, or none; close(image) takes them back.
template <class Store> class Receiver {
  public:
    static constexpr size_t pending_max = 64, cooling_max = 1024;

    Receiver(ReceiverOptions options, Store &store, int64_t now)
        : options_(options), store_(store), control_(options.control), now_(now) {}
    ~Receiver() {
        for (const auto &image : images_) store_.close(*image);
    }
    Receiver(const Receiver &) = delete;
    Receiver &operator=(const Receiver &) = delete;

    const ReceiverOptions &options() const { return options_; }
    // The publication that is asked for its stream has another address now.
    void move_control(const Address &to) {
        control_ = to;
        control_request_at_ = now_;
    }
    const std::vector<std::unique_ptr<Image>> &images() const { return images_; }
    const ReceiverCounts &counts() const { return counts_; }
    const ImageCounts &closed_counts() const { return closed_counts_; } // of images that are gone
    uint64_t memory() const { return memory_; }
    Image *image(int32_t session) const {
        for (const auto &image : images_)
            if (image->session() == session) return image.get();
        return nullptr;
    }

    void datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length) {
        now_ = std::max(now_, now);
        wire::Type type;
        if (!wire::parse_type(bytes, length, type)) ++counts_.malformed;
        else if (type == wire::Type::data || type == wire::Type::pad) on_data(from, bytes, length);
        else if (type == wire::Type::setup) on_setup(from, bytes, length);
        else if (type == wire::Type::rtt) on_rtt(from, bytes, length);
        else if (type == wire::Type::extension) on_extension(from, bytes, length);
        else ++counts_.rejected;
    }

    template <class Out, class Random> void tick(int64_t now, Out &out, Random &&random) {
        now_ = std::max(now_, now);
        for (const auto &image : images_) image->tick(now_, out, random);
        remove_done_images();
        std::erase_if(cooling_, [&](const Cooling &old) { return now_ >= old.until; });
        for (Pending &one : pending_) {
            if (one.sent) continue;
            one.sent = out.send(one.from, wire::bytes_of(setup_request(one.session)), status_size(options_));
            if (one.sent) ++counts_.setup_requests;
        }
        std::erase_if(pending_, [&](const Pending &one) { return now_ >= one.until; });
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
        for (const Pending &one : pending_) next = std::min(next, one.sent ? one.until : now_);
        if (control_) next = std::min(next, control_request_at_);
        return std::max(next, now_);
    }

  private:
    struct Pending {
        int32_t session;
        Address from;
        int64_t until;
        bool sent;
    };
    struct Cooling {
        int32_t session;
        int64_t until;
    };
    // A session that fell silent before its end, and how far it was received: it may speak again.
    struct Silent {
        wire::SetupFrame at;
        Address from;
        int64_t until; // a SETUP from before that arrives earlier has been on its way, or in the socket, for long
    };

    bool is_cooling(int32_t session) const {
        return std::any_of(cooling_.begin(), cooling_.end(),
                           [&](const Cooling &old) { return old.session == session && now_ < old.until; });
    }

    void on_data(const Address &from, const uint8_t *bytes, size_t length) {
        int32_t session, stream;
        if (!wire::parse_session(bytes, length, session, stream)) ++counts_.malformed;
        else if (stream != options_.stream) ++counts_.rejected;
        else if (Image *known = image(session)) known->on_data(now_, from, bytes, length);
        else if (is_cooling(session)) ++counts_.cooled;
        else {
            ++counts_.unknown;
            queue_setup_request(from, session);
        }
    }
    // One request per session and second, however many sources name the session: no reply is longer than three times its cause.
    void queue_setup_request(const Address &from, int32_t session) {
        const bool is_pending =
            std::any_of(pending_.begin(), pending_.end(), [&](const Pending &one) { return one.session == session; });
        if (is_pending) return;
        if (pending_.size() == pending_max || images_.size() >= options_.sessions_max) ++counts_.requests_dropped;
        else pending_.push_back({session, from, now_ + options_.pending_ns, false});
    }
    wire::StatusFrame setup_request(int32_t session) const { return make_status(options_, session, wire::flag_send_setup); }

    // The publication there sends to every receiver that asks: of no session yet, repeatedly, since it may start later.
    template <class Out> void send_control_request(Out &out) {
        wire::StatusFrame frame = setup_request(0);
        frame.stream = 0; // Aeron's senders answer only to this
        if (out.send(*control_, wire::bytes_of(frame), status_size(options_))) ++counts_.setup_requests;
        control_request_at_ = now_ + (images_.empty() ? options_.control_request_ns : options_.control_repeat_ns);
    }

    void on_setup(const Address &from, const uint8_t *bytes, size_t length) {
        wire::SetupFrame setup;
        if (!wire::parse(bytes, length, setup)) ++counts_.malformed;
        else if (setup.stream != options_.stream) ++counts_.rejected;
        else if (Image *known = image(setup.session)) known->on_setup(now_, from, setup);
        else if (is_cooling(setup.session) || is_late(from, setup)) ++counts_.cooled;
        else make_image(from, setup);
    }
    // An image that began where this SETUP says would have messages a second time.
    bool is_late(const Address &from, const wire::SetupFrame &setup) const {
        return std::any_of(silent_.begin(), silent_.end(), [&](const Silent &one) {
            return now_ < one.until && one.from == from && distance_ahead(one, setup).value_or(0) < 0;
        });
    }
    void make_image(const Address &from, const wire::SetupFrame &setup) {
        const uint64_t size = uint64_t{3} * static_cast<uint32_t>(setup.term_length);
        const bool fits = images_.size() < options_.sessions_max && size <= options_.memory_max - memory_;
        const wire::SetupFrame begin = resume_setup(setup);
        const std::optional<Terms> terms = fits ? store_.open(begin, from) : std::nullopt;
        if (!terms) {
            ++counts_.sessions_refused;
            return;
        }
        images_.push_back(std::make_unique<Image>(*terms, options_, begin, from, now_));
        images_.back()->on_setup(now_, from, setup);
        memory_ += size;
        ++counts_.images;
        std::erase_if(pending_, [&](const Pending &one) { return one.session == setup.session; });
        drop_silent(setup);
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
            cooling_.push_back({image.session(), now_ + options_.cool_down_ns});
            return;
        }
        wire::SetupFrame at = image.setup();
        at.active_term_id = image.terms().term_id(image.rebuilt());
        at.term_offset = static_cast<int32_t>(image.terms().offset(image.rebuilt()));
        if (silent_.size() == cooling_max) silent_.erase(silent_.begin());
        silent_.push_back({at, image.source(), now_ + options_.moved_ns});
    }
    void remove_done_images() {
        for (const auto &image : images_) {
            if (image->state() != Image::State::done) continue;
            record_ended(*image);
            memory_ -= image->terms().size();
            add(closed_counts_, image->counts());
            store_.close(*image);
        }
        std::erase_if(images_, [](const auto &image) { return image->state() == Image::State::done; });
    }

    void on_rtt(const Address &from, const uint8_t *bytes, size_t length) {
        wire::RttFrame frame;
        if (!wire::parse(bytes, length, frame)) ++counts_.malformed;
        else if (Image *known = frame.stream == options_.stream ? image(frame.session) : nullptr)
            known->on_rtt(now_, from, frame);
        else ++counts_.rejected;
    }
    void on_extension(const Address &from, const uint8_t *bytes, size_t length) {
        wire::ExtensionFrame frame;
        std::string text;
        if (!wire::parse(bytes, length, frame, text)) ++counts_.malformed;
        else if (Image *known = frame.stream == options_.stream ? image(frame.session) : nullptr)
            known->on_extension(from, frame.noun, std::move(text));
        else ++counts_.rejected;
    }

    const ReceiverOptions options_;
    Store &store_;
    std::vector<std::unique_ptr<Image>> images_;
    std::vector<Pending> pending_;
    std::vector<Cooling> cooling_;
    std::vector<Silent> silent_;
    uint64_t memory_ = 0;
    std::optional<Address> control_;
    int64_t control_request_at_ = INT64_MIN;
    int64_t now_;
    ReceiverCounts counts_;
    ImageCounts closed_counts_;
};

} // namespace penstock
