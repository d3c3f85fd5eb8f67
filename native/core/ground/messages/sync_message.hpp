// A message of a sync queue: its sender, its type and its body, one after the other in a log's message.
// Everything else about sync queues is the term log's. docs/design/sync_queue.md.
#pragma once

#include "ground/error.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace penstock {

struct SyncHeader {
    uint16_t sender = 0, type = 0; // bytes
    uint32_t kind = 0;             // of a recorded pipe's message; else 0
};
static_assert(sizeof(SyncHeader) == 8);

struct SyncParts {
    std::string_view sender, type;
    const uint8_t *body = nullptr;
    size_t length = 0;
};

// Believes no length that the message does not have room for.
inline SyncParts read_sync(const uint8_t *data, size_t length) {
    SyncHeader header;
    if (length >= sizeof header) std::memcpy(&header, data, sizeof header);
    const size_t before = sizeof header + header.sender + header.type;
    if (length < before)
        throw Error(Code::corrupt, "a message of " + std::to_string(length) +
                                       " bytes is none of a sync queue's: its sender and type "
                                       "would take " +
                                       std::to_string(before));
    const char *text = reinterpret_cast<const char *>(data) + sizeof header;
    return {{text, header.sender}, {text + header.sender, header.type}, data + before, length - before};
}

// Stands before a message's body.
inline std::string sync_prefix(std::string_view sender, std::string_view type, uint32_t kind = 0) {
    if (type.size() > UINT16_MAX)
        throw Error(Code::too_large, "a type of " + std::to_string(type.size()) + " bytes: at most 65535 fit");
    const SyncHeader header{static_cast<uint16_t>(sender.size()), static_cast<uint16_t>(type.size()), kind};
    std::string prefix(sizeof header, '\0');
    std::memcpy(prefix.data(), &header, sizeof header);
    return prefix.append(sender).append(type);
}

} // namespace penstock
