// Structs as messages: the fields of a C++ struct, described as the fields of a NumPy dtype. A message has them one after the
// other, without the gaps that a compiler leaves.
#pragma once

#include <array>
#include <bit>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace penstock {

static_assert(std::endian::native == std::endian::little, "channels are little-endian");

template <class Struct, class Member> struct StructField {
    const char *name;
    Member Struct::*member;
};
template <class Struct, class Member>
constexpr StructField<Struct, Member> struct_field(const char *name, Member Struct::*member) {
    return {name, member};
}

// PENSTOCK_STRUCT specialises it: `name`, and `fields()`, a tuple of StructField.
template <class T> struct StructFields {
    static constexpr bool described = false;
};
template <class T>
concept Described = StructFields<T>::described;

namespace fields {

template <class T> struct Array {
    static constexpr bool is = false;
};
template <class T, size_t n> struct Array<T[n]> {
    static constexpr bool is = true;
    static constexpr size_t length = n;
    using Element = T;
};
template <class T, size_t n> struct Array<std::array<T, n>> : Array<T[n]> {};
template <class T> inline constexpr bool is_complex = false;
template <class T> inline constexpr bool is_complex<std::complex<T>> = true;

template <class T> std::string description();

// NumPy's name of a plain number: "<f8".
template <class T> std::string number_name() {
    if constexpr (std::is_enum_v<T>) return number_name<std::underlying_type_t<T>>();
    else if constexpr (std::same_as<T, bool>) return "|b1";
    else {
        static_assert(std::is_arithmetic_v<T> || is_complex<T>, "a field is a number, an enum, an array or a described struct");
        static_assert(sizeof(T) <= 8 || is_complex<T>, "NumPy has no such number everywhere");
        const char kind = is_complex<T> ? 'c' : std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
        return (sizeof(T) == 1 ? "|" : "<") + std::string(1, kind) + std::to_string(sizeof(T));
    }
}
template <class T> std::string type_and_shape(std::string &shape) {
    if constexpr (std::same_as<std::remove_cv_t<T>, char>) return "\"|S1\"";
    else if constexpr (Array<T>::is) {
        using Element = typename Array<T>::Element;
        if constexpr (std::same_as<Element, char>) return "\"|S" + std::to_string(Array<T>::length) + "\""; // text
        else {
            shape += (shape.empty() ? "" : ",") + std::to_string(Array<T>::length);
            return type_and_shape<Element>(shape);
        }
    } else if constexpr (Described<T>) return description<T>();
    else return '"' + number_name<T>() + '"';
}
// The fields of a struct as JSON: [["x","<f8"],["cov","<f4",[3,3]]].
template <class T> std::string description() {
    std::string made = "[";
    const auto add = [&]<class Member>(const StructField<T, Member> &field) {
        std::string shape;
        const std::string type = type_and_shape<Member>(shape);
        made += (made.size() > 1 ? "," : "") + ("[\"" + std::string(field.name) + "\"," + type) +
                (shape.empty() ? "" : ",[" + shape + "]") + "]";
    };
    std::apply([&](const auto &...each) { (add(each), ...); }, StructFields<T>::fields());
    return made + "]";
}

template <class T> constexpr size_t packed_size();
template <class Member> constexpr size_t member_size() {
    if constexpr (Described<Member>) return packed_size<Member>();
    else if constexpr (Array<Member>::is) return Array<Member>::length * member_size<typename Array<Member>::Element>();
    else return sizeof(Member);
}
template <class T> constexpr bool has_distinct_names() {
    return std::apply(
        [](const auto &...field) {
            const std::string_view names[] = {field.name...};
            for (const auto &name : names)
                for (const auto *other = &name + 1; other != std::end(names); ++other)
                    if (name == *other) return false;
            return true;
        },
        StructFields<T>::fields());
}
// Bytes of a message.
template <class T> constexpr size_t packed_size() {
    return std::apply(
        []<class... Member>(const StructField<T, Member> &...) { return (size_t{0} + ... + member_size<Member>()); },
        StructFields<T>::fields());
}
// Whether the struct has no gaps and is in the order of its description: then its bytes are the message's.
template <class T> constexpr bool is_packed() { return packed_size<T>() == sizeof(T) && StructFields<T>::in_order(); }

template <class Member> void pack(const Member &from, uint8_t *&to);
template <class Member> void unpack(Member &to, const uint8_t *&from);
template <class T> void pack_struct(const T &value, uint8_t *to) {
    std::apply([&](const auto &...each) { (pack(value.*each.member, to), ...); }, StructFields<T>::fields());
}
template <class T> void unpack_struct(T &value, const uint8_t *from) {
    std::apply([&](const auto &...each) { (unpack(value.*each.member, from), ...); }, StructFields<T>::fields());
}
template <class Member> void pack(const Member &from, uint8_t *&to) {
    if constexpr (Described<Member>) {
        pack_struct(from, to);
        to += packed_size<Member>();
    } else if constexpr (Array<Member>::is) {
        for (const auto &each : from) pack(each, to);
    } else {
        std::memcpy(to, &from, sizeof from);
        to += sizeof from;
    }
}
template <class Member> void unpack(Member &to, const uint8_t *&from) {
    if constexpr (Described<Member>) {
        unpack_struct(to, from);
        from += packed_size<Member>();
    } else if constexpr (Array<Member>::is) {
        for (auto &each : to) unpack(each, from);
    } else {
        std::memcpy(&to, from, sizeof to);
        from += sizeof to;
    }
}

} // namespace fields
} // namespace penstock

// ---- PENSTOCK_STRUCT(Pose, x, y, heading), outside of any namespace ----

#define PENSTOCK_PARENS ()
#define PENSTOCK_EXPAND(...) PENSTOCK_EXPAND3(PENSTOCK_EXPAND3(PENSTOCK_EXPAND3(PENSTOCK_EXPAND3(__VA_ARGS__))))
#define PENSTOCK_EXPAND3(...) PENSTOCK_EXPAND2(PENSTOCK_EXPAND2(PENSTOCK_EXPAND2(PENSTOCK_EXPAND2(__VA_ARGS__))))
#define PENSTOCK_EXPAND2(...) PENSTOCK_EXPAND1(PENSTOCK_EXPAND1(PENSTOCK_EXPAND1(PENSTOCK_EXPAND1(__VA_ARGS__))))
#define PENSTOCK_EXPAND1(...) __VA_ARGS__
#define PENSTOCK_FIELD(Type, name) ::penstock::struct_field(#name, &Type::name)
#define PENSTOCK_EACH(each, Type, first, ...)                                                                                    \
    each(Type, first) __VA_OPT__(, PENSTOCK_AGAIN PENSTOCK_PARENS(each, Type, __VA_ARGS__))
#define PENSTOCK_AGAIN() PENSTOCK_EACH
#define PENSTOCK_OFFSET(Type, name) offsetof(Type, name)

// Says which fields a struct's messages have, in this order, by the names that Python sees: from 1 to 86 of them.
#define PENSTOCK_STRUCT(Type, ...)                                                                                               \
    template <> struct penstock::StructFields<Type> {                                                                            \
        static constexpr bool described = true;                                                                                  \
        static constexpr const char *name = #Type;                                                                               \
        static constexpr auto fields() {                                                                                         \
            return std::make_tuple(PENSTOCK_EXPAND(PENSTOCK_EACH(PENSTOCK_FIELD, Type, __VA_ARGS__)));                           \
        }                                                                                                                        \
        static constexpr bool in_order() {                                                                                       \
            size_t last = 0;                                                                                                     \
            bool ordered = true;                                                                                                 \
            for (const size_t at : {PENSTOCK_EXPAND(PENSTOCK_EACH(PENSTOCK_OFFSET, Type, __VA_ARGS__))}) {                       \
                ordered = ordered && at >= last;                                                                                 \
                last = at;                                                                                                       \
            }                                                                                                                    \
            return ordered;                                                                                                      \
        }                                                                                                                        \
    };                                                                                                                           \
    static_assert(std::is_trivially_copyable_v<Type>, "a message is a struct of plain values");                                  \
    static_assert(::penstock::fields::has_distinct_names<Type>(), "a field of a struct is named once")
