// The two objects that a program has of a frame: one that was received, and one that is being filled. Each has the buffer's owner
// beside the array over it. Python's classes derive from these and add what is not on the way of every frame.
#pragma once

#include "bind/handles/claim_view.hpp"
#include "ends/frame_ends.hpp"

#include <utility>

namespace penstock::bind {

// A frame whose buffer is not reused while this, or anything made from it, lives. Thread-safe under the GIL.
class Lease {
  public:
    Lease(std::shared_ptr<FrameReaderEnd> end, Frame frame)
        : end_(std::move(end)), frame_(std::move(frame)), generation_(ForkGuard::generation()) {
        lent.data = const_cast<uint8_t *>(frame_.data);
        lent.length = frame_.bytes();
    }
    ~Lease() { give_back(); }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    bool is_lending() const { return held_; }
    void exported() {}
    void returned() {}
    void give_back() {
        if (!held_) return;
        held_ = false;
        if (generation_ == ForkGuard::generation()) end_->give_back(frame_.note.buffer); // a forked child's is its parent's
    }
    const Frame &frame() const { return frame_; }
    Lent lent;

  private:
    std::shared_ptr<FrameReaderEnd> end_;
    Frame frame_;
    const uint32_t generation_;
    bool held_ = true;
};

// What the frames of a channel are in Python: their description, their classes, and their array where all are alike.
struct FrameFactory {
    nb::object kind, received, open; // the description; the classes
    nb::object ndarray, shape, dtype;
    bool fixed; // every frame has this shape and dtype

    // The array over a buffer: as writable as that is. It refers to the buffer's owner.
    nb::object whole(nb::handle owner) const {
        const PythonCall call;
        PyObject *arguments[] = {nullptr, shape.ptr(), dtype.ptr(), owner.ptr()};
        PyObject *made = PyObject_Vectorcall(ndarray.ptr(), arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        if (made == nullptr) throw nb::python_error();
        return nb::steal(made);
    }
    // A new object of a class that Python derived from Object.
    template <class Object> static nb::object made(nb::handle type, Object &&object) {
        nb::object instance = nb::inst_alloc(type);
        new (nb::inst_ptr<Object>(instance)) Object(std::forward<Object>(object));
        nb::inst_mark_ready(instance);
        return instance;
    }
};

struct ReceivedFrame {
    nb::object factory, lease;
    nb::object array, meta, form; // once they were asked for

    const Frame &frame() const { return nb::inst_ptr<Lease>(lease)->frame(); }
    const FrameFactory &made_by() const { return *nb::inst_ptr<FrameFactory>(factory); }
    // Ends the lease, unless an array made from this frame, or a view of its bytes, is in use: that refers to it. False then.
    bool leave() {
        array.reset();
        Lease &held = *nb::inst_ptr<Lease>(lease);
        if (held.lent.exports != 0 || Py_REFCNT(lease.ptr()) > 1) return false;
        held.give_back();
        return true;
    }
    void release() {
        if (leave()) return;
        PyErr_SetString(PyExc_BufferError, "an array of this frame is still in use; the lease ends when it is gone");
        throw nb::python_error();
    }
};

struct OpenedFrame {
    nb::object factory, claim;
    nb::object array;                              // once it was asked for
    nb::object id, start_ns, end_ns, meta, header; // once they were set
    nb::object shape;
    uint32_t number = 0; // of the channel's dtypes

    ClaimView &place() const { return *nb::inst_ptr<ClaimView>(claim); }
    const FrameFactory &made_by() const { return *nb::inst_ptr<FrameFactory>(factory); }
    bool described() const {
        return !made_by().fixed || id.is_valid() || start_ns.is_valid() || end_ns.is_valid() || meta.is_valid();
    }
    // The array that was handed out for writing becomes read-only.
    void protect() {
        if (!array.is_valid()) return;
        static PyObject *const name = PyUnicode_InternFromString("setflags");
        const PythonCall call;
        PyObject *arguments[] = {array.ptr(), Py_False};
        PyObject *done = PyObject_VectorcallMethod(name, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        if (done == nullptr) throw nb::python_error();
        Py_DECREF(done);
        array.reset();
    }
    void abort() {
        protect();
        place().abort();
    }
    int64_t commit(nb::handle self) {
        if (described()) {
            const PythonCall call;
            self.attr("_describe")();
        }
        protect();
        return place().commit();
    }
};

void bind_frame_objects(nb::module_ &m);

} // namespace penstock::bind
