// The cost of UDP over loopback without a library: the references of `python -m bench udp`. A loop over bytes that are laid out
// as in the network log, in system calls of several kinds. JSON lines.
#include "udp_loops.hpp"

#include <cstdio>
#include <string>

using namespace penstock::bare;

namespace {

void one_way(const Shape &shape, const char *way, bool runs, bool gro, int64_t limit_ns) {
    OneWay pair(gro);
    size_t bytes = 0;
    for (const size_t one : shape.datagrams) bytes += one;
    int64_t sending = 0, receiving = 0;
    double bursts = 0;
    for (int64_t begun = cpu_ns(), now = begun; now - begun < limit_ns; ++bursts) {
        runs ? pair.send_runs(shape.datagrams) : pair.send_many(shape.datagrams);
        const int64_t between = cpu_ns();
        pair.receive(bytes);
        const int64_t after = cpu_ns();
        sending += between - now;
        receiving += after - between;
        now = after;
    }
    const double messages = bursts * shape.messages, datagrams = bursts * static_cast<double>(shape.datagrams.size());
    std::printf("{\"case\": \"%s\", \"way\": \"%s\", \"send_ns\": %.2f, \"receive_ns\": %.2f, \"datagram_send_ns\": %.1f, "
                "\"datagram_receive_ns\": %.1f}\n",
                shape.name, way, static_cast<double>(sending) / messages, static_cast<double>(receiving) / messages,
                static_cast<double>(sending) / datagrams, static_cast<double>(receiving) / datagrams);
}

} // namespace

int main(int argc, char **argv) {
    const bool quick = argc > 1 && std::string(argv[1]) == "--quick";
    const int64_t limit = quick ? 5'000'000 : 200'000'000;
    for (const Shape &shape : shapes()) {
        one_way(shape, "GSO + GRO", true, true, limit);
        one_way(shape, "GSO + recvmmsg", true, false, limit);
        one_way(shape, "sendmmsg + recvmmsg", false, false, limit);
    }
    return 0;
}
