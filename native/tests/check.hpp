// For every native test: checks that name the place, arguments.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#define CHECK(what, ...)                                                                                                         \
    do {                                                                                                                         \
        if (!(what)) {                                                                                                           \
            std::fprintf(stderr, "%s:%d: CHECK(%s) failed. ", __FILE__, __LINE__, #what);                                        \
            std::fprintf(stderr, "" __VA_ARGS__);                                                                                \
            std::fprintf(stderr, "\n");                                                                                          \
            std::abort();                                                                                                        \
        }                                                                                                                        \
    } while (0)

namespace penstock::test {

inline uint64_t argument(int argc, char **argv, const char *name, uint64_t otherwise) {
    for (int i = 1; i + 1 < argc; ++i)
        if (std::string(argv[i]) == name) return std::strtoull(argv[i + 1], nullptr, 0);
    return otherwise;
}

} // namespace penstock::test
