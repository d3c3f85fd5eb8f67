// A UDP port as one process has it: the socket, its batches, and the sinks of the streams that are received through it. It knows
// no files, threads or owners; its user locks. docs/design/network_log.md.
#pragma once

#include "ground/atomics.hpp"
#include "ground/clock.hpp"
#include "net/io/receive_batch.hpp"
#include "net/io/send_batch.hpp"
#include "net/io/udp_options.hpp"
#include "net/seal/port_seal.hpp"
#include "net/wire/extension_frame.hpp"

#include <memory>
#include <vector>

namespace penstock {

class Port {
  public:
    static constexpr uint8_t replies_ttl = 64; // over multicast: as far as the sender may be
    static constexpr uint64_t duty_cycle_bytes = 256 * 1024;
    static constexpr uint32_t answers_bytes = 512 * 1024; // of the socket's room: answers may wait for a host that is not there
    static constexpr int64_t search_ns = 20'000'000;      // between two searches for a stream without a receiver here

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
        SealCounts seal;
    };

    // `keys`: null: datagrams are clear.
    Port(NetCalls &calls, const Keys &keys) : calls_(calls), seal_(keys ? std::make_unique<PortSeal>(keys) : nullptr) {}

    const Keys &keys() const {
        static const Keys none;
        return seal_ ? seal_->keys() : none;
    }

    // The socket; -1 without one. Any thread may ask: the number refers to an object of the kernel, and to no memory.
    int socket_fd() const { return socket_.relaxed(); }

    // Makes the socket, if there is none. The bytes of its buffer that one more stream would have, which asks for `requested`.
    uint32_t open(const UdpEndpointOptions &o, uint32_t requested, const std::string &uri) {
        if (!open_) bind(o, requested, uri);
        const uint64_t all = requested_ + requested;
        const auto most = static_cast<uint32_t>(std::min<uint64_t>(all, 1u << 30));
        const uint64_t granted = streams_.empty() ? granted_ : open_->socket->receive_buffer(most);
        return granted >= all ? requested : static_cast<uint32_t>(granted * requested / all);
    }
    // Receives a stream from now on.
    void attach(int32_t stream, uint32_t requested, Sink &sink) {
        streams_.push_back({stream, requested, &sink});
        requested_ += requested;
    }
    // The socket ends with its last stream.
    void detach(const Sink *sink) {
        std::erase_if(streams_, [&](const Entry &entry) {
            if (entry.to != sink) return false;
            requested_ -= entry.requested;
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
    bool run_duty_cycle(int64_t now, bool all = false) {
        if (!open_) return false;
        const auto pass_on = [&](const Address &from, const uint8_t *bytes, size_t length) {
            if (Sink *to = stream_of(bytes, length)) to->datagram(now, from, bytes, length);
        };
        const auto open = [&](const Address &from, const uint8_t *bytes, size_t length) {
            if (seal_ && !wire::is_question(bytes, length)) // a question of this machine: any may ask
                seal_->open(now, from, bytes, length, [&](const uint8_t *frames, size_t size) { pass_on(from, frames, size); });
            else if (wire::is_sealed(bytes, length)) ++clear_.unauthenticated;
            else pass_on(from, bytes, length);
        };
        open_->in.receive(duty_cycle_bytes, open, all);
        if (seal_)
            seal_->send_challenges([&](const Address &to, const uint8_t *bytes, size_t length) {
                if (has_unproved_room()) open_->out.send_sealed(open_->group ? &*open_->group : &to, bytes, length);
            });
        bool notified = false;
        for (const Entry &entry : streams_) notified |= entry.to->work(now, *this);
        open_->out.flush();
        return notified;
    }
    // To where the sender of a session hears: its address, or over multicast the group of its control messages.
    bool send(const Address &to, const uint8_t *bytes, size_t length) {
        if (seal_) seal_->address(to);
        return open_->out.send(open_->group ? *open_->group : to, bytes, length);
    }
    // Whether an answer may go to a source that has proved nothing: those have half of the socket's room together, or another
    // part of it, since the kernel keeps datagrams for a host that is not there for seconds. The rest is for sources that have.
    bool has_unproved_room(uint32_t part = 2) const { return open_->socket->unsent() < 2 * open_->room / part; }
    int64_t next() const {
        int64_t next = INT64_MAX;
        for (const Entry &entry : streams_) next = std::min(next, entry.to->next());
        return open_ && !open_->out.empty() ? std::min(next, monotonic_ns() + 1'000'000) : next;
    }
    // Whether datagrams of an unknown stream have arrived and it is time to search for it. True once.
    bool should_search(int64_t now) {
        if (!unknown_ || now < next_search_ns_) return false;
        unknown_ = false;
        next_search_ns_ = now + search_ns;
        return true;
    }
    // Datagrams that were refused because of a key.
    uint64_t refused() const {
        const SealCounts &counts = seal_counts();
        return counts.unauthenticated + counts.replayed;
    }
    Counts counts() const {
        const ReceiveCounts &i = open_->in.counts();
        const SendCounts &o = open_->out.counts();
        return {i.coalesced, i.truncated, i.failed, o.segmented, o.refused, o.failed, seal_counts()};
    }

  private:
    const SealCounts &seal_counts() const { return seal_ ? seal_->counts() : clear_; }

    struct Open {
        Open(std::unique_ptr<UdpSocket> bound, NetCalls &calls, DatagramSeal *seal)
            : socket(std::move(bound)), in(*socket, calls), out(*socket, calls, nullptr, 0, nullptr, seal) {}
        std::unique_ptr<UdpSocket> socket;
        ReceiveBatch in;
        SendBatch out;
        std::optional<Address> group;
        uint32_t room = 0; // for datagrams that have not left, half of what the kernel counts
    };
    struct Entry {
        int32_t stream;
        uint32_t requested; // bytes of the receive buffer
        Sink *to;
    };

    void bind(const UdpEndpointOptions &o, uint32_t requested, const std::string &uri) {
        auto socket = std::make_unique<UdpSocket>(o.at, uri);
        granted_ = socket->receive_buffer(requested); // before the first datagram can arrive
        const uint32_t room = socket->send_buffer(answers_bytes);
        if (is_multicast(o.at)) {
            socket->join(o.at, o.interface);
            socket->multicast(o.interface, replies_ttl);
        } else {
            socket->bind(o.at);
            if (is_any(o.at)) socket->show_local();
        }
        socket->coalesce();
        open_ = std::make_unique<Open>(std::move(socket), calls_, seal_.get());
        open_->room = room;
        if (is_multicast(o.at)) open_->group = control_group(o.at);
        requested_ = 0;
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
    const std::unique_ptr<PortSeal> seal_; // before the batch that uses it
    std::unique_ptr<Open> open_;
    std::vector<Entry> streams_;
    uint64_t requested_ = 0, granted_ = 0;
    Atomic<int> socket_{-1};
    SealCounts clear_; // of a port without a key
    bool unknown_ = false;
    int64_t next_search_ns_ = 0;
};

} // namespace penstock
