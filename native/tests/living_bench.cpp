// The cost of counting who lives: a publication asks for the readers of a log with so many members, and a bare loop asks the
// kernel for the same locks. Writes JSON, a line for each number of members.
#include "support.hpp"

#include <algorithm>
#include <vector>

using namespace penstock;
using namespace penstock::test;

namespace {

// Nanoseconds of one pass: the median of many, and the shortest.
template <class Pass> std::pair<double, double> measure(int passes, Pass &&pass) {
    std::vector<double> taken;
    for (int i = 0; i < passes; ++i) {
        const int64_t before = monotonic_ns();
        pass();
        taken.push_back(static_cast<double>(monotonic_ns() - before));
    }
    std::sort(taken.begin(), taken.end());
    return {taken[taken.size() / 2], taken.front()};
}

} // namespace

int main(int count, char **arguments) {
    const int passes = count > 1 ? std::atoi(arguments[1]) : 20'000;
    for (const uint32_t members : {2u, 16u, 64u}) {
        LogGeometry g;
        g.term_length = 1 << 16;
        g.window = 1 << 16;
        const Channel channel(g);
        const auto writer = channel.writer();
        std::vector<std::shared_ptr<LogReader>> readers;
        for (uint32_t i = 1; i < members; ++i) readers.push_back(channel.reader());
        const int fd = writer->log().locks().again();
        uint32_t found = 0;
        const auto [ours, ours_least] = measure(passes, [&] {
            found = 0;
            writer->log().each_reader([&](const Slot &) { ++found; });
        });
        CHECK(found == members - 1);
        const auto [bare, bare_least] = measure(passes, [&] {
            found = 0;
            for (uint32_t i = 1; i < members; ++i) found += holds_member(fd, LogMembers::byte_of(i));
        });
        CHECK(found == members - 1);
        ::close(fd);
        std::printf("{\"members\": %u, \"penstock\": %.0f, \"penstock least\": %.0f, \"bare\": %.0f, \"bare least\": %.0f}\n",
                    members, ours, ours_least, bare, bare_least);
    }
}
