// The waits of Python's threads: with signals, without the GIL while they sleep, and through the exit gate.
#pragma once

#include "bind/ground/bind.hpp"

#include "ends/wait.hpp"

namespace penstock::bind {

inline int64_t warn_after_ns = for_ever; // a longer wait is logged once; with the GIL

struct Interpreter {
    static int64_t warn_after_ns() { return bind::warn_after_ns; }
    template <class Work> static void let_others_run(Work &&work) { without_interpreter(work); }
    static bool is_only_thread() { return only_thread(); }
    static void handle_signals() {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
};

// Waits until `attempt` returns true, which it calls with the interpreter held; false when `timeout` nanoseconds are over. With 0
// it makes one attempt.
template <class On, class Attempt> bool wait_for(int64_t timeout, On &&target, Attempt &&attempt) {
    return wait_as<Interpreter>(timeout, target, attempt);
}

} // namespace penstock::bind
