// A lock-free pipe within a process: one writer, one reader, and only one of its words is shared. The writer shows its flushed
// values by moving that word on. The reader takes all of them with one operation; if there are none, it stores a null, which says
// that it sleeps. After ZeroMQ's ypipe. Invariants and orders: docs/design/ypipe.md.
#pragma once

#include "threads/yqueue.hpp"

namespace penstock {

template <class T, size_t N> class YPipe {
  public:
    YPipe() {
        queue_.push(); // the place behind the last value: r, w, f and c point there when the pipe is empty
        r_ = w_ = f_ = &queue_.back();
        c_.relaxed(word(w_));
    }
    YPipe(const YPipe &) = delete;
    YPipe &operator=(const YPipe &) = delete;

    // ---- the writer ----

    // Writes a value. The reader does not see it before flush(), nor before the value that completes its group.
    void write(T value, bool incomplete = false) {
        queue_.back() = std::move(value);
        queue_.push();
        if (!incomplete) f_ = &queue_.back();
    }
    // Takes back the last value of a group that is not complete. False if there is none.
    bool unwrite(T &value) {
        if (f_ == &queue_.back()) return false;
        queue_.unpush();
        value = std::move(queue_.back());
        return true;
    }
    // Shows every complete group. False if the reader sleeps: then it has to be woken.
    bool flush() {
        if (w_ == f_) return true;
        uint64_t seen = word(w_);
        // SYNC 22: pairs with YPipe::check_read; forbids the reader seeing the word before the values in front of it
        if (c_.cas(seen, word(f_))) {
            w_ = f_;
            return true;
        }
        // The word was null: the reader sleeps and does not touch it until it is woken, so a store is enough.
        // SYNC 22: pairs with YPipe::check_read; forbids the reader seeing the word before the values in front of it
        c_.release(word(f_));
        w_ = f_;
        return false;
    }

    // ---- the reader ----

    // Whether there is a value to read. If not, the reader is taken to sleep from now on, and the next flush says so.
    bool check_read() {
        if (&queue_.front() != r_ && r_ != nullptr) return true;
        uint64_t seen = word(&queue_.front());
        // SYNC 22: pairs with YPipe::flush; forbids reading a value before the word that says that it is there
        r_ = c_.cas(seen, 0) ? &queue_.front() : value_at(seen);
        return &queue_.front() != r_ && r_ != nullptr;
    }
    bool read(T &value) {
        if (!check_read()) return false;
        value = std::move(queue_.front());
        queue_.pop();
        return true;
    }

    // ---- for tests of the invariants: c is w or null; front ≤ r ≤ c ≤ f ≤ back ----
    struct Pointers {
        const void *front, *back, *r, *w, *f, *c;
    };
    // SYNC -: one thread is at both ends of the pipe when a test calls this
    Pointers pointers() { return {&queue_.front(), &queue_.back(), r_, w_, f_, value_at(c_.acquire())}; }

  private:
    static uint64_t word(const T *at) { return reinterpret_cast<uint64_t>(at); }
    static T *value_at(uint64_t word) { return reinterpret_cast<T *>(word); }

    YQueue<T, N> queue_;
    alignas(128) T *w_;               // the first value that was not flushed; the writer
    T *f_;                            // the first value of a group that is not complete; the writer
    alignas(128) T *r_;               // the first value that was not taken over yet; the reader
    alignas(128) Atomic<uint64_t> c_; // w, or null while the reader sleeps; both
};

} // namespace penstock
