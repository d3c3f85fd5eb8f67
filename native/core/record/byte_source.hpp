// Where a recording's bytes are read from: a file, or an object of an object storage. Byte ranges, by pread where there are
// files, never a mapping: a file that shrinks is an error, not a signal.
#pragma once

#include "ground/error.hpp"
#include "ground/files/mapping.hpp"

#include <algorithm>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

namespace penstock {

// The bytes of a segment or of its index: a file, or an object of an object storage.
class ByteSource {
  public:
    virtual ~ByteSource() = default;
    // How many bytes there were, up to `length`.
    virtual size_t read_at(uint64_t offset, void *to, size_t length) const = 0;
    virtual uint64_t size() const = 0;
    virtual const std::string &path() const = 0;
};
using OpenSource = std::function<std::unique_ptr<ByteSource>(const std::string &path)>;

class ReadFile final : public ByteSource {
  public:
    explicit ReadFile(std::string path) : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
        if (fd_ < 0) fail_system("cannot open " + path_);
    }
    ~ReadFile() override { ::close(fd_); }
    ReadFile(const ReadFile &) = delete;
    ReadFile &operator=(const ReadFile &) = delete;
    size_t read_at(uint64_t offset, void *to, size_t length) const override {
        auto *bytes = static_cast<uint8_t *>(to);
        size_t done = 0;
        while (done < length) {
            const ssize_t got = ::pread(fd_, bytes + done, length - done, static_cast<off_t>(offset + done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail_system("cannot read " + path_);
            if (got == 0) break;
            done += static_cast<size_t>(got);
        }
        return done;
    }
    uint64_t size() const override { return size_of_file(fd_); }
    const std::string &path() const override { return path_; }

  private:
    std::string path_;
    int fd_;
};

inline std::unique_ptr<ByteSource> open_file(const std::string &path) { return std::make_unique<ReadFile>(path); }

// A segment's blocks, one after the other: one read for as many neighbouring blocks as fit.
class ReadAhead {
  public:
    void open(std::unique_ptr<ByteSource> source) {
        source_ = std::move(source);
        begin_ = end_ = 0;
    }
    // The bytes, or null where the segment ends before: at end(). They are valid until the next call. `data_length`: bytes that
    // the segment's index covers.
    const uint8_t *read(uint64_t offset, uint64_t length, uint64_t data_length) {
        if (offset < begin_ || offset + length > end_) {
            constexpr uint64_t ahead = 4 << 20;
            const uint64_t want = std::max<uint64_t>(length, std::min(ahead, data_length - offset));
            const uint64_t size = source_->size(); // a length is believed only as far as the file goes
            bytes_.resize(std::min(want, size > offset ? size - offset : 0));
            begin_ = offset;
            end_ = offset + source_->read_at(offset, bytes_.data(), bytes_.size());
        }
        return offset + length > end_ ? nullptr : bytes_.data() + (offset - begin_);
    }
    uint64_t end() const { return end_; }
    const std::string &path() const { return source_->path(); }

  private:
    std::unique_ptr<ByteSource> source_;
    std::vector<uint8_t> bytes_;
    uint64_t begin_ = 0, end_ = 0;
};

} // namespace penstock
