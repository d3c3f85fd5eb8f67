// A wait for an end that Python explains, and the ends whose long copies are made without the GIL.
#pragma once

#include "bind/ground/wait.hpp"

#include "ends/targets.hpp"

namespace penstock::bind {

// Python's words for a wait that this thread has noted at an end. Empty if nothing is known. Throws only
// what ends the wait too, such as KeyboardInterrupt.
std::string explain_wait(const End &end, WaitsFor what, int64_t warned_after_ns = 0);

class ExplainedTarget : public EndTarget {
  public:
    void explain(WaitsFor what) {
        if (End *end = noted(); end != nullptr) end->reason = explain_wait(*end, what);
    }
    void warn(int64_t waited_ns) {
        if (const End *end = noted(); end != nullptr) explain_wait(*end, WaitsFor::nothing, waited_ns);
    }
};

// `Writer`: a log's writing end, or a sync queue's.
template <class Writer> class WithoutInterpreter : public Writer {
  public:
    using Writer::Writer;

  protected:
    void copy_large(void *to, const void *from, size_t length) override {
        without_interpreter([&] { copy_bytes(to, from, length); });
    }
};

} // namespace penstock::bind
