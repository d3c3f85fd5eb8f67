// Penstock for C++20: messages between processes through shared memory, with Python and C++ on either side. This header and what
// it includes need no library but the system's. Link with threads: `find_package(penstock)` does.
//
//     struct Pose { double x, y; float heading; };
//     PENSTOCK_STRUCT(Pose, x, y, heading);
//
//     penstock::Publication<Pose> poses("log:robot/pose");
//     poses.send({1.0, 2.0, 0.5f});
//
//     penstock::Subscription<Pose> sub("log:robot/pose");
//     for (const Pose &pose : sub) use(pose);
//
// Handles are opened by URI, as in Python: log:, ring:, pipe:, sync: and frames:. A handle is used by one thread at a time, and
// gives its slot back when it is destroyed. A forked child may go on using it: it joins for itself.
//
// Errors: every function throws penstock::Error, whose `code` says what happened and whose what() says it in one line, or
// std::bad_alloc; nothing else. Destructors throw nothing.
// Timeouts are std::chrono durations; penstock::forever, the default, waits without end, and 0 makes one attempt.
#pragma once

#include "front/frames.hpp"
#include "front/member.hpp"
#include "front/subscription.hpp"

#include <iterator>

namespace penstock {

// Messages of type T: std::string for bytes as they are, or a struct of plain values described by PENSTOCK_STRUCT.
template <class T>
concept MessageType = std::same_as<T, std::string> || Described<T>;

// Writes messages to a log, ring, pipe or sync channel. Makes the channel if there is none.
template <MessageType T = std::string> class Publication : public PublicationHandle {
  public:
    using Given = std::conditional_t<Described<T>, const T &, std::string_view>;

    explicit Publication(std::string_view uri, const PublicationOptions &options = {})
        : PublicationHandle(open_publication(uri, options, codec_of<T>(uri, options.codec))) {}

    // The stream position behind the message. Waits for room; throws `timed_out`.
    int64_t send(Given message, std::chrono::nanoseconds timeout = forever) {
        return with_bytes<T>(message,
                             [&](const void *data, size_t length) { return open_->send(data, length, timeout.count()); });
    }
    // The same without waiting: none where there is no room.
    std::optional<int64_t> offer(Given message) {
        return with_bytes<T>(message, [&](const void *data, size_t length) -> std::optional<int64_t> {
            const int64_t position = open_->ready().offer(data, length);
            return position == no_room ? std::nullopt : std::optional(position);
        });
    }
    // How many of the messages, in order, found room.
    size_t offer_many(std::span<const T> messages) {
        if constexpr (Described<T> && !fields::is_packed_or_void<T>()) {
            size_t done = 0;
            while (done < messages.size() && offer(messages[done])) ++done;
            return done;
        } else {
            std::vector<IoVec> pieces;
            pieces.reserve(messages.size());
            for (const T &message : messages)
                with_bytes<T>(message, [&](const void *data, size_t length) { pieces.push_back({data, length}); });
            return open_->ready().offer_many(pieces.data(), pieces.size());
        }
    }
    // Room for one message, to be written in place and committed. Waits for room; throws `timed_out`, `too_large`.
    Claim claim(size_t length, std::chrono::nanoseconds timeout = forever) {
        if constexpr (Described<T>)
            if (length != fields::packed_size<T>())
                throw Error(Code::invalid, channel() + ": a message here has " + std::to_string(fields::packed_size<T>()) +
                                               " bytes, not " + std::to_string(length));
        return Claim(open_, open_->claim(length, timeout.count()), length);
    }
};

// Reads messages of a log, ring, pipe or sync channel, also before its first publication. Of a pipe each message goes to one
// subscription: asking for the next one acknowledges the last.
template <MessageType T = std::string> class Subscription : public SubscriptionHandle {
  public:
    explicit Subscription(std::string_view uri, const SubscriptionOptions &options = {})
        : SubscriptionHandle(open_subscription(uri, options, codec_of<T>(uri, options.codec))) {}

    // The next message; none if `timeout` passed. Throws `end_of_stream` with until_end, `too_slow` where it was dropped, and
    // `undecodable` for a message of another length: the next call continues behind that.
    std::optional<T> recv(std::chrono::nanoseconds timeout = forever) {
        std::optional<T> found(std::in_place);
        Room<T> room(*found);
        if (!open_->receive(timeout.count(), room)) return std::nullopt;
        room.finish();
        return found;
    }
    std::optional<T> try_recv() { return recv(std::chrono::nanoseconds(0)); }
    // What is there, at most `limit` messages.
    std::vector<T> poll(size_t limit = 1000) {
        std::vector<T> batch;
        while (batch.size() < limit) {
            T &next = batch.emplace_back();
            Room<T> room(next);
            bool found = false;
            try {
                found = open_->receive_next(batch.size() == 1, room);
            } catch (const Error &error) {
                if (batch.size() == 1 || error.code != Code::end_of_stream) throw;
            }
            if (!found) {
                batch.pop_back();
                break;
            }
            room.finish();
        }
        return batch;
    }
    // The next message in place; none if `timeout` passed. A log's writers wait for it until it is destroyed.
    std::optional<Borrow> borrow(std::chrono::nanoseconds timeout = forever) {
        const Message *found = open_->find(timeout.count());
        if (found == nullptr) return std::nullopt;
        return std::optional<Borrow>(std::in_place, open_, *found);
    }

    // ---- of a pipe ----

    // Elsewhere these three throw `unsupported`.
    void acknowledge() { // all messages received so far
        open_->need_pipe("acknowledge");
        open_->acknowledge_pipe();
    }
    // The messages that were received and not acknowledged go to others when it closes.
    void requeue_on_close() {
        open_->need_pipe("requeue_on_close");
        open_->requeue_on_close();
    }
    // Whether the last message was given to another subscription before, which died.
    bool redelivered() {
        open_->need_pipe("redelivered");
        return open_->redelivered();
    }

    class Iterator {
      public:
        using value_type = T;
        using difference_type = std::ptrdiff_t;
        explicit Iterator(Subscription &from) : from_(&from) { ++*this; }
        const T &operator*() const { return *value_; }
        Iterator &operator++() {
            try {
                value_ = from_->recv();
            } catch (const Error &error) {
                if (error.code != Code::end_of_stream) throw;
                value_.reset();
            }
            return *this;
        }
        void operator++(int) { ++*this; }
        bool operator==(std::default_sentinel_t) const { return !value_; }

      private:
        Subscription *from_;
        std::optional<T> value_;
    };
    // Messages until the end of the stream; without until_end, for ever.
    Iterator begin() { return Iterator(*this); }
    std::default_sentinel_t end() { return {}; }
};

// The two ends of a pipe, by their names in Python.
template <MessageType T = std::string> using Pusher = Publication<T>;
template <MessageType T = std::string> using Puller = Subscription<T>;

// Removes a channel's name, and its memory once no process has it open. Throws `not_found`.
inline void remove(std::string_view uri) {
    const ChannelName channel = parse_uri(uri);
    const FileDescriptor folder = open_folder(false);
    if (!folder || (unlinkat(folder.number(), channel.file().c_str(), 0) != 0 && errno == ENOENT))
        throw Error(Code::not_found, "there is no channel " + place_of(channel));
}

} // namespace penstock
