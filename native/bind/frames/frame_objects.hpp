// The two objects that a program has of a frame: one that was received, and one that is being filled. Each has the buffer's owner
// beside the array over it. Python's classes derive from these and add what is not on the way of every frame.
#pragma once

#include "bind/handles/claim_view.hpp"
#include "ends/frame_ends.hpp"

#include <optional>
#include <utility>
#include <vector>

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

// What the frames of a channel are in Python: their description, their classes, their shape and their dtypes.
struct FrameFactory {
    nb::object kind, received, open; // the description; the classes
    nb::object ndarray, shape, dtypes;
    std::vector<uint64_t> largest, item_bytes; // of each dimension; of each dtype
    uint64_t bytes;                            // of the largest frame
    bool varies, fixed, has_header;            // fixed: every frame has this shape and dtype, and no header

    // The array over a buffer: as writable as that is. It refers to the buffer's owner.
    nb::object array(nb::handle sizes, size_t number, nb::handle owner) const {
        const PythonCall call;
        const nb::object dtype = dtypes[number];
        PyObject *arguments[] = {nullptr, sizes.ptr(), dtype.ptr(), owner.ptr()};
        PyObject *made = PyObject_Vectorcall(ndarray.ptr(), arguments + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        if (made == nullptr) throw nb::python_error();
        return nb::steal(made);
    }
    // Bytes of a frame of these sizes; nothing if the channel has none such. `size`: gives one by its number.
    template <class Size> std::optional<uint64_t> frame_bytes(size_t dimensions, size_t number, Size &&size) const {
        if (dimensions != largest.size() || number >= item_bytes.size()) return {};
        uint64_t bytes_of = item_bytes[number]; // no overflow: no size is above that of the largest frame
        for (size_t i = 0; i < dimensions; ++i) {
            const uint64_t one = size(i);
            if (one > largest[i] || (!varies && one != largest[i])) return {};
            bytes_of *= one;
        }
        return bytes_of;
    }
    // The sizes of a tuple of plain numbers that a frame here may have; nothing for any other value, which may be right too.
    std::optional<std::vector<uint64_t>> sizes_of(nb::handle given) const {
        if (!PyTuple_CheckExact(given.ptr())) return {};
        const auto count = static_cast<size_t>(PyTuple_GET_SIZE(given.ptr()));
        std::vector<uint64_t> sizes;
        for (size_t i = 0; i < count; ++i) {
            PyObject *item = PyTuple_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
            const int64_t size = PyLong_CheckExact(item) ? PyLong_AsLongLong(item) : -1;
            if (size < 0) { // or an error: it is larger than any frame
                PyErr_Clear();
                return {};
            }
            sizes.push_back(static_cast<uint64_t>(size));
        }
        if (!frame_bytes(count, 0, [&](size_t i) { return sizes[i]; })) return {};
        return sizes;
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
    nb::object array, meta; // once they were asked for

    const Frame &frame() const { return nb::inst_ptr<Lease>(lease)->frame(); }
    const FrameFactory &made_by() const { return *nb::inst_ptr<FrameFactory>(factory); }
    // Whether its note says a shape and a dtype of the channel, and as many bytes as it has.
    bool is_sound() const {
        const Frame &one = frame();
        const auto size = [&](size_t i) { return one.note.dimensions == 0 ? made_by().largest[i] : one.size(i); };
        const size_t dimensions = one.note.dimensions == 0 ? made_by().largest.size() : one.note.dimensions;
        return made_by().frame_bytes(dimensions, one.note.dtype, size) == one.bytes();
    }
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
        return made_by().has_header || id.is_valid() || start_ns.is_valid() || end_ns.is_valid() || meta.is_valid();
    }
    // Its form, as a program gives it. Throws what the channel does not have.
    void take_form(nb::object given, nb::handle dtype) {
        const FrameFactory &by = made_by();
        if (PyLong_CheckExact(given.ptr())) given = nb::make_tuple(given);
        if (dtype.is_none() && by.sizes_of(given)) {
            shape = std::move(given);
            return;
        }
        const PythonCall call;
        const nb::object checked = by.kind.attr("checked")(given, dtype);
        shape = checked[0];
        number = nb::cast<uint32_t>(checked[1]);
    }
    // Its shape and its dtype, where it has no other description.
    void describe_shape() {
        const FrameFactory &by = made_by();
        std::vector<uint64_t> sizes = shape.is_valid() ? by.sizes_of(shape).value() : by.largest;
        const uint64_t length = by.frame_bytes(sizes.size(), number, [&](size_t i) { return sizes[i]; }).value();
        if (length == by.bytes && sizes == by.largest) sizes.clear();
        place().describe({{}, 0, 0, {}, std::move(sizes), static_cast<uint8_t>(number), length});
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
        } else if (!made_by().fixed) {
            describe_shape();
        }
        protect();
        return place().commit();
    }
};

void bind_frame_objects(nb::module_ &m);

} // namespace penstock::bind
