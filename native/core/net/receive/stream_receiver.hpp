// One stream as the socket owner receives it: its images, its replies, its counts. A port gives it datagrams. It knows no
// ownership, no thread and no other stream. docs/design/network_log.md.
#pragma once

#include "net/io/name_watch.hpp"
#include "net/io/port.hpp"
#include "net/receive/images/image_set.hpp"

namespace penstock {

// What the system grants of the window that an endpoint asks for.
struct ReceiveWindow {
    uint32_t bytes;
    std::string warning; // why it is less; empty if it is not
};

class StreamReceiver final : public Port::Sink {
  public:
    // `port` has its socket already. `takeovers`: 1 after another owner.
    StreamReceiver(const EndpointFile &file, EndpointMembers &members, const ReceiverOptions &options, const Port &port,
                   int64_t now, uint64_t takeovers)
        : file_(file), images_(file, members, options, now), base_(port.counts()), takeovers_(takeovers) {
        for (size_t i = 0; i < counts_words; ++i) counted_before_[i] = file.control().counts.words[i].relaxed();
    }

    ImageSet &images() { return images_; }
    // The host of the control address is a name: it is looked up again while no session is received.
    void watch_control(const std::string &host, NetCalls &calls) {
        if (const auto &at = images_.receiver().options().control; at && !host.empty()) control_name_.emplace(host, *at, calls);
    }
    int64_t first_ns() const { return first_ns_; } // when the first datagram arrived; 0: none yet

    // The bytes of a socket's buffer that a stream asks for.
    static uint32_t buffer(const UdpEndpointOptions &o) {
        if (o.receive_buffer != 0) return o.receive_buffer;
        return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{4} * o.window, 1u << 30));
    }
    // The window that fits a buffer of this many bytes, even if it is filled with small datagrams.
    static ReceiveWindow window(const UdpEndpointOptions &o, uint32_t granted) {
        ReceiveWindow found{std::min(o.window, std::max<uint32_t>(granted / 4 & ~(frame_alignment - 1), 4096)), ""};
        if (found.bytes == o.window) return found;
        const std::string size = "a receive buffer of " + std::to_string(granted) + " bytes";
        const std::string lowered = "from " + std::to_string(o.window) + " to " + std::to_string(found.bytes) + " bytes. ";
        found.warning = granted < buffer(o)
                            ? "the system grants " + size + ", not " + std::to_string(buffer(o)) + "; the window is lowered " +
                                  lowered + "Raise net.core.rmem_max"
                            : size + " is too small for the window, which is lowered " + lowered + "Give a larger receive_buffer";
        found.warning += ", or ask for a smaller window";
        return found;
    }

    void datagram(int64_t now, const Address &from, const uint8_t *bytes, size_t length) override {
        received_ = true;
        if (first_ns_ == 0) first_ns_ = now;
        ++own_.datagrams_received;
        own_.bytes_received += length + seal_length_;
        if (wire::has_noun(bytes, length, wire::extension_clock_answer)) [[unlikely]]
            images_.receiver().set_clock(monotonic_ns(), system_ns(CLOCK_REALTIME));
        images_.receiver().datagram(now, from, bytes, length);
    }
    bool work(int64_t now, Port &replies) override {
        images_.consume(now);
        if (control_name_)
            if (const auto at = control_name_->poll(now, images_.receiver().images().empty()))
                images_.receiver().move_control(*at);
        Out out{replies, own_, seal_length_};
        images_.receiver().tick(now, out, random_);
        if (const int64_t coming = images_.receiver().coming_ns(); coming > file_.control().ended.coming_ns.relaxed())
            file_.control().ended.coming_ns.relaxed(coming); // before an end that it delays is published
        return images_.publish([&](bool changed) {
            const uint64_t refused = replies.refused();
            if (std::exchange(received_, false) || changed || std::exchange(refused_, refused) != refused)
                publish_counts(replies);
        });
    }
    int64_t next() const override { return images_.next(); }

  private:
    struct Out { // for the receiver
        Port &port;
        UdpCounts &own;
        size_t seal_length;
        bool send(const Address &to, const uint8_t *bytes, size_t length) {
            if (!port.send(to, bytes, length)) return false;
            ++own.datagrams_sent;
            own.bytes_sent += length + seal_length;
            return true;
        }
        bool has_unproved_room(uint32_t part) const { return port.has_unproved_room(part); }
    };

    void publish_counts(const Port &port) {
        const UdpCounts now = counts(port);
        const auto *words = reinterpret_cast<const uint64_t *>(&now);
        for (size_t i = 0; i < counts_words; ++i) file_.control().counts.words[i].relaxed(counted_before_[i] + words[i]);
        const ReceiverCounts &r = images_.receiver().counts();
        file_.control().ended.closed.relaxed(closed_before_ + r.sessions_closed);
        file_.control().ended.lost.relaxed(lost_before_ + r.sessions_lost);
    }
    UdpCounts counts(const Port &port) {
        const ReceiverCounts &r = images_.receiver().counts();
        const Port::Counts all = port.counts(); // of the socket, which streams share
        UdpCounts c = own_;
        c.coalesced = all.coalesced - base_.coalesced;
        c.truncated = all.truncated - base_.truncated;
        c.receive_failed = all.receive_failed - base_.receive_failed;
        c.segmented = all.segmented - base_.segmented;
        c.send_refused = all.send_refused - base_.send_refused;
        c.send_failed = all.send_failed - base_.send_failed;
        c.unauthenticated = all.seal.unauthenticated - base_.seal.unauthenticated;
        c.replayed = all.seal.replayed - base_.seal.replayed;
        c.sessions = r.images;
        c.sessions_refused = r.sessions_refused;
        c.sessions_displaced = r.sessions_displaced;
        c.sessions_challenged = r.sessions_challenged;
        c.takeovers = takeovers_;
        ImageCounts sum = images_.receiver().closed_counts();
        for (const auto &image : images_.receiver().images()) add(sum, image->counts());
        c.heartbeats = sum.heartbeats;
        c.statuses = sum.statuses;
        c.naks_sent = sum.naks;
        c.duplicates = sum.duplicates + r.cooled;
        c.overruns = sum.overruns;
        c.overlaps = sum.overlaps;
        c.losses = sum.losses + r.skips;
        c.bytes_lost = sum.bytes_lost + r.bytes_skipped;
        c.setup_requests = sum.setup_requests + r.setup_requests;
        c.malformed = sum.malformed + r.malformed;
        c.rejected = sum.rejected + r.rejected;
        c.held = sum.held;
        return c;
    }

    const EndpointFile &file_;
    ImageSet images_;
    NetRandom random_;
    std::optional<NameWatch> control_name_;
    std::array<uint64_t, counts_words> counted_before_{}; // by the owners before
    const uint64_t closed_before_ = file_.control().ended.closed.relaxed(), lost_before_ = file_.control().ended.lost.relaxed();
    UdpCounts own_;           // datagrams and bytes of this stream
    const Port::Counts base_; // of the port, when this stream was attached
    const uint64_t takeovers_;
    const size_t seal_length_ = file_.options().sealed ? wire::seal_length : 0; // counts are of what is on the wire
    int64_t first_ns_ = 0;
    uint64_t refused_ = 0; // datagrams, by the port's key
    bool received_ = false;
};

} // namespace penstock
