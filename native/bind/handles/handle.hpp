// Shared by publication and subscription handles: closing while other threads work, use after a fork, lent memory.
#pragma once

#include "bind/ground/bind.hpp"
#include "ends/ends.hpp"

namespace penstock::bind {

// The interpreter lock serialises everything here; work done without it pins the handle by `Busy`. A forked child has none of
// its parent's other threads, so their unfinished calls pin nothing there.
template <class Kind> class Handle {
  public:
    explicit Handle(std::shared_ptr<Kind> end) : end_(std::move(end)), generation_(ForkGuard::generation()) {}
    virtual ~Handle() { end_->leave(); } // the bridge may keep the channel mapped a little longer; the slot goes now
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;

    // Ready for a call: not closed, and attached in this process.
    Kind &ready() {
        if (closed_ || generation_ != ForkGuard::generation()) [[unlikely]]
            come_back();
        return *end_;
    }
    Kind &end() const { return *end_; }
    bool closed() const { return closed_; }
    uint32_t generation() const { return generation_; }

    class Busy { // while one of these lives, close() leaves the slot to it
      public:
        explicit Busy(Handle &handle) : handle_(handle), generation_(ForkGuard::generation()) { ++handle_.busy(); }
        ~Busy() {
            if (generation_ != ForkGuard::generation()) return; // this thread forked: the child counts again from 0
            if (--handle_.busy() == 0 && handle_.closed_) handle_.end_->leave();
        }
        Busy(const Busy &) = delete;
        Busy &operator=(const Busy &) = delete;

      private:
        Handle &handle_;
        const uint32_t generation_;
    };

    void close() {
        if (closed_) return;
        closed_ = true;
        end_->interrupt(); // threads that sleep on this handle look again; so do the channel's others, once
        if (busy() == 0) end_->leave();
    }

  protected:
    virtual void forked() {}

    std::shared_ptr<Kind> end_;

    int &busy() { // calls of this process that pin the handle
        if (busy_generation_ != ForkGuard::generation()) {
            busy_ = 0;
            busy_generation_ = ForkGuard::generation();
        }
        return busy_;
    }

  private:
    [[gnu::noinline]] void come_back() {
        if (closed_) throw Error(Code::closed, end_->where() + ": the handle is closed");
        forked();
        end_->rejoin();
        generation_ = ForkGuard::generation();
    }

    uint32_t generation_, busy_generation_ = ForkGuard::generation();
    bool closed_ = false;
    int busy_ = 0;
};

// A handle on a stream that is followed: a subscription, or a recorder's tap.
using StreamHandle = Handle<StreamEnd>;

// Memory of a channel lent to Python through the buffer protocol.
struct Lent {
    uint8_t *data = nullptr;
    size_t length = 0;
    Py_ssize_t exports = 0;
    nb::object view; // a weak reference to the value of the with block: that refers to the lender, which is to end with it

    nb::object enter(nb::handle lender) {
        nb::object entered = nb::steal(PyMemoryView_FromObject(lender.ptr()));
        if (!entered.is_valid()) throw nb::python_error();
        view = nb::steal(PyWeakref_NewRef(entered.ptr(), nullptr));
        if (!view.is_valid()) throw nb::python_error();
        return entered;
    }
    // The block is over: its view ends with it, unless something else (a NumPy array) was made from it.
    void exit() {
        if (!view.is_valid()) return;
        const nb::object entered = nb::steal(PyObject_CallNoArgs(view.ptr()));
        view.reset();
        if (!entered.is_valid()) PyErr_Clear();
        if (!entered.is_valid() || entered.is_none()) return; // the program did not keep it
        PyObject *released = PyObject_CallMethod(entered.ptr(), "release", nullptr);
        if (released == nullptr) PyErr_Clear();
        Py_XDECREF(released);
    }
};

template <class Lender, bool writable> int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    Lender *lender = nb::inst_ptr<Lender>(self);
    if (!lender->is_lending()) {
        PyErr_SetString(PyExc_BufferError, "this view has ended: use it inside its with block");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, lender->lent.data, static_cast<Py_ssize_t>(lender->lent.length), writable ? 0 : 1, flags) !=
        0)
        return -1;
    if (lender->lent.exports++ == 0) lender->exported();
    return 0;
}
template <class Lender> void release_buffer(PyObject *self, Py_buffer *) {
    Lender *lender = nb::inst_ptr<Lender>(self);
    if (--lender->lent.exports == 0) lender->returned();
}

} // namespace penstock::bind
