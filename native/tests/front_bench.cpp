// One end of a channel by the handles of C++: `front_bench send|recv URI COUNT`. CPU time per message of 64 bytes, in
// nanoseconds.
#include "penstock.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

using namespace std::chrono_literals;

int64_t cpu_ns() { return penstock::system_ns(CLOCK_PROCESS_CPUTIME_ID); }

double send(const char *uri, int64_t count) {
    penstock::Publication<> publication(uri);
    publication.wait_for_readers(1, 60s);
    const std::string message(64, 'x');
    const int64_t begun = cpu_ns();
    for (int64_t i = 0; i < count; ++i) publication.send(message, 60s);
    return static_cast<double>(cpu_ns() - begun) / static_cast<double>(count);
}

// Messages that it was too slow for do not count.
double receive(const char *uri) {
    penstock::Subscription<> subscription(uri, {.until_end = true});
    subscription.recv(60s);
    int64_t begun = cpu_ns(), count = 0;
    for (const std::string &message : subscription) count += message.size() == 64 ? 1 : 0;
    return static_cast<double>(cpu_ns() - begun) / static_cast<double>(count);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    try {
        std::printf("%.1f\n", argv[1] == std::string_view("send") ? send(argv[2], std::atoll(argv[3])) : receive(argv[2]));
    } catch (const penstock::Error &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
