// Calls with arguments that a compiled function does not take: one sentence with the channel and the names of the arguments, in
// place of nanobind's list of C++ signatures. Knows the beginning of nanobind's function object, and no channel.
#include "bind/ground/bind.hpp"
#include "bind/ground/stable_abi.hpp"

#include <array>
#include <string>
#include <utility>

namespace penstock::bind {

namespace {

struct Function { // the layout of nanobind's, which is checked before it is used
    PyObject_VAR_HEAD vectorcallfunc call;
};
std::array<vectorcallfunc, 8> calls; // nanobind has a few, for functions of different shapes

// "claim(length, timeout=None)" of the first line of a function's description, which has types.
std::string call_of(const std::string &described) {
    std::string call;
    int depth = 0;
    bool typed = false;
    for (const char c : described) {
        if (c == '\n') break;
        if (c == ')' || c == ']') --depth;
        if (depth == 1 && c == ':') typed = true;
        if (depth == 0 || (depth == 1 && (c == ',' || c == '='))) typed = false;
        if (!typed && !(c == ' ' && call.back() != ',')) call += c;
        if (c == '(' || c == '[') ++depth;
        else if (depth == 0 && c == ')') break;
    }
    for (const char *self : {"(self, ", "(self"})
        if (const size_t at = call.find(self); at != std::string::npos) call.replace(at, std::string(self).size(), "(");
    return call;
}

std::string channel_of(PyObject *object) {
    nb::object channel = nb::steal(PyObject_GetAttrString(object, "channel"));
    if (!channel.is_valid()) PyErr_Clear();
    return channel.is_valid() && nb::isinstance<nb::str>(channel) ? nb::cast<std::string>(channel) + ": " : std::string();
}

// In place of nanobind's error about the arguments of a call. Other errors stay.
void reword(PyObject *function, PyObject *const *args, size_t count) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return;
    nb::python_error error;
    const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));
    const nb::object described = nb::steal(PyObject_GetAttrString(function, "__doc__"));
    if (!text.is_valid() || !described.is_valid() || !nb::isinstance<nb::str>(described) ||
        nb::cast<std::string>(text).find("incompatible function arguments") == std::string::npos) {
        PyErr_Clear();
        error.restore();
        return;
    }
    const std::string where = PyVectorcall_NARGS(count) > 0 ? channel_of(args[0]) : std::string();
    const std::string told = where + "these arguments do not fit " + call_of(nb::cast<std::string>(described));
    PyErr_SetString(PyExc_TypeError, told.c_str());
}

template <size_t which> PyObject *call(PyObject *function, PyObject *const *args, size_t count, PyObject *names) {
    PyObject *found = calls[which](function, args, count, names);
    if (found == nullptr) [[unlikely]]
        reword(function, args, count);
    return found;
}
template <size_t... which> constexpr std::array<vectorcallfunc, sizeof...(which)> wrappers(std::index_sequence<which...>) {
    return {&call<which>...};
}

void wrap(nb::handle object) {
    static constexpr auto wrapped = wrappers(std::make_index_sequence<calls.size()>());
    const std::string kind = class_name(object);
    if (kind != "nb_func" && kind != "nb_method") return;
    auto *function = reinterpret_cast<Function *>(object.ptr());
    const vectorcallfunc original = vectorcall_of(object.ptr());
    if (original == nullptr || function->call != original) return; // another layout
    for (size_t i = 0; i < calls.size(); ++i) {
        if (original == wrapped[i]) return;
        if (calls[i] == nullptr) calls[i] = original;
        if (calls[i] != original) continue;
        function->call = wrapped[i];
        return;
    }
}

void wrap_all(nb::handle members) {
    const nb::list values(members.attr("values")());
    for (const nb::handle value : values) wrap(value);
}

} // namespace

void bind_refusals(nb::module_ &m) {
    wrap_all(m.attr("__dict__"));
    const nb::list values(m.attr("__dict__").attr("values")());
    for (const nb::handle value : values)
        if (PyType_Check(value.ptr()) != 0) wrap_all(value.attr("__dict__"));
}

} // namespace penstock::bind
