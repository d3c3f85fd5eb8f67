// Objects that take no attribute that their class does not have: `subscription.conflate = True` is an error, not a note to
// itself. In C++, because a Python class that did this would pay for each of its own assignments.
#include "bind/ground/strict.hpp"

namespace penstock::bind {

namespace {

bool private_name(PyObject *name) {
    const Py_UCS4 first = PyUnicode_ReadChar(name, 0);
    if (PyErr_Occurred() != nullptr) PyErr_Clear(); // the empty name
    return first == '_';
}

} // namespace

int set_known_attribute(PyObject *self, PyObject *name, PyObject *value) {
    if (value == nullptr || private_name(name) || PyObject_HasAttr(reinterpret_cast<PyObject *>(Py_TYPE(self)), name) == 1)
        return PyObject_GenericSetAttr(self, name, value);
    PyObject *module = PyImport_ImportModule("penstock.util.strict"), *allowed = nullptr;
    if (module != nullptr) allowed = PyObject_CallMethod(module, "check_attribute", "OO", self, name);
    Py_XDECREF(module);
    if (allowed == nullptr) return -1;
    Py_DECREF(allowed);
    return PyObject_GenericSetAttr(self, name, value);
}

void bind_strict(nb::module_ &m) {
    static PyType_Slot slots[] = {{Py_tp_setattro, reinterpret_cast<void *>(&set_known_attribute)}, {0, nullptr}};
    static PyType_Spec spec = {"penstock._native.core.Strict", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    nb::object type = nb::steal(PyType_FromSpec(&spec));
    if (!type.is_valid()) throw nb::python_error();
    type.attr("__doc__") = "A class whose objects take no attribute that the class does not have, but private ones.";
    m.attr("Strict") = type;
}

} // namespace penstock::bind
