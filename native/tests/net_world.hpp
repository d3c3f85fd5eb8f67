// A world for the network log's state machines: a log that remembers what was written, a reader that compares, and a link that
// loses, doubles, delays and reorders. Everything follows from one seed.
#pragma once

#include "check.hpp"
#include "net/receive/session/receiver.hpp"
#include "net/send/sender.hpp"

#include <queue>
#include <random>

namespace penstock::test {

using Random = std::mt19937_64;
inline bool chance(Random &random, double p) { return static_cast<double>(random() >> 11) * 0x1p-53 < p; }
inline uint64_t between(Random &random, uint64_t least, uint64_t most) { return least + random() % (most - least + 1); }

inline Address address(uint16_t port) {
    Address made;
    made.port = port;
    return made;
}

// Three terms of zeros.
class Memory {
  public:
    Memory(uint32_t term_length, uint32_t mtu, int32_t initial_term_id, int32_t stream)
        : words_(size_t{3} * term_length / 8),
          terms(reinterpret_cast<uint8_t *>(words_.data()), term_length, mtu, initial_term_id, stream) {}

  private:
    std::vector<uint64_t> words_;

  public:
    const Terms terms;
};

// One publication's data, in terms and for ever.
class Log {
  public:
    Log(uint32_t term_length, int32_t initial_term_id, uint64_t start, int32_t session, int32_t stream, uint32_t mtu)
        : memory(term_length, mtu, initial_term_id, stream), start(start), tail(start), session_(session), mtu_(mtu),
          clean_(start - memory.terms.offset(start) + memory.terms.size()) {}

    // One frame; the rest of a term that is too short becomes padding.
    void write(Random &random, uint32_t payload, uint8_t flags) {
        const Terms &terms = memory.terms;
        const auto need = static_cast<uint32_t>(align_frame(payload + header_length));
        if (need > terms.left_in_term(tail))
            put(random, static_cast<uint32_t>(terms.left_in_term(tail)), FrameType::pad, flags_whole);
        put(random, payload + header_length, FrameType::data, flags);
    }
    void abort(Random &random, uint32_t room) {
        room = static_cast<uint32_t>(std::min<uint64_t>(align_frame(room), memory.terms.left_in_term(tail)));
        put(random, room, FrameType::pad, flags_whole);
    }
    void message(Random &random, uint32_t length) {
        const uint32_t most = mtu_ - header_length;
        uint8_t flags = flag_begin;
        for (; length > most; length -= most, flags = 0) write(random, most, flags);
        write(random, length, static_cast<uint8_t>(flags | flag_end));
    }
    // A position's bytes as they were written.
    const uint8_t *written(uint64_t position) const { return truth_.data() + (position - start); }

    // Whether a frame begins there, or will.
    bool begins(uint64_t position) const {
        if (position >= tail) return position == tail;
        FrameHeader header;
        std::memcpy(static_cast<void *>(&header), written(position), header_length);
        return header.term_offset == memory.terms.offset(position) && header.session == session_;
    }

    const Memory memory;
    const uint64_t start;
    uint64_t tail;

  private:
    void put(Random &random, uint32_t length, FrameType type, uint8_t flags) {
        const Terms &terms = memory.terms;
        const uint64_t room = align_frame(length);
        if (tail + room + header_length > clean_) {
            const uint64_t to = tail + room + header_length;
            terms.clean(clean_ - terms.size(), to - terms.size());
            clean_ = to;
        }
        auto *bytes = reinterpret_cast<uint8_t *>(terms.frame(tail));
        auto *frame = terms.frame(tail);
        terms.write_header(frame, tail, session_, static_cast<int64_t>(random()));
        for (uint32_t i = header_length; type == FrameType::data && i < length; ++i) bytes[i] = static_cast<uint8_t>(random());
        frame->word0.release(pack_word0(length, flags, type));
        truth_.insert(truth_.end(), bytes, bytes + (type == FrameType::data ? room : header_length));
        truth_.resize(tail + room - start);
        tail += room;
    }

    const int32_t session_;
    const uint32_t mtu_;
    uint64_t clean_;
    std::vector<uint8_t> truth_;
};

// Reads an image frame by frame and compares it with what was written.
class Reader {
  public:
    // Positions of an image count terms from the initial one in 32 bits, those of a log may have gone round.
    Reader(const Log &log, const Image &image) : log_(log) {
        const uint64_t round = uint64_t{1} << (32 + __builtin_ctzll(image.terms().term_length()));
        position_ = log.start / round * round + image.join();
        if (position_ < log.start) position_ += round;
        shift_ = position_ - image.join();
        begun_ = position_;
    }
    uint64_t begun() const { return begun_; }
    uint64_t lost() const { return lost_; }
    uint64_t frames() const { return frames_; }
    uint64_t position() const { return position_; }

    void read(Image &image, uint64_t frames_max) {
        for (; frames_max != 0; --frames_max) {
            const uint64_t at = position_ - shift_;
            const FrameHeader *frame = image.terms().frame(at);
            const uint64_t word0 = frame->word0.acquire();
            if (at >= image.rebuilt()) { // readers stop where they find no frame
                CHECK(word0 == 0, "something at %lu, where nothing has arrived", static_cast<unsigned long>(at));
                break;
            }
            CHECK(frame_length(word0) >= 32, "a hole at %lu below the rebuilt position", static_cast<unsigned long>(at));
            const uint64_t room = align_frame(static_cast<uint64_t>(frame_length(word0)));
            CHECK(room <= image.terms().left_in_term(at));
            const bool pad = frame_type(word0) == static_cast<uint16_t>(FrameType::pad);
            const bool same = position_ + (pad ? header_length : room) <= log_.tail &&
                              std::memcmp(frame, log_.written(position_), pad ? header_length : room) == 0;
            CHECK(same || pad, "other bytes than were written at %lu", static_cast<unsigned long>(position_));
            if (!same) lost_ += room;
            else ++frames_;
            position_ += room;
        }
        image.consume(position_ - shift_);
    }

  private:
    const Log &log_;
    uint64_t position_ = 0, shift_ = 0, begun_ = 0;
    uint64_t lost_ = 0, frames_ = 0;
};

struct Faults {
    double loss = 0, doubled = 0;
    int64_t delay_min_ns = 5'000, delay_max_ns = 50'000;
    int64_t cut_from_ns = 0, cut_to_ns = 0; // a partition
};

// Datagrams on their way.
class Link {
  public:
    struct Datagram {
        int64_t at;
        uint64_t number;
        uint16_t from, to;
        std::vector<uint8_t> bytes;
        bool operator<(const Datagram &other) const {
            return at != other.at ? at > other.at : number > other.number; // the earliest first
        }
    };
    explicit Link(Random &random) : random_(random) {}
    void send(int64_t now, const Faults &faults, uint16_t from, uint16_t to, const uint8_t *bytes, size_t length) {
        if (now >= faults.cut_from_ns && now < faults.cut_to_ns) return;
        for (int copies = chance(random_, faults.doubled) ? 2 : 1; copies != 0; --copies) {
            if (chance(random_, faults.loss)) continue;
            const auto delay = static_cast<int64_t>(
                between(random_, static_cast<uint64_t>(faults.delay_min_ns), static_cast<uint64_t>(faults.delay_max_ns)));
            way_.push({now + delay, number_++, from, to, std::vector<uint8_t>(bytes, bytes + length)});
        }
    }
    int64_t next() const { return way_.empty() ? INT64_MAX : way_.top().at; }
    Datagram consume() {
        Datagram datagram = way_.top();
        way_.pop();
        return datagram;
    }
    bool empty() const { return way_.empty(); }

  private:
    Random &random_;
    std::priority_queue<Datagram> way_;
    uint64_t number_ = 0;
};

} // namespace penstock::test
