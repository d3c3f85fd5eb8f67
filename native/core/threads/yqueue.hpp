// A queue of one process: chunks of N places in a list, one writer at the back, one reader at the front. A chunk that the reader
// has emptied is kept as a spare and taken again by the writer, so that a queue in its steady state allocates nothing.
// After ZeroMQ's yqueue. docs/design/ypipe.md.
#pragma once

#include "ground/atomics.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock {

template <class T, size_t N> class YQueue {
    static_assert(N >= 2);

  public:
    YQueue() : begin_chunk_(new Chunk), end_chunk_(begin_chunk_) { spare_.relaxed(0); }
    ~YQueue() {
        while (begin_chunk_ != end_chunk_) delete std::exchange(begin_chunk_, begin_chunk_->next);
        delete begin_chunk_;
        delete chunk(spare_.relaxed());
    }
    YQueue(const YQueue &) = delete;
    YQueue &operator=(const YQueue &) = delete;

    T &front() { return begin_chunk_->values[begin_at_]; }
    T &back() { return back_chunk_->values[back_at_]; }

    // One more place at the back, which its writer fills. The queue has no place at first: call this once before back().
    void push() {
        back_chunk_ = end_chunk_;
        back_at_ = end_at_;
        if (++end_at_ != N) return;
        // SYNC 21: pairs with YQueue::pop; forbids writing into the spare chunk before it is taken: its reader could still be in
        // it
        Chunk *next = chunk(spare_.exchange(0));
        if (next == nullptr) next = new Chunk;
        end_chunk_->next = next;
        next->previous = end_chunk_;
        end_chunk_ = next;
        end_at_ = 0;
    }
    // Takes the last place back. Only for a place that no reader can see yet.
    void unpush() {
        if (back_at_ != 0) --back_at_;
        else {
            back_at_ = N - 1;
            back_chunk_ = back_chunk_->previous;
        }
        if (end_at_ != 0) {
            --end_at_;
            return;
        }
        end_at_ = N - 1;
        end_chunk_ = end_chunk_->previous;
        delete std::exchange(end_chunk_->next, nullptr);
    }
    // The first place is done with.
    void pop() {
        if (++begin_at_ != N) return;
        Chunk *done = begin_chunk_;
        begin_chunk_ = begin_chunk_->next;
        begin_chunk_->previous = nullptr;
        begin_at_ = 0;
        // SYNC 21: pairs with YQueue::push; forbids the chunk being a spare before the last read of its values
        delete chunk(spare_.exchange(reinterpret_cast<uint64_t>(done)));
    }

  private:
    struct Chunk {
        T values[N];
        Chunk *previous = nullptr, *next = nullptr;
    };
    static Chunk *chunk(uint64_t word) { return reinterpret_cast<Chunk *>(word); }

    // The reader's words, the writer's, and the one they share, each on their own lines.
    alignas(128) Chunk *begin_chunk_;
    size_t begin_at_ = 0;
    alignas(128) Chunk *back_chunk_ = nullptr;
    size_t back_at_ = 0;
    Chunk *end_chunk_;
    size_t end_at_ = 0;
    alignas(128) Atomic<uint64_t> spare_;
};

} // namespace penstock
