// Stores images: files beside the endpoint's, made at SETUP, listed in its entries, and removed when all have read them.
#pragma once

#include "net/receive/files/endpoint_members.hpp"
#include "net/receive/images/image_owner.hpp"

#include <algorithm>
#include <vector>

namespace penstock {

// How the receiver gets memory for images: files beside the endpoint's, listed in its entries.
class ImageStore {
  public:
    ImageStore(const EndpointFile &file, EndpointMembers &members) : file_(file), members_(members) {}

    std::optional<Terms> open(const wire::SetupFrame &setup, const Address &source) {
        if (!members_.acquire_lock(members_.lock(), EndpointMembers::patience_to_work_ns)) return std::nullopt;
        const RobustLockGuard held(members_.lock());
        for (uint32_t index = 0; index < images_max; ++index) {
            if (file_.entry(index).number.relaxed() != 0) continue;
            try {
                const Terms terms = make(index, setup, source);
                std::erase(refused_, setup.session);
                return terms;
            } catch (const Error &error) { // no memory for it: the sender will say SETUP again
                remove_image(file_, file_.control().rare.last_number.relaxed());
                refuse(setup, source, error);
                return std::nullopt;
            }
        }
        return std::nullopt;
    }
    void close(const Image &image) {
        const auto found =
            std::find_if(owners.begin(), owners.end(), [&](const auto &one) { return one->session() == image.session(); });
        if (found == owners.end()) return;
        if (!handing_over) {
            (*found)->publish(image); // it may give way to another one: readers have all that was received
            unlist(**found);
        }
        (*found)->log().detach();
        owners.erase(found);
    }
    ImageOwner *find(int32_t session) const {
        for (const auto &one : owners)
            if (one->session() == session) return one.get();
        return nullptr;
    }

    // The session that was refused last; each counts once, until it is received.
    struct Refusal {
        int32_t session = 0;
        Address source;
        std::string why;
    };
    const Refusal &refusal() const { return refusal_; }
    uint64_t refusals() const { return refusals_; }

    std::vector<std::unique_ptr<ImageOwner>> owners;
    bool handing_over = false; // the next owner continues the images

  private:
    Terms make(uint32_t index, const wire::SetupFrame &setup, const Address &source) {
        EndpointControl &control = file_.control();
        const uint64_t number = control.rare.last_number.relaxed() + 1;
        control.rare.last_number.relaxed(number); // first: the next owner removes a file that is not listed
        const LogGeometry g = image_geometry(setup, file_.options().slot_count);
        const OpenFile file = make_file(file_.image_file(number), log_file_size(g.slot_count, g.term_length), [&](int fd) {
            const uint8_t boot[16] = {};
            format_log(fd, g, "{}", boot, system_ns(CLOCK_REALTIME));
            format_image(Mapping(fd, size_of_file(fd), true), setup, g);
        });
        ImageEntry &entry = file_.entry(index);
        write_setup(entry, setup);
        write_source(entry, source);
        entry.status.relaxed(join_position_of(setup));
        entry.clean.relaxed(g.start_position + uint64_t{terms} * g.term_length);
        entry.high.relaxed(join_position_of(setup));
        entry.received.relaxed(0);
        entry.replied.relaxed(0);
        entry.source_verified.relaxed(0);
        entry.bytes_lost.relaxed(0);
        entry.description_length.relaxed(0);
        clear_words(entry.words);
        owners.push_back(std::make_unique<ImageOwner>(file.fd(), file_, index, number, setup));
        // SYNC 27: pairs with SessionReaders::refresh; forbids the entry being visible before its words and the image's file
        entry.number.release(number);
        list_changed(control); // published at the end of the duty cycle: ImageSet::publish
        // SYNC 31: pairs with SessionReaders::ended; forbids the count being visible before the list
        control.rare.sessions.release(control.rare.sessions.relaxed() + 1);
        return owners.back()->terms();
    }
    void refuse(const wire::SetupFrame &setup, const Address &source, const Error &error) {
        if (std::find(refused_.begin(), refused_.end(), setup.session) != refused_.end()) return;
        if (refused_.size() == images_max) refused_.erase(refused_.begin());
        refused_.push_back(setup.session);
        refusal_ = {setup.session, source, error.what()};
        ++refusals_;
    }
    void unlist(ImageOwner &image) {
        remove_file(file_.image_file(image.number()));
        if (image.listed()) image.entry().number.relaxed(0); // all subscriptions have read it
        list_changed(file_.control());
    }

    const EndpointFile &file_;
    EndpointMembers &members_;
    std::vector<int32_t> refused_;
    Refusal refusal_;
    uint64_t refusals_ = 0;
};

} // namespace penstock
