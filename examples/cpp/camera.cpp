// A camera driver: fills frames in place. Buffers that a reader holds are not written to. `camera COUNT`
#include "messages.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

int main(int argc, char **argv) {
    const int count = argc > 1 ? std::atoi(argv[1]) : 100;
    try {
        penstock::FramePublication<uint8_t> camera("frames:robot/camera", {.shape = {120, 160}, .buffers = 4, .waits = true});
        camera.wait_for_readers(1, std::chrono::minutes(1));
        for (int number = 0; number < count; ++number) {
            auto frame = camera.claim();
            std::fill(frame.pixels().begin(), frame.pixels().end(), static_cast<uint8_t>(number));
            frame.describe(number, 0, 0, "{\"gain\":1.5}");
            frame.commit();
        }
        std::printf("camera: %d frames\n", count);
    } catch (const penstock::Error &error) {
        std::fprintf(stderr, "camera: %s\n", error.what());
        return 1;
    }
}
