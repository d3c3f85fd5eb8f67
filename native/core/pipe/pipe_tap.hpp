// All messages of a pipe channel, for a recorder: each peer makes a copy of every message that it sends. Here they become frames
// of a stream with positions of its own. Sender and role precede each body, as in a sync queue's message.
// docs/design/patterns.md.
#pragma once

#include "ground/messages/sync_message.hpp"
#include "pipe/pipe_peer.hpp"

namespace penstock {

class PipeTap {
  public:
    // Bytes of the stream for a missing message, whose length is unknown.
    static constexpr uint64_t missing_length = 32;

    PipeTap(std::shared_ptr<PipePeer> peer, uint64_t position) : peer_(std::move(peer)), position_(position) {}
    PipePeer &peer() { return *peer_; }
    uint64_t position() const { return position_; }
    uint64_t missed() const { return peer_->incoming().missed(); }

    // The messages that are there, about `max` bytes. If the run is empty and the position has moved on, messages are missing
    // there.
    FrameBlock run(uint64_t max) {
        FrameBlock run;
        frames_.clear();
        while (frames_.size() < max) {
            const Message *message = peer_->peek_oldest();
            if (message == nullptr) break;
            if (const uint64_t missing = missed() + peer_->incoming().current().reader.missing(); missing != noted_) {
                if (frames_.empty()) {
                    position_ += (missing - noted_) * missing_length;
                    noted_ = missing;
                }
                break;
            }
            append(*message, run);
            peer_->consume();
        }
        run.data = frames_.data();
        run.length = frames_.size();
        return run;
    }
    // That run is recorded: its senders may continue.
    void acknowledge(const FrameBlock &run) {
        position_ += run.length;
        peer_->acknowledge();
    }

  private:
    void append(const Message &message, FrameBlock &run) {
        const PipeReader &reader = peer_->incoming().current().reader;
        const PipeLink::Ends &ends = reader.ends();
        char name[name_max];
        copy_words_out(name, ends.name, sizeof name);
        const char *role = role_name(static_cast<PeerRole>(ends.role.relaxed()));
        const std::string prefix =
            sync_prefix({name, strnlen(name, sizeof name)}, role, static_cast<uint32_t>(reader.tag().kind));
        Message whole = message;
        whole.length = prefix.size() + message.length;
        const uint64_t step = align_frame(whole.length + header_length);
        const size_t at = frames_.size();
        frames_.resize(at + step);
        write_frame_header(frames_.data() + at, 0, 0, 0, &whole);
        std::memcpy(frames_.data() + at + header_length, prefix.data(), prefix.size());
        copy_bytes(frames_.data() + at + header_length + prefix.size(), message.data, message.length);
        ++run.begins;
        run.payload += whole.length;
        run.time_min = std::min(run.time_min, message.time_ns);
        run.time_max = std::max(run.time_max, message.time_ns);
    }

    std::shared_ptr<PipePeer> peer_;
    std::vector<uint8_t> frames_;
    uint64_t position_, noted_ = 0;
};

} // namespace penstock
