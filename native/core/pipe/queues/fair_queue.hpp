// Reads fairly among the pipes from other peers: the next one in turn that has a message. After ZeroMQ's fq_t. Acknowledges
// nothing.
#pragma once

#include "pipe/table/pipe_table.hpp"

namespace penstock {

class FairQueue {
  public:
    struct Pipe {
        uint32_t index;
        uint64_t from;
        PipeReader reader;
    };
    // Messages that drain() consumed from one pipe in a row.
    struct Drained {
        uint64_t messages = 0, bytes = 0, redelivered = 0;
        uint64_t position = 0;         // the reading position
        bool last_redelivered = false; // whether the last one was
    };

    // The next message, from the pipe whose turn it is, or null. `position`: this peer's reading position.
    const Message *peek(uint64_t position) {
        const size_t count = pipes_.size();
        for (size_t i = 0; i < count; ++i) {
            const size_t at = next_ + i < count ? next_ + i : next_ + i - count;
            if (!pipes_[at].reader.peek(message_)) continue;
            next_ = at;
            rebase(message_, position, pipes_[at].reader);
            return &message_;
        }
        return nullptr;
    }
    // Like peek(), but returns the oldest message by send time. Empty pipes are polled again first, so a reply is never returned
    // before its request (given comparable clocks).
    const Message *peek_oldest(uint64_t position) {
        size_t there = 0, before;
        Message found;
        do {
            before = there;
            there = 0;
            for (size_t i = 0; i < pipes_.size(); ++i) {
                if (!pipes_[i].reader.peek(found)) continue;
                if (there++ != 0 && message_.time_ns <= found.time_ns) continue;
                next_ = i;
                message_ = found;
            }
        } while (there != before && there != pipes_.size());
        if (there == 0) return nullptr;
        rebase(message_, position, current().reader);
        return &message_;
    }
    // The message that was peeked at, and its pipe.
    const Message &message() const { return message_; }
    const Pipe &current() const { return pipes_[next_]; }
    // Consumes it. Returns its pipe; the next one has its turn.
    const Pipe &consume() {
        Pipe &pipe = pipes_[next_];
        pipe.reader.consume();
        advance();
        return pipe;
    }
    // Consumes messages, a run from each pipe in turn, until `add`, which gets each, returns true. `consumed` gets a Drained
    // after each run. False: nothing is left.
    template <class Add, class Consumed> bool drain(uint64_t position, Add &&add, Consumed &&consumed) {
        for (size_t empty = 0; empty < pipes_.size();) {
            PipeReader &reader = pipes_[next_].reader;
            Message found;
            Drained run;
            run.position = position;
            bool enough = false;
            for (; run.messages < run_of_one_pipe && !enough; ++run.messages) {
                if (!reader.peek(found)) break;
                run.bytes += found.length;
                rebase(found, run.position, reader);
                run.position = found.next;
                enough = add(found);
                reader.consume();
                run.redelivered += reader.redelivered();
            }
            empty = run.messages == run_of_one_pipe ? 0 : run.messages == 0 ? empty + 1 : 1;
            if (run.messages != 0) {
                position = run.position;
                run.last_redelivered = reader.redelivered();
                message_ = found;
                consumed(run);
            }
            advance();
            if (enough) return true;
        }
        return false;
    }
    // Whether every message was consumed.
    bool drained() {
        return std::all_of(pipes_.begin(), pipes_.end(), [](Pipe &pipe) { return pipe.reader.drained(); });
    }

    template <class Each> void each_pipe(Each &&each) {
        for (Pipe &pipe : pipes_) each(pipe);
    }
    // Words that change when something arrives, with what they were; safe to look at without the GIL.
    template <class Each> void words(Each &&each) const {
        for (const Pipe &pipe : pipes_) each(pipe.reader.tail_word(), pipe.reader.seen_tail());
    }
    // Messages that were dropped on their way here, and the bytes of those that the writers of lossy pipes dropped.
    uint64_t missed() const {
        uint64_t all = missed_;
        for (const Pipe &pipe : pipes_) all += pipe.reader.missed();
        return all;
    }
    uint64_t missed_bytes() const {
        uint64_t all = missed_bytes_;
        for (const Pipe &pipe : pipes_) all += pipe.reader.missed_bytes();
        return all;
    }

    // The pipes that the table has now. Those that stay keep what they know.
    void update(const std::vector<PipeEnds::Incoming> &ends, const PipeTable &pipes) {
        std::vector<Pipe> now;
        now.reserve(ends.size());
        for (const PipeEnds::Incoming &end : ends) {
            const Pipe *known = find(pipes_, end.index, end.from);
            if (known != nullptr) now.push_back(*known);
            else now.push_back({end.index, end.from, pipes.reader_of(end.index)});
        }
        for (const Pipe &pipe : pipes_)
            if (find(now, pipe.index, pipe.from) == nullptr)
                missed_ += pipe.reader.missed(), missed_bytes_ += pipe.reader.missed_bytes();
        pipes_ = std::move(now);
        if (next_ >= pipes_.size()) next_ = 0;
    }
    void clear() { pipes_.clear(); }

  private:
    static constexpr uint64_t run_of_one_pipe = 64;

    // Rebases a message's position from its pipe to this peer's stream.
    static void rebase(Message &message, uint64_t position, const PipeReader &reader) {
        message.position = position + (message.position - reader.resumed());
        message.next = position + (message.next - reader.resumed());
    }
    static const Pipe *find(const std::vector<Pipe> &pipes, uint32_t index, uint64_t from) {
        for (const Pipe &pipe : pipes)
            if (pipe.index == index && pipe.from == from) return &pipe;
        return nullptr;
    }
    void advance() { next_ = next_ + 1 < pipes_.size() ? next_ + 1 : 0; }

    std::vector<Pipe> pipes_;
    Message message_; // that was peeked at, or drained last
    size_t next_ = 0;
    uint64_t missed_ = 0, missed_bytes_ = 0; // in pipes that are gone
};

} // namespace penstock
