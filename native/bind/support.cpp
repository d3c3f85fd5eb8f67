// Errors, the exit gate and the arguments of hot methods.
#include "bind.hpp"

#include <cmath>
#include <map>

namespace penstock::bind {

namespace {

std::map<int, PyObject *> &error_types() {
    static auto *types = new std::map<int, PyObject *>;
    return *types;
}

PyObject *raise_error(const Error &error) noexcept {
    if (error.code == Code::system) {
        const auto found = error_types().find(static_cast<int>(Code::system));
        PyObject *type = found == error_types().end() ? PyExc_OSError : found->second;
        PyObject *value = PyObject_CallFunction(type, "is", error.number, error.what());
        if (value != nullptr) {
            PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(value)), value);
            Py_DECREF(value);
        }
        return nullptr;
    }
    const auto found = error_types().find(static_cast<int>(error.code));
    PyErr_SetString(found == error_types().end() ? PyExc_RuntimeError : found->second, error.what());
    return nullptr;
}

std::atomic<bool> gate_closed{false};
std::atomic<uint32_t> coming_back{0}; // threads that have passed the gate and do not have the interpreter yet
std::atomic<pthread_t> closer{};      // who ends the interpreter, and may still use it

} // namespace

PyObject *raise_current() noexcept {
    try {
        throw;
    } catch (nb::python_error &error) {
        error.restore();
    } catch (const Error &error) {
        raise_error(error);
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

PyObject *timeout_error() {
    const auto found = error_types().find(-1);
    return found == error_types().end() ? PyExc_TimeoutError : found->second;
}

void bind_errors(nb::module_ &m) {
    nb::register_exception_translator(
        [](const std::exception_ptr &pointer, void *) {
            try {
                std::rethrow_exception(pointer);
            } catch (const Error &error) {
                raise_error(error);
            }
        },
        nullptr);
    m.def(
        "register_errors",
        [](nb::type_object corrupt, nb::type_object mismatch, nb::type_object busy, nb::type_object closed,
           nb::type_object dropped, nb::type_object too_large, nb::type_object invalid, nb::type_object system,
           nb::type_object timeout) {
            const std::pair<Code, nb::handle> pairs[] = {
                {Code::corrupt, corrupt}, {Code::mismatch, mismatch},   {Code::busy, busy},       {Code::closed, closed},
                {Code::dropped, dropped}, {Code::too_large, too_large}, {Code::invalid, invalid}, {Code::system, system}};
            for (const auto &[code, type] : pairs) error_types()[static_cast<int>(code)] = type.inc_ref().ptr();
            error_types()[-1] = timeout.inc_ref().ptr();
        },
        nb::kw_only(), nb::arg("corrupt"), nb::arg("mismatch"), nb::arg("busy"), nb::arg("closed"), nb::arg("dropped"),
        nb::arg("too_large"), nb::arg("invalid"), nb::arg("system"), nb::arg("timeout"),
        "Says which exception class stands for each kind of failure. Called once, by penstock.errors.");
}

void bind_gate(nb::module_ &m) {
    nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
        closer = pthread_self();
        gate_closed = true;
        const nb::gil_scoped_release let_them;
        for (int i = 0; coming_back != 0 && i < 20'000; ++i) { // those who were on their way come in first
            const timespec moment{0, 100'000};
            nanosleep(&moment, nullptr);
        }
    }));
    pthread_atfork(nullptr, nullptr, [] { coming_back = 0; }); // the parent's threads are not the child's
    m.attr("_gate") = nb::bool_(true);
}

void pass_gate() {
    ++coming_back;
    if (!gate_closed || pthread_equal(closer, pthread_self()) != 0) return;
    --coming_back;
    for (;;) {
        const timespec long_time{3600, 0};
        nanosleep(&long_time, nullptr); // until the process ends
    }
}
void gate_passed() { --coming_back; }

int64_t timeout_ns(PyObject *timeout) {
    if (timeout == nullptr || timeout == Py_None) return for_ever;
    const double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
    if (std::isnan(seconds) || seconds < 0) throw Error(Code::invalid, "a timeout is None or a number of seconds from 0 on");
    return seconds_to_ns(seconds);
}

BytesArgument::BytesArgument(PyObject *object) {
    if (PyBytes_CheckExact(object)) {
        data_ = reinterpret_cast<const uint8_t *>(PyBytes_AS_STRING(object));
        size_ = static_cast<size_t>(PyBytes_GET_SIZE(object));
        return;
    }
    if (PyUnicode_Check(object)) {
        PyErr_SetString(PyExc_TypeError,
                        "a message is bytes or a buffer, not str: encode it, or give the channel codec=\"json\"");
        throw nb::python_error();
    }
    if (PyObject_GetBuffer(object, &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    held_ = true;
    data_ = static_cast<const uint8_t *>(view_.buf);
    size_ = static_cast<size_t>(view_.len);
}

PyObject *optional_argument(const char *method, PyObject *const *args, Py_ssize_t positional, PyObject *names, Py_ssize_t place,
                            const char *name) {
    PyObject *value = positional > place ? args[place] : nullptr;
    bool fine = positional <= place + 1;
    const Py_ssize_t count = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < count && fine; ++i) {
        fine = value == nullptr && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name) == 0;
        if (fine) value = args[positional + i];
    }
    if (fine && positional >= place) return value;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd argument%s and an optional %s", method, place, place == 1 ? "" : "s", name);
    throw nb::python_error();
}

} // namespace penstock::bind
