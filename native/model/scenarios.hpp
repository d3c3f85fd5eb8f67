// A structure's scenarios. To add a structure: write a file like log_scenarios.cpp and list it in main.cpp.
#pragma once

#include "explorer.hpp"

#include <vector>

namespace penstock::model {

struct Scenario {
    const char *name;
    const char *what;
    Build build;
    bool heavy = false; // too many executions to exhaust at three preemptions within minutes
    bool vast = false;  // or at two
};

const std::vector<Scenario> &log_scenarios();
const std::vector<Scenario> &log_members();
const std::vector<Scenario> &log_deaths();
const std::vector<Scenario> &last_scenarios();
const std::vector<Scenario> &sync_scenarios();
const std::vector<Scenario> &ring_scenarios();
const std::vector<Scenario> &pipe_scenarios();
const std::vector<Scenario> &frame_scenarios();
const std::vector<Scenario> &early_scenarios();
const std::vector<Scenario> &udp_scenarios();
const std::vector<Scenario> &udp_deaths();
const std::vector<Scenario> &waiter_scenarios();
const std::vector<Scenario> &look_scenarios();

// While it lives, what is allocated outlives the execution.
class HeapOff {
  public:
    HeapOff();
    ~HeapOff();
    HeapOff(const HeapOff &) = delete;
    HeapOff &operator=(const HeapOff &) = delete;

  private:
    bool before_;
};

} // namespace penstock::model
