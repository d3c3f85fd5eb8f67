// Opening channels as Python does (channels/storage/opening.py): a writer makes the channel, or decides an open one; a reader
// makes it open, and names options for the decision. docs/design/open_channels.md.
#pragma once

#include "front/codecs/message_types.hpp"
#include "front/kinds.hpp"

#include "ends/ends.hpp"

#include <optional>

namespace penstock {

struct ChannelRequest {
    ChannelName channel;
    const KindActions *kind;
    NamedOptions options; // those that were given
    Codec codec;
    bool makes = true; // whether a channel that does not exist is made
};

inline std::string start_over(const ChannelName &channel) { return "remove the channel first: penstock rm " + channel.uri(); }

// Names the channel in the errors of its options, which know only themselves.
template <class Work> auto with_place(const ChannelName &channel, Work &&work) {
    try {
        return work();
    } catch (const Error &error) {
        const std::string text = error.what();
        if ((error.code != Code::invalid && error.code != Code::too_large) || text.find(channel.uri()) != std::string::npos)
            throw;
        throw Error(error.code, channel.uri() + ": " + text);
    }
}

// Throws `mismatch` where frames have another shape: their bytes follow from it.
inline void check_shape(const ChannelRequest &request, const Json &codec, const std::string &place) {
    if (request.options.find("frame_bytes") == request.options.end()) return;
    const Json wanted = Json::parse(request.codec.description);
    const Json *its = codec.find("shape"), *mine = wanted.find("shape");
    if (its == nullptr || mine == nullptr || *its == *mine) return;
    throw Error(Code::mismatch, place + " exists with shape=" + its->source() + ", not " + mine->source() +
                                    ". Give shape=" + its->source() + " or leave shape out, or " + start_over(request.channel));
}

// Throws `mismatch` where the channel has other options or another codec. The codec's description.
inline std::string check_agreement(const ChannelRequest &request, int fd) {
    const std::string place = place_of(request.channel);
    const Mapping map(fd, size_of_file(fd), false);
    std::string metadata;
    const NamedOptions there = request.kind->read(map, place, metadata);
    const Json codec = codec_in(metadata, request.channel);
    check_shape(request, codec, place);
    for (const auto &[name, value] : request.options)
        if (const auto found = there.find(name);
            found != there.end() && found->second != value && name != "frame_bytes") { // of another type: below
            const std::string its = name + "=" + std::to_string(found->second);
            throw Error(Code::mismatch, place + " exists with " + its + ", not " + std::to_string(value) + ". Give " + its +
                                            " or leave " + name + " out, or " + start_over(request.channel));
        }
    check_codec(request.channel, "exists with", codec, request.codec);
    return codec.source();
}

// ---- a channel without a first publication ----

// Holds the open byte of a channel that is open; null if it is not.
inline std::unique_ptr<OpenHold> hold_if_open(const ChannelRequest &request, int fd) {
    constexpr int64_t patience_ns = 10'000'000'000;
    const KindLayout *layout = request.kind->layout;
    const std::string place = place_of(request.channel);
    if (layout == nullptr || !is_open(fd, place, *layout)) return nullptr;
    auto hold = std::make_unique<OpenHold>(fd, place, patience_ns);
    if (!hold->held()) throw Error(Code::busy, place + ": a process that joins the channel does not run (stopped?)");
    if (!is_open(fd, place, *layout)) return nullptr; // decided in the meantime
    return hold;
}

struct OpenNotes {
    NamedOptions options;
    std::string codec; // JSON; empty: none was named
    bool named = false;
};

inline std::string encode_notes(const NamedOptions &options, const std::string &codec) {
    std::string text = "{\"options\":{";
    for (const auto &[name, value] : options)
        text += (text.back() == '{' ? "" : ",") + json_text(name) + ":" + std::to_string(value);
    return text + "},\"codec\":" + (codec.empty() ? "null" : codec) + "}";
}

// The options and the codec that all subscriptions and this program name. Throws `mismatch` where they contradict each other.
inline OpenNotes merge_notes(const ChannelRequest &request, const OpenChannel &file) {
    const std::string place = place_of(request.channel), before = " has no publication yet, and a subscription named ";
    Json there;
    OpenNotes merged{request.options, request.codec.description, !request.options.empty() || !request.codec.description.empty()};
    try {
        there = Json::parse(read_notes(notes_of(*file.map), place));
        if (there.find("options") == nullptr || there.find("codec") == nullptr) throw Error(Code::corrupt, "they are incomplete");
    } catch (const Error &error) {
        throw Error(Code::corrupt, place + ": the options named for it are damaged: " + error.what());
    }
    for (const auto &[name, value] : there.find("options")->members()) {
        if (!value.is_whole())
            throw Error(Code::corrupt, place + ": the options named for it are damaged: " + name + " is no number");
        const auto [mine, fresh] = merged.options.emplace(name, value.whole());
        if (!fresh && mine->second != value.whole())
            throw Error(Code::mismatch, place + before + name + "=" + value.text() + ", not " + std::to_string(mine->second) +
                                            ". Give " + name + "=" + value.text() + " or leave " + name + " out, or " +
                                            start_over(request.channel));
    }
    const Json &codec = *there.find("codec");
    if (codec.type() == Json::Type::object) {
        if (codec.find("kind") == nullptr) throw Error(Code::corrupt, place + ": the options named for it are damaged");
        check_codec(request.channel, "has no publication yet, and a subscription named", codec, request.codec);
        merged.codec = codec.source();
    }
    return merged;
}

// Decides an open channel for its first publication. The caller holds the open byte.
inline void decide_open(const ChannelRequest &request, int fd, OpenHold &hold) {
    const KindActions &kind = *request.kind;
    const OpenNotes notes = merge_notes(request, OpenChannel(fd, place_of(request.channel), *kind.layout, false));
    HeaderWords words;
    words.metadata = metadata_with(notes.codec.empty() ? "{\"kind\":\"bytes\"}" : notes.codec);
    const uint64_t size = kind.file_size(notes.options);
    decide_file(fd, hold.locks().path(), hold.locks(), *kind.layout, kind.slots(notes.options), size, kind.takes_one,
                [&](const Mapping &map, const OpenPart &part) { kind.decide(map, part, notes.options, words); });
}

// ---- opening ----

// What `make(descriptor, place)` returns: an end that writes, or any end of a kind that is never open. `codec`: the channel's.
template <class Make> auto open_end(const ChannelRequest &request, std::string &codec, Make &&make) {
    const KindActions &kind = *request.kind;
    for (;;) {
        const FileDescriptor fd = open_existing(request.channel);
        if (!fd) {
            if (!request.makes)
                throw Error(Code::not_found, "there is no channel " + place_of(request.channel) +
                                                 ": publish it first, or subscribe with a connect_timeout");
            HeaderWords words;
            words.metadata =
                metadata_with(request.codec.description.empty() ? "{\"kind\":\"bytes\"}" : request.codec.description);
            with_place(request.channel, [&] {
                create_file(request.channel, kind.file_size(request.options),
                            [&](int made) { kind.format(made, request.options, words); });
            });
            continue;
        }
        if (const auto hold = hold_if_open(request, fd.number()))
            with_place(request.channel, [&] { decide_open(request, fd.number(), *hold); });
        codec = check_agreement(request, fd.number());
        return make(fd.number(), place_of(request.channel));
    }
}

// The same for an end that only reads. While the channel has no publication it is what `early(descriptor, place, file)` returns,
// and `codec` is empty.
template <class Make, class Early>
auto open_reader(const ChannelRequest &request, std::string &codec, Make &&make, Early &&early) {
    const KindActions &kind = *request.kind;
    const std::string place = place_of(request.channel);
    with_place(request.channel, [&] { return kind.file_size(request.options); }); // checks them
    for (;;) {
        const FileDescriptor fd = open_existing(request.channel);
        if (!fd) {
            const uint32_t slots = kind.slots(request.options);
            with_place(request.channel, [&] {
                create_file(request.channel, open_file_size(*kind.layout, slots), [&](int made) {
                    format_open(made, *kind.layout, slots, encode_notes(request.options, request.codec.description),
                                BootId().bytes, system_ns(CLOCK_REALTIME));
                });
            });
            continue;
        }
        if (const auto hold = hold_if_open(request, fd.number())) {
            const OpenChannel file(fd.number(), place, *kind.layout, true);
            const OpenNotes notes = merge_notes(request, file);
            with_place(request.channel, [&] { return kind.file_size(notes.options); }); // checks them together
            if (notes.named) {
                const bool limits = request.options.count("max_members") != 0;
                if (limits) check_room(hold->locks(), file.part, kind.slots(notes.options), false, place);
                write_notes(*file.map, encode_notes(notes.options, notes.codec));
                if (limits) limit_slots(*file.map, kind.slots(notes.options));
            }
            codec.clear();
            return early(fd.number(), place, file);
        }
        codec = check_agreement(request, fd.number());
        return make(fd.number(), place);
    }
}

// The status of the channel that an end has open, whatever has its name now.
inline ChannelStatus read_status(const End &end) {
    const KindActions &kind = kind_named(parse_uri(end.where()).kind);
    const int fd = end.locks().descriptor();
    if (kind.layout != nullptr && is_open(fd, end.where(), *kind.layout)) {
        const OpenChannel file(fd, end.where(), *kind.layout, false);
        return read_open_status(fd, file);
    }
    return kind.status(fd, Mapping(fd, size_of_file(fd), false), end.where());
}

} // namespace penstock
