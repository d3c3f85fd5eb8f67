// Cheap looks at a channel between two attempts: at words that change, and now and then at the living.
#pragma once

#include "ground/clock.hpp"
#include "ground/waiting.hpp"

#include <cstddef>
#include <cstdint>

namespace penstock {

// Words that change when a message or room for one appears, and their values before. Read without the GIL.
class WatchSet {
  public:
    void clear() { count_ = 0, changes_ = nullptr; }
    // Worth an attempt when `word` is at least this far beyond `seen`.
    void add(const Atomic<uint64_t> &word, uint64_t seen, uint64_t step = 1) {
        if (count_ == most) return; // the sleeper's own look sees words that are left out
        words_[count_] = &word;
        steps_[count_] = step;
        seen_[count_++] = seen;
    }
    void add_changes(const Atomic<uint32_t> &word, uint32_t seen) { changes_ = &word, changes_seen_ = seen; }
    bool empty() const { return count_ == 0 && changes_ == nullptr; }
    bool changed() const {
        for (size_t i = 0; i < count_; ++i)
            if (words_[i]->relaxed() - seen_[i] >= steps_[i]) return true;
        return changes_ != nullptr && changes_->relaxed() != changes_seen_;
    }

  private:
    static constexpr size_t most = 16;
    const Atomic<uint64_t> *words_[most];
    uint64_t seen_[most], steps_[most];
    size_t count_ = 0;
    const Atomic<uint32_t> *changes_ = nullptr;
    uint32_t changes_seen_ = 0;
};

// When the bridge's thread may ask the kernel which members live: once in a while.
class RateLimit {
  public:
    bool allows() {
        const int64_t now = monotonic_ns();
        if (now - last_ns_ < end_interval_ns) return false;
        last_ns_ = now;
        return true;
    }

  private:
    int64_t last_ns_ = 0;
};

} // namespace penstock
