// Errors, the exit gate, the arguments of hot methods, and what Python needs of processes and shared folders.
#include "bind/ground/arguments.hpp"
#include "ends/ends.hpp"

#include "ground/files/shared_folder.hpp"
#include "ground/members/process_name.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <system_error>

namespace penstock::bind {

namespace {

std::map<int, PyObject *> &error_types() {
    static auto *types = new std::map<int, PyObject *>;
    return *types;
}

// The exit gate. One word, so that its order decides whether a thread passed before the gate closed; the GIL orders the rest.
constexpr uint32_t closed_bit = 1u << 31; // below it: threads that have passed the gate and do not have the GIL yet
Atomic<uint32_t> exit_gate{0};
// A thread learns under the GIL that its handle is closed, and this was stored before the handle was closed.
Atomic<bool> handles_end{false};
Atomic<uint64_t> closer{0}; // the thread that ends the interpreter, and may still use it; only that thread finds itself in it

uint64_t this_thread() {
    static thread_local char here;
    return reinterpret_cast<uint64_t>(&here);
}

[[noreturn]] void park_forever() { // until the process ends
    for (;;) {
        const timespec long_time{3600, 0};
        nanosleep(&long_time, nullptr);
    }
}

// It runs no code of Python: there, a thread gives the GIL away, and CPython ends a daemon thread that then wants it back. That
// unwinds the stack, which may not happen in a function that throws nothing.
bool daemon_thread() noexcept {
    const nb::object name = nb::steal(PyUnicode_InternFromString("threading"));
    const nb::object threading = nb::steal(name.is_valid() ? PyImport_GetModule(name.ptr()) : nullptr);
    const nb::object active = nb::steal(threading.is_valid() ? PyObject_GetAttrString(threading.ptr(), "_active") : nullptr);
    const nb::object ident = nb::steal(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
    const nb::object thread =
        nb::steal(active.is_valid() && ident.is_valid() ? PyObject_GetItem(active.ptr(), ident.ptr()) : nullptr);
    const nb::object daemon = nb::steal(thread.is_valid() ? PyObject_GetAttrString(thread.ptr(), "_daemonic") : nullptr);
    PyErr_Clear(); // the interpreter is half gone, or it is no thread of Python's
    return !daemon.is_valid() || daemon.ptr() != Py_False;
}

// The end of the process has closed a handle that a daemon thread uses: an error would only be printed. Threads that are not
// daemons may have a use for it.
void stay_if_handles_end() noexcept {
    if (!handles_end.relaxed() || closer.relaxed() == this_thread() || !daemon_thread()) return;
    PyEval_SaveThread();
    park_forever();
}

PyObject *raise_error(const Error &error) noexcept {
    if (error.code == Code::closed) stay_if_handles_end();
    PyObject *text = text_of(error.what()); // it names members and paths, whose bytes need not be UTF-8
    if (text == nullptr) return nullptr;
    if (error.code == Code::system) {
        const auto found = error_types().find(static_cast<int>(Code::system));
        PyObject *type = found == error_types().end() ? PyExc_OSError : found->second;
        PyObject *value = PyObject_CallFunction(type, "iN", error.number, text); // takes the text
        if (value != nullptr) {
            PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(value)), value);
            Py_DECREF(value);
        }
        return nullptr;
    }
    const auto found = error_types().find(static_cast<int>(error.code));
    PyErr_SetObject(found == error_types().end() ? PyExc_RuntimeError : found->second, text);
    Py_DECREF(text);
    return nullptr;
}

} // namespace

PyObject *raise_current() noexcept {
    try {
        throw;
    } catch (nb::python_error &error) {
        error.restore();
    } catch (const Error &error) {
        raise_error(error);
    } catch (const nb::builtin_exception &error) {
        const bool wrong_type = error.type() == nb::exception_type::type_error;
        PyErr_SetString(wrong_type ? PyExc_TypeError : PyExc_RuntimeError, error.what());
    } catch (const std::system_error &error) { // the C++ library's: a thread that could not be started, say
        raise_error(Error(Code::system, error.what(), error.code().value()));
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

PyObject *text_of(const std::string &bytes) noexcept {
    return PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace");
}

void bind_errors(nb::module_ &m) {
    m.def(
        "command_of", [](uint32_t pid) { return nb::steal<nb::str>(text_of(command_of(pid))); }, nb::arg("pid"),
        "A process' command line; empty if there is none of that number, or nobody may see it.");
    m.def("process_name", &process_name, nb::arg("pid"), nb::arg("fd"),
          "A process by its number, for errors: one that has the file of `fd` open, or one of another PID namespace.");
    m.def(
        "make_shared_folder", [](int at, const std::string &name) { return make_shared_folder(at, name); }, nb::arg("at"),
        nb::arg("name"),
        "Makes a folder of mode 2770, which has its mode before it has its name. The result is an errno; 0: it is made.");
    nb::register_exception_translator(
        [](const std::exception_ptr &pointer, void *) {
            try {
                std::rethrow_exception(pointer);
            } catch (const Error &error) {
                raise_error(error);
            } catch (const std::system_error &error) {
                raise_error(Error(Code::system, error.what(), error.code().value()));
            }
        },
        nullptr);
    m.def(
        "register_errors",
        [](nb::type_object corrupt, nb::type_object mismatch, nb::type_object busy, nb::type_object closed,
           nb::type_object disconnected, nb::type_object too_slow, nb::type_object end_of_stream, nb::type_object too_large,
           nb::type_object invalid, nb::type_object unsupported, nb::type_object system, nb::type_object timeout) {
            const std::pair<Code, nb::handle> pairs[] = {{Code::corrupt, corrupt},
                                                         {Code::mismatch, mismatch},
                                                         {Code::busy, busy},
                                                         {Code::closed, closed},
                                                         {Code::disconnected, disconnected},
                                                         {Code::too_slow, too_slow},
                                                         {Code::end_of_stream, end_of_stream},
                                                         {Code::too_large, too_large},
                                                         {Code::invalid, invalid},
                                                         {Code::unsupported, unsupported},
                                                         {Code::system, system}};
            for (const auto &[code, type] : pairs) error_types()[static_cast<int>(code)] = type.inc_ref().ptr();
            error_types()[-1] = timeout.inc_ref().ptr();
        },
        nb::kw_only(), nb::arg("corrupt"), nb::arg("mismatch"), nb::arg("busy"), nb::arg("closed"), nb::arg("disconnected"),
        nb::arg("too_slow"), nb::arg("end_of_stream"), nb::arg("too_large"), nb::arg("invalid"), nb::arg("unsupported"),
        nb::arg("system"), nb::arg("timeout"),
        "Registers the exception class of each kind of failure. Called once, as the package is imported.");
}

void bind_gate(nb::module_ &m) {
    nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
        closer.relaxed(this_thread());
        exit_gate.set_bits(closed_bit); // SYNC -: only the word's own order counts
        const nb::gil_scoped_release let_them;
        // Threads that were on their way take the GIL first: each gets it soon, because it is free here. Only a thread that keeps
        // it for minutes could make one too late.
        for (int i = 0; exit_gate.relaxed() != closed_bit && i < 600'000; ++i) {
            const timespec moment{0, 100'000};
            nanosleep(&moment, nullptr);
        }
    }));
    m.def(
        "end_handles",
        [] {
            closer.relaxed(this_thread());
            handles_end.relaxed(true);
        },
        "From now on a daemon thread whose handle was closed stays where it is. Called once, by what closes handles at the end "
        "of the process.");
    pthread_atfork(nullptr, nullptr, [] { // the parent's threads are not the child's, nor is its end
        exit_gate.relaxed(exit_gate.relaxed() & closed_bit);
        handles_end.relaxed(false);
    });
    m.attr("_gate") = nb::bool_(true);
}

void pass_gate() {
    // SYNC -: only the word's own order counts
    if ((exit_gate.add(1) & closed_bit) == 0 || closer.relaxed() == this_thread()) return;
    gate_passed();
    park_forever();
}
void enter_python() {
    // SYNC -: only the word's own order counts
    if ((exit_gate.add(1) & closed_bit) == 0 || closer.relaxed() == this_thread()) return;
    gate_passed();
    PyEval_SaveThread();
    park_forever();
}
void gate_passed() {
    exit_gate.add(UINT32_MAX); // SYNC -: only the word's own order counts
}

std::string place_of(const End *end) { return end == nullptr ? std::string() : end->where() + ": "; }

int64_t timeout_ns(PyObject *timeout, const End *end) {
    if (timeout == nullptr || timeout == Py_None) return for_ever;
    if (PyFloat_CheckExact(timeout) != 0) {
        const double seconds = PyFloat_AsDouble(timeout);
        if (seconds >= 0) return seconds_to_ns(seconds);
    } else if (PyLong_CheckExact(timeout) != 0) { // a float object made of it would cost more than the check
        int beyond = 0;
        const long long whole = PyLong_AsLongLongAndOverflow(timeout, &beyond);
        if (beyond > 0) return for_ever;
        if (beyond == 0 && whole >= 0) return seconds_to_ns(static_cast<double>(whole));
    }
    // Rare: another kind of number, or an error. One function decides for the whole library.
    const nb::object channel = end == nullptr ? nb::none() : nb::steal(text_of(end->where()));
    if (!channel.is_valid()) throw nb::python_error();
    const nb::object limit = nb::module_::import_("penstock.channels.checks").attr("limit_of")(nb::handle(timeout), channel);
    return limit.is_none() ? for_ever : seconds_to_ns(nb::cast<double>(limit));
}

int64_t Whole::within(const End *end, const char *method, const char *name, int64_t least, int64_t most) const {
    const std::string where = place_of(end) + std::string(method) + "(): " + name + " is ";
    if (PyIndex_Check(given.ptr()) == 0) throw nb::type_error((where + "a whole number, not " + class_name(given)).c_str());
    const nb::object number = nb::steal(PyNumber_Index(given.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow == 0 && value >= least && value <= most) return value;
    throw Error(Code::invalid, where + nb::cast<std::string>(nb::str(number)) + ": it must be from " + std::to_string(least) +
                                   " to " + std::to_string(most));
}

void refuse_message(PyObject *object, const End *end) {
    throw nb::type_error((place_of(end) + "a message is bytes or another bytes-like object, not " + class_name(object) +
                          (PyUnicode_Check(object) ? ": encode it, or give the channel codec=\"json\"" : ""))
                             .c_str());
}

namespace {

// Whether a buffer of this format (PEP 3118) holds addresses: of objects, texts, functions, anything. Names of fields are between
// colons. Zd is a complex number, Z alone a wide text's address.
bool holds_addresses(const char *format) {
    bool named = false;
    for (const char *at = format; at != nullptr && *at != '\0'; ++at) {
        if (*at == ':') named = !named;
        else if (named) continue;
        else if (std::strchr("O&PzX", *at) != nullptr) return true;
        else if (*at == 'Z' && (at[1] == '\0' || std::strchr("fdg", at[1]) == nullptr)) return true;
    }
    return false;
}

// NumPy's masked arrays and their subclasses, which are classes made in Python.
bool masked(PyObject *object) {
    return (PyType_GetFlags(Py_TYPE(object)) & Py_TPFLAGS_HEAPTYPE) != 0 && PyObject_HasAttrString(object, "mask") != 0 &&
           PyObject_HasAttrString(object, "filled") != 0;
}

} // namespace

BufferArgument::BufferArgument(PyObject *object, const End *end) {
    if (PyObject_CheckBuffer(object) == 0) refuse_message(object, end);
    if (masked(object))
        throw Error(Code::invalid, place_of(end) + "a masked array has no value where it is masked: send array.filled(value)");
    if (PyObject_GetBuffer(object, &view_, PyBUF_FULL_RO) != 0) {
        if (PyErr_ExceptionMatches(PyExc_ValueError) == 0) throw nb::python_error();
        const nb::python_error error;
        throw Error(Code::invalid, place_of(end) + "this " + class_name(object) +
                                       " gives no bytes: " + nb::cast<std::string>(nb::str(error.value())) +
                                       ". Of an array of times send array.view('i8')");
    }
    try {
        if (holds_addresses(view_.format))
            throw Error(Code::invalid,
                        place_of(end) +
                            "an array of Python objects has no bytes to send, only addresses: give it a dtype of numbers or text "
                            "(array.astype), or give the channel codec=\"json\" and send array.tolist()");
        if (PyBuffer_IsContiguous(&view_, 'C') != 0) return;
        copy_ = std::make_unique<uint8_t[]>(size());
        if (PyBuffer_ToContiguous(copy_.get(), &view_, view_.len, 'C') != 0) throw nb::python_error();
    } catch (...) {
        PyBuffer_Release(&view_);
        throw;
    }
}

BytesArgument::BytesArgument(PyObject *object, const End *end) {
    if (PyBytes_CheckExact(object)) {
        data_ = reinterpret_cast<const uint8_t *>(PyBytes_AS_STRING(object));
        size_ = static_cast<size_t>(PyBytes_GET_SIZE(object));
        return;
    }
    buffer_.emplace(object, end);
    data_ = buffer_->data();
    size_ = buffer_->size();
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
