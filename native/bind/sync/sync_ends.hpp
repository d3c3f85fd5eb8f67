// A sync queue's two ends, as Python's handles need them: senders and types are texts.
#pragma once

#include "bind/ends/end_target.hpp"

#include "ends/sync_ends.hpp"

#include <array>
#include <utility>

namespace penstock::bind {

// Few senders and types are in many messages: each is made into text once.
class SyncTexts {
  public:
    struct Text {
        std::string bytes, clean; // as sent; the same with invalid UTF-8 replaced
        nb::object text;
    };
    // Runs no Python. Null for an unknown text.
    const Text *known(std::string_view bytes) {
        Text &at = place_of(bytes);
        return at.text.is_valid() && at.bytes == bytes ? &at : nullptr;
    }
    // Makes it known, for a while. May run Python, so that other threads get in.
    void learn(std::string_view bytes) {
        std::string copy(bytes); // others may be writing there
        const auto size = static_cast<Py_ssize_t>(copy.size());
        nb::object text = nb::steal(PyUnicode_DecodeUTF8(copy.data(), size, "surrogateescape"));
        nb::object clean = nb::steal(PyUnicode_DecodeUTF8(copy.data(), size, "replace"));
        if (!text.is_valid() || !clean.is_valid()) throw nb::python_error();
        Py_ssize_t length = 0;
        const char *utf8 = PyUnicode_AsUTF8AndSize(clean.ptr(), &length);
        if (utf8 == nullptr) throw nb::python_error();
        Text made{std::move(copy), std::string(utf8, static_cast<size_t>(length)), std::move(text)};
        Text &at = place_of(made.bytes);
        std::swap(at, made); // the old one goes last
    }

  private:
    Text &place_of(std::string_view bytes) {
        const size_t hash =
            bytes.empty() ? 0 : bytes.size() * 31 + static_cast<uint8_t>(bytes.front()) * 7 + static_cast<uint8_t>(bytes.back());
        return cached_[hash % cached_.size()];
    }
    std::array<Text, 64> cached_;
};

// Gives bodies, and the texts of their senders and types.
class SyncReaderEnd final : public penstock::SyncReaderEnd {
  public:
    using penstock::SyncReaderEnd::SyncReaderEnd;

    // Text of a sender and a type; null where it had to be learned first, which may have let other threads in: then the message
    // must be looked at again.
    std::pair<const SyncTexts::Text *, const SyncTexts::Text *> texts() {
        const SyncTexts::Text *sender = senders_.known(parts().sender), *type = types_.known(parts().type);
        if (sender != nullptr && type != nullptr) return {sender, type};
        if (sender == nullptr) senders_.learn(parts().sender);
        else types_.learn(parts().type);
        return {};
    }
    bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) override {
        return fill_batch(*this, batch, limit, most, last, [&](BatchRow &row, const Message &message) {
            const auto [sender, type] = texts();
            if (sender == nullptr) return false;
            row.sender = sender->clean;
            row.type = type->clean;
            batch.add_copied(row, message.length, [&](uint8_t *to) { return copy(to, message); });
            return true;
        });
    }
    uint32_t columns() const override { return LogReaderEnd::columns() | column_sender | column_type; }

  private:
    SyncTexts senders_, types_;
};

using SyncWriterEnd = WithoutInterpreter<penstock::SyncWriterEnd>;

} // namespace penstock::bind
