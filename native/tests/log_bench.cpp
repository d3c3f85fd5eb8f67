// The core alone: CPU time per 64-byte message for publication and subscription together, in one thread, as JSON.
#include "support.hpp"

using namespace penstock;
using namespace penstock::test;

namespace {

int64_t cpu_ns() { return system_ns(CLOCK_PROCESS_CPUTIME_ID); }

double one_by_one(bool exclusive, uint64_t count) {
    LogGeometry g;
    g.term_length = g.window = 64 * 1024; // 192 KiB in all: the caches of one core
    const Channel channel(g);
    auto reader = channel.reader();
    auto writer = channel.writer(exclusive);
    const uint8_t text[64] = {1};
    uint64_t check = 0;
    const int64_t begun = cpu_ns();
    for (uint64_t done = 0; done < count; done += 256) {
        for (int i = 0; i < 256; ++i) CHECK(writer->offer(text, sizeof text) != no_room);
        for (int i = 0; i < 256; ++i) {
            const Message *message = reader->peek();
            check += message->data[0];
            reader->consume();
        }
    }
    const double each = static_cast<double>(cpu_ns() - begun) / static_cast<double>(count);
    CHECK(check == count);
    return each;
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t count = argument(argc, argv, "--count", 20'000'000) / 256 * 256;
    std::printf("{\"shared\": %.2f, \"exclusive\": %.2f}\n", one_by_one(false, count), one_by_one(true, count));
    return 0;
}
