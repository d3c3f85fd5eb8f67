// A message being written in place, as Python sees it; and many messages given at once.
#pragma once

#include "bind/handles/publication.hpp"

#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace penstock::bind {

// A frame being written in place.
class ClaimView {
  public:
    // `place`: the room that was reserved, of `length` bytes for the caller. `guarded`: the owner makes every array of the claim
    // read-only before the commit.
    ClaimView(nb::object owner, Publication &publication, size_t length, const ClaimedRange &range, bool guarded = false)
        : owner_(std::move(owner)), publication_(publication), map_(publication.end().mapping()), place_(range),
          generation_(ForkGuard::generation()), guarded_(guarded), open_(true) {
        lent = {place_.payload, length, 0, {}};
    }
    ~ClaimView() {
        if (usable()) publication_.ready().abort(place_);
    }

    int64_t commit() {
        if (!usable()) throw Error(Code::closed, publication_.end().where() + ": the claim has ended already");
        lent.exit();
        if (shared()) {
            PyErr_Format(PyExc_BufferError,
                         "%s: an array or a view of the claim is still in use, so that the message could change after it is "
                         "sent: let go of it (del) before the commit, or fill the view itself",
                         publication_.end().where().c_str());
            throw nb::python_error();
        }
        open_ = false;
        return publication_.ready().commit(place_);
    }
    void describe(FrameFields given) {
        if (!usable()) throw Error(Code::closed, publication_.end().where() + ": the claim has ended already");
        publication_.ready().describe(place_, std::move(given));
    }
    // While an array of the claim is in use its range stays claimed, so a late write overwrites nothing.
    void abort() {
        if (!usable()) return;
        lent.exit();
        open_ = false;
        if (shared()) aborting_ = true;
        else publication_.ready().abort(place_);
    }
    bool is_lending() const { return open_; }
    // Closing the publication, or a fork, ended the claim elsewhere.
    bool usable() const { return open_ && !publication_.closed() && generation_ == ForkGuard::generation(); }
    void exported() { // a publication that closes now keeps its slot until the last array is gone
        if (!guarded_) busy_.emplace(publication_);
    }
    void returned() {
        try {
            if (std::exchange(aborting_, false) && generation_ == ForkGuard::generation()) publication_.end().abort(place_);
            busy_.reset();
        } catch (const std::exception &) { // nobody can catch it here: the living repair the claim
        }
    }
    uint64_t position() const { return place_.position; }

    Lent lent;

  private:
    bool shared() const { return lent.exports != 0 && !guarded_; }

    nb::object owner_;
    Publication &publication_;
    std::shared_ptr<Mapping> map_;
    ClaimedRange place_;
    std::optional<Publication::Busy> busy_;
    const uint32_t generation_;
    const bool guarded_;
    bool open_, aborting_ = false;
};

// Reserves room for a claim of `length` bytes, or sets the error.
inline void claim_room(Publication &publication, size_t length, int64_t timeout, ClaimedRange &range) {
    auto attempt = [&] {
        WriterEnd &writer = publication.ready();
        if (length > writer.payload_max())
            throw Error(Code::too_large, publication.end().where() + ": claim takes up to " +
                                             std::to_string(writer.payload_max()) + " bytes here (max_payload), not " +
                                             std::to_string(length));
        return writer.claim(length, range);
    };
    if (attempt() || publication.wait_for_room(timeout, attempt)) return;
    raise_no_room(publication, "no room for the claim");
    throw nb::python_error();
}

// A list or tuple of messages, each bytes or a buffer; or one array whose rows are messages.
class MessagesArgument {
  public:
    MessagesArgument(const End &end, const char *method, PyObject *given) : end_(end) {
        if (PyObject_CheckBuffer(given) != 0 && !PyBytes_Check(given)) add_rows(method, given);
        else add_all(method, given);
    }
    MessagesArgument(const MessagesArgument &) = delete;
    MessagesArgument &operator=(const MessagesArgument &) = delete;
    const IoVec *data() const { return pieces_.data(); }
    size_t size() const { return pieces_.size(); }

  private:
    void add_rows(const char *method, PyObject *given) {
        const BufferArgument &array = buffers_.emplace_back(given, &end_);
        if (array.rows() < 0)
            throw Error(Code::invalid,
                        place_of(&end_) + method + " takes a list of messages or an array whose rows are messages");
        const auto rows = static_cast<size_t>(array.rows());
        const size_t row = rows == 0 ? 0 : array.size() / rows;
        for (size_t i = 0; i < rows; ++i) pieces_.push_back({array.data() + i * row, row});
    }
    void add_all(const char *method, PyObject *given) {
        if (PyBytes_Check(given) || PyUnicode_Check(given))
            throw Error(Code::invalid, place_of(&end_) + method + " takes a list of messages, not one message: use offer");
        if (PyList_Check(given) != 0 || PyTuple_Check(given) != 0) sequence_ = nb::borrow(given);
        else
            sequence_ = nb::module_::import_("penstock.codecs.buffers")
                            .attr("copied")(nb::steal(text_of(end_.where())), nb::handle(given));
        add_list();
    }
    void add_list() {
        const nb::object fast = nb::steal(PySequence_Fast(sequence_.ptr(), ""));
        if (!fast.is_valid()) throw nb::python_error();
        sequence_ = fast;
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence_.ptr());
        pieces_.reserve(static_cast<size_t>(count));
        for (Py_ssize_t i = 0; i < count; ++i) {
            PyObject *item = PySequence_Fast_GET_ITEM(sequence_.ptr(), i);
            if (PyBytes_CheckExact(item)) {
                pieces_.push_back({PyBytes_AS_STRING(item), static_cast<size_t>(PyBytes_GET_SIZE(item))});
                continue;
            }
            const BufferArgument &buffer = buffers_.emplace_back(item, &end_);
            pieces_.push_back({buffer.data(), buffer.size()});
        }
    }

    const End &end_; // for errors
    std::vector<IoVec> pieces_;
    std::deque<BufferArgument> buffers_; // they stay where they are
    nb::object sequence_;
};

} // namespace penstock::bind
