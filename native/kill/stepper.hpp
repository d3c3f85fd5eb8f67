// The killing programs' campaign: every operation in every shape is stepped through, then killed at the places that matter, and
// accounted for. A program brings its operations, its shapes, and what must hold afterwards.
#pragma once

#include "tracer.hpp"

#include <chrono>
#include <cstring>
#include <random>
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

// The error's text where `judge` throws one.
template <class Judge> std::string judged(Judge &&judge) {
    try {
        return judge();
    } catch (const std::exception &error) {
        return error.what();
    }
}

// A victim of its own, brought to that step and killed there for good.
template <class Prepare, class Act>
void kill_victim(Prepare &&prepare, Act &&act, uint64_t step, const std::vector<Place> &places) {
    Victim child(prepare, act);
    go_to(child, step, places);
    child.end();
}

// One case. `step_through(changes, places)` walks a victim through it; `kill_at(step, places)` kills another at that step and
// says what is wrong then. Killed at are the steps that changed memory, in a loop only those of its first `rounds`, and `kills`
// more.
template <class StepThrough, class KillAt>
void examine_case(const std::string &what, uint64_t kills, uint64_t rounds, std::mt19937_64 &random, Result &result,
                  StepThrough &&step_through, KillAt &&kill_at) {
    std::vector<uint64_t> changes;
    std::vector<Place> places;
    const uint64_t before = result.steps;
    step_through(changes, places);
    const uint64_t steps = result.steps - before;
    for (uint64_t i = 0; i < changes.size() + kills; ++i) {
        const uint64_t step = i < changes.size() ? changes[i] : 1 + random() % steps;
        if (i < changes.size() && places[step].earlier >= rounds) continue;
        ++result.kills;
        const std::string wrong = judged([&] { return kill_at(step, places); });
        if (!wrong.empty()) fail(result, what + " --kill 1", step, wrong);
    }
}

// A program's arguments: [--seed S] [--rounds N] [--kills K] [--part P --parts Q] [--operation NAME]
struct Options {
    uint64_t seed, rounds, kills, part, parts;
    const char *only = nullptr;

    Options(int argc, char **argv)
        : seed(number(argc, argv, "--seed", 1)), rounds(number(argc, argv, "--rounds", 1)),
          kills(number(argc, argv, "--kills", 10)), part(number(argc, argv, "--part", 0)),
          parts(number(argc, argv, "--parts", 1)) {
        for (int i = 1; i + 1 < argc; ++i)
            if (std::string(argv[i]) == "--operation") only = argv[i + 1];
    }
    bool wants(const std::string &operation) const { return only == nullptr || operation == only; }

  private:
    static uint64_t number(int argc, char **argv, const char *name, uint64_t otherwise) {
        for (int i = 1; i + 1 < argc; ++i)
            if (std::string(argv[i]) == name) return std::strtoull(argv[i + 1], nullptr, 0);
        return otherwise;
    }
};

// Runs `work(result)` and prints what came of it, if it did anything; how many failures there were.
template <class Work> uint64_t account(const std::string &what, Work &&work) {
    Result result;
    const auto begun = std::chrono::steady_clock::now();
    work(result);
    if (result.steps != 0) print(what, result, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    return result.failures;
}

// Every operation in every shape, as often as asked for, this program's share of it: `shape(operation, number, random)` makes a
// case and `examine(operation, case, kills, random, result)` tries it. How many failures there were.
template <class Operations, class Shape, class Examine>
uint64_t campaign(const Options &options, const std::string &kind, const Operations &operations, int shapes, Shape &&shape,
                  Examine &&examine) {
    std::mt19937_64 random(options.seed);
    uint64_t failures = 0, number = 0;
    for (uint64_t round = 0; round < options.rounds; ++round)
        for (const auto &operation : operations)
            failures += account(kind + operation.name, [&](Result &result) {
                for (int i = 0; i < shapes; ++i) {
                    const auto at = shape(operation, i, random);
                    std::mt19937_64 dice(random());
                    if (number++ % options.parts != options.part || !options.wants(operation.name)) continue;
                    examine(operation, at, options.kills, dice, result);
                }
            });
    return failures;
}

} // namespace penstock::kill_room
