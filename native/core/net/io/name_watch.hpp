// A host's name, looked up again while nobody answers at the address that it had: a machine or a pod comes back with another one.
// A lookup may take seconds, so a thread does it and ends. One thread at a time asks; its user locks.
#pragma once

#include "ground/background_thread.hpp"
#include "net/io/net_calls.hpp"
#include "net/io/socket.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

class NameWatch {
  public:
    static constexpr int64_t interval_ns = 2'000'000'000;

    // `at`: the address that the name had.
    NameWatch(std::string host, const Address &at, NetCalls &calls) : host_(std::move(host)), at_(at), calls_(calls) {}

    const Address &address() const { return at_; }
    bool is_of(const std::string &host, uint16_t port) const { return host_ == host && at_.port == port; }

    // A new address, when a lookup has found one. `silent`: nobody answers at the last one; the next lookup begins once that has
    // been so for an interval. An address that the name still has stays.
    std::optional<Address> poll(int64_t now, bool silent) {
        if (const auto found = lookup_ ? lookup_->result() : std::nullopt) {
            lookup_.reset();
            next_ = now + interval_ns;
            return choose(*found);
        }
        if (!silent || next_ == 0) next_ = now + interval_ns;
        else if (now >= next_ && !lookup_) look_up(now);
        return std::nullopt;
    }

  private:
    class Lookup {
      public:
        void finish(std::vector<Address> found) {
            const std::lock_guard hold(mutex_);
            found_ = std::move(found);
        }
        std::optional<std::vector<Address>> result() {
            const std::lock_guard hold(mutex_);
            return found_;
        }

      private:
        std::mutex mutex_;
        std::optional<std::vector<Address>> found_; // once it is done
    };

    void look_up(int64_t now) {
        next_ = now + interval_ns;
        const auto lookup = std::make_shared<Lookup>();
        try {
            start_background_thread("looks up a host's name", [lookup, host = host_, port = at_.port, &calls = calls_.get()] {
                lookup->finish(calls.resolve(host, port));
            });
        } catch (const Error &) { // no thread to be had: the next interval tries again
            return;
        }
        lookup_ = lookup;
    }
    std::optional<Address> choose(const std::vector<Address> &found) {
        std::optional<Address> other;
        for (const Address &one : found) {
            if (one == at_) return std::nullopt;
            if (!other && is_v4(one) == is_v4(at_)) other = one;
        }
        if (other) at_ = *other;
        return other;
    }

    std::string host_;
    Address at_;
    std::reference_wrapper<NetCalls> calls_;
    std::shared_ptr<Lookup> lookup_; // the one that runs
    int64_t next_ = 0;
};

} // namespace penstock
