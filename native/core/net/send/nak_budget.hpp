// How much each receiver may have sent again: a few times what it has consumed, and a window per second. So NAKs draw no more
// than the stream itself justifies. Counted for a host, which may have any number of receivers.
#pragma once

#include "net/wire/address.hpp"

#include <vector>

namespace penstock {

class NakBudget {
  public:
    static constexpr size_t hosts_max = 256;
    static constexpr uint64_t consumed_factor = 4, windows_at_first = 4;
    static constexpr uint64_t request_bytes_min = 128; // of a request for less

    // `window`: the receivers' usual one. `most`: what a receiver may save up.
    NakBudget(uint64_t window, uint64_t most) : window_(window), most_(most) {}

    // A receiver has consumed all below `position`. `sent`: all below it was sent.
    void on_consumed(int64_t now, const Address &from, uint64_t position, uint64_t sent) {
        Budget &budget = budget_of(now, from, sent);
        if (position <= budget.consumed) return;
        budget.bytes = std::min(budget.bytes + consumed_factor * (position - budget.consumed), most_);
        budget.consumed = position;
    }
    // How many of `bytes` it may have now.
    uint64_t allowed(int64_t now, const Address &from, uint64_t bytes, uint64_t sent) {
        return std::min(budget_of(now, from, sent).bytes, bytes);
    }
    void on_request(int64_t now, const Address &from, uint64_t bytes, uint64_t sent) {
        Budget &budget = budget_of(now, from, sent);
        budget.bytes -= std::min(budget.bytes, std::max(bytes, request_bytes_min));
    }

  private:
    struct Budget {
        SourceHost host;
        uint64_t bytes, consumed;
        int64_t refilled_ns;
    };
    // A new one counts what is consumed of what is sent from now on.
    Budget &budget_of(int64_t now, const Address &from, uint64_t sent) {
        const SourceHost host = host_of(from);
        auto found = std::find_if(budgets_.begin(), budgets_.end(), [&](const Budget &one) { return one.host == host; });
        if (found == budgets_.end()) {
            if (budgets_.size() == hosts_max)
                budgets_.erase(std::min_element(budgets_.begin(), budgets_.end(),
                                                [](const Budget &a, const Budget &b) { return a.refilled_ns < b.refilled_ns; }));
            budgets_.push_back({host, std::min(windows_at_first * window_, most_), sent, now});
            found = budgets_.end() - 1;
        }
        const auto elapsed = static_cast<double>(std::max<int64_t>(now - found->refilled_ns, 0));
        const auto more = static_cast<uint64_t>(elapsed * 1e-9 * static_cast<double>(window_));
        if (more != 0) { // else the time is not long enough for a byte
            found->bytes = std::min(found->bytes + more, most_);
            found->refilled_ns = now;
        }
        return *found;
    }

    const uint64_t window_, most_;
    std::vector<Budget> budgets_;
};

} // namespace penstock
