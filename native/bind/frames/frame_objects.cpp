// The classes of a frame that was received and of one that is being filled.
#include "bind/frames/frame_objects.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

namespace penstock::bind {

namespace {

nb::object or_none(const nb::object &value) { return value.is_valid() ? value : nb::none(); }
void set_unless_none(nb::object &at, nb::handle value) {
    if (value.is_none()) at.reset();
    else at = nb::borrow(value);
}

nb::object sizes_of(const Frame &frame) {
    nb::list sizes;
    for (uint32_t dimension = 0; dimension < frame.note.dimensions; ++dimension) sizes.append(frame.size(dimension));
    return nb::tuple(sizes);
}
// Raises what is wrong with a frame's note.
void check_note(nb::handle self) {
    auto *frame = nb::inst_ptr<ReceivedFrame>(self);
    if (frame->made_by().fixed || frame->is_sound()) return;
    const PythonCall call;
    self.attr("_refuse_note")();
}
nb::object shape_of(nb::handle self) {
    check_note(self);
    auto *frame = nb::inst_ptr<ReceivedFrame>(self);
    const bool own = !frame->made_by().fixed && frame->frame().note.dimensions != 0;
    return own ? sizes_of(frame->frame()) : frame->made_by().shape;
}
size_t number_of(const ReceivedFrame &frame) { return frame.made_by().fixed ? 0 : frame.frame().note.dtype; }
nb::object dtype_of(nb::handle self) {
    check_note(self);
    auto *frame = nb::inst_ptr<ReceivedFrame>(self);
    return frame->made_by().dtypes[number_of(*frame)];
}

nb::object array_of(nb::handle self) {
    auto *frame = nb::inst_ptr<ReceivedFrame>(self);
    if (!frame->array.is_valid()) {
        if (!nb::inst_ptr<Lease>(frame->lease)->is_lending())
            throw Error(Code::closed, nb::cast<std::string>(frame->made_by().kind.attr("channel")) +
                                          ": this frame was released; copy one that is to be used longer");
        nb::object array = frame->made_by().array(shape_of(self), number_of(*frame), frame->lease);
        frame->array = std::move(array); // at last: it is Python's code that ran
    }
    return frame->array;
}

nb::object open_array_of(OpenedFrame &frame) {
    if (!frame.array.is_valid()) {
        const FrameFactory &factory = frame.made_by();
        if (!frame.place().usable())
            throw Error(Code::closed, nb::cast<std::string>(factory.kind.attr("channel")) +
                                          ": this frame was published or released; acquire another one");
        nb::object array = factory.array(frame.shape.is_valid() ? frame.shape : factory.shape, frame.number, frame.claim);
        frame.array = std::move(array);
    }
    return frame.array;
}

// A member of an open frame that a program sets; `other` until then.
template <nb::object OpenedFrame::*member> auto setter() {
    return [](OpenedFrame &self, nb::object value) { set_unless_none(self.*member, value); };
}

} // namespace

void bind_frame_objects(nb::module_ &m) {
    PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer<Lease, false>)},
                           {Py_bf_releasebuffer, reinterpret_cast<void *>(release_buffer<Lease>)},
                           {0, nullptr}};
    nb::class_<Lease>(m, "Lease", nb::type_slots(slots),
                      "A lease of a frame's buffer, which does not change while this exists. Read-only.");
    nb::class_<FrameFactory>(m, "FrameFactory", "What the frames of a channel are in Python.")
        .def(
            "__init__",
            [](FrameFactory *self, nb::object kind, nb::object received, nb::object open, nb::object ndarray) {
                std::vector<uint64_t> item_bytes;
                for (nb::handle dtype : kind.attr("dtypes")) item_bytes.push_back(nb::cast<uint64_t>(dtype.attr("itemsize")));
                new (self) FrameFactory{kind,
                                        std::move(received),
                                        std::move(open),
                                        std::move(ndarray),
                                        kind.attr("shape"),
                                        kind.attr("dtypes"),
                                        nb::cast<std::vector<uint64_t>>(kind.attr("shape")),
                                        std::move(item_bytes),
                                        nb::cast<uint64_t>(kind.attr("bytes")),
                                        nb::cast<bool>(kind.attr("varies")),
                                        nb::cast<bool>(kind.attr("fixed")),
                                        !kind.attr("header").is_none()};
            },
            nb::arg("kind"), nb::arg("received"), nb::arg("open"), nb::arg("ndarray"));

    nb::class_<ReceivedFrame>(m, "ReceivedFrame", "A frame's lease, its note and its array.")
        .def_prop_ro("array", &array_of, nb::for_getter(nb::sig("def array(self) -> numpy.typing.NDArray[typing.Any]")),
                     "The pixels: a read-only NumPy array of this frame's shape and dtype, without a copy. `Corrupt` for a "
                     "damaged note.")
        .def_prop_ro("shape", &shape_of, nb::for_getter(nb::sig("def shape(self) -> tuple[int, ...]")),
                     "The array's shape: the channel's, or a smaller one where the channel was made with `varies=True`.")
        .def_prop_ro("dtype", &dtype_of, nb::for_getter(nb::sig("def dtype(self) -> numpy.dtype[typing.Any]")),
                     "The array's dtype: one of the channel's.")
        .def_prop_ro(
            "id", [](const ReceivedFrame &self) { return self.frame().note.id; },
            "The publisher's number for this frame; by default its sequence.")
        .def_prop_ro(
            "sequence", [](const ReceivedFrame &self) { return self.frame().sequence; },
            "The number of frames published on this channel before this one.")
        .def_prop_ro(
            "position", [](const ReceivedFrame &self) { return self.frame().message.position; },
            "Position of the frame's note in the channel's stream, in bytes.")
        .def_prop_ro(
            "time_ns", [](const ReceivedFrame &self) { return self.frame().message.time_ns; },
            "When it was published, nanoseconds since the epoch.")
        .def_prop_ro(
            "start_ns", [](const ReceivedFrame &self) { return self.frame().note.start_ns; },
            "When the exposure began, nanoseconds in the publisher's clock; 0 if it was not given.")
        .def_prop_ro(
            "end_ns", [](const ReceivedFrame &self) { return self.frame().note.end_ns; },
            "When the exposure ended, as `start_ns`.")
        .def("release", &ReceivedFrame::release,
             "Gives the lease back now. BufferError while an array made from this frame is still in use.")
        .def(
            "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> typing.Self"))
        .def(
            "__exit__", [](ReceivedFrame &self, nb::handle, nb::handle, nb::handle) { self.leave(); }, nb::arg("type").none(),
            nb::arg("value").none(), nb::arg("traceback").none())
        .def_prop_ro(
            "_kind", [](const ReceivedFrame &self) { return self.made_by().kind; },
            nb::for_getter(nb::sig("def _kind(self) -> typing.Any")))
        .def_prop_ro(
            "_lease", [](const ReceivedFrame &self) { return self.lease; },
            nb::for_getter(nb::sig("def _lease(self) -> typing.Any")))
        .def_prop_ro("_session", [](const ReceivedFrame &self) { return self.frame().message.session; })
        .def_prop_ro("_length", [](const ReceivedFrame &self) { return self.frame().bytes(); })
        .def_prop_ro(
            "_sizes",
            [](const ReceivedFrame &self) { return self.frame().note.dimensions == 0 ? nb::none() : sizes_of(self.frame()); },
            nb::for_getter(nb::sig("def _sizes(self) -> tuple[int, ...] | None")), "None: the channel's.")
        .def_prop_ro(
            "_number", [](const ReceivedFrame &self) { return self.frame().note.dtype; }, "Which of the dtypes.")
        .def_prop_ro("_fields",
                     [](const ReceivedFrame &self) {
                         const std::string_view fields = self.frame().fields();
                         return nb::bytes(fields.data(), fields.size());
                     })
        .def_prop_rw(
            "_meta", [](const ReceivedFrame &self) { return or_none(self.meta); },
            [](ReceivedFrame &self, nb::object value) { set_unless_none(self.meta, value); }, nb::for_setter(nb::arg().none()),
            nb::for_getter(nb::sig("def _meta(self) -> typing.Any")));

    nb::class_<OpenedFrame>(m, "OpenedFrame", "A claimed buffer, what is said of it, and its array.")
        .def_prop_ro("array", &open_array_of, nb::for_getter(nb::sig("def array(self) -> numpy.typing.NDArray[typing.Any]")),
                     "The buffer, writable until the frame is published.")
        .def_prop_ro(
            "shape", [](const OpenedFrame &self) { return self.shape.is_valid() ? self.shape : self.made_by().shape; },
            nb::for_getter(nb::sig("def shape(self) -> tuple[int, ...]")), "The array's shape.")
        .def_prop_rw(
            "id", [](const OpenedFrame &self) { return or_none(self.id); }, setter<&OpenedFrame::id>(),
            nb::for_setter(nb::arg("id").none()), nb::for_getter(nb::sig("def id(self) -> typing.Any")),
            "A number of the publisher's; None: the frame's sequence.")
        .def_prop_rw(
            "start_ns",
            [](const OpenedFrame &self) { return self.start_ns.is_valid() ? self.start_ns : nb::object(nb::int_(0)); },
            setter<&OpenedFrame::start_ns>(), nb::for_setter(nb::arg("start_ns").none()),
            nb::for_getter(nb::sig("def start_ns(self) -> typing.Any")), "When the exposure began, nanoseconds; 0: not given.")
        .def_prop_rw(
            "end_ns", [](const OpenedFrame &self) { return self.end_ns.is_valid() ? self.end_ns : nb::object(nb::int_(0)); },
            setter<&OpenedFrame::end_ns>(), nb::for_setter(nb::arg("end_ns").none()),
            nb::for_getter(nb::sig("def end_ns(self) -> typing.Any")), "When the exposure ended, nanoseconds; 0: not given.")
        .def_prop_rw(
            "meta",
            [](OpenedFrame &self) {
                if (!self.meta.is_valid()) self.meta = nb::dict();
                return self.meta;
            },
            setter<&OpenedFrame::meta>(), nb::for_setter(nb::arg("meta").none()),
            nb::for_getter(nb::sig("def meta(self) -> typing.Any")), "The publisher's own fields: plain JSON values.")
        .def_prop_rw(
            "header",
            [](nb::handle given) {
                auto *self = nb::inst_ptr<OpenedFrame>(given);
                if (!self->header.is_valid()) {
                    const PythonCall call;
                    nb::object made = given.attr("_zero_header")();
                    set_unless_none(self->header, made);
                }
                return or_none(self->header);
            },
            setter<&OpenedFrame::header>(), nb::for_setter(nb::arg("header").none()),
            nb::for_getter(nb::sig("def header(self) -> typing.Any")), "The record that goes with it, where the channel has one.")
        .def(
            "commit", [](nb::handle self) { return nb::inst_ptr<OpenedFrame>(self)->commit(self); },
            nb::sig("def commit(self) -> int"),
            "Publishes the frame. Returns the stream position after its note. `Invalid` if `meta` is not plain JSON, or if "
            "`header` does not fit: then the frame is released.")
        .def("abort", &OpenedFrame::abort, "Gives the buffer back unpublished.")
        .def(
            "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> typing.Self"))
        .def(
            "__exit__",
            [](nb::handle given, nb::handle type, nb::handle, nb::handle) {
                auto *self = nb::inst_ptr<OpenedFrame>(given);
                if (!type.is_none()) self->abort();
                else if (self->place().is_lending()) self->commit(given); // unless the block itself has ended it
            },
            nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
        .def_prop_ro(
            "_kind", [](const OpenedFrame &self) { return self.made_by().kind; },
            nb::for_getter(nb::sig("def _kind(self) -> typing.Any")))
        .def_prop_ro(
            "_claim", [](const OpenedFrame &self) { return self.claim; },
            nb::for_getter(nb::sig("def _claim(self) -> typing.Any")))
        .def_prop_ro("_number", [](const OpenedFrame &self) { return self.number; }, "Which of the dtypes.");

    m.def(
        "open_frame",
        [](nb::handle_t<Publication> owner, nb::handle_t<FrameFactory> factory, nb::object timeout, nb::object shape,
           nb::object dtype) {
            auto &publication = *nb::inst_ptr<Publication>(owner);
            OpenedFrame opened;
            opened.factory = nb::borrow(factory);
            if (!shape.is_none() || !dtype.is_none()) opened.take_form(std::move(shape), dtype);
            const size_t length = publication.ready().payload_max();
            ClaimedRange range;
            claim_room(publication, length, timeout_ns(timeout.ptr(), &publication.end()), range);
            opened.claim =
                nb::cast(new ClaimView(nb::borrow(owner), publication, length, range, true), nb::rv_policy::take_ownership);
            return FrameFactory::made(opened.made_by().open, std::move(opened));
        },
        nb::arg("publication"), nb::arg("factory"), nb::arg("timeout").none(), nb::arg("shape") = nb::none(),
        nb::arg("dtype") = nb::none(),
        nb::sig("def open_frame(publication: Publication, factory: FrameFactory, timeout: float | None, shape: typing.Any = "
                "None, dtype: typing.Any = None) -> typing.Any"),
        "A free buffer of a frames channel, to be filled. shape, dtype: of this frame; None: the channel's.");
    m.def(
        "describe_frame",
        [](OpenedFrame &frame, std::optional<uint64_t> id, int64_t start_ns, int64_t end_ns, nb::bytes fields,
           std::vector<uint64_t> shape, uint64_t length) {
            frame.place().describe({id,
                                    start_ns,
                                    end_ns,
                                    {fields.c_str(), fields.size()},
                                    std::move(shape),
                                    static_cast<uint8_t>(frame.number),
                                    length});
        },
        nb::arg("frame"), nb::arg("id").none(), nb::arg("start_ns"), nb::arg("end_ns"), nb::arg("fields"),
        nb::arg("shape") = std::vector<uint64_t>(), nb::arg("length") = 0,
        "Says what an open frame is, beside its bytes; before commit. shape, length: where they are not the channel's.");
}

} // namespace penstock::bind
