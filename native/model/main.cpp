// The checker's command: explores scenarios and prints one JSON object a line.
//   log_model [--scenario NAME] [--prefix NAMES] [--without NAMES] [--preemptions N] [--stale N] [--most EXECUTIONS] [--random
//   EXECUTIONS] [--seed S]
//             [--weaken FILE:LINE:COLUMN:HALF] [--list] [--sites]
#include "explorer.hpp"
#include "scenarios.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace penstock::model;

namespace {

const char *option(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; ++i)
        if (std::strcmp(argv[i], name) == 0) return i + 1 < argc ? argv[i + 1] : "";
    return nullptr;
}
uint64_t number(int argc, char **argv, const char *name, uint64_t otherwise) {
    const char *text = option(argc, argv, name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

Mutant parse_mutant(const char *text) {
    Mutant mutant;
    if (text == nullptr) return mutant;
    const std::string all = text;
    const size_t a = all.find(':'), b = all.find(':', a + 1), c = all.find(':', b + 1);
    if (c == std::string::npos) {
        std::fprintf(stderr, "--weaken takes FILE:LINE:COLUMN:HALF\n");
        std::exit(2);
    }
    mutant.file = all.substr(0, a);
    mutant.line = static_cast<uint32_t>(std::strtoul(all.c_str() + a + 1, nullptr, 10));
    mutant.column = static_cast<uint32_t>(std::strtoul(all.c_str() + b + 1, nullptr, 10));
    mutant.what = all.substr(c + 1);
    return mutant;
}

// `prefixes`: separated by commas.
bool begins_with_one_of(const std::string &name, const std::string &prefixes) {
    for (size_t at = 0; at < prefixes.size();) {
        const size_t end = std::min(prefixes.find(',', at), prefixes.size());
        if (name.compare(0, end - at, prefixes, at, end - at) == 0) return true;
        at = end + 1;
    }
    return false;
}

std::vector<Scenario> all_scenarios() {
    std::vector<Scenario> all = log_scenarios();
    for (const auto *more :
         {&log_members(), &log_deaths(), &last_scenarios(), &sync_scenarios(), &ring_scenarios(), &frame_scenarios(),
          &pipe_scenarios(), &early_scenarios(), &udp_scenarios(), &udp_deaths(), &waiter_scenarios(), &look_scenarios()})
        all.insert(all.end(), more->begin(), more->end());
    return all;
}

std::string escaped(const std::string &text) {
    std::string out;
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out;
}

} // namespace

int main(int argc, char **argv) {
    const char *only = option(argc, argv, "--scenario"), *prefix = option(argc, argv, "--prefix");
    const char *without = option(argc, argv, "--without");
    if (option(argc, argv, "--list") != nullptr) {
        for (const Scenario &scenario : all_scenarios())
            std::printf("%s\t%s\t%s\n", scenario.name,
                        scenario.vast    ? "vast"
                        : scenario.heavy ? "heavy"
                                         : "light",
                        scenario.what);
        return 0;
    }
    Budget budget;
    budget.preemptions = static_cast<int>(number(argc, argv, "--preemptions", 3));
    budget.stale = static_cast<int>(number(argc, argv, "--stale", 3));
    budget.executions = number(argc, argv, "--most", UINT64_MAX);
    for (int i = 1; i < argc; ++i)
        if (std::strcmp(argv[i], "--symmetric") == 0) make_symmetric();
    const uint64_t random = number(argc, argv, "--random", 0), seed = number(argc, argv, "--seed", 1);
    const Mutant mutant = parse_mutant(option(argc, argv, "--weaken"));
    int failures = 0;
    bool found = false;
    for (const Scenario &scenario : all_scenarios()) {
        if (only != nullptr && std::strcmp(only, scenario.name) != 0) continue;
        if (without != nullptr && begins_with_one_of(scenario.name, without)) continue;
        if (prefix != nullptr && std::strncmp(prefix, scenario.name, std::strlen(prefix)) != 0) continue;
        found = true;
        const auto begun = std::chrono::steady_clock::now();
        Outcome outcome;
        if (random != 0) outcome = wander(scenario.build, random, seed, mutant);
        else outcome = explore(scenario.build, budget, mutant);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        std::printf("{\"scenario\": \"%s\", \"executions\": %llu, \"pruned\": %llu, \"steps\": %llu, \"exhausted\": %s, "
                    "\"seconds\": %.2f, \"failure\": \"%s\"}\n",
                    scenario.name, static_cast<unsigned long long>(outcome.executions),
                    static_cast<unsigned long long>(outcome.pruned), static_cast<unsigned long long>(outcome.steps),
                    outcome.exhausted ? "true" : "false", seconds, escaped(outcome.failure).c_str());
        std::fflush(stdout);
        if (!outcome.failure.empty()) {
            ++failures;
            if (!mutant.active())
                for (const std::string &line : outcome.trace) std::fprintf(stderr, "    %s\n", line.c_str());
            if (mutant.active() || option(argc, argv, "--first") != nullptr) break; // one is enough
        }
    }
    if (!found) {
        std::fprintf(stderr, "no scenario is called %s; --list names them\n", only);
        return 2;
    }
    if (option(argc, argv, "--sites") != nullptr)
        for (const std::string &site : sites_met()) std::printf("site %s\n", site.c_str());
    return failures == 0 ? 0 : 1;
}
