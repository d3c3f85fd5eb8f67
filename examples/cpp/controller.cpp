// A controller: answers each pose with a command. It ends when the poses do.
#include "messages.hpp"

#include <cmath>
#include <cstdio>

int main() {
    try {
        penstock::Subscription<Pose> poses("log:robot/pose", {.until_end = true});
        penstock::Publication<Command> commands("log:robot/command");
        commands.wait_for_readers(2, std::chrono::minutes(1)); // robot.py and the logger
        int64_t count = 0;
        for (const Pose &pose : poses) {
            const auto turn = static_cast<float>(std::atan2(-pose.y, -pose.x)) - pose.heading;
            commands.send({pose.number, {1 - turn, 1 + turn}});
            ++count;
        }
        std::printf("controller: %lld poses\n", static_cast<long long>(count));
    } catch (const penstock::Error &error) {
        std::fprintf(stderr, "controller: %s\n", error.what());
        return 1;
    }
}
