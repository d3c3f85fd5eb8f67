// Looks at channels' memory without a slot.
#include "bind/ends/look.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>

namespace penstock::bind {

namespace {

constexpr size_t batch_bytes = 16 << 20;

// ([batches], where it ended, the first message that is not whole, [missing spans])
nb::tuple copy(Look &look, uint64_t start, uint64_t end, uint32_t columns, const std::string &stream) {
    std::vector<BatchBuilder> batches;
    without_interpreter([&] {
        look.begin(std::max(start, look.start_position()), end);
        for (bool more = true; more;) {
            BatchBuilder batch(columns | column_payload, stream);
            more = look.fill(batch, batch_bytes);
            if (batch.rows() != 0) batches.push_back(std::move(batch));
        }
    });
    nb::list made, spans;
    for (BatchBuilder &batch : batches) made.append(arrow_capsules(std::move(batch)));
    for (const MissingSpan &span : look.missing()) spans.append(nb::make_tuple(span.start, span.end));
    return nb::make_tuple(made, look.position(), look.resume(), spans);
}

// ([(position, time)], where it ended)
nb::tuple times(Look &look, uint64_t start, uint64_t end) {
    nb::list found;
    look.begin(std::max(start, look.start_position()), end);
    for (bool more = true; more;) {
        BatchBuilder batch(column_position | column_time_ns | column_payload);
        without_interpreter([&] { more = look.fill(batch, batch_bytes); });
        for (size_t i = 0; i < batch.rows(); ++i) found.append(nb::make_tuple(batch.positions()[i], batch.times()[i]));
    }
    return nb::make_tuple(found, look.position());
}

} // namespace

void bind_look(nb::module_ &m) {
    nb::class_<Look>(
        m, "Look",
        "A look at a channel's memory without a slot: it changes nothing, and nobody waits for it. One thread at a time.")
        .def_prop_ro("epoch", &Look::epoch)
        .def_prop_ro("start_position", &Look::start_position)
        .def_prop_ro("torn", &Look::torn, "Whether the last copy met fragments of a message that begins before it.")
        .def("end", &Look::end, "The position behind the newest message.")
        .def(
            "oldest",
            [](Look &look) {
                look.begin(look.start_position(), look.end());
                return look.position();
            },
            "Where the oldest message that is kept begins; the end if there is none.")
        .def("copy", &copy, nb::arg("start"), nb::arg("end"), nb::arg("columns"), nb::arg("stream"),
             nb::sig("def copy(self, start: int, end: int, columns: int, stream: str) -> "
                     "tuple[list[tuple[Any, Any]], int, int, list[tuple[int, int]]]"),
             "Whole messages of [start, end) as Arrow batches; where it ended; where the first message begins that is not whole; "
             "and "
             "the spans that memory has no more. start: where a message begins.")
        .def("times", &times, nb::arg("start"), nb::arg("end"),
             nb::sig("def times(self, start: int, end: int) -> tuple[list[tuple[int, int]], int]"),
             "The position and the send time, in ns, of each whole message of [start, end); and where it ended.");
}

} // namespace penstock::bind
