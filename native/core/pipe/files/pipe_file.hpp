// The mapped file of a pipe channel: where its control words, its pipes and their bytes are. Knows no peer.
#pragma once

#include "ground/files/open_channel.hpp"
#include "ground/files/second_mapping.hpp"
#include "pipe/files/pipe_layout.hpp"

#include <memory>
#include <utility>

namespace penstock {

class PipeFile {
  public:
    // `map`: a mapping to share with other handles of this process, instead of one of its own.
    PipeFile(int fd, const std::string &path, std::shared_ptr<Mapping> map)
        : map_(map ? std::move(map) : std::make_shared<Mapping>(fd, size_of_file(fd), true)),
          geometry_(read_pipe_header(map_->bytes(), map_->size(), path).geometry) {}
    // While the channel is open: peers and no pipes. `map`: its short part.
    PipeFile(std::shared_ptr<Mapping> map, const OpenPart &part) : map_(std::move(map)), geometry_(while_open(part)) {}
    // Once the channel is decided. `opened`: the header of `map`, which is the whole file.
    PipeFile(std::shared_ptr<Mapping> map, const OpenedPipe &opened) : map_(std::move(map)), geometry_(opened.geometry) {}
    PipeFile(const PipeFile &) = delete;
    PipeFile &operator=(const PipeFile &) = delete;

    const PipeGeometry &geometry() const { return geometry_; }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    PipeControl &control() const { return *control_; }
    PipeLink &link(uint32_t index) const {
        return *reinterpret_cast<PipeLink *>(map_->bytes() + geometry_.links_offset() + size_t{index} * sizeof(PipeLink));
    }
    uint8_t *circle(uint32_t index) const {
        return map_->bytes() + geometry_.data_offset() + uint64_t{index} * geometry_.capacity;
    }

    // From now on this mapping only reads the circles: its peer never writes to a pipe.
    void protect_circles() { map_->protect(geometry_.data_offset(), geometry_.data_offset() + all_circles()); }
    // A mapping that only reads the circles: this one, or for a peer that also writes, another one, made when it first lends.
    const std::shared_ptr<Mapping> &lent_mapping(const ByteLocks &locks) {
        if (map_->protects()) return map_;
        if (!lent_map_) lent_map_ = map_again(locks, map_->size(), false);
        return lent_map_;
    }

  private:
    static PipeGeometry while_open(const OpenPart &part) {
        PipeGeometry g;
        g.max_members = part.slots;
        g.max_pipes = 0;
        return g;
    }
    uint64_t all_circles() const { return uint64_t{geometry_.max_pipes} * geometry_.capacity; }

    const std::shared_ptr<Mapping> map_;
    std::shared_ptr<Mapping> lent_map_;
    const PipeGeometry geometry_;
    PipeControl *const control_ = reinterpret_cast<PipeControl *>(map_->bytes() + control_offset);
};

} // namespace penstock
