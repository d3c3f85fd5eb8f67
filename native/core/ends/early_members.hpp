// The slot of a reader in a channel without a first publication, one class per kind; and the end that it becomes once the channel
// is decided. docs/design/open_channels.md.
#pragma once

#include "ends/log_ends.hpp"
#include "ends/pipe_ends.hpp"
#include "ends/ring_ends.hpp"
#include "ends/sync_ends.hpp"

#include <string>
#include <utility>

namespace penstock {

// One kind's member of an open channel.
class EarlyMember {
  public:
    virtual ~EarlyMember() = default;
    virtual const std::string &path() const = 0;
    virtual const ByteLocks &locks() const = 0;
    virtual Atomic<uint32_t> &event() = 0;
    virtual Atomic<uint64_t> &wait_word() = 0; // a WaitNote
    virtual bool forked() const = 0;
    virtual void leave() = 0;          // with the open byte held
    virtual void crash_for_test() = 0; // without: as a dead one
    virtual void rejoin() = 0;         // in a forked child, with the open byte held: its own slot
    virtual void forget() = 0;         // in a forked child: the slot stays its parent's
    virtual void return_after_fork() = 0;
    // The channel is decided: the end that reads on in this slot; and one in its own slot, at the start.
    virtual std::shared_ptr<StreamEnd> become(std::shared_ptr<Mapping> whole) = 0;
    virtual std::shared_ptr<StreamEnd> reopen(int fd) = 0;
};

// `End`: what it becomes, a reader of a log or of a sync queue.
template <class End> class EarlyLog final : public EarlyMember {
  public:
    EarlyLog(int fd, const std::string &path, std::shared_ptr<Mapping> map, const OpenPart &part, double drop_after,
             std::string name)
        : log_(std::make_shared<TermLog>(fd, path, std::move(map), part)), kind_(part.kind.number), drop_after_(drop_after),
          name_(std::move(name)) {
        attach();
    }
    ~EarlyLog() override { crash_for_test(); }
    const std::string &path() const override { return log_->path(); }
    const ByteLocks &locks() const override { return log_->locks(); }
    Atomic<uint32_t> &event() override { return log_->control().data.value; }
    Atomic<uint64_t> &wait_word() override { return log_->me().counters.wait; }
    bool forked() const override { return log_->forked(); }
    void leave() override { log_->detach(); }
    void crash_for_test() override {
        if (log_->attached() && !log_->forked()) log_->crash_for_test();
    }
    void rejoin() override { attach(); }
    void forget() override { log_->forget_slot(); }
    void return_after_fork() override { log_->return_after_fork(); }
    std::shared_ptr<StreamEnd> become(std::shared_ptr<Mapping> whole) override {
        OpenedLog opened = read_header(whole->bytes(), whole->size(), path(), kind_);
        auto log = std::make_shared<TermLog>(std::move(*log_), std::move(whole), std::move(opened));
        return std::make_shared<End>(std::move(log), LogReader::Early{}, drop_after_, name_);
    }
    std::shared_ptr<StreamEnd> reopen(int fd) override {
        const Start start{Start::From::earliest, 0};
        if constexpr (std::is_base_of_v<SyncReaderEnd, End>) return std::make_shared<End>(fd, path(), start, drop_after_, name_);
        else return std::make_shared<End>(fd, path(), start, drop_after_);
    }

  private:
    void attach() {
        log_->attach(
            Role::subscription, LogReaderEnd::patience_ns(drop_after_), [&] { log_->me().reader.position.relaxed(0); }, name_);
    }

    std::shared_ptr<TermLog> log_;
    const Kind kind_;
    const double drop_after_;
    const std::string name_;
};

class EarlyRing final : public EarlyMember {
  public:
    EarlyRing(int fd, const std::string &path, std::shared_ptr<Mapping> map, const OpenPart &part, bool conflate)
        : conflate_(conflate) {
        const OpenedRing opened = Ring::while_open(part);
        ring_ = std::make_shared<Ring>(fd, path, std::move(map), &opened);
        attach();
    }
    const std::string &path() const override { return ring_->path(); }
    const ByteLocks &locks() const override { return ring_->locks(); }
    Atomic<uint32_t> &event() override { return ring_->control().data.value; }
    Atomic<uint64_t> &wait_word() override { return ring_->me().reader.wait; }
    bool forked() const override { return ring_->forked(); }
    void leave() override { ring_->detach(); }
    void crash_for_test() override { ring_->detach(); }
    void rejoin() override { attach(); }
    void forget() override { ring_->forget_slot(); }
    void return_after_fork() override { ring_->return_after_fork(); }
    std::shared_ptr<StreamEnd> become(std::shared_ptr<Mapping> whole) override {
        const OpenedRing opened = read_ring_header(whole->bytes(), whole->size(), path());
        auto ring = std::make_shared<Ring>(std::move(*ring_), std::move(whole), opened);
        return std::make_shared<RingReaderEnd>(std::move(ring), conflate_);
    }
    std::shared_ptr<StreamEnd> reopen(int fd) override {
        return std::make_shared<RingReaderEnd>(fd, path(), Start{Start::From::newest, 0}, conflate_);
    }

  private:
    void attach() {
        ring_->attach_reader([&] { ring_->me().reader.position.relaxed(0); });
    }

    std::shared_ptr<Ring> ring_;
    const bool conflate_;
};

// A puller, or a recorder.
class EarlyPipe final : public EarlyMember {
  public:
    struct PeerOptions {
        PeerRole role;
        MemberName name;
        WhenFull when_full;
        bool by_hand;          // pull
        uint64_t tap_position; // tap
    };
    EarlyPipe(int fd, const std::string &path, std::shared_ptr<Mapping> map, const OpenPart &part, PeerOptions options)
        : options_(std::move(options)),
          peer_(std::make_shared<PipePeer>(fd, path, options_.role, options_.name, options_.when_full, std::move(map), part)),
          bell_(&peer_->peers().bell()) {}
    ~EarlyPipe() override { crash_for_test(); }
    const std::string &path() const override { return peer_->peers().path(); }
    const ByteLocks &locks() const override { return peer_->peers().locks(); }
    Atomic<uint32_t> &event() override { return *bell_; }
    Atomic<uint64_t> &wait_word() override { return peer_->peers().me().counters.wait; }
    bool forked() const override { return peer_->peers().forked(); }
    void leave() override { peer_->detach(); }
    void crash_for_test() override {
        if (!peer_->peers().forked()) peer_->crash_for_test();
    }
    void rejoin() override {
        peer_->attach();
        bell_ = &peer_->peers().bell();
    }
    void forget() override { peer_->forget(); }
    void return_after_fork() override { peer_->return_after_fork(); }
    std::shared_ptr<StreamEnd> become(std::shared_ptr<Mapping> whole) override {
        const OpenedPipe opened = read_pipe_header(whole->bytes(), whole->size(), path());
        return over(std::make_shared<PipePeer>(std::move(*peer_), std::move(whole), opened));
    }
    std::shared_ptr<StreamEnd> reopen(int fd) override {
        return over(std::make_shared<PipePeer>(fd, path(), options_.role, options_.name, options_.when_full));
    }

  private:
    std::shared_ptr<StreamEnd> over(std::shared_ptr<PipePeer> peer) const {
        if (options_.role == PeerRole::tap) return std::make_shared<PipeTapEnd>(std::move(peer), options_.tap_position);
        return std::make_shared<PipeReaderEnd>(std::move(peer), options_.by_hand);
    }

    const PeerOptions options_;
    std::shared_ptr<PipePeer> peer_;
    Atomic<uint32_t> *bell_;
};

} // namespace penstock
