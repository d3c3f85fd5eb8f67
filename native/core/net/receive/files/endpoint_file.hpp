// An endpoint's file: how it is filled, how an opener checks it, and its parts in memory. It knows no socket and no image's
// bytes.
#pragma once

#include "ground/files/channel_file.hpp"
#include "net/receive/files/endpoint_layout.hpp"

#include <memory>

namespace penstock {

inline void check_endpoint(const UdpEndpointOptions &o, Code code) {
    auto need = [&](bool fine, const std::string &what) {
        if (!fine) throw Error(code, what);
    };
    need(o.slot_count >= 2 && o.slot_count <= slot_count_max,
         "max_members is " + std::to_string(o.slot_count) + ": it must be from 2 to 1024");
    need(o.sessions_max >= 1 && o.sessions_max <= images_max,
         "sessions_max is " + std::to_string(o.sessions_max) + ": it must be from 1 to 64");
    need(o.window >= 4096 && o.window <= 1u << 29,
         "window is " + std::to_string(o.window) + ": it must be from 4096 to 536870912");
}

// Fills a new file that nobody else can open yet, of endpoint_file_size.
inline void format_endpoint(int fd, const UdpEndpointOptions &o, const std::string &metadata, const uint8_t boot_id[16],
                            int64_t created_ns) {
    check_endpoint(o, Code::invalid);
    const uint64_t size = endpoint_file_size(o.slot_count);
    if (size_of_file(fd) != size) throw Error(Code::invalid, "the new file has the wrong size");
    const Mapping map(fd, size, true);
    Header *header = begin_header(map, Kind::endpoint, metadata, boot_id, created_ns);
    header->slot_count = o.slot_count;
    auto &words = own_words<EndpointWords>(header);
    std::memcpy(words.host, o.at.host.data(), 16);
    words.scope = o.at.scope;
    words.port = o.at.port;
    words.flags = static_cast<uint16_t>((o.reliable ? endpoint_reliable : 0) | (o.group_tag ? endpoint_tagged : 0) |
                                        (o.sealed ? endpoint_sealed : 0));
    words.stream = o.stream;
    words.window = o.window;
    words.group_tag = o.group_tag.value_or(0);
    words.memory_max = o.memory_max;
    words.receive_buffer = o.receive_buffer;
    words.sessions_max = o.sessions_max;
    std::memcpy(words.interface_host, o.interface.host.data(), 16);
    words.interface_scope = o.interface.scope;
    if (o.control) {
        std::memcpy(words.control_host, o.control->host.data(), 16);
        words.control_scope = o.control->scope;
        words.control_port = o.control->port;
    }
    header->magic.release(magic); // SYNC 0: pairs with find_header; forbids the magic being visible before the rest
}

struct OpenedEndpoint : OpenedChannel {
    UdpEndpointOptions options;
};

inline OpenedEndpoint read_endpoint(const uint8_t *bytes, uint64_t size, const std::string &where) {
    const Header *header = find_header(bytes, size, where, Kind::endpoint);
    OpenedEndpoint endpoint;
    const EndpointWords words = own_words<EndpointWords>(header);
    UdpEndpointOptions &o = endpoint.options;
    std::memcpy(o.at.host.data(), words.host, 16);
    o.at.scope = words.scope;
    o.at.port = words.port;
    o.reliable = (words.flags & endpoint_reliable) != 0;
    o.sealed = (words.flags & endpoint_sealed) != 0;
    if ((words.flags & endpoint_tagged) != 0) o.group_tag = words.group_tag;
    o.stream = words.stream;
    o.window = words.window;
    o.memory_max = words.memory_max;
    o.receive_buffer = words.receive_buffer;
    o.sessions_max = words.sessions_max;
    std::memcpy(o.interface.host.data(), words.interface_host, 16);
    o.interface.scope = words.interface_scope;
    if (words.control_port != 0) {
        o.control.emplace();
        std::memcpy(o.control->host.data(), words.control_host, 16);
        o.control->scope = words.control_scope;
        o.control->port = words.control_port;
    }
    o.slot_count = header->slot_count;
    check_header(where, [&] { check_endpoint(o, Code::corrupt); });
    check_size(header, endpoint_file_size(o.slot_count), size, where);
    read_common(header, where, endpoint);
    return endpoint;
}

// The file in memory, checked.
class EndpointFile {
  public:
    // `path`: a URI and the file's path in brackets, or the path alone.
    EndpointFile(int fd, const std::string &path)
        : path_(path), map_(std::make_shared<Mapping>(fd, size_of_file(fd), true)),
          opened_(read_endpoint(map_->bytes(), map_->size(), path)) {}

    const std::string &path() const { return path_; }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    const UdpEndpointOptions &options() const { return opened_.options; }
    EndpointControl &control() const { return *reinterpret_cast<EndpointControl *>(map_->bytes() + control_offset); }
    ImageEntry &entry(uint32_t index) const {
        return reinterpret_cast<ImageEntry *>(map_->bytes() + entries_offset(opened_.options.slot_count))[index];
    }
    static std::string file_of(const std::string &path) { // without the URI
        const size_t open = path[0] == '/' ? std::string::npos : path.find(" (");
        return open == std::string::npos ? path : path.substr(open + 2, path.size() - open - 3);
    }
    std::string file() const { return file_of(path_); }
    std::string uri() const { return path_.substr(0, path_[0] == '/' ? path_.size() : path_.find(" (")); }
    std::string image_file(uint64_t number) const { return file() + "." + std::to_string(number) + ".image"; }

  private:
    const std::string path_;
    const std::shared_ptr<Mapping> map_;
    const OpenedEndpoint opened_;
};

} // namespace penstock
