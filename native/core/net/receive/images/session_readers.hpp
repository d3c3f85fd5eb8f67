// The sessions that a subscription on the network reads: one log reader for each image of its endpoint, all of them in turn. It
// knows the list of images and no socket. One thread at a time. docs/design/network_log.md.
#pragma once

#include "log/log_reader.hpp"
#include "net/receive/files/endpoint_members.hpp"
#include "net/receive/images/image_owner.hpp"
#include "net/receive/images/udp_watch.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace penstock {

class SessionReaders {
  public:
    static constexpr uint64_t fair_bytes = 64 * 1024; // of one session, while others wait
    static constexpr size_t closed_max = 1024;

    // A session that was silent and continues in another image keeps it, but for its address. Nothing else does.
    struct Publication {
        int32_t session = 0, initial_term_id = 0;
        uint32_t term_length = 0, mtu = 0;
        Address source;
        bool operator==(const Publication &other) const {
            return session == other.session && initial_term_id == other.initial_term_id && term_length == other.term_length &&
                   mtu == other.mtu;
        }
    };
    // A session that this subscription reads.
    struct Session {
        uint64_t number, join;
        uint32_t index;
        int32_t session;
        Publication from;
        uint64_t skipped = 0;   // bytes between the image before and this one: its sender had dropped them
        uint64_t gone = 0;      // these, and of a message that was begun in that image
        bool continued = false; // it fell silent, and another image goes on with it
        bool waits = false;     // the image that this one goes on with is read first
        std::unique_ptr<LogReader> reader;
        const Message *reader_message = nullptr;
        uint32_t held = 0;          // messages that are lent
        uint32_t reported_path = 0; // the path limit that was told of
    };

    // `start`: where in sessions that are there already; others are read from where they are joined.
    SessionReaders(Start start, uint64_t drop_after_ns) : start_(start), drop_after_ns_(drop_after_ns) {}

    // ---- joining and leaving ----

    // Becomes a subscription of the endpoint. refresh() joins its images. `receiver`: the endpoint's id, if it begins to be used.
    void join(int fd, const EndpointFile &file, uint64_t receiver) {
        file_ = &file;
        members_ = std::make_unique<EndpointMembers>(fd, file);
        watch_ = std::make_shared<UdpWatch>(file);
        const EndpointControl &control = file.control();
        members_->attach(MemberRole::subscription, [&] {
            members_->reap();
            if (members_->subscriptions() == 0) forget_images(file, receiver);
            number_at_join_ = control.rare.last_number.relaxed();
            sessions_at_join_ = control.rare.sessions.relaxed();
        });
        changes_ = control.changes.value.relaxed() - 1;
        seen_ = 0;
    }
    const ByteLocks &locks() const { return members_->locks(); }
    bool attached() const { return members_ && members_->attached(); }
    bool forked() const { return members_->forked(); }
    uint32_t mine() const { return members_->mine(); } // its slot
    EndpointSlot &me() const { return members_->me(); }
    void leave() {
        for (const auto &one : open_) one->reader->log().detach();
        members_->detach([] {});
    }
    // Joining has failed: the subscription was not made.
    void give_up() {
        open_.clear();
        if (members_) members_->detach([] {});
    }
    // In a forked child: all slots are its parent's.
    void forget() {
        for (const auto &one : open_) one->reader->log().forget_slot();
        if (members_) members_->forget();
        open_.clear();
    }

    // Joins the images that are new in the list.
    void refresh() {
        // SYNC 30: pairs with list_changed; forbids looking at the list before the count of its changes: an image that came in
        // between would be taken for seen
        const uint64_t changes = control().changes.value.acquire();
        uint64_t newest = 0;
        join_error_.reset();
        for (uint32_t index = 0; index < images_max; ++index) {
            const ImageEntry &entry = file_->entry(index);
            // SYNC 27: pairs with ImageStore::make; forbids reading the entry's words before its number
            const uint64_t number = entry.number.acquire();
            newest = std::max(newest, number);
            if (number == 0 || find(number) != nullptr) continue;
            try {
                read_image(index, number, entry);
            } catch (const Error &error) { // no descriptor or memory for it: the others continue
                if (error.code != Code::system) throw;
                join_error_ = error;
            }
        }
        if (join_error_) return;
        members_->me().subscriber.reads.relaxed(1); // an image that is made from now on is read from its join
        changes_ = changes;
        watch_->set_seen(control().activity.value.relaxed() - 1); // look at all of them
        if (control().changes.value.relaxed() != changes)
            return; // an older image may have been listed where this loop has already looked
        if (newest > seen_) members_->me().subscriber.seen.relaxed(seen_ = newest); // ordered by the locks of those images' logs
    }

    // ---- reading ----

    // The next message, or null. Its frame stays readable until consume(); an assembled one until the next peek().
    const Message *peek() {
        if (control().changes.value.relaxed() != changes_ && !join_error_) refresh();
        if (current_ < open_.size() && (current_bytes_ < fair_bytes || open_.size() == 1))
            if (const Message *message = peek_session(current_)) return message;
        // SYNC 29: pairs with ImageSet::publish; forbids looking at images before the activity: a message that
        // came in between would be taken for seen
        const uint64_t activity = control().activity.value.acquire();
        if (activity == watch_->seen() && current_bytes_ < fair_bytes) {
            if (join_error_) refresh(); // perhaps there is room now
            return nullptr;
        }
        for (size_t i = 1; i <= open_.size(); ++i) {
            const size_t at = (current_ + i) % open_.size();
            const Message *message = peek_session(at);
            if (message == nullptr) continue;
            current_ = at;
            current_bytes_ = 0;
            return message;
        }
        current_bytes_ = 0;
        watch_->set_seen(activity);
        close_ended();
        return nullptr;
    }
    // Passes the message that peek() returned; how far that was.
    uint64_t consume() {
        Session &from = *open_[current_];
        const uint64_t before = from.reader->position(), bytes = from.reader_message->length;
        from.reader->consume();
        last_position_ = from.reader->position();
        members_->me().subscriber.messages.increment(1);
        members_->me().subscriber.bytes.increment(bytes);
        current_bytes_ += last_position_ - before;
        return last_position_ - before;
    }
    // After consume(): shows where that session is read.
    void show_position() { open_[current_]->reader->show_position(); }
    void show_positions() {
        for (const auto &one : open_) one->reader->show_position();
    }
    bool readable() const {
        return std::any_of(open_.begin(), open_.end(), [](const auto &one) { return one->reader->readable(); });
    }
    // After a look that found nothing: this subscription has seen a session, and all that it has seen have ended. Those that fell
    // silent may come back: lost_session().
    bool ended() const {
        // SYNC 31: pairs with ImageStore::make; forbids looking at the list's changes before the count of sessions: a new session
        // would be taken for one that has come and gone
        const bool others = control().rare.sessions.acquire() != sessions_at_join_;
        if (control().changes.value.relaxed() != changes_) return false;
        return (seen_any_ || others) &&
               std::all_of(open_.begin(), open_.end(), [&](const auto &one) { return is_finished(*one); });
    }

    // The newest of the sessions that fell silent before their end and have not come back since; null: none.
    const Publication *lost_session() const {
        for (auto one = open_.rbegin(); one != open_.rend(); ++one)
            if (end_of_session(**one).how == SessionEnd::How::lost && !(*one)->continued) return &(*one)->from;
        for (auto old = closed_.rbegin(); old != closed_.rend(); ++old)
            if (old->how == SessionEnd::How::lost && !old->continued) return &old->from;
        return nullptr;
    }

    // Why a session could not be joined; it is tried again when there is nothing to read.
    const std::optional<Error> &join_error() const { return join_error_; }

    // ---- looking ----

    const std::vector<std::unique_ptr<Session>> &all() const { return open_; }
    const std::shared_ptr<UdpWatch> &watch() const { return watch_; }
    bool has_changes() const { return control().changes.value.relaxed() != changes_; }
    void count(uint64_t messages, uint64_t bytes) {
        members_->me().subscriber.messages.increment(messages);
        members_->me().subscriber.bytes.increment(bytes);
    }
    // Of one session, for a recorder: skips padding that stands for lost frames. Returns its bytes.
    uint64_t skip_lost(LogReader &reader) {
        const uint64_t gone = reader.skip_lost();
        if (gone != 0) members_->me().subscriber.bytes_lost.increment(gone);
        return gone;
    }
    // An image that is, or was, read: from where, up to where, and how many bytes were lost before that.
    struct Reached {
        int32_t session, initial_term_id;
        uint64_t join, position, lost;
    };
    std::vector<Reached> reached() const {
        std::vector<Reached> all;
        for (const ClosedSession &old : closed_)
            all.push_back({old.from.session, old.from.initial_term_id, old.join, old.end, old.lost});
        for (const auto &one : open_)
            all.push_back(
                {one->session, one->from.initial_term_id, one->join, one->reader->position(), one->gone + one->reader->lost()});
        return all;
    }
    Session *find(uint64_t number) const {
        for (const auto &one : open_)
            if (one->number == number) return one.get();
        return nullptr;
    }
    Session *session(int32_t session) const {
        if (current_ < open_.size() && open_[current_]->session == session) return open_[current_].get();
        for (const auto &one : open_)
            if (one->session == session) return one.get();
        return nullptr;
    }
    // Of the only session, or of the one that was read last.
    uint64_t position() const { return open_.size() == 1 ? open_[0]->reader->position() : last_position_; }
    uint64_t lost() const {
        uint64_t sum = lost_;
        for (const auto &one : open_) sum += one->reader->lost();
        return sum;
    }
    uint64_t incomplete() const {
        uint64_t sum = incomplete_;
        for (const auto &one : open_) sum += one->reader->incomplete();
        return sum;
    }
    // Whether the session has ended and everything was read.
    bool is_finished(const Session &one) const {
        const SessionEnd end = end_of_session(one);
        if (end.how == SessionEnd::How::open) return is_gone(one) && !one.reader->readable(); // its image was damaged
        return one.reader->position() >= end.position;
    }
    // How a session has ended for this subscription. An image that another one continues is closed.
    SessionEnd::How end_reached(const Session &one) const {
        return !is_finished(one) ? SessionEnd::How::open : one.continued ? SessionEnd::How::closed : end_of_session(one).how;
    }
    SessionEnd::How end_reached(uint64_t number) const {
        if (const Session *one = find(number)) return end_reached(*one);
        const auto old = std::find_if(closed_.begin(), closed_.end(), [&](const auto &each) { return each.number == number; });
        if (old == closed_.end()) return SessionEnd::How::open;
        if (old->how == SessionEnd::How::open) return SessionEnd::How::lost; // its image was damaged
        return old->continued ? SessionEnd::How::closed : old->how;
    }
    // Sessions whose images are gone are not looked at any more, once all was read and nothing is lent: their memory is freed.
    void close_ended() {
        for (size_t i = 0; i < open_.size();) {
            Session &one = *open_[i];
            if (!is_gone(one) || one.held != 0 || one.reader->readable()) {
                ++i;
                continue;
            }
            lost_ += one.reader->lost();
            incomplete_ += one.reader->incomplete();
            if (closed_.size() == closed_max) closed_.erase(closed_.begin());
            closed_.push_back({one.from, one.join, one.reader->position(), one.gone + one.reader->lost(), one.number,
                               end_of_session(one).how, one.continued, one.reader->take_begun()});
            one.reader->log().detach();
            open_.erase(open_.begin() + static_cast<ptrdiff_t>(i));
            current_ = 0;
        }
    }

  private:
    struct ClosedSession {
        Publication from;
        uint64_t join, end, lost; // where it was read first, and last; bytes
        uint64_t number;          // of its image
        SessionEnd::How how;
        bool continued;  // it fell silent, and another image went on with it
        Assembler begun; // a message that it ended in
    };

    EndpointControl &control() const { return file_->control(); }
    static SessionEnd end_of_session(const Session &one) {
        return SessionEnd::of(one.reader->log().control().session_end.value.relaxed()); // only its value counts
    }
    // An entry is given to another image when all that read this one have read it whole.
    bool is_gone(const Session &one) const { return file_->entry(one.index).number.relaxed() != one.number; }
    const Message *peek_session(size_t at) {
        Session &one = *open_[at];
        if (one.waits && !goes_on(one)) return nullptr;
        const uint64_t before = one.reader->lost();
        one.reader_message = one.reader->peek();
        if (const uint64_t gone = one.reader->lost() - before; gone != 0) members_->me().subscriber.bytes_lost.increment(gone);
        return one.reader_message;
    }

    void read_image(uint32_t index, uint64_t number, const ImageEntry &entry) {
        const std::string path = file_->image_file(number);
        const OpenFile file = open_file(path);
        if (file.fd() < 0) {
            if (errno != ENOENT) fail_system("cannot open " + path);
            return; // it has ended already
        }
        auto log = std::make_shared<TermLog>(file.fd(), file_->uri() + " (" + path + ")");
        Start start = number > number_at_join_ ? Start{Start::From::earliest, 0} : start_;
        wire::SetupFrame setup;
        const bool is_set_up = read_setup(entry, setup);
        if (is_set_up && start.from == Start::From::earliest)
            start.position = join_position_of(setup); // not the padding below it
        auto one = std::make_unique<Session>();
        one->number = number;
        one->index = index;
        one->session = static_cast<int32_t>(entry.session.relaxed());
        one->from = {one->session, log->geometry().initial_term_id, log->geometry().term_length, entry.mtu.relaxed(),
                     read_source(entry)};
        one->reader = std::make_unique<LogReader>(log, start, drop_after_ns_);
        log->make_read_only();
        one->join = one->reader->position();
        if (is_set_up) one->skipped = skipped_before(one->from, join_position_of(setup));
        lost_ += one->gone = one->skipped;
        if (one->skipped != 0) members_->me().subscriber.bytes_lost.increment(one->skipped);
        for (ClosedSession &old : closed_)
            if (old.from == one->from) one->waits = old.continued = true;
        for (const auto &old : open_)
            if (old->from == one->from) one->waits = old->continued = true;
        open_.push_back(std::move(one));
        seen_any_ = true;
    }
    // The same publication may have been read before, until it fell silent or the receiver fell behind: what lies between is
    // lost. Each subscription knows its own position, so the socket's owner may change meanwhile.
    uint64_t skipped_before(const Publication &from, uint64_t join) const {
        uint64_t end = join;
        for (const ClosedSession &old : closed_)
            if (old.from == from) end = old.end;
        for (const auto &old : open_)
            if (old->from == from) end = end_of(*old);
        return join > end ? join - end : 0;
    }
    // Whether all was read of the image that this one goes on with. A message that was begun there is finished here if nothing
    // lies between; else it is lost.
    bool goes_on(Session &one) {
        for (size_t i = open_.size(); i-- > 0;) {
            Session &old = *open_[i];
            if (old.number >= one.number || !(old.from == one.from)) continue;
            if (old.reader->readable()) return false;
            finish(one, old.reader->position(), old.reader->take_begun());
            return true;
        }
        for (size_t i = closed_.size(); i-- > 0;) {
            ClosedSession &old = closed_[i];
            if (old.number >= one.number || !(old.from == one.from)) continue;
            finish(one, old.end, old.begun.take_begun());
            return true;
        }
        one.waits = false; // it was closed long ago
        return true;
    }
    void finish(Session &one, uint64_t end, Assembler begun) {
        one.waits = false;
        if (begun.empty()) return;
        if (end == one.join) return one.reader->adopt(std::move(begun));
        const uint64_t gone = end - std::min(end, begun.oldest());
        lost_ += gone;
        one.gone += gone;
        members_->me().subscriber.bytes_lost.increment(gone);
    }
    // How far the messages of an image go that gets no more of them.
    static uint64_t end_of(const Session &one) {
        const SessionEnd end = end_of_session(one);
        return end.how == SessionEnd::How::open ? one.reader->position() : end.position;
    }

    const Start start_;
    const uint64_t drop_after_ns_;
    const EndpointFile *file_ = nullptr;
    std::unique_ptr<EndpointMembers> members_;
    std::shared_ptr<UdpWatch> watch_;
    std::vector<std::unique_ptr<Session>> open_;
    std::vector<ClosedSession> closed_; // sessions that it reads no more; newest last
    size_t current_ = 0;
    uint64_t changes_ = 0, seen_ = 0, number_at_join_ = 0, sessions_at_join_ = 0, current_bytes_ = 0;
    uint64_t last_position_ = 0, lost_ = 0, incomplete_ = 0;
    bool seen_any_ = false;
    std::optional<Error> join_error_;
};

} // namespace penstock
