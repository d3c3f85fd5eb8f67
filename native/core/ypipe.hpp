// A lock-free pipe within a process: one writer, one reader, and of all its words only one is shared. The writer shows what it
// has flushed by moving that word on; the reader takes all of it with one operation, and says by a null that it found nothing and
// sleeps. After ZeroMQ's ypipe. Invariants and orders: docs/design/ypipe.md.
#pragma once

#include "yqueue.hpp"

namespace penstock {

template <class T, size_t N> class YPipe {
  public:
    YPipe() {
        queue_.push(); // the place behind the last value: what r, w, f and c point to when the pipe is empty
        r_ = w_ = f_ = &queue_.back();
        c_.relaxed(word(w_));
    }
    YPipe(const YPipe &) = delete;
    YPipe &operator=(const YPipe &) = delete;

    // ---- the writer ----

    // Writes a value; nobody sees it before flush, nor before a value that completes the group it begins.
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
        if (c_.cas(seen, word(f_))) { // SYNC 22: pairs with check_read; forbids reading a value that is not there yet
            w_ = f_;
            return true;
        }
        c_.release(word(f_)); // it is null: the reader touches it no more until it is woken. SYNC 22
        w_ = f_;
        return false;
    }

    // ---- the reader ----

    // Whether there is a value to read. If not, the reader is taken to sleep from now on, and the next flush says so.
    bool check_read() {
        if (&queue_.front() != r_ && r_ != nullptr) return true;
        uint64_t seen = word(&queue_.front());
        r_ = c_.cas(seen, 0) ? &queue_.front() : value_at(seen); // SYNC 22: pairs with flush
        return &queue_.front() != r_ && r_ != nullptr;
    }
    bool read(T &value) {
        if (!check_read()) return false;
        value = std::move(queue_.front());
        queue_.pop();
        return true;
    }
    // Whether the first value, which must be there, is such.
    template <class Such> bool probe(Such &&such) { return check_read() && such(static_cast<const T &>(queue_.front())); }

    // ---- for tests of the invariants: c is w or null; front ≤ r ≤ c ≤ f ≤ back ----
    struct Pointers {
        const void *front, *back, *r, *w, *f, *c;
    };
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
