// The members of an endpoint: its subscriptions, and the processes that may hold its socket; each in a slot of its own. The list
// of images changes under the lock of this table.
#pragma once

#include "ground/files/counts.hpp"
#include "ground/members/participants.hpp"
#include "ground/waiting.hpp"
#include "net/io/new_file.hpp"
#include "net/receive/files/endpoint_file.hpp"

#include <unistd.h>

namespace penstock {

class EndpointMembers : public Participants<EndpointSlot> {
  public:
    EndpointMembers(int fd, const EndpointFile &file)
        : Participants(fd, file.path(), file.mapping()->bytes(), file.options().slot_count, 2), control_(file.control()) {}

    Atomic<uint64_t> &lock() const { return control_.lock.value; }

    // `under_lock()` runs before the slot shows its owner.
    template <class UnderLock> void attach(MemberRole role, UnderLock &&under_lock) {
        join(lock(), [&] {
            if (subscribes(me())) count_death(me().subscriber.deaths);
            clear(me());
            under_lock();
            EndpointSlot::Identity &identity = me().identity;
            identity.pid.relaxed(static_cast<uint32_t>(getpid()));
            me().subscriber.wait.relaxed(0);
            identity.joined_ns.relaxed(static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
            identity.role.relaxed(static_cast<uint32_t>(role));
            enter();
            begin_owner(me().subscriber.deaths);
            identity.state.relaxed(1);
        });
    }
    template <class UnderLock> void detach(UnderLock &&under_lock) {
        if (!begin_to_leave()) return;
        leave(lock(), [&] {
            clear(me());
            under_lock();
        });
    }
    // Under the lock: frees the slots of the dead.
    bool reap() {
        return reap_all([](const EndpointSlot &slot) { return slot.identity.state.relaxed() != 0; },
                        [&](uint32_t index) {
                            if (subscribes(slot(index))) count_death(slot(index).subscriber.deaths);
                            clear(slot(index));
                        });
    }
    static bool subscribes(const EndpointSlot &slot) {
        return slot.identity.state.relaxed() == 1 &&
               slot.identity.role.relaxed() == static_cast<uint32_t>(MemberRole::subscription);
    }
    uint32_t subscriptions() const {
        uint32_t found = 0;
        for (uint32_t i = 0; i < count(); ++i) found += subscribes(slot(i));
        return found;
    }
    // Living subscriptions that will miss nothing sent from now on.
    uint32_t readers() {
        uint32_t found = 0;
        for (uint32_t i = 0; i < count(); ++i)
            found += lives(i, [](const EndpointSlot &s) { return subscribes(s) && s.subscriber.reads.relaxed() != 0; });
        return found;
    }
    // Whether every subscription has joined the images up to that number, so that their slots in it say where they are.
    bool all_seen(uint64_t number) const {
        for (uint32_t i = 0; i < count(); ++i) {
            // Only the value counts. The subscription joins the image under the lock of the image's log, before it says so here.
            // Its slot there is looked at under the same lock, after this: had that been before it joined, this look would be
            // too.
            if (subscribes(slot(i)) && slot(i).subscriber.seen.relaxed() < number) return false;
        }
        return true;
    }

  private:
    void clear(EndpointSlot &slot) {
        slot.identity.state.relaxed(0);
        slot.identity.role.relaxed(0);
        slot.subscriber.seen.relaxed(0);
        move_count(slot.subscriber.messages, control_.totals.messages);
        move_count(slot.subscriber.bytes, control_.totals.bytes);
        move_count(slot.subscriber.bytes_lost, control_.totals.bytes_lost);
        slot.subscriber.reads.relaxed(0);
    }

    EndpointControl &control_;
};

// Removes the file of an unused endpoint: no subscription is there, and `made` by the caller, or never received. True if
// its name is gone. A subscription that joins meanwhile sees that when it looks for the name after it has joined: this looks at
// the subscriptions, and removes the name, under the lock that it joins under.
inline bool forget_endpoint(int fd, const std::string &path, bool made) {
    const EndpointFile file(fd, path);
    EndpointMembers members(fd, file);
    const auto named = [&] {
        struct stat about;
        return fstat(fd, &about) == 0 && about.st_nlink != 0;
    };
    members.attach(MemberRole::host, [&] {
        members.reap();
        const bool used = !made && file.control().rare.owner_pid.relaxed() != 0;
        if (!used && members.subscriptions() == 0 && named()) remove_file(file.file());
    });
    members.detach([] {});
    return !named();
}

// The list of images is another now. Two that say so at once do it while no subscription is there.
inline void list_changed(EndpointControl &control) {
    // SYNC 30: pairs with SessionReaders::refresh; forbids the count being visible before the change of the list
    control.changes.value.release(control.changes.value.relaxed() + 1);
}

inline void remove_image(const EndpointFile &file, uint64_t number) {
    remove_file(file.image_file(number));
    remove_file(file.image_file(number) + unnamed_suffix);
}

// Under the lock, when the last subscription has left: removes the files of all images.
inline void forget_images(const EndpointFile &file, uint64_t receiver) {
    EndpointControl &control = file.control();
    for (uint32_t i = 0; i < images_max; ++i) {
        ImageEntry &entry = file.entry(i);
        const uint64_t number = entry.number.relaxed();
        if (number == 0) continue;
        remove_image(file, number);
        entry.number.relaxed(0); // readers of this image have left
    }
    remove_image(file, control.rare.last_number.relaxed()); // of an owner that died before it listed it
    control.rare.receiver.relaxed(receiver);
    list_changed(control);
}

} // namespace penstock
