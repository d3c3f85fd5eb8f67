// What a channel's messages are, as its header keeps it: a codec, described by JSON. Bytes as they are, or a struct whose fields
// Python knows as those of a NumPy dtype.
#pragma once

#include "front/codecs/json.hpp"
#include "front/codecs/struct_fields.hpp"
#include "front/files/files.hpp"

#include <string>
#include <string_view>

namespace penstock {

// The codec that a program asks for. Empty: the channel's own, or bytes of a new channel.
struct Codec {
    std::string description; // JSON
    std::string owner;       // the name of the C++ type, for errors
};

// The parts of a description by which messages are read: the others are for other tools.
inline Json bare_codec(const Json &description) {
    return description.without(
        [](const std::string &name) { return name == "schema" || name == "mcap" || name == "columns" || name == "files"; });
}

// Where two structs differ, for an error; empty if they are not both structs.
inline std::string first_difference(const Json *its, const Json *mine, const std::string &owner) {
    if (its == nullptr || mine == nullptr || its->type() != Json::Type::list || mine->type() != Json::Type::list) return {};
    const auto field = [](const Json &fields, size_t at) {
        return at < fields.items().size() ? fields.items()[at].source() : std::string("missing");
    };
    for (size_t i = 0; i < std::max(its->items().size(), mine->items().size()); ++i)
        if (field(*its, i) != field(*mine, i) &&
            (i >= its->items().size() || i >= mine->items().size() || !(its->items()[i] == mine->items()[i])))
            return ": field " + std::to_string(i + 1) + " is " + field(*its, i) + " there and " + field(*mine, i) + " in " +
                   owner;
    return {};
}

// Throws `mismatch` unless the program's codec is the one that is there. `is_there`: "exists", say.
inline void check_codec(const ChannelName &channel, const std::string &is_there, const Json &there, const Codec &wanted) {
    if (wanted.description.empty()) return;
    const Json here = Json::parse(wanted.description);
    if (bare_codec(there) == bare_codec(here)) return;
    const std::string &kind = there.find("kind")->text();
    throw Error(Code::mismatch, place_of(channel) + " " + is_there + " the codec " + (kind == "frame" ? there.source() : kind) +
                                    ", and this program has " + (wanted.owner.empty() ? here.source() : wanted.owner) +
                                    first_difference(there.find("dtype"), here.find("dtype"), wanted.owner) +
                                    ". Use the codec that is there, or remove the channel first: penstock rm " + channel.uri());
}

inline std::string metadata_with(const std::string &description) { return "{\"codec\":" + description + "}"; }

// The codec in a channel's metadata. Throws `corrupt`.
inline Json codec_in(const std::string &metadata, const ChannelName &channel) {
    try {
        const Json found = Json::parse(metadata);
        const Json *codec = found.find("codec");
        if (codec != nullptr && codec->find("kind") != nullptr) return *codec;
    } catch (const Error &) { // below
    }
    throw Error(Code::corrupt, place_of(channel) + ": its metadata is damaged");
}

} // namespace penstock
