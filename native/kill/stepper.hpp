// What the killing programs share: walking a victim through an operation, going to a place again, and the account of it all.
#pragma once

#include "tracer.hpp"

#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace penstock::kill_room {

struct Result {
    uint64_t steps = 0, states = 0, kills = 0, failures = 0;
    std::string first;
};

inline void fail(Result &result, const std::string &what, uint64_t step, const std::string &wrong) {
    if (result.failures++ == 0) result.first = what + " --at " + std::to_string(step) + "   # " + wrong;
}

// An instruction on a victim's way.
struct Place {
    uint64_t address;
    uint64_t earlier; // how often it was come by before
};

// Steps a victim to the end of its operation. `look(step, bytes)` is called before the first instruction and wherever the
// bytes at `watched` have changed; `changes` and `places` receive where that was, and the whole way.
template <class Look>
void walk(Victim &child, const uint8_t *watched, size_t size, Result &result, std::vector<uint64_t> &changes,
          std::vector<Place> &places, Look &&look) {
    std::vector<uint8_t> last(watched, watched + size);
    std::unordered_map<uint64_t, uint64_t> met;
    const auto here = [&] {
        const uint64_t address = child.place();
        places.push_back({address, met[address]++});
    };
    uint64_t step = 0;
    ++result.states;
    look(step, last);
    here();
    while (child.step()) {
        ++step;
        here();
        if (std::memcmp(last.data(), watched, size) == 0) continue;
        std::memcpy(last.data(), watched, size);
        changes.push_back(step);
        ++result.states;
        look(step, last);
    }
    result.steps += step;
}

// Brings another victim of the same operation to that step: by a breakpoint to the last place before it that is not deep within
// a loop, then step by step.
inline void go_to(Victim &child, uint64_t step, const std::vector<Place> &places) {
    uint64_t from = step;
    while (from != 0 && (places[from].earlier >= 20 || places[from].address == places[0].address)) --from;
    if (from != 0 && !child.run_to(places[from].address, places[from].earlier + 1)) from = 0;
    while (from < step && child.step()) ++from;
}

inline void print(const std::string &what, const Result &result, double seconds) {
    std::string escaped;
    for (const char c : result.first) {
        if (c == '"' || c == '\\') escaped += '\\';
        escaped += c;
    }
    std::printf("{\"operation\": \"%s\", \"steps\": %lu, \"states\": %lu, \"kills\": %lu, \"failures\": %lu, \"seconds\": %.2f, "
                "\"first\": \"%s\"}\n",
                what.c_str(), (unsigned long)result.steps, (unsigned long)result.states, (unsigned long)result.kills,
                (unsigned long)result.failures, seconds, escaped.c_str());
    std::fflush(stdout);
}

} // namespace penstock::kill_room
