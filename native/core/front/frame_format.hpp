// What a channel's frames are: their shape, the types of their pixels, the struct that goes with each. As the channel's header
// describes it in JSON, and as types of C++.
#pragma once

#include "front/opening.hpp"

#include <algorithm>
#include <concepts>
#include <string>
#include <tuple>
#include <vector>

namespace penstock {

// Pixels of several types: each frame has one of them.
template <class... T> struct OneOf {};
// The header of frames that have none.
struct NoHeader {};

template <class Header>
concept has_header_of = Described<Header>;
template <class Header> constexpr size_t header_size() {
    if constexpr (Described<Header>) return fields::packed_size<Header>();
    else return 0;
}

namespace fields {
// A type of pixels as JSON: "<f4", or the fields of a struct.
template <class T> std::string pixel_name() {
    if constexpr (Described<T>) {
        static_assert(is_packed<T>(), "a pixel is a number, or a struct without gaps whose fields are in order");
        return description<T>();
    } else return '"' + number_name<T>() + '"';
}
} // namespace fields

template <class... T> struct PixelTypes {
    static_assert(sizeof...(T) >= 1 && sizeof...(T) <= 255, "frames have from 1 to 255 types of pixels");
    using First = std::tuple_element_t<0, std::tuple<T...>>;
    static constexpr size_t count = sizeof...(T), largest = std::max({sizeof(T)...});
    static std::string names() { // as a JSON list
        std::string made;
        ((made += (made.empty() ? "[" : ",") + fields::pixel_name<T>()), ...);
        return made + "]";
    }
    template <class U> static constexpr uint8_t number() {
        static_assert((std::same_as<T, U> || ...), "frames here have no pixels of this type");
        uint8_t at = 0;
        const bool found = ((std::same_as<T, U> || (++at, false)) || ...);
        return found ? at : 0;
    }
    static constexpr size_t size(size_t number) {
        constexpr size_t sizes[] = {sizeof(T)...};
        return sizes[number];
    }
};
template <class T> struct Pixels : PixelTypes<T> {};
template <class... T> struct Pixels<OneOf<T...>> : PixelTypes<T...> {};

// The number of pixels in a frame of a shape that was checked.
inline uint64_t pixels_of(const std::vector<uint32_t> &shape) {
    uint64_t count = 1;
    for (const uint32_t size : shape) count *= size;
    return count;
}
inline std::string shape_text(const std::vector<uint32_t> &shape) {
    std::string made = "[";
    for (const uint32_t size : shape) made += (made.size() > 1 ? "," : "") + std::to_string(size);
    return made + "]";
}

struct FrameFormat {
    std::string dtypes;      // a JSON list
    size_t count = 1;        // of them
    size_t item = 1;         // bytes of the largest one
    std::string header;      // JSON; empty: none
    size_t header_bytes = 0; // of a message
    std::string owner;       // the name of the header's type

    template <class T, class Header> static FrameFormat of() {
        static_assert(Described<Header> || std::same_as<Header, NoHeader>, "a header is a struct with PENSTOCK_STRUCT");
        FrameFormat made{Pixels<T>::names(), Pixels<T>::count, Pixels<T>::largest, {}, header_size<Header>(), {}};
        if constexpr (Described<Header>) {
            made.header = fields::description<Header>();
            made.owner = StructFields<Header>::name;
        }
        return made;
    }
    // The bytes behind a frame's note, without JSON of its own.
    size_t fields_bytes(size_t dimensions, bool varies) const {
        return header_bytes + (varies || count > 1 ? (1 + dimensions) * sizeof(uint64_t) : 0);
    }
    std::string description(const std::vector<uint32_t> &shape, bool varies) const {
        std::string made =
            "{\"kind\":\"frame\",\"dtype\":" + Json::parse(dtypes).items()[0].source() + ",\"shape\":" + shape_text(shape);
        if (count > 1) made += ",\"dtypes\":" + dtypes;
        if (varies) made += ",\"varies\":true";
        if (!header.empty()) made += ",\"header\":" + header;
        return made + "}";
    }
    // The largest shape of a channel's frames. Throws `mismatch` unless they have these types and this header.
    std::vector<uint32_t> shape_in(const ChannelName &channel, const std::string &codec) const {
        const Json found = Json::parse(codec);
        const Json *its = found.find("dtype"), *several = found.find("dtypes"), *sizes = found.find("shape");
        if (its == nullptr || sizes == nullptr) throw Error(Code::corrupt, place_of(channel) + ": its metadata is damaged");
        const Json there = several == nullptr ? Json::parse("[" + its->source() + "]") : *several, here = Json::parse(dtypes);
        if (!(there == here))
            throw Error(Code::mismatch, place_of(channel) + " has frames of " + text_of(there) + ", and this program has " +
                                            text_of(here) + ": use the types that are there, or " + start_over(channel));
        const Json *head = found.find("header");
        const Json mine = header.empty() ? Json() : Json::parse(header);
        if (head == nullptr ? !header.empty() : header.empty() || !(*head == mine))
            throw Error(Code::mismatch, place_of(channel) + " has frames with " +
                                            (head == nullptr ? "no header" : "the header " + head->source()) +
                                            ", and this program has " + (header.empty() ? "none" : owner) +
                                            first_difference(head, header.empty() ? nullptr : &mine, owner) +
                                            ": use the header that is there, or " + start_over(channel));
        std::vector<uint32_t> shape;
        for (const Json &size : sizes->items()) shape.push_back(static_cast<uint32_t>(size.whole()));
        return shape;
    }

  private:
    static std::string text_of(const Json &types) {
        std::string made;
        for (const Json &type : types.items()) made += (made.empty() ? "" : " or ") + type.source();
        return made;
    }
};

} // namespace penstock
