// A UDP port as one process has it: the socket, its batches, and the sinks of the streams that are received through it. It knows
// no files, threads or owners; its user locks. docs/design/network_log.md.
#pragma once

#include "ground/atomics.hpp"
#include "ground/clock.hpp"
#include "net/io/receive_batch.hpp"
#include "net/io/send_batch.hpp"
#include "net/io/udp_options.hpp"
#include "net/wire/extension_frame.hpp"

#include <memory>
#include <vector>

namespace penstock {

class Port {
  public:
    static constexpr uint8_t replies_ttl = 64; // over multicast: as far as the sender may be
    static constexpr uint64_t turn_bytes = 256 * 1024;
    static constexpr int64_t look_ns = 20'000'000; // between two searches for a stream without a receiver here

    // What receives one stream.
    class Sink {
      public:
        virtual ~Sink() = default;
        virtual void datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length) = 0;
        virtual bool work(int64_t now, Port &replies) = 0; // its timers and readers; true if readers were notified
        virtual int64_t next() const = 0;
    };
    // The socket's counts, for all streams.
    struct Counts {
        uint64_t coalesced = 0, truncated = 0, receive_failed = 0, segmented = 0, send_refused = 0, send_failed = 0;
    };

    explicit Port(NetCalls &calls) : calls_(calls) {}

    // The socket; -1 without one. Any thread may ask: the number refers to an object of the kernel, and to no memory.
    int receives() const { return socket_.relaxed(); }

    // Makes the socket, if there is none. The bytes of its buffer that one more stream would have, which asks for `asked`.
    uint32_t open(const UdpEndpointOptions &o, uint32_t asked, const std::string &uri) {
        if (!open_) bind(o, asked, uri);
        const uint64_t all = asked_ + asked;
        const auto most = static_cast<uint32_t>(std::min<uint64_t>(all, 1u << 30));
        const uint64_t granted = streams_.empty() ? granted_ : open_->socket->receive_buffer(most);
        return granted >= all ? asked : static_cast<uint32_t>(granted * asked / all);
    }
    // Receives a stream from now on.
    void attach(int32_t stream, uint32_t asked, Sink &sink) {
        streams_.push_back({stream, asked, &sink});
        asked_ += asked;
    }
    // The socket ends with its last stream.
    void detach(const Sink *sink) {
        std::erase_if(streams_, [&](const Entry &entry) {
            if (entry.to != sink) return false;
            asked_ -= entry.asked;
            return true;
        });
        if (!streams_.empty()) return;
        socket_.relaxed(-1);
        open_.reset();
    }
    bool receives(int32_t stream) const {
        return std::any_of(streams_.begin(), streams_.end(), [&](const Entry &entry) { return entry.stream == stream; });
    }

    // One duty cycle of all streams; true if readers were notified. `all`: every datagram leaves the socket.
    bool turn(int64_t now, bool all = false) {
        if (!open_) return false;
        const auto pass_on = [&](const Address &from, const uint8_t *bytes, size_t length) {
            if (Sink *to = stream_of(bytes, length)) to->datagram(now, from, bytes, length);
        };
        open_->in.receive(turn_bytes, pass_on, all);
        bool told = false;
        for (const Entry &entry : streams_) told |= entry.to->work(now, *this);
        open_->out.flush();
        return told;
    }
    // To where the sender of a session hears: its address, or over multicast the group of its control messages.
    bool send(const Address &to, const uint8_t *bytes, size_t length) {
        return open_->out.send(open_->group ? *open_->group : to, bytes, length);
    }
    int64_t next() const {
        int64_t next = INT64_MAX;
        for (const Entry &entry : streams_) next = std::min(next, entry.to->next());
        return open_ && !open_->out.empty() ? std::min(next, monotonic_ns() + 1'000'000) : next;
    }
    // Whether datagrams of an unknown stream have arrived and it is time to search for it. True once.
    bool should_look(int64_t now) {
        if (!unknown_ || now < look_at_) return false;
        unknown_ = false;
        look_at_ = now + look_ns;
        return true;
    }
    Counts counts() const {
        const ReceiveCounts &i = open_->in.counts();
        const SendCounts &o = open_->out.counts();
        return {i.coalesced, i.truncated, i.failed, o.segmented, o.refused, o.failed};
    }

  private:
    struct Open {
        Open(std::unique_ptr<UdpSocket> bound, NetCalls &calls)
            : socket(std::move(bound)), in(*socket, calls), out(*socket, calls) {}
        std::unique_ptr<UdpSocket> socket;
        ReceiveBatch in;
        SendBatch out;
        std::optional<Address> group;
    };
    struct Entry {
        int32_t stream;
        uint32_t asked; // bytes of the receive buffer
        Sink *to;
    };

    void bind(const UdpEndpointOptions &o, uint32_t asked, const std::string &uri) {
        auto socket = std::make_unique<UdpSocket>(o.at, uri);
        granted_ = socket->receive_buffer(asked); // before the first datagram can arrive
        if (is_multicast(o.at)) {
            socket->join(o.at, o.interface);
            socket->multicast(o.interface, replies_ttl);
        } else socket->bind(o.at);
        socket->coalesce();
        open_ = std::make_unique<Open>(std::move(socket), calls_);
        if (is_multicast(o.at)) open_->group = control_group(o.at);
        asked_ = 0;
        unknown_ = false;
        socket_.relaxed(open_->socket->fd());
    }
    // The stream of a datagram, which the first one counts if no stream is known for it; null: it is for this port itself.
    Sink *stream_of(const uint8_t *bytes, size_t length) {
        int32_t stream;
        if (!wire::stream_of(bytes, length, stream)) return streams_[0].to;
        const bool question = wire::is_question(bytes, length);
        for (const Entry &entry : streams_)
            if (entry.stream == stream) return question ? nullptr : entry.to;
        unknown_ = true;
        return question ? nullptr : streams_[0].to;
    }

    NetCalls &calls_;
    std::unique_ptr<Open> open_;
    std::vector<Entry> streams_;
    uint64_t asked_ = 0, granted_ = 0;
    Atomic<int> socket_{-1};
    bool unknown_ = false;
    int64_t look_at_ = 0;
};

} // namespace penstock
