// What publication and subscription handles share: opening, closing while others work, coming back after a fork.
#pragma once

#include "bind.hpp"

#include "../core/term_log.hpp"

namespace penstock::bind {

// The interpreter lock serialises everything here; work done without it pins the handle by `Busy`.
template <class End> class Handle {
  public:
    // Ready for a call: not closed, and seated in this process.
    End &ready() {
        if (closed_) throw Error(Code::closed, (log_ ? log_->path() : std::string("the channel")) + ": the handle is closed");
        if (log_->forked()) static_cast<typename End::Owner *>(this)->rejoin();
        return *end_;
    }
    TermLog &log() { return *log_; }
    bool closed() const { return closed_; }

    class Busy { // while one of these lives, close() leaves the slot to it
      public:
        explicit Busy(Handle &handle) : handle_(handle) { ++handle_.busy_; }
        ~Busy() {
            if (--handle_.busy_ == 0 && handle_.closed_) handle_.log_->detach();
        }
        Busy(const Busy &) = delete;
        Busy &operator=(const Busy &) = delete;

      private:
        Handle &handle_;
    };

    void close() {
        if (closed_) return;
        closed_ = true;
        // Threads that sleep on this handle look again; so do the channel's others, once.
        for (Atomic<uint32_t> *event : {&log_->control().data.value, &log_->control().space.value}) {
            event->add(2);
            event_wake(*event);
        }
        if (busy_ == 0) log_->detach();
    }

    // The bridge may keep the log mapped a little longer; the slot goes now.
    ~Handle() {
        if (log_) log_->detach();
    }

  protected:
    std::shared_ptr<TermLog> log_;
    std::unique_ptr<End> end_;
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
