// Sources that wait for an answer. A host has a few places. When it has none left, its source with the most gives one to a source
// that has fewer. So no flood of one host keeps another from its answer, and no flood at all fills memory.
#pragma once

#include "net/wire/address.hpp"

#include <cstddef>
#include <vector>

namespace penstock {

// `Item` has its source in `from`.
template <class Item> class AnswerQueue {
  public:
    static constexpr size_t items_max = 1024, items_of_host_max = 16;

    // False: the source has its share.
    bool add(const Item &item) {
        const SourceHost host = host_of(item.from);
        const auto of_host = [&](const Item &one) { return host_of(one.from) == host; };
        if (count(of_host) >= items_of_host_max) {
            const auto oldest = find_of_largest_source(of_host);
            if (count_of(oldest->from) <= count_of(item.from)) return false;
            items_.erase(oldest);
        } else if (items_.size() == items_max) items_.erase(items_.begin());
        items_.push_back(item);
        return true;
    }
    std::vector<Item> &items() { return items_; }
    bool empty() const { return items_.empty(); }
    void clear() { items_.clear(); }

  private:
    template <class Which> size_t count(Which &&which) const {
        return static_cast<size_t>(std::count_if(items_.begin(), items_.end(), which));
    }
    size_t count_of(const Address &from) const {
        return count([&](const Item &one) { return one.from == from; });
    }
    template <class OfHost> typename std::vector<Item>::iterator find_of_largest_source(OfHost &&of_host) {
        auto found = items_.end();
        size_t most = 0;
        for (auto one = items_.begin(); one != items_.end(); ++one) {
            if (!of_host(*one)) continue;
            const size_t all = count_of(one->from);
            if (all <= most) continue;
            most = all;
            found = one;
        }
        return found;
    }

    std::vector<Item> items_;
};

} // namespace penstock
