// DATA, PAD and heartbeats: a datagram carries a run of whole, consecutive frames of one term, as they lie in the log.
#pragma once

#include "net/wire/wire.hpp"

namespace penstock::wire {

//     0               4               8               12
//    +---------------+---------------+---------------+---------------+
//  0 | frame length  | 0, flags, 0/1 |  term offset  |    session    |
//    +---------------+---------------+---------------+---------------+
// 16 |    stream     |    term id    |        reserved value         |
//    +---------------+---------------+---------------+---------------+
// 32 | payload, padded to 32; the next frame …                       |
//    +---------------------------------------------------------------+
// A pad is its header alone, and the last frame: its length is that of the room it pads. A heartbeat is one data header of
// length 0; its place is the sender's position.
struct [[gnu::packed]] DataHeader {
    Start start;
    int32_t term_offset; // 8
    int32_t session;     // 12
    int32_t stream;      // 16
    int32_t term_id;     // 20
    int64_t reserved;    // 24: Penstock's send time, ns since the epoch
};
static_assert(sizeof(DataHeader) == sizeof(FrameHeader) && offsetof(DataHeader, session) == offsetof(FrameHeader, session));
static_assert(offsetof(DataHeader, stream) == offsetof(FrameHeader, stream));
static_assert(offsetof(DataHeader, term_id) == offsetof(FrameHeader, term_id));
static_assert(offsetof(DataHeader, reserved) == offsetof(FrameHeader, reserved));

// One frame of a datagram.
struct DataFrame {
    uint32_t at = 0;   // in the datagram
    uint32_t wire = 0; // bytes there, alignment included
    uint32_t room = 0; // bytes in the term, alignment included; more than `wire` for a pad
};

// A datagram of data, after all of it was checked.
struct DataRun {
    int32_t session = 0, stream = 0, term_id = 0;
    uint32_t term_offset = 0;
    uint32_t room = 0; // bytes in the term of all its frames; 0 for a heartbeat
    bool end_of_stream = false;
};

// The header of the frame at `at`, if it is where `run` says. A frame: its extent too.
[[gnu::always_inline]] inline bool check_frame(const uint8_t *bytes, size_t length, uint32_t term_length, const DataRun &run,
                                               DataFrame &frame) {
    DataHeader header;
    std::memcpy(&header, bytes + frame.at, sizeof header);
    const bool pad = header.start.type == static_cast<uint16_t>(Type::pad);
    if (header.start.version != 0 || (!pad && header.start.type != static_cast<uint16_t>(Type::data))) return false;
    if (header.session != run.session || header.stream != run.stream || header.term_id != run.term_id) return false;
    if (static_cast<uint32_t>(header.term_offset) != run.term_offset + run.room) return false;
    if (header.start.length < static_cast<int32_t>(header_length)) return false;
    if (pad && (header.start.flags & flag_lost) != 0) return false; // only a receiver marks losses
    const uint64_t room = align_frame(static_cast<uint64_t>(header.start.length));
    if (room > term_length - (run.term_offset + run.room)) return false;
    frame.room = static_cast<uint32_t>(room);
    frame.wire = pad ? header_length : frame.room;
    const size_t left = length - frame.at;
    return pad ? left == header_length && header.start.length % static_cast<int32_t>(frame_alignment) == 0 : frame.wire <= left;
}

// Whose datagram it is; nothing else is believed yet.
inline bool parse_session(const uint8_t *bytes, size_t length, int32_t &session, int32_t &stream) {
    if (length < sizeof(DataHeader) || length > datagram_max || length % frame_alignment != 0) return false;
    std::memcpy(&session, bytes + offsetof(DataHeader, session), sizeof session);
    std::memcpy(&stream, bytes + offsetof(DataHeader, stream), sizeof stream);
    return true;
}

// Checks all of a datagram for a log of this term length.
inline bool parse(const uint8_t *bytes, size_t length, uint32_t term_length, DataRun &run) {
    if (!parse_session(bytes, length, run.session, run.stream)) return false;
    DataHeader first;
    std::memcpy(&first, bytes, sizeof first);
    run.term_id = first.term_id;
    run.term_offset = static_cast<uint32_t>(first.term_offset);
    run.room = 0;
    if (run.term_offset % frame_alignment != 0 || run.term_offset > term_length) return false;
    if (first.start.length == 0) { // a heartbeat
        run.end_of_stream = (first.start.flags & flag_end_of_stream) != 0;
        return length == sizeof first && first.start.version == 0 && first.start.type == static_cast<uint16_t>(Type::data);
    }
    run.end_of_stream = false;
    for (DataFrame frame; frame.at < length; frame.at += frame.wire) {
        if (!check_frame(bytes, length, term_length, run, frame)) return false;
        run.room += frame.room;
    }
    return true;
}
// `each` is called with every frame of a datagram that parse() has checked, in order, and with its place behind the first one's.
template <class Each> void each_frame(const uint8_t *bytes, size_t length, Each &&each) {
    uint32_t room = 0;
    for (DataFrame frame; frame.at < length; frame.at += frame.wire, room += frame.room) {
        Start start;
        std::memcpy(&start, bytes + frame.at, sizeof start);
        frame.room = static_cast<uint32_t>(align_frame(static_cast<uint64_t>(start.length)));
        frame.wire = start.type == static_cast<uint16_t>(Type::pad) ? header_length : frame.room;
        each(frame, room);
    }
}

} // namespace penstock::wire
