// Frames in C++: large arrays, passed by reference. A frame that a reader holds is never overwritten.
#pragma once

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

inline ChannelRequest frames_request(std::string_view uri, const std::vector<uint32_t> &shape, bool varies,
                                     const std::string &dtype, size_t item, std::optional<int64_t> buffers,
                                     std::optional<int64_t> max_members) {
    std::optional<int64_t> bytes;
    std::string sizes;
    if (!shape.empty()) {
        bytes = static_cast<int64_t>(item);
        for (const uint32_t size : shape) {
            if (size == 0 || __builtin_mul_overflow(*bytes, int64_t{size}, &*bytes))
                throw Error(Code::invalid, std::string(uri) + ": a frame has sizes from 1 on, and fits in memory");
            sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
        }
    }
    if (uri.substr(0, 7) != "frames:")
        throw Error(Code::unsupported, std::string(uri) + ": frames are of frames: channels; use Publication and Subscription");
    ChannelRequest request = make_request(uri, {{"buffers", buffers}, {"max_members", max_members}, {"frame_bytes", bytes}}, {});
    request.makes = bytes.has_value();
    if (bytes)
        request.codec.description = "{\"kind\":\"frame\",\"dtype\":" + json_text(dtype) + ",\"shape\":[" + sizes + "]" +
                                    (varies ? ",\"varies\":true}" : "}");
    return request;
}
// Throws `mismatch` unless all frames of a channel are of that dtype. Their largest shape.
inline std::vector<uint32_t> shape_in(const ChannelRequest &request, const std::string &codec, const std::string &dtype) {
    const Json found = Json::parse(codec);
    const Json *its = found.find("dtype"), *sizes = found.find("shape");
    if (its == nullptr || sizes == nullptr) throw Error(Code::corrupt, place_of(request.channel) + ": its metadata is damaged");
    if (found.find("dtypes") != nullptr || found.find("header") != nullptr)
        throw Error(Code::unsupported, place_of(request.channel) +
                                           " has frames of several dtypes, or with a header: such frames are Python's alone");
    if (its->text() != dtype)
        throw Error(Code::mismatch, place_of(request.channel) + " has frames of " +
                                        (its->text().empty() ? "a struct" : its->text()) + ", and this program reads " + dtype +
                                        ": use the type that is there, or " + start_over(request.channel));
    std::vector<uint32_t> shape;
    for (const Json &size : sizes->items()) shape.push_back(static_cast<uint32_t>(size.whole()));
    return shape;
}

// A buffer being filled. Destroyed without a commit, it goes back.
template <class T> class FrameClaim : public Claim {
  public:
    FrameClaim(std::shared_ptr<OpenPublication> owner, size_t length, int64_t timeout, const std::vector<uint32_t> *shape)
        : Claim(std::move(owner), length, timeout), count_(length / sizeof(T)) {
        if (shape == nullptr) return;
        about_.sizes.assign(shape->begin(), shape->end());
        count_ = 1;
        for (const uint32_t size : *shape) count_ *= size;
        about_.bytes = count_ * sizeof(T);
        owner_->ready().describe(range_, about_);
    }
    // Its own number, when it was exposed, and other fields as JSON. Before the commit.
    void describe(std::optional<uint64_t> id, int64_t start_ns, int64_t end_ns, const std::string &json = {}) {
        about_.id = id;
        about_.start_ns = start_ns;
        about_.end_ns = end_ns;
        about_.fields = json;
        owner_->ready().describe(range_, about_);
    }
    std::span<T> pixels() const { return {reinterpret_cast<T *>(bytes().data()), count_}; }

  private:
    size_t count_;
    FrameFields about_;
};

// The publication of a frames channel. T: of a pixel, as uint8_t or float.
template <class T = uint8_t> class FramePublication {
  public:
    explicit FramePublication(std::string_view uri, const FramePublicationOptions &given = {}) {
        const std::string dtype = fields::number_name<T>();
        const ChannelRequest request =
            frames_request(uri, given.shape, given.varies, dtype, sizeof(T), given.buffers, given.max_members);
        std::string codec;
        open_ = std::make_shared<OpenPublication>(
            open_end(request, codec, [&](int fd, const std::string &place) -> std::shared_ptr<WriterEnd> {
                return std::make_shared<FrameWriterEnd>(fd, place, nullptr, given.waits);
            }));
        shape_ = shape_in(request, codec, dtype);
        varies_ = Json::parse(codec).find("varies") != nullptr;
    }
    // A buffer that no reader holds. Waits for one; throws `timed_out`.
    FrameClaim<T> claim(std::chrono::nanoseconds timeout = forever) {
        return FrameClaim<T>(open_, open_->ready().payload_max(), timeout.count(), nullptr);
    }
    // The same for a frame of its own shape, where the channel's is the largest one.
    FrameClaim<T> claim_shape(const std::vector<uint32_t> &shape, std::chrono::nanoseconds timeout = forever) {
        bool fits = shape.size() == shape_.size() && (varies_ || shape == shape_);
        for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] <= shape_[i];
        if (!fits)
            throw Error(Code::invalid, channel() +
                                           ": a frame has the channel's shape, or where the channel was made with `varies` "
                                           "as many dimensions, none of them larger");
        return FrameClaim<T>(open_, open_->ready().payload_max(), timeout.count(), shape == shape_ ? nullptr : &shape);
    }
    const std::vector<uint32_t> &shape() const { return shape_; } // of every frame; the largest one, where it varies
    uint32_t readers() { return open_->ready().readers(); }
    void wait_for_readers(uint32_t count = 1, std::chrono::nanoseconds timeout = forever) {
        open_->wait_for_readers(count, timeout.count());
    }
    const std::string &channel() const { return open_->end().where(); }
    void close() { open_->close(); }

  private:
    std::shared_ptr<OpenPublication> open_;
    std::vector<uint32_t> shape_;
    bool varies_ = false;
};

// A frame that is read in place. Its buffer is not reused while this lives, also when its subscription has closed.
template <class T> class FrameLease {
  public:
    FrameLease(std::shared_ptr<OpenFrames> owner, Frame frame, const std::vector<uint32_t> &shape)
        : owner_(std::move(owner)), frame_(std::move(frame)), shape_(shape), generation_(ForkGuard::generation()) {
        if (frame_.note.dimensions == 0) return;
        shape_.resize(frame_.note.dimensions);
        uint64_t count = 1;
        for (uint32_t i = 0; i < shape_.size(); ++i) {
            shape_[i] = static_cast<uint32_t>(frame_.size(i));
            if (__builtin_mul_overflow(count, frame_.size(i), &count)) count = UINT64_MAX / sizeof(T);
        }
        if (count != frame_.bytes() / sizeof(T) || frame_.bytes() % sizeof(T) != 0) {
            give_back();
            throw Error(Code::corrupt, owner_->end().where() + ": a frame's note contradicts itself");
        }
    }
    FrameLease(FrameLease &&other) noexcept
        : owner_(std::move(other.owner_)), frame_(std::move(other.frame_)), shape_(std::move(other.shape_)),
          generation_(other.generation_) {}
    ~FrameLease() { give_back(); }
    std::span<const T> pixels() const { return {reinterpret_cast<const T *>(frame_.data), frame_.bytes() / sizeof(T)}; }
    const std::vector<uint32_t> &shape() const { return shape_; } // of this frame
    uint64_t id() const { return frame_.note.id; }                // the publisher's own number
    uint64_t sequence() const { return frame_.sequence; }
    int64_t time_ns() const { return frame_.message.time_ns; }
    int64_t start_ns() const { return frame_.note.start_ns; } // of the exposure
    int64_t end_ns() const { return frame_.note.end_ns; }
    std::string_view fields() const { return frame_.fields(); } // JSON

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

// A subscription to frames. Unless it conflates it reads every frame.
template <class T = uint8_t> class FrameSubscription {
  public:
    explicit FrameSubscription(std::string_view uri, const FrameSubscriptionOptions &given = {}) {
        const std::string dtype = fields::number_name<T>();
        const ChannelRequest request =
            frames_request(uri, given.shape, given.varies, dtype, sizeof(T), given.buffers, given.max_members);
        const bool several = given.start.from == Start::From::last;
        const bool newest = given.conflate.value_or(!given.waits && !several);
        if (given.start.from == Start::From::earliest || (newest && (given.waits || (several && given.start.position > 1))))
            throw Error(Code::invalid, std::string(uri) + ": start, conflate and waits contradict each other");
        const uint32_t waits = given.waits ? waits_always : newest ? waits_never : waits_where_opened;
        const auto make = [&](int fd, const std::string &place) -> std::shared_ptr<ReaderEnd> {
            return std::make_shared<FrameReaderEnd>(fd, place, given.start, newest, waits, false);
        };
        std::string codec;
        const Deadline deadline(given.connect_timeout.count());
        for (;;) {
            try {
                open_ = std::make_shared<OpenFrames>(open_end(request, codec, make), given.spin.count(), given.until_end, true);
                break;
            } catch (const Error &error) {
                if (error.code != Code::not_found || deadline.left(monotonic_ns()) == 0) throw;
                platform::nap(2'000'000);
            }
        }
        shape_ = shape_in(request, codec, dtype);
    }
    // The next frame; none if `timeout` passed. Throws `end_of_stream` with until_end.
    std::optional<FrameLease<T>> recv(std::chrono::nanoseconds timeout = forever) {
        Frame frame;
        if (!open_->receive_frame(frame, timeout.count())) return std::nullopt;
        return std::optional<FrameLease<T>>(std::in_place, open_, std::move(frame), shape_);
    }
    const std::vector<uint32_t> &shape() const { return shape_; }       // of every frame; the largest one, where it varies
    int64_t lost_messages() { return open_->source().lost_messages(); } // frames that it was too slow for
    uint64_t conflated() { return open_->source().conflated(); }        // frames passed over on purpose
    const std::string &channel() const { return open_->end().where(); }
    void close() { open_->close(); } // frames that are held stay as they are

  private:
    std::shared_ptr<OpenFrames> open_;
    std::vector<uint32_t> shape_;
};

} // namespace penstock
