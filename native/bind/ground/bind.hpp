// Shared by the binding files: errors to Python exceptions, arguments of hot methods, the exit gate. No algorithms.
#pragma once

#include "bind/ground/stable_abi.hpp"

#include "ground/clock.hpp"
#include "ground/error.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <climits>
#include <exception>
#include <memory>
#include <optional>

namespace nb = nanobind;

namespace penstock {
class End;
} // namespace penstock

namespace penstock::bind {

// ---- errors ----

// Sets the Python error for the C++ exception in flight; returns null for the caller to return.
PyObject *raise_current() noexcept;
PyObject *timeout_error();            // the class
std::string place_of(const End *end); // for errors about arguments: the channel and a colon; nothing without an end
PyObject *text_of(const std::string &bytes) noexcept; // bytes that are not UTF-8 as \xff
void bind_errors(nb::module_ &m);

// ---- the exit gate ----
// A thread that waits without the GIL must not take the GIL again once the interpreter finalizes: that ends the process by
// abort. The gate closes in an atexit callback, after which such threads stay where they are.
void bind_gate(nb::module_ &m);
void pass_gate();   // before the interpreter is taken again
void gate_passed(); // after it was
// Around a call of Python in the middle of one of ours: CPython ends a thread that wants the GIL back when the interpreter has
// ended, and that would unwind our frames. The end waits for such calls; after it, none begins.
void enter_python();
struct PythonCall {
    PythonCall() { enter_python(); }
    ~PythonCall() { gate_passed(); }
    PythonCall(const PythonCall &) = delete;
    PythonCall &operator=(const PythonCall &) = delete;
};

// Runs `work` without the GIL and takes it again through the gate.
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

// ---- timeouts ----

// None and huge numbers: for ever. Throws invalid for anything that is not a real number, for NaN and for negatives.
int64_t timeout_ns(PyObject *timeout, const End *end = nullptr);

// ---- arguments of methods that bypass nanobind's dispatch ----

// TypeError: the value is not a bytes-like message.
[[noreturn]] void refuse_message(PyObject *object, const End *end);

// A buffer of any kind, borrowed for the call: its bytes in C order, copied where they are in another order. Throws for what is
// no buffer, and for arrays whose bytes do not say what they hold: those of Python objects, and masked ones.
class BufferArgument {
  public:
    BufferArgument(PyObject *object, const End *end);
    ~BufferArgument() { PyBuffer_Release(&view_); }
    BufferArgument(const BufferArgument &) = delete;
    BufferArgument &operator=(const BufferArgument &) = delete;
    const uint8_t *data() const { return copy_ ? copy_.get() : static_cast<const uint8_t *>(view_.buf); }
    size_t size() const { return static_cast<size_t>(view_.len); }
    // How many rows it has; -1 if it has no dimension.
    Py_ssize_t rows() const { return view_.ndim < 1 ? -1 : view_.shape[0]; }

  private:
    Py_buffer view_;
    std::unique_ptr<uint8_t[]> copy_;
};

// The same for one message. `bytes` takes no buffer request at all.
class BytesArgument {
  public:
    explicit BytesArgument(PyObject *object, const End *end = nullptr);
    BytesArgument(const BytesArgument &) = delete;
    BytesArgument &operator=(const BytesArgument &) = delete;
    const uint8_t *data() const { return data_; }
    size_t size() const { return size_; }

  private:
    const uint8_t *data_;
    size_t size_;
    std::optional<BufferArgument> buffer_;
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

void bind_log(nb::module_ &m);
void bind_ring(nb::module_ &m);
void bind_early(nb::module_ &m);
void bind_look(nb::module_ &m);
void bind_formats(nb::module_ &m);
void bind_publication(nb::module_ &m);
void bind_awaiting(nb::module_ &m);
void bind_streams(nb::module_ &m);
void bind_subscription(nb::module_ &m);
void bind_waiting(nb::module_ &m);
void bind_recording(nb::module_ &m);
void bind_frames(nb::module_ &m);
void bind_refusals(nb::module_ &m);
void bind_strict(nb::module_ &m);
void bind_sync(nb::module_ &m);
void bind_pipe(nb::module_ &m);
void bind_pipe_sockets(nb::module_ &m);
void bind_mailbox(nb::module_ &m);
void bind_counter(nb::module_ &m);
void bind_udp(nb::module_ &m);
void bind_why(nb::module_ &m);

} // namespace penstock::bind
