// All images of an endpoint as the socket owner has them: received into, shown to readers, consumed, and continued
// after another owner. It knows no socket, no clock and no thread. docs/design/network_log.md.
#pragma once

#include "net/receive/images/image_store.hpp"
#include "net/receive/session/receiver.hpp"

namespace penstock {

class ImageSet {
  public:
    static constexpr int64_t count_ns = 20'000'000;      // between two counts of the subscriptions; senders get the count
    static constexpr int64_t readers_check_ns = 200'000; // first, while only readers elsewhere hold a sender up
    static constexpr int64_t readers_check_max_ns = 10'000'000;

    ImageSet(const EndpointFile &file, EndpointMembers &members, const ReceiverOptions &options, int64_t now)
        : file_(file), members_(members), store_(file, members), receiver_(options, store_, now) {}

    Receiver<ImageStore> &receiver() { return receiver_; }
    const Receiver<ImageStore> &receiver() const { return receiver_; }
    const ImageStore &store() const { return store_; }
    // The images stay as they are; the next owner continues them.
    void hand_over() { store_.handing_over = true; }
    // The last subscription has left by itself: what it has not read counts as read, so that senders go on at once. What dead
    // ones have not read does not: their next process gets it, from here or from the sender.
    void set_left() { left_ = true; }
    // The subscriptions are counted again at the next turn.
    void recount() { counted_at_ = 0; }
    // When consumption has to be looked at again though nothing arrives.
    int64_t next() const { return std::min(receiver_.next(), readers_at_); }

    // Continues the images of the last owner.
    void adopt() {
        if (!members_.acquire_lock(members_.lock(), EndpointMembers::patience_to_join_ns))
            throw Error(Code::busy, file_.uri() + ": a participant holds the channel's lock and does not run (stopped?)");
        const RobustLockGuard held(members_.lock());
        store_.handing_over = true; // if this fails at a later image, the first ones stay for the next try
        const uint64_t last = file_.control().rare.last_number.relaxed();
        bool listed = last == 0;
        for (uint32_t index = 0; index < images_max; ++index) {
            ImageEntry &entry = file_.entry(index);
            const uint64_t number = entry.number.relaxed();
            if (number == 0) continue;
            listed |= number == last;
            try {
                wire::SetupFrame setup;
                const OpenFile file = open_file(file_.image_file(number));
                if (file.fd() < 0 && errno != ENOENT) fail_system("cannot open " + file_.image_file(number));
                if (file.fd() < 0 || !read_setup(entry, setup)) throw Error(Code::corrupt, file_.uri() + ": an image is damaged");
                auto image = std::make_unique<ImageOwner>(file.fd(), file_, index, number, setup);
                const ImageState state = image->recover();
                store_.owners.push_back(std::move(image));
                receiver_.adopt(store_.owners.back()->terms(), setup, read_source(entry), state).set_clean_word(entry.clean);
            } catch (const Error &error) {
                // Its last owner has died, but has not let go of everything yet; or the system has no room. It is tried again.
                if (error.code == Code::busy || error.code == Code::system) throw;
                // Damaged: its session begins again where its sender is.
                remove_file(file_.image_file(number));
                entry.number.relaxed(0);
            }
        }
        store_.handing_over = false;
        list_changed(file_.control());                // the last owner may have died before it raised the count
        if (!listed) remove_image(file_, last);       // of an owner that died before it listed it
        event_interrupt(file_.control().event.value); // it may have died with a wake on its hands
    }
    // Moves on how far the images are consumed, as their subscriptions show.
    void consume(int64_t now) {
        if (now >= counted_at_ || left_) {
            counted_at_ = now + count_ns;
            const uint32_t readers = left_ ? 0 : std::max(members_.readers(), 1u);
            for (const auto &image : receiver_.images()) image->set_readers(readers);
        }
        bool waits = false;
        for (const auto &image : receiver_.images()) {
            ImageOwner *owner = store_.find(image->session());
            if (owner == nullptr || image->consumed() == image->rebuilt()) continue;
            const bool ending = image->state() == Image::State::draining || (image->end() && image->rebuilt() >= *image->end());
            const bool due = now >= image->status_at(); // the sender hears what was read also if that is little
            const bool far = image->high() - image->status_position() >= image->window() / 2;
            if (!ending && !far && !due && image->rebuilt() - image->status_position() < image->window() / 4)
                continue; // no use to look
            const uint64_t estimate = owner->estimate_consumed(image->rebuilt());
            if (estimate - image->status_position() >= image->window() / 4 || ((ending || due) && estimate > image->consumed())) {
                bool joined = members_.all_seen(owner->number());
                if (!joined && reap(now)) joined = members_.all_seen(owner->number());
                joined = joined && (left_ || members_.subscriptions() != 0);
                image->consume(owner->consumed(*image, joined));
            }
            waits |= (far && estimate < image->rebuilt()) || (ending && image->consumed() < image->rebuilt());
            if (waits && estimate == owner->last_estimate)
                owner->log().reap(); // no subscription has moved: the slowest may have died
            if (estimate != owner->last_estimate) {
                owner->last_estimate = estimate;
                readers_ns_ = readers_check_ns;
            }
        }
        if (!waits) readers_at_ = INT64_MAX;
        else if (now >= readers_at_ || readers_at_ == INT64_MAX) {
            readers_at_ = now + readers_ns_;
            readers_ns_ = std::min(2 * readers_ns_, readers_check_max_ns);
        }
    }
    // Publishes new frames to readers; true if there are any. `before_notify(changed)` runs before readers see it.
    template <class BeforeNotify> bool publish(BeforeNotify &&before_notify) {
        EndpointControl &control = file_.control();
        bool changed = false;
        for (const auto &image : receiver_.images()) {
            ImageOwner *owner = store_.find(image->session());
            if (owner == nullptr) continue;
            if (!owner->clean_word_set) {
                owner->clean_word_set = true;
                image->set_clean_word(owner->entry().clean);
            }
            changed |= owner->publish(*image);
        }
        const uint64_t changes = control.changes.value.relaxed();
        changed |= changes != changes_;
        changes_ = changes;
        before_notify(changed);
        if (!changed) return false;
        // SYNC 29: pairs with SessionReaders::peek; forbids the activity being visible before what was inserted
        control.activity.value.release(control.activity.value.relaxed() + 1);
        event_notify(control.event.value);
        return true;
    }

  private:
    bool reap(int64_t now) {
        if (now < reap_at_ || !members_.acquire_lock(members_.lock(), EndpointMembers::patience_to_work_ns)) return false;
        reap_at_ = now + reap_interval_ns;
        const RobustLockGuard held(members_.lock());
        return members_.reap();
    }

    const EndpointFile &file_;
    EndpointMembers &members_;
    ImageStore store_;
    Receiver<ImageStore> receiver_;
    uint64_t changes_ = 0;
    bool left_ = false;
    int64_t reap_at_ = 0, counted_at_ = 0;
    int64_t readers_at_ = INT64_MAX, readers_ns_ = readers_check_ns;
};

} // namespace penstock
