// A logger: reads the commands in place and keeps the largest. A slow one makes nobody lose a message: the log's writers wait.
#include "messages.hpp"

#include <algorithm>
#include <cstdio>

int main() {
    try {
        penstock::Subscription<Command> commands("log:robot/command", {.until_end = true});
        int64_t count = 0;
        float most = 0;
        try {
            while (const auto message = commands.borrow()) {
                const auto command = message->as<Command>();
                most = std::max({most, command.wheels[0], command.wheels[1]});
                ++count;
            }
        } catch (const penstock::Error &error) {
            if (error.code != penstock::Code::end_of_stream) throw;
        }
        std::printf("logger: %lld commands, up to %.2f\n", static_cast<long long>(count), most);
    } catch (const penstock::Error &error) {
        std::fprintf(stderr, "logger: %s\n", error.what());
        return 1;
    }
}
