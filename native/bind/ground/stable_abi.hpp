// The macros of CPython that its stable ABI lacks, as calls of that ABI. So the same bindings make one wheel per release of
// CPython, or one for all from 3.12 on. Knows no channel.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#ifdef Py_LIMITED_API
#include <dlfcn.h>

#define PyBytes_AS_STRING PyBytes_AsString
#define PyBytes_GET_SIZE PyBytes_Size
#define PyList_GET_SIZE PyList_Size
#define PyList_GET_ITEM PyList_GetItem
#define PyList_SET_ITEM PyList_SetItem
#define PyTuple_GET_SIZE PyTuple_Size
#define PyTuple_GET_ITEM PyTuple_GetItem
#define PyTuple_SET_ITEM PyTuple_SetItem
#endif

namespace penstock::bind {

inline std::string class_name(nanobind::handle object) {
    const nanobind::object name = object.type().attr("__name__");
    return nanobind::cast<std::string>(name);
}

inline PyObject *allocate(PyTypeObject *type, Py_ssize_t items) {
#ifdef Py_LIMITED_API
    return reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, items);
#else
    return type->tp_alloc(type, items);
#endif
}

// Whether the process has no other Python thread. The stable ABI has no answer, but every CPython exports the functions. Where
// they cannot be found the answer is no: the wait only spins longer.
inline bool only_thread() {
#ifdef Py_LIMITED_API
    using Head = PyThreadState *(*)(PyInterpreterState *);
    using Next = PyThreadState *(*)(PyThreadState *);
    static const auto head = reinterpret_cast<Head>(dlsym(RTLD_DEFAULT, "PyInterpreterState_ThreadHead"));
    static const auto next = reinterpret_cast<Next>(dlsym(RTLD_DEFAULT, "PyThreadState_Next"));
    return head != nullptr && next != nullptr && next(head(PyInterpreterState_Get())) == nullptr;
#else
    return PyThreadState_Next(PyInterpreterState_ThreadHead(PyInterpreterState_Get())) == nullptr;
#endif
}

// How an object is called, or null if it is called otherwise, or where the function cannot be found.
inline vectorcallfunc vectorcall_of(PyObject *object) {
#ifdef Py_LIMITED_API
    using Of = vectorcallfunc (*)(PyObject *);
    static const auto of = reinterpret_cast<Of>(dlsym(RTLD_DEFAULT, "PyVectorcall_Function"));
    return of != nullptr ? of(object) : nullptr;
#else
    return PyVectorcall_Function(object);
#endif
}

} // namespace penstock::bind
