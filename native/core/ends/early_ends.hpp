// The end of a reader whose channel has no publication yet: it holds a slot and has nothing to read. Once the channel is decided
// it forwards every call to an ordinary end in the same slot. docs/design/open_channels.md.
#pragma once

#include "ends/early_members.hpp"

#include <utility>

namespace penstock {

// The bridge's view of the end, before and after the decision.
class EarlyWatched final : public Waitable {
  public:
    EarlyWatched(std::shared_ptr<Mapping> part, Atomic<uint32_t> &event) : part_(std::move(part)), event_(event) {}
    Atomic<uint32_t> &event() override { return event_; } // the same word of the file in the short mapping and in the whole one
    bool readable(uint64_t position) const override {
        // SYNC 26: pairs with EarlyWatched::become; forbids using the decided channel, or its start, before they are stored
        const auto *now = reinterpret_cast<const Waitable *>(now_.acquire());
        return now != nullptr ? now->readable(std::max(position, start_)) : decided();
    }
    bool stalled(uint64_t position) const override {
        // SYNC 26: pairs with EarlyWatched::become; forbids using the decided channel, or its start, before they are stored
        const auto *now = reinterpret_cast<const Waitable *>(now_.acquire());
        return now != nullptr ? now->stalled(std::max(position, start_)) : decided();
    }
    bool settled(uint64_t position) const override {
        // SYNC 26: pairs with EarlyWatched::become; forbids using the decided channel, or its start, before they are stored
        const auto *now = reinterpret_cast<const Waitable *>(now_.acquire());
        return now != nullptr && now->settled(std::max(position, start_));
    }
    void become(std::shared_ptr<Waitable> now, uint64_t start) { // once
        start_ = start;
        resolved_ = std::move(now);
        // SYNC 26: pairs with EarlyWatched::readable, EarlyWatched::stalled, EarlyWatched::settled; forbids the bridge's thread
        // seeing the channel before its start
        now_.release(reinterpret_cast<uint64_t>(resolved_.get()));
    }

  private:
    // SYNC -: only wakes the subscription, which acquires the state in still_open
    bool decided() const { return reinterpret_cast<const Header *>(part_->bytes())->state.acquire() != 1; }

    std::shared_ptr<Mapping> part_;
    Atomic<uint32_t> &event_;
    std::shared_ptr<Waitable> resolved_;
    Atomic<uint64_t> now_{}; // its address; 0 while the channel is open
    uint64_t start_ = 0;     // a watch armed while the channel was open is before it
};

// `Role`: the end's role. The end that it becomes has the same role.
template <class Role> class EarlyEnd : public Role {
  public:
    EarlyEnd(std::shared_ptr<Mapping> part, std::unique_ptr<EarlyMember> member)
        : part_(std::move(part)), member_(std::move(member)), path_(member_->path()), event_(&member_->event()) {}
    ~EarlyEnd() override { leave_slot(); }

    const std::string &where() const final { return member_->locks().where(); }
    std::shared_ptr<Mapping> mapping() const final { return now_ ? now_->mapping() : part_; }
    const ByteLocks &locks() const final { return now_ ? now_->locks() : member_->locks(); }
    bool prefault() final {
        prefault_ = true;
        return mapping()->populate();
    }
    // Whether the channel is decided; from then on this is what an ordinary end is.
    bool decided() final {
        if (now_) return true;
        if (still_open(header(), path_)) return false;
        become(member_->become(whole()));
        return true;
    }
    bool is_resolved() const final { return now_ != nullptr; }

    void rejoin() final {
        if (now_) return now_->rejoin();
        member_->forget();
        member_->return_after_fork();
        OpenHold hold = held(10'000'000'000);
        if (!hold.held()) throw Error(Code::busy, where() + ": a process that joins the channel does not run (stopped?)");
        if (still_open(header(), path_)) {
            member_->rejoin();
            event_ = &member_->event();
        } else {
            const Fd fd(member_->locks().again());
            become(member_->reopen(fd.number));
        }
    }
    void leave() final { leave_slot(); }
    void interrupt() final {
        if (now_) return now_->interrupt();
        event_interrupt(*event_);
    }
    Atomic<uint32_t> &event() final { return *event_; } // a thread may still sleep on it when the channel is decided
    Atomic<uint64_t> *wait_word() final { return now_ ? now_->wait_word() : &member_->wait_word(); }
    bool readable() const final { return now_ ? now_->readable() : !still_open(header(), path_); }
    bool repair() final { return now_ && now_->repair(); }
    bool settled() const final { return now_ && now_->settled(); }
    RunSource *runs() final { return decided() ? now_->runs() : nullptr; }

    uint64_t position() const final { return now_ ? now_->position() : 0; }
    uint64_t lag() const final { return now_ ? now_->lag() : 0; }
    uint64_t lost() const final { return now_ ? now_->lost() : 0; }
    int64_t lost_messages() const final { return now_ ? now_->lost_messages() : 0; }

  protected:
    virtual void on_resolved() {}
    const Header *header() const { return reinterpret_cast<const Header *>(part_->bytes()); }

    const std::shared_ptr<Mapping> part_; // kept: a thread may sleep on a word in it
    std::shared_ptr<Role> now_;           // null while the channel is open

  private:
    struct Fd {
        explicit Fd(int fd) : number(fd) {}
        ~Fd() { ::close(number); }
        Fd(const Fd &) = delete;
        Fd &operator=(const Fd &) = delete;
        const int number;
    };

    // With its own open file description: a mapping would keep the slot's lock alive in a forked child.
    std::shared_ptr<Mapping> whole() const {
        const Fd fd(member_->locks().again());
        auto map = std::make_shared<Mapping>(fd.number, size_of_file(fd.number), true);
        if (prefault_) map->populate();
        return map;
    }
    OpenHold held(int64_t patience_ns) const {
        const Fd fd(member_->locks().again());
        return OpenHold(fd.number, path_, patience_ns);
    }
    void become(std::shared_ptr<StreamEnd> now) {
        now_ = std::static_pointer_cast<Role>(std::move(now)); // a member is made for the role
        on_resolved();
    }
    void leave_slot() {
        if (now_) return now_->leave();
        if (std::exchange(left_, true) || member_->forked()) return;
        try {
            OpenHold hold = held(20'000'000);
            if (!hold.held()) member_->crash_for_test(); // the living free its slot
            else if (still_open(header(), path_)) member_->leave();
            else member_->become(whole())->leave();
        } catch (const Error &) {
            member_->crash_for_test();
        }
    }

    const std::unique_ptr<EarlyMember> member_;
    const std::string path_;
    Atomic<uint32_t> *event_;
    bool left_ = false, prefault_ = false;
};

using EarlyTapEnd = EarlyEnd<StreamEnd>;

class EarlyReaderEnd final : public EarlyEnd<ReaderEnd> {
  public:
    using EarlyEnd::EarlyEnd;

    ReaderEnd *resolved() override { return decided() ? now_.get() : nullptr; }
    std::shared_ptr<Waitable> watched(bool until_end) override {
        if (now_) return now_->watched(until_end);
        until_end_ = until_end;
        if (!watched_) watched_ = std::make_shared<EarlyWatched>(part_, event());
        return watched_;
    }
    bool ended() override { return decided() && now_->ended(); }
    std::string why_waiting() override { return now_ ? now_->why_waiting() : std::string(); }
    void add_watches(WatchSet &at) override {
        if (now_) return now_->add_watches(at);
        at.add_changes(header()->state, static_cast<uint32_t>(ChannelState::open));
    }
    void begin_call() override {
        if (decided()) now_->begin_call();
    }
    void defer_ack() override {
        if (now_) now_->defer_ack();
    }
    void resume_ack() override {
        if (now_) now_->resume_ack();
    }
    void continue_batch() override {
        if (now_) now_->continue_batch();
    }
    Envelope envelope() const override { return now_ ? now_->envelope() : Envelope{}; }
    uint32_t columns() const override { return now_ ? now_->columns() : ReaderEnd::columns(); }
    const Message *peek() override { return decided() ? now_->peek() : nullptr; }
    bool copy(void *to, const Message &message) override { return now_->copy(to, message); }
    void consume() override { now_->consume(); }
    bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) override {
        return !decided() || now_->fill(batch, limit, most, last);
    }
    Lender &lender() override { return now_->lender(); } // asked for with a message in hand

    uint64_t incomplete() const override { return now_ ? now_->incomplete() : 0; }
    uint64_t conflated() const override { return now_ ? now_->conflated() : 0; }
    uint64_t restarts() const override { return now_ ? now_->restarts() : 0; }

  private:
    void on_resolved() override {
        if (watched_) watched_->become(now_->watched(until_end_), now_->position());
    }

    std::shared_ptr<EarlyWatched> watched_;
    bool until_end_ = false;
};

} // namespace penstock
