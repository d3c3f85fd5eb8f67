// Setting attributes of handles: strict.cpp.
#pragma once

#include "bind/ground/bind.hpp"

namespace penstock::bind {

// For the slot Py_tp_setattro of a class and of those derived from it.
int set_known_attribute(PyObject *self, PyObject *name, PyObject *value);
inline const PyType_Slot strict_slot{Py_tp_setattro, reinterpret_cast<void *>(&set_known_attribute)};
inline PyType_Slot strict_slots[] = {strict_slot, {0, nullptr}};

} // namespace penstock::bind
