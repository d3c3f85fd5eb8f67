// Frames in C++: large arrays, passed by reference. A frame that a reader holds is never overwritten.
#pragma once

#include "front/frame_format.hpp"
#include "front/subscription.hpp"

#include "ends/frame_ends.hpp"

namespace penstock {

struct FramePublicationOptions {
    std::vector<uint32_t> shape{};                   // of every frame; empty: the channel is there already
    bool varies = false;                             // of a new channel: frames may be smaller than that
    std::optional<int64_t> buffers{}, max_members{}; // frames that exist at once; subscriptions at once
    bool waits = false;                              // for all subscriptions that read every frame
};

struct FrameSubscriptionOptions {
    std::vector<uint32_t> shape{};                   // makes the channel if there is none; empty: it has to be there
    bool varies = false;                             // of a new channel
    std::optional<bool> conflate{};                  // only the newest frame; by default unless it waits
    bool waits = false;                              // publications wait until it has received each frame
    bool until_end = false;                          // `end_of_stream` once the publication has closed, and all was read
    Start start{};                                   // the newest, a position, or the last frames
    std::chrono::nanoseconds spin{20'000};           // looks for so long before it sleeps
    std::chrono::nanoseconds connect_timeout{0};     // how long it waits for a channel that is not there
    std::optional<int64_t> buffers{}, max_members{}; // of a new channel
};

class OpenFrames : public OpenSubscription {
  public:
    using OpenSubscription::OpenSubscription;
    FrameReaderEnd &frames() { return static_cast<FrameReaderEnd &>(source()); }
    bool receive_frame(Frame &frame, int64_t timeout) {
        const auto attempt = [&] {
            if (!frames().consume(frame)) return nothing(source()), false;
            took(frame.message);
            return true;
        };
        return attempt() || wait(timeout, attempt);
    }
};

template <class Options> ChannelRequest frames_request(std::string_view uri, const Options &given, const FrameFormat &format) {
    if (uri.substr(0, 7) != "frames:")
        throw Error(Code::unsupported, std::string(uri) + ": frames are of frames: channels; use Publication and Subscription");
    std::optional<int64_t> bytes, fields;
    if (!given.shape.empty()) {
        bytes = static_cast<int64_t>(format.item);
        for (const uint32_t size : given.shape)
            if (size == 0 || __builtin_mul_overflow(*bytes, int64_t{size}, &*bytes))
                throw Error(Code::invalid, std::string(uri) + ": a frame has sizes from 1 on, and fits in memory");
        fields = static_cast<int64_t>(format.fields_bytes(given.shape.size(), given.varies));
    }
    ChannelRequest request = make_request(
        uri, {{"buffers", given.buffers}, {"max_members", given.max_members}, {"frame_bytes", bytes}, {"fields", fields}}, {});
    request.makes = bytes.has_value();
    if (bytes) request.codec = {format.description(given.shape, given.varies), {}};
    return request;
}

// Throws `mismatch` where a program that names no shape says `varies` of frames that do not.
inline void check_varies(const ChannelRequest &request, bool varies, const std::string &codec) {
    if (varies && Json::parse(codec).find("varies") == nullptr)
        throw Error(Code::mismatch, place_of(request.channel) + " exists with frames of one shape: leave varies out, or " +
                                        start_over(request.channel));
}

// A buffer being filled with pixels of U. Destroyed without a commit, it goes back.
template <class U, class Header = NoHeader> class FrameClaim : public Claim {
  public:
    // `about`: what differs from the channel's shape and first type.
    FrameClaim(std::shared_ptr<OpenPublication> owner, const ClaimedRange &range, size_t length, size_t count, FrameFields about)
        : Claim(std::move(owner), range, length), count_(count), about_(std::move(about)),
          described_(!about_.sizes.empty() || about_.dtype != 0 || has_header) {}

    std::span<U> pixels() const { return {reinterpret_cast<U *>(bytes().data()), count_}; }
    // The struct that goes with the frame; zeros until it is filled.
    Header &header()
        requires has_header_of<Header>
    {
        return header_;
    }
    // Its own number, when it was exposed, and other fields: a JSON object, or empty. Throws `invalid` for other texts.
    void describe(std::optional<uint64_t> id, int64_t start_ns, int64_t end_ns, const std::string &json = {}) {
        if (!is_json_object(json))
            throw Error(Code::invalid, owner_->end().where() + ": the fields of a frame are '" + json.substr(0, 80) +
                                           "': give a JSON object, as {\"gain\":1.5}, or an empty text");
        about_.id = id;
        about_.start_ns = start_ns;
        about_.end_ns = end_ns;
        about_.fields = json;
        described_ = true;
    }
    // Makes the frame visible; the position behind it. Throws `too_large` where header and JSON do not fit.
    int64_t commit() {
        if (described_ && open_ && owner_->usable()) {
            FrameFields about = about_;
            if constexpr (has_header)
                about.fields = with_bytes<Header>(header_, [&](const void *data, size_t length) {
                    return std::string(static_cast<const char *>(data), length) + about_.fields;
                });
            owner_->ready().describe(range_, std::move(about));
        }
        return Claim::commit();
    }

  private:
    static bool is_json_object(const std::string &text) {
        try {
            return text.empty() || Json::parse(text).type() == Json::Type::object;
        } catch (const Error &) {
            return false;
        }
    }
    static constexpr bool has_header = has_header_of<Header>;
    size_t count_;
    FrameFields about_;
    bool described_;
    Header header_{};
};

// The publication of a frames channel. T: of a pixel, as uint8_t, float, a struct without gaps, or OneOf several. Header: a
// struct that goes with each frame.
template <class T = uint8_t, class Header = NoHeader> class FramePublication : public PublicationHandle {
  public:
    using First = typename Pixels<T>::First;

    explicit FramePublication(std::string_view uri, const FramePublicationOptions &given = {}) : PublicationHandle(nullptr) {
        const FrameFormat format = FrameFormat::of<T, Header>();
        const ChannelRequest request = frames_request(uri, given, format);
        std::string codec;
        open_ = std::make_shared<OpenPublication>(
            open_end(request, codec, [&](int fd, const std::string &place) -> std::shared_ptr<WriterEnd> {
                return std::make_shared<FrameWriterEnd>(fd, place, nullptr, given.waits);
            }));
        shape_ = format.shape_in(request.channel, codec);
        varies_ = Json::parse(codec).find("varies") != nullptr;
        check_varies(request, given.varies, codec);
    }
    // A buffer that no reader holds. Waits for one; throws `timed_out`.
    template <class U = First> FrameClaim<U, Header> claim(std::chrono::nanoseconds timeout = forever) {
        return claim_shape<U>(shape_, timeout);
    }
    // The same for a frame of its own shape, where the channel's is the largest one.
    template <class U = First>
    FrameClaim<U, Header> claim_shape(const std::vector<uint32_t> &shape, std::chrono::nanoseconds timeout = forever) {
        check_shape(shape);
        return fill<U>(open_->claim(max_payload(), timeout.count()), shape);
    }
    // Copies a frame of the channel's shape. The stream position behind it. A header has zeros. Throws `timed_out`.
    int64_t send(std::span<const First> pixels, std::chrono::nanoseconds timeout = forever) {
        check_count(pixels.size());
        return copy_in(open_->claim(max_payload(), timeout.count()), pixels);
    }
    // The same without waiting: none where no buffer is free.
    std::optional<int64_t> offer(std::span<const First> pixels) {
        check_count(pixels.size());
        ClaimedRange range;
        return open_->try_claim(max_payload(), range) ? std::optional(copy_in(range, pixels)) : std::nullopt;
    }
    const std::vector<uint32_t> &shape() const { return shape_; } // of every frame; the largest one, where it varies

  private:
    void check_shape(const std::vector<uint32_t> &shape) const {
        bool fits = shape.size() == shape_.size() && (varies_ || shape == shape_);
        for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] <= shape_[i];
        if (!fits)
            throw Error(Code::invalid,
                        channel() +
                            (varies_ ? ": frames here have at most the shape " + shape_text(shape_) +
                                           " in as many dimensions, and this one has "
                                     : ": frames here have the shape " + shape_text(shape_) + ", and this one has ") +
                            shape_text(shape) + (varies_ ? "" : " (a channel made with `varies` takes smaller ones)"));
    }
    void check_count(size_t count) const {
        if (count != pixels_of(shape_))
            throw Error(Code::invalid, channel() + ": a frame here has " + std::to_string(pixels_of(shape_)) + " pixels, not " +
                                           std::to_string(count));
    }
    template <class U> FrameClaim<U, Header> fill(const ClaimedRange &range, const std::vector<uint32_t> &shape) {
        const size_t count = static_cast<size_t>(pixels_of(shape));
        FrameFields about;
        about.dtype = Pixels<T>::template number<U>();
        about.bytes = count * sizeof(U);
        if (shape != shape_ || sizeof(U) != Pixels<T>::largest) about.sizes.assign(shape.begin(), shape.end());
        return {open_, range, max_payload(), count, std::move(about)};
    }
    int64_t copy_in(const ClaimedRange &range, std::span<const First> pixels) {
        auto claim = fill<First>(range, shape_);
        copy_bytes(claim.bytes().data(), pixels.data(), pixels.size_bytes());
        return claim.commit();
    }

    std::vector<uint32_t> shape_;
    bool varies_ = false;
};

// A frame that is read in place. Its buffer is not reused while this lives, also when its subscription has closed.
template <class T, class Header = NoHeader> class FrameLease {
  public:
    using First = typename Pixels<T>::First;

    FrameLease(std::shared_ptr<OpenFrames> owner, Frame frame, const std::vector<uint32_t> &shape)
        : owner_(std::move(owner)), frame_(std::move(frame)), shape_(shape), generation_(ForkGuard::generation()) {
        const FrameNote &note = frame_.note;
        bool sound = note.dtype < Pixels<T>::count && frame_.fields().size() >= header_size<Header>();
        if (note.dimensions != 0) {
            shape_.resize(note.dimensions);
            for (uint32_t i = 0; i < shape_.size(); ++i) {
                sound = sound && frame_.size(i) <= UINT32_MAX;
                shape_[i] = static_cast<uint32_t>(frame_.size(i));
            }
        }
        uint64_t bytes = sound ? Pixels<T>::size(note.dtype) : 0;
        for (const uint32_t size : shape_) sound = sound && !__builtin_mul_overflow(bytes, uint64_t{size}, &bytes);
        if (sound && bytes == frame_.bytes()) return;
        give_back();
        throw Error(Code::corrupt, owner_->end().where() + ": a frame's note contradicts itself");
    }
    FrameLease(FrameLease &&other) noexcept
        : owner_(std::move(other.owner_)), frame_(std::move(other.frame_)), shape_(std::move(other.shape_)),
          generation_(other.generation_) {}
    ~FrameLease() { give_back(); }

    // Whether its pixels are of U: one of several types.
    template <class U> bool holds() const { return frame_.note.dtype == Pixels<T>::template number<U>(); }
    template <class U = First> std::span<const U> pixels() const { // throws `invalid` where they are of another type
        if (!holds<U>()) throw Error(Code::invalid, owner_->end().where() + ": the pixels of this frame are of another type");
        return {reinterpret_cast<const U *>(frame_.data), frame_.bytes() / sizeof(U)};
    }
    const std::vector<uint32_t> &shape() const { return shape_; } // of this frame
    Header header() const                                         // the publisher's struct
        requires has_header_of<Header>
    {
        Header found;
        Room<Header> room(found);
        copy_bytes(room(header_size<Header>()), frame_.fields().data(), header_size<Header>());
        room.finish();
        return found;
    }
    uint64_t id() const { return frame_.note.id; } // the publisher's own number
    uint64_t sequence() const { return frame_.sequence; }
    uint64_t position() const { return frame_.message.position; }
    int64_t time_ns() const { return frame_.message.time_ns; }
    int64_t start_ns() const { return frame_.note.start_ns; } // of the exposure
    int64_t end_ns() const { return frame_.note.end_ns; }
    std::string_view fields() const { return frame_.fields().substr(header_size<Header>()); } // JSON

  private:
    void give_back() { // a forked child's is its parent's
        if (owner_ != nullptr && generation_ == ForkGuard::generation())
            quietly([&] { static_cast<FrameReaderEnd &>(owner_->end()).give_back(frame_.note.buffer); });
    }
    std::shared_ptr<OpenFrames> owner_;
    Frame frame_;
    std::vector<uint32_t> shape_;
    uint32_t generation_;
};

// A subscription to frames, whose T and Header are those of the publication. Unless it conflates it reads every frame.
template <class T = uint8_t, class Header = NoHeader> class FrameSubscription : public SubscriptionHandle {
  public:
    using Lease = FrameLease<T, Header>;

    explicit FrameSubscription(std::string_view uri, const FrameSubscriptionOptions &given = {}) : SubscriptionHandle(nullptr) {
        const FrameFormat format = FrameFormat::of<T, Header>();
        const ChannelRequest request = frames_request(uri, given, format);
        const bool several = given.start.from == Start::From::last;
        const bool newest = given.conflate.value_or(!given.waits && !several);
        if (given.start.from == Start::From::earliest)
            throw Error(Code::unsupported, std::string(uri) + ": buffers are reused: start with the newest, or the last frames");
        if (newest && (given.waits || (several && given.start.position > 1)))
            throw Error(Code::invalid, std::string(uri) + ": start, conflate and waits contradict each other");
        const uint32_t waits = given.waits ? waits_always : newest ? waits_never : waits_where_opened;
        const auto make = [&](int fd, const std::string &place) -> std::shared_ptr<ReaderEnd> {
            return std::make_shared<FrameReaderEnd>(fd, place, given.start, newest, waits, false);
        };
        std::string codec;
        const Deadline deadline(given.connect_timeout.count());
        for (;;) {
            try {
                auto end = open_end(request, codec, make);
                check_varies(request, given.varies, codec);
                frames_ = std::make_shared<OpenFrames>(std::move(end), given.spin.count(), given.until_end, true);
                open_ = frames_;
                break;
            } catch (const Error &error) {
                if (error.code != Code::not_found || deadline.left(monotonic_ns()) == 0) throw;
                platform::nap(2'000'000);
            }
        }
        shape_ = format.shape_in(request.channel, codec);
    }
    // The next frame; none if `timeout` passed. Throws `end_of_stream` with until_end.
    std::optional<Lease> recv(std::chrono::nanoseconds timeout = forever) {
        Frame frame;
        if (!frames_->receive_frame(frame, timeout.count())) return std::nullopt;
        return std::optional<Lease>(std::in_place, frames_, std::move(frame), shape_);
    }
    std::optional<Lease> try_recv() { return recv(std::chrono::nanoseconds(0)); }
    const std::vector<uint32_t> &shape() const { return shape_; } // of every frame; the largest one, where it varies

  private:
    std::shared_ptr<OpenFrames> frames_;
    std::vector<uint32_t> shape_;
};

} // namespace penstock
