// Arguments of compiled functions that users reach: taken as they come and checked here, so that a wrong one is one sentence
// about that argument and no list of signatures.
#pragma once

#include "bind.hpp"

namespace penstock::bind {

// A whole number: an int, or what becomes one (a NumPy integer).
class Whole {
  public:
    nb::handle given;

    // TypeError for what is no whole number, `invalid` for one outside the range.
    int64_t within(const char *method, const char *name, int64_t least, int64_t most) const;
    uint64_t not_negative(const char *method, const char *name) const {
        return static_cast<uint64_t>(within(method, name, 0, INT64_MAX));
    }
};

} // namespace penstock::bind

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)
template <> struct type_caster<penstock::bind::Whole> {
    NB_TYPE_CASTER(penstock::bind::Whole, const_name("int"))
    bool from_python(handle src, uint32_t, cleanup_list *) noexcept {
        value.given = src;
        return true;
    }
    static handle from_cpp(const penstock::bind::Whole &value, rv_policy, cleanup_list *) noexcept {
        return value.given.inc_ref();
    }
};
NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
