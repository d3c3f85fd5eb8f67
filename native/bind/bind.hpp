// What the binding files share: errors to Python exceptions, arguments of hot methods, waiting with signals and the
// exit gate. No algorithms.
#pragma once

#include "../core/error.hpp"
#include "../core/waiting.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <climits>
#include <ctime>
#include <exception>

namespace nb = nanobind;

namespace penstock::bind {

// ---- errors ----

// Sets the Python error that stands for the C++ exception in flight; returns null for the caller to return.
PyObject *raise_current() noexcept;
PyObject *timeout_error(); // the class
void bind_errors(nb::module_ &m);

// ---- the exit gate ----
// A thread that waits without the interpreter must not come back to it once it finalizes: that ends the process by
// abort. The gate closes in an atexit callback, after which such threads stay where they are.
void bind_gate(nb::module_ &m);
void pass_gate();   // before the interpreter is taken again
void gate_passed(); // after it was

// Runs `work` without the interpreter and comes back through the gate.
template <class Work> void without_interpreter(Work &&work) {
    PyThreadState *state = PyEval_SaveThread();
    std::exception_ptr failed;
    try {
        work();
    } catch (...) {
        failed = std::current_exception();
    }
    pass_gate();
    PyEval_RestoreThread(state);
    gate_passed();
    if (failed) std::rethrow_exception(failed);
}

// ---- deadlines ----

inline constexpr int64_t for_ever = INT64_MAX;

inline int64_t now_monotonic() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
inline int64_t seconds_to_ns(double seconds) {
    if (seconds <= 0) return 0;
    return seconds > 9e9 ? for_ever : static_cast<int64_t>(seconds * 1e9);
}
// None: for ever. Throws python_error for what is no number, invalid for NaN and negatives.
int64_t timeout_ns(PyObject *timeout);

// Waits until `attempt` returns true, which it calls with the interpreter held; false at the deadline. `glance` is a
// cheap look that needs no interpreter and says when an attempt is worth it; it runs for `spin_ns` before sleeping on
// `event`. `idle` runs after each slept slice, with the interpreter. Not `often`: about a microsecond lies between
// two glances, so that they do not take the line from who writes there.
inline constexpr int64_t room_spin_ns = 50'000; // about what it takes to sleep and be woken
inline constexpr int64_t alone_ns = 4000;       // who looks for longer lets others have the interpreter and the core in between

inline bool only_thread() { return PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) == nullptr; }

template <class Attempt, class Glance, class Idle>
bool wait_until(Atomic<uint32_t> &event, int64_t timeout, int64_t spin_ns, int64_t first_slice_ns, Attempt &&attempt,
                Glance &&glance, Idle &&idle, bool often = true) {
    if (attempt()) return true;
    if (timeout == 0) return false;
    const int64_t begun = now_monotonic();
    const int64_t deadline = timeout >= for_ever - begun ? for_ever : begun + timeout;
    const int64_t spin_end = spin_ns >= for_ever - begun ? deadline : std::min(begun + spin_ns, deadline);
    int64_t slice = first_slice_ns;
    auto seen_by = [&](int64_t end) { // looks busily
        while (!glance()) {
            for (int i = 0; i < 64 && !(often && glance()); ++i) spin_pause();
            const int64_t now = now_monotonic();
            if (now >= end) return false;
            if (spin_ns < for_ever && now - begun >= alone_ns) platform::yield(); // others may need this core more
        }
        return true;
    };
    // An answer that comes at once is had without giving the interpreter away and asking for it back, if no other thread has use
    // for it.
    if (often && spin_ns > 0 && only_thread() && seen_by(std::min(begun + alone_ns, spin_end)) && attempt()) return true;
    while (now_monotonic() < spin_end) { // spin in slices, so that Ctrl-C and other threads are served
        without_interpreter([&] { seen_by(std::min(spin_end, now_monotonic() + slice_ns_max)); });
        if (attempt()) return true;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        idle();
    }
    for (;;) {
        const uint32_t expected = event_prepare(event);
        if (attempt()) return true;
        const int64_t now = now_monotonic();
        if (now >= deadline) return false;
        without_interpreter([&] { event_sleep(event, expected, std::min(slice, deadline - now)); });
        if (attempt()) return true;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        idle();
        slice = std::min(slice * 2, slice_ns_max);
    }
}

// ---- arguments of methods that bypass nanobind's dispatch ----

// A contiguous buffer of any kind, borrowed for the call. `bytes` takes no buffer request at all.
class BytesArgument {
  public:
    explicit BytesArgument(PyObject *object);
    ~BytesArgument() {
        if (held_) PyBuffer_Release(&view_);
    }
    BytesArgument(const BytesArgument &) = delete;
    BytesArgument &operator=(const BytesArgument &) = delete;
    const uint8_t *data() const { return data_; }
    size_t size() const { return size_; }

  private:
    const uint8_t *data_;
    size_t size_;
    Py_buffer view_;
    bool held_ = false;
};

// The value of the keyword `name`, or of positional argument `place`, or null. Throws TypeError for anything else given.
PyObject *optional_argument(const char *method, PyObject *const *args, Py_ssize_t positional, PyObject *names, Py_ssize_t place,
                            const char *name);

inline void add_method(nb::handle type, PyMethodDef *definition) {
    nb::object method = nb::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject *>(type.ptr()), definition));
    if (!method.is_valid()) throw nb::python_error();
    nb::setattr(type, definition->ml_name, method);
}
inline void add_function(nb::module_ &m, PyMethodDef *definition) {
    nb::object function = nb::steal(PyCFunction_NewEx(definition, nullptr, nullptr));
    if (!function.is_valid()) throw nb::python_error();
    nb::setattr(m, definition->ml_name, function);
}
template <class Function> PyCFunction as_method(Function function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(function));
}

void bind_channels(nb::module_ &m);
void bind_publication(nb::module_ &m);
void bind_subscription(nb::module_ &m);
void bind_waiting(nb::module_ &m);
void bind_recording(nb::module_ &m);
void bind_frames(nb::module_ &m);
void bind_sync(nb::module_ &m);
void bind_pipe(nb::module_ &m);
void bind_mailbox(nb::module_ &m);

} // namespace penstock::bind
