// The state behind Python's handle for a recorder's tap: only a recorder reads it, run by run.
#pragma once

#include "bind/handles/handle.hpp"

namespace penstock::bind {

class Tap final : public StreamHandle {
  public:
    using StreamHandle::StreamHandle;
};

} // namespace penstock::bind
