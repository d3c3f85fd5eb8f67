// How C++ types are messages: bytes as a std::string, structs by their described fields.
#pragma once

#include "front/codecs/codec.hpp"

#include <array>
#include <vector>

namespace penstock {

namespace fields {
// Whether the bytes of a message are those of the value.
template <class T> constexpr bool is_packed_or_void() {
    if constexpr (Described<T>) return is_packed<T>();
    else return true;
}
} // namespace fields

// The codec of T. `named`: for bytes, whose codec the program may name.
template <class T> Codec codec_of(std::string_view uri, const std::string &named) {
    if constexpr (Described<T>) {
        if (!named.empty())
            throw Error(Code::invalid,
                        std::string(uri) + ": the codec of " + StructFields<T>::name + " is its fields: leave codec out");
        return {"{\"kind\":\"struct\",\"dtype\":" + fields::description<T>() + "}", StructFields<T>::name};
    } else {
        if (named.empty()) return {};
        if (named != "bytes" && named != "json" && named != "msgpack")
            throw Error(Code::invalid, std::string(uri) + ": codec is '" + named + "': it is 'bytes', 'json' or 'msgpack'");
        return {"{\"kind\":" + json_text(named) + "}", {}};
    }
}

// Does `work(data, length)` with a message's bytes.
template <class T, class Given, class Work> auto with_bytes(const Given &message, Work &&work) {
    if constexpr (!Described<T>) return work(message.data(), message.size());
    else if constexpr (fields::is_packed<T>()) return work(&message, sizeof message);
    else {
        std::array<uint8_t, fields::packed_size<T>()> bytes;
        fields::pack_struct(message, bytes.data());
        return work(bytes.data(), bytes.size());
    }
}

// Where a message is copied to, as a value of T.
template <class T> class Room {
  public:
    explicit Room(T &value) : value_(value) {}
    void *operator()(size_t length) {
        if constexpr (!Described<T>) {
            value_.resize(length);
            return value_.data();
        } else if (length != fields::packed_size<T>()) return nullptr;
        else if constexpr (fields::is_packed<T>()) return &value_;
        else return bytes_.data();
    }
    void finish() {
        if constexpr (!fields::is_packed_or_void<T>()) fields::unpack_struct(value_, bytes_.data());
    }

  private:
    static constexpr size_t copied() {
        if constexpr (fields::is_packed_or_void<T>()) return 0;
        else return fields::packed_size<T>();
    }
    T &value_;
    std::array<uint8_t, copied()> bytes_;
};

} // namespace penstock
