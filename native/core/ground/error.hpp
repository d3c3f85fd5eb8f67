// The few ways in which the cellar fails. The binding maps each code to one Python exception class.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace penstock {

enum class Code {
    corrupt,       // bytes that this library would not have written
    mismatch,      // a different size, kind or version than was asked for
    busy,          // another process holds what was asked for
    closed,        // the handle was closed, by its user
    disconnected,  // the other side is gone
    too_slow,      // this reader was too slow: its channel went on without it
    end_of_stream, // every writer has closed, and everything was read
    too_large,     // a message, claim or batch that can never fit
    invalid,       // an argument that makes no sense
    unsupported,   // an operation that channels of this kind do not have
    system,        // a system call failed; `number` is errno
    not_found,     // there is no such channel. This and the codes below: handles of C++ (penstock.hpp)
    timed_out,     // a call that waited in vain
    undecodable    // a message whose bytes are none of the type that was asked for
};

// A text in one line, whatever it quotes: control characters are escaped.
inline std::string one_line(const std::string &text) {
    std::string made;
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        if (code >= 0x20 && code != 0x7f) made += c;
        else made += std::string("\\x") + "0123456789abcdef"[code >> 4] + "0123456789abcdef"[code & 15];
    }
    return made;
}

class Error : public std::runtime_error {
  public:
    Error(Code its_code, const std::string &what, int its_number = 0)
        : std::runtime_error(one_line(what)), code(its_code), number(its_number) {}
    Code code;
    int number;
};

[[noreturn]] inline void fail_system(const std::string &what, int number = errno) {
    throw Error(Code::system, what + ": " + std::strerror(number), number);
}

} // namespace penstock
