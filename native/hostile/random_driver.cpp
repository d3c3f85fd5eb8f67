// Stands in for libFuzzer where a target only has to run: random inputs from a seed.
#include "../tests/support.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv) {
    std::mt19937_64 random(penstock::test::argument(argc, argv, "--seed", 1));
    for (uint64_t left = penstock::test::argument(argc, argv, "--runs", 1000); left != 0; --left) {
        std::vector<uint8_t> input(1 + random() % 200);
        for (uint8_t &byte : input) byte = static_cast<uint8_t>(random());
        LLVMFuzzerTestOneInput(input.data(), input.size());
    }
}
