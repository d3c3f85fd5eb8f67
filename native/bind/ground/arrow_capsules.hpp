// Hands an Arrow batch to Python as the two capsules of the Arrow PyCapsule interface.
#pragma once

#include "ground/messages/arrow_batch.hpp"

#include <nanobind/nanobind.h>

namespace penstock::bind {

template <class Struct> void delete_unconsumed(PyObject *capsule, const char *name) {
    auto *held = static_cast<Struct *>(PyCapsule_GetPointer(capsule, name));
    if (held == nullptr) return;
    if (held->release != nullptr) held->release(held);
    delete held;
}

inline nanobind::tuple arrow_capsules(BatchBuilder &&batch) {
    auto *schema = new ArrowSchema{};
    auto *array = new ArrowArray{};
    std::move(batch).finish(schema, array);
    auto first = nanobind::steal(
        PyCapsule_New(schema, "arrow_schema", [](PyObject *c) { delete_unconsumed<ArrowSchema>(c, "arrow_schema"); }));
    auto second = nanobind::steal(
        PyCapsule_New(array, "arrow_array", [](PyObject *c) { delete_unconsumed<ArrowArray>(c, "arrow_array"); }));
    return nanobind::make_tuple(first, second);
}

} // namespace penstock::bind
