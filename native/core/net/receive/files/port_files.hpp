// The files of the other endpoints of a port, in the same folder: FOLDER/HOST:PORT@STREAM.udp. Their content decides, not
// their names.
#pragma once

#include "net/io/socket.hpp"
#include "net/receive/files/endpoint_members.hpp"
#include "net/wire/extension_frame.hpp"

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock {

struct PortFile {
    std::string path; // as an EndpointFile takes it
    int32_t stream;
    bool owned;                   // another process owns its socket
    std::array<uint64_t, 2> keys; // their fingerprints; 0: none
};

// Whether streams of this address can share a socket. Over multicast each has its own.
inline bool shares_port(const UdpEndpointOptions &o) { return o.at.port != 0 && !is_multicast(o.at); }

// Those with subscriptions.
inline std::vector<PortFile> other_streams_of_port(const EndpointFile &own) {
    std::vector<PortFile> found;
    const std::filesystem::path file = own.file();
    const std::string name = file.filename(), ending = file.extension();
    const std::string mark = ":" + std::to_string(own.options().at.port) + "@";
    if (!shares_port(own.options()) || name.find(mark) == std::string::npos) return found;
    std::string uri = own.path()[0] == '/' ? "" : own.uri(); // without the part that differs
    uri = uri.substr(0, uri.size() - std::min(uri.size(), file.stem().string().size()));
    std::error_code error;
    for (std::filesystem::directory_iterator at(file.parent_path(), error), end; !error && at != end; at.increment(error)) {
        const std::string other = at->path().filename();
        if (other == name || at->path().extension() != ending || other.find(mark) == std::string::npos) continue;
        try {
            const OpenFile opened = open_file(at->path());
            if (opened.fd() < 0) continue;
            std::string stem = at->path().stem();
            std::replace(stem.begin(), stem.end(), '@', '/');
            const std::string path = uri.empty() ? at->path().string() : uri + stem + " (" + at->path().string() + ")";
            const EndpointFile about(opened.fd(), path);
            EndpointMembers members(opened.fd(), about);
            if (about.options().at == own.options().at && members.subscriptions() != 0)
                found.push_back({path,
                                 about.options().stream,
                                 members.locks().taken_by_other(lock_byte::owner),
                                 {about.control().rare.keys[0].relaxed(), about.control().rare.keys[1].relaxed()}});
        } catch (const Error &) { // it is being removed, or is not an endpoint's
        }
    }
    return found;
}

// Tells the process that has the port of a stream: a datagram of a stream that it does not know makes it look for its endpoint.
// False: no process of this library has it for another stream. `failed`: why this process could not have it.
inline bool ask_port_owner(const EndpointFile &file, const Error &failed) {
    const auto others = other_streams_of_port(file);
    const bool is_owned = std::any_of(others.begin(), others.end(), [](const PortFile &other) { return other.owned; });
    if (failed.number != EADDRINUSE || !is_owned) return false;
    const UdpEndpointOptions &o = file.options();
    Address to = o.at;
    if (is_v4(o.at) && o.at.host[12] == 0) to = parse_address("127.0.0.1", o.at.port);
    else if (is_unset(o.at)) to = parse_address("::1", o.at.port);
    try {
        UdpSocket socket(to, file.uri());
        socket.connect(to);
        const std::string frame = wire::write_question(o.stream);
        [[maybe_unused]] const auto sent = ::send(socket.fd(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } catch (const Error &) { // it asks again
    }
    return true;
}

} // namespace penstock
