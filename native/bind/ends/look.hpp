// A look at a channel's memory as Python has it: batches of messages, and the positions that memory has no more.
#pragma once

#include "bind/ground/arrow_capsules.hpp"
#include "bind/ground/bind.hpp"

#include "ground/files/mapping.hpp"
#include "ground/messages/arrow_batch.hpp"
#include "ground/messages/missing_span.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace penstock::bind {

// A kind's look behind it. One thread at a time.
class Look {
  public:
    virtual ~Look() = default;
    virtual uint64_t epoch() const = 0;
    virtual uint64_t start_position() const = 0;
    virtual uint64_t end() const = 0;
    virtual void begin(uint64_t start, uint64_t end) = 0;
    virtual bool fill(BatchBuilder &batch, size_t most) = 0; // false: nothing is left
    virtual uint64_t position() const = 0;
    virtual uint64_t resume() const = 0;
    virtual const std::vector<MissingSpan> &missing() const = 0;
    virtual bool torn() const = 0;
};

// Of a class such as LogLook.
template <class Inner> class LookOf final : public Look {
  public:
    template <class... Arguments> explicit LookOf(Arguments &&...arguments) : inner_(std::forward<Arguments>(arguments)...) {}
    uint64_t epoch() const override { return inner_.epoch(); }
    uint64_t start_position() const override { return inner_.start_position(); }
    uint64_t end() const override { return inner_.end(); }
    void begin(uint64_t start, uint64_t end) override { inner_.begin(start, end); }
    bool fill(BatchBuilder &batch, size_t most) override {
        const auto sink = [&](const BatchRow &row, size_t length, auto &&copy) { return batch.add_copied(row, length, copy); };
        while (batch.payload_bytes() < most)
            if (!inner_.take(sink)) return false;
        return true;
    }
    uint64_t position() const override { return inner_.position(); }
    uint64_t resume() const override { return inner_.resume(); }
    const std::vector<MissingSpan> &missing() const override { return inner_.missing(); }
    bool torn() const override { return inner_.torn(); }

  private:
    Inner inner_;
};

// A mapping that only reads.
inline std::shared_ptr<const Mapping> map_to_look(int fd) { return std::make_shared<const Mapping>(fd, size_of_file(fd), false); }

} // namespace penstock::bind
