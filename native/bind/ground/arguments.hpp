// Arguments of compiled functions that users reach: taken as they come and checked here, so that a wrong one is one sentence
// about that argument and no list of signatures.
#pragma once

#include "bind/ground/bind.hpp"

#include "ground/messages/message.hpp"

namespace penstock::bind {

// A whole number: an int, or what becomes one (a NumPy integer).
class Whole {
  public:
    nb::handle given;

    // TypeError for anything that is not a whole number, `invalid` for one outside the range. end: of the channel that the error
    // names.
    int64_t within(const End *end, const char *method, const char *name, int64_t least, int64_t most) const;
};

// Where a reader begins. `number`: the position, or of "last" how many messages.
inline Start parse_start(const std::string &from, uint64_t number) {
    if (from == "newest") return {Start::From::newest, 0};
    if (from == "earliest") return {Start::From::earliest, 0};
    return {from == "last" ? Start::From::last : Start::From::position, number};
}

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
