// Any order of fragments: what comes out is what a plain list would give.
#include "fuzz.hpp"
#include "ground/messages/assembler.hpp"

using namespace penstock;

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    hostile::Input input(data, size);
    Assembler assembler;
    std::unordered_map<int32_t, std::vector<uint8_t>> model;
    uint64_t position = 0;
    while (input.left() > 1) {
        const auto head = input.take<uint8_t>();
        const int32_t session = head & 7;
        const auto flags = static_cast<uint8_t>(head & flags_whole);
        size_t length = head >> 3 & 7;
        const auto part = input.block(length);
        const Assembler::Part *whole = assembler.add(session, flags, position, part.get(), length);
        position += 64;
        const bool known = model.count(session) != 0 || (flags & flag_begin) != 0;
        if ((flags & flag_begin) != 0) model[session].assign(part.get(), part.get() + length);
        else if (known) model[session].insert(model[session].end(), part.get(), part.get() + length);
        const bool ends = known && (flags & flag_end) != 0 && (flags & flag_begin) == 0;
        if (ends != (whole != nullptr)) __builtin_trap();
        if (!ends) continue;
        if (whole->bytes != model[session]) __builtin_trap();
        model.erase(session);
    }
}
