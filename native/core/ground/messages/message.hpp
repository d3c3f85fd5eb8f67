// The types that handles and structures exchange, whatever the channel's kind: messages, room for them, where to begin.
#pragma once

#include "ground/messages/frame_header.hpp"

#include <optional>
#include <string>
#include <vector>

namespace penstock {

inline constexpr int64_t no_room = -1;

// A message to be sent.
struct IoVec {
    const void *data;
    size_t length;
};

// Room for one message or fragment, to be filled in place.
struct ClaimedRange {
    uint8_t *payload = nullptr;
    uint64_t position = 0; // of the frame
    uint32_t length = 0;   // of the payload
    uint32_t index = 0;    // of the claim word
    uint8_t flags = flags_whole;
};

// What a frame says beside its bytes.
struct FrameFields {
    std::optional<uint64_t> id; // by default its number
    int64_t start_ns = 0, end_ns = 0;
    std::string fields;          // the channel's header, if it has one, and JSON
    std::vector<uint64_t> sizes; // of its dimensions; empty: it has the channel's shape
    uint8_t dtype = 0;           // which of the channel's
    uint64_t bytes = 0;          // where it has sizes
};

// A message that send() works on; larger ones go out in several frames.
struct PendingSend {
    const uint8_t *data;
    size_t length;
    size_t done = 0;
    bool begun = false;
    int64_t position = no_room; // the stream position after the message, once complete
};

// A message found.
struct Message {
    const uint8_t *data = nullptr;
    size_t length = 0;
    uint64_t position = 0; // of its first frame
    uint64_t next = 0;     // where reading continues
    int64_t time_ns = 0;
    int32_t session = 0;
    bool assembled = false; // data is the reader's own copy
};

// The header of a frame of a recording that no log wrote: of a message, or of a pad as long as `step`.
inline void write_frame_header(uint8_t *to, uint32_t term_offset, int32_t term_id, uint64_t step, const Message *message) {
    auto *frame = reinterpret_cast<FrameHeader *>(to);
    frame->term_offset = term_offset;
    frame->stream = 1;
    frame->term_id = term_id;
    frame->session = message == nullptr ? 0 : message->session;
    frame->reserved = message == nullptr ? 0 : message->time_ns;
    const uint64_t length = message == nullptr ? step : message->length + header_length;
    frame->word0.relaxed(
        pack_word0(static_cast<uint32_t>(length), flags_whole, message == nullptr ? FrameType::pad : FrameType::data));
}

struct Start {
    enum class From { newest, earliest, position, last } from = From::newest;
    uint64_t position =
        0; // of last: how many of the newest messages that are kept come first; of earliest, in a log: not below it
};

// Contiguous committed frames for raw readers (the recorder).
struct FrameBlock {
    const uint8_t *data = nullptr;
    uint64_t length = 0;
    uint32_t begins = 0;
    uint64_t payload = 0;
    int64_t time_min = INT64_MAX, time_max = INT64_MIN;
};

} // namespace penstock
