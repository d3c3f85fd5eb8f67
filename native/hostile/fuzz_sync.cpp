// A sync queue's message: whatever its lengths say, its parts lie inside it, and what was put together comes apart again.
#include "fuzz.hpp"
#include "ground/messages/sync_message.hpp"

using namespace penstock;

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    hostile::Input input(data, size);
    const auto copy = input.block(size); // of exactly its size
    data = copy.get();
    try {
        const SyncParts parts = read_sync(data, size);
        const auto *end = data + size;
        const auto *sender = reinterpret_cast<const uint8_t *>(parts.sender.data());
        if (sender < data || parts.type.data() != parts.sender.data() + parts.sender.size() || parts.body + parts.length != end)
            __builtin_trap();
        std::string whole = sync_prefix(parts.sender, parts.type);
        whole.append(reinterpret_cast<const char *>(parts.body), parts.length);
        const SyncParts again = read_sync(reinterpret_cast<const uint8_t *>(whole.data()), whole.size());
        if (again.sender != parts.sender || again.type != parts.type || again.length != parts.length) __builtin_trap();
    } catch (const Error &error) {
        if (error.code != Code::corrupt) __builtin_trap();
    }
}
