// What publication and subscription handles share: closing while others work, coming back after a fork, lent memory.
#pragma once

#include "bind.hpp"
#include "ends.hpp"

namespace penstock::bind {

// The interpreter lock serialises everything here; work done without it pins the handle by `Busy`.
template <class Kind> class Handle {
  public:
    explicit Handle(std::shared_ptr<Kind> end) : end_(std::move(end)), generation_(ForkGuard::generation()) {}
    virtual ~Handle() { end_->leave(); } // the bridge may keep the channel mapped a little longer; the slot goes now
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;

    // Ready for a call: not closed, and seated in this process.
    Kind &ready() {
        if (closed_) throw Error(Code::closed, end_->path() + ": the handle is closed");
        if (generation_ != ForkGuard::generation()) {
            forked();
            end_->rejoin();
            generation_ = ForkGuard::generation();
        }
        return *end_;
    }
    Kind &end() { return *end_; }
    bool closed() const { return closed_; }
    uint32_t generation() const { return generation_; }

    class Busy { // while one of these lives, close() leaves the slot to it
      public:
        explicit Busy(Handle &handle) : handle_(handle) { ++handle_.busy_; }
        ~Busy() {
            if (--handle_.busy_ == 0 && handle_.closed_) handle_.end_->leave();
        }
        Busy(const Busy &) = delete;
        Busy &operator=(const Busy &) = delete;

      private:
        Handle &handle_;
    };

    void close() {
        if (closed_) return;
        closed_ = true;
        end_->disturb(); // threads that sleep on this handle look again; so do the channel's others, once
        if (busy_ == 0) end_->leave();
    }

  protected:
    virtual void forked() {}

    std::shared_ptr<Kind> end_;

  private:
    uint32_t generation_;
    bool closed_ = false;
    int busy_ = 0;
};

// Memory of a channel lent to Python through the buffer protocol.
struct Lent {
    uint8_t *data = nullptr;
    size_t length = 0;
    Py_ssize_t exports = 0;
    nb::object view; // what the with block got

    nb::object enter(nb::handle lender) {
        view = nb::steal(PyMemoryView_FromObject(lender.ptr()));
        if (!view.is_valid()) throw nb::python_error();
        return view;
    }
    // The block is over: its view ends with it, unless something else (a NumPy array) was made from it.
    void exit() {
        if (!view.is_valid()) return;
        PyObject *released = PyObject_CallMethod(view.ptr(), "release", nullptr);
        if (released == nullptr) PyErr_Clear();
        Py_XDECREF(released);
        view.reset();
    }
};

template <class Lender, bool writable> int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    Lender *lender = nb::inst_ptr<Lender>(self);
    if (!lender->lent_now()) {
        PyErr_SetString(PyExc_BufferError, "this view has ended: use it inside its with block");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, lender->lent.data, static_cast<Py_ssize_t>(lender->lent.length), writable ? 0 : 1, flags) !=
        0)
        return -1;
    ++lender->lent.exports;
    return 0;
}
template <class Lender> void release_buffer(PyObject *self, Py_buffer *) {
    Lender *lender = nb::inst_ptr<Lender>(self);
    if (--lender->lent.exports == 0) lender->returned();
}

} // namespace penstock::bind
