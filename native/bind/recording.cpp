// Python's handles on recordings: appending from a subscription, reading the index, scanning, verifying.
#include "subscription.hpp"

#include "../core/recording_scan.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace penstock::bind {

namespace {

class RecordingSegment {
  public:
    RecordingSegment(int data_fd, std::string data_path, int index_fd, std::string index_path, uint64_t base,
                     uint32_t term_length, int32_t initial_term_id, int32_t stream, uint64_t recording, uint64_t messages_before,
                     uint64_t entries, uint64_t data_length) {
        IndexHeader header;
        header.base = static_cast<int64_t>(base);
        header.term_length = term_length;
        header.initial_term_id = initial_term_id;
        header.stream = stream;
        header.recording = recording;
        header.messages_before = messages_before;
        writer_ = std::make_unique<SegmentWriter>(std::make_unique<FileSink>(data_fd, std::move(data_path)),
                                                  std::make_unique<FileSink>(index_fd, std::move(index_path)), header, entries,
                                                  data_length, messages_before);
    }

    // Moves what the subscription has, up to `max_bytes`, into the segment; how many bytes. Runs without the interpreter.
    uint64_t record(Subscription &subscription, uint64_t max_bytes) {
        const Subscription::Busy busy(subscription);
        Receiver &reader = subscription.ready();
        uint64_t moved = 0;
        without_interpreter([&] {
            while (moved < max_bytes) {
                if (reader.position() != writer_->position())
                    throw Error(reader.keeps_lent() ? Code::invalid : Code::dropped,
                                reader.path() + ": the subscription stands at " + std::to_string(reader.position()) +
                                    ", the segment at " + std::to_string(writer_->position()));
                const Run run = reader.run(block_max);
                if (run.length == 0) {
                    if (reader.position() != writer_->position()) continue;
                    reader.repair();
                    break;
                }
                writer_->append(run, system_ns(CLOCK_REALTIME), [&] { reader.check_run(); });
                reader.take_run(run);
                moved += run.length;
            }
            reader.show_position();
        });
        return moved;
    }
    void sync() {
        without_interpreter([&] { writer_->sync(); });
    }
    void seal() { writer_->seal(system_ns(CLOCK_REALTIME)); }
    void gap(uint64_t bytes) { writer_->append_gap(bytes, system_ns(CLOCK_REALTIME)); }
    SegmentWriter &writer() { return *writer_; }

  private:
    std::unique_ptr<SegmentWriter> writer_;
};

nb::dict index_of(const std::string &path) {
    const SegmentIndex index = read_index(path);
    nb::dict about;
    nb::list problems;
    for (const Problem &p : index.problems) problems.append(nb::make_tuple(p.path, p.offset, p.length, p.what));
    about["base"] = index.header.base;
    about["term_length"] = index.header.term_length;
    about["messages_before"] = index.header.messages_before;
    about["entries"] = nb::bytes(reinterpret_cast<const char *>(index.entries.data()), index.entries.size() * sizeof(IndexEntry));
    about["data_length"] = index.data_length;
    about["sealed"] = index.sealed;
    about["torn"] = index.torn;
    about["problems"] = problems;
    return about;
}

} // namespace

void bind_recording(nb::module_ &m) {
    nb::class_<RecordingSegment>(m, "RecordingSegment", "A segment being written. One thread at a time.")
        .def(nb::init<int, std::string, int, std::string, uint64_t, uint32_t, int32_t, int32_t, uint64_t, uint64_t, uint64_t,
                      uint64_t>(),
             nb::kw_only(), nb::arg("data_fd"), nb::arg("data_path"), nb::arg("index_fd"), nb::arg("index_path"), nb::arg("base"),
             nb::arg("term_length"), nb::arg("initial_term_id"), nb::arg("stream_id"), nb::arg("recording"),
             nb::arg("messages_before"), nb::arg("entries"), nb::arg("data_length"))
        .def("record", &RecordingSegment::record, nb::arg("subscription"), nb::arg("max_bytes"))
        .def("sync", &RecordingSegment::sync)
        .def("seal", &RecordingSegment::seal)
        .def("gap", &RecordingSegment::gap, nb::arg("bytes"))
        .def_prop_ro("position", [](RecordingSegment &self) { return self.writer().position(); })
        .def_prop_ro("length", [](RecordingSegment &self) { return self.writer().length(); })
        .def_prop_ro("messages", [](RecordingSegment &self) { return self.writer().messages(); });

    m.def("read_index", &index_of, nb::arg("path"));
    m.def(
        "verify_segment",
        [](const std::string &data_path, const std::string &index_path) {
            uint64_t valid = 0;
            std::vector<Problem> found;
            without_interpreter([&] { found = verify_segment(data_path, index_path, valid); });
            nb::list problems;
            for (const Problem &p : found) problems.append(nb::make_tuple(p.path, p.offset, p.length, p.what));
            return nb::make_tuple(problems, valid);
        },
        nb::arg("data_path"), nb::arg("index_path"));

    nb::class_<Scan>(m, "Scan", "Messages of a range of a recording as Arrow batches. One thread at a time.")
        .def(
            "__init__",
            [](Scan *self, const std::vector<std::pair<std::string, std::string>> &segments, uint64_t start, uint64_t end,
               int64_t time_min, int64_t time_max, uint32_t columns, std::string stream, uint64_t batch_rows,
               uint64_t batch_bytes, bool frames) {
                std::vector<Scan::Segment> list;
                for (const auto &[data, index] : segments) list.push_back({data, index});
                ScanOptions options{start,
                                    end,
                                    time_min,
                                    time_max,
                                    columns,
                                    std::move(stream),
                                    frames,
                                    std::max<uint64_t>(batch_rows, 1),
                                    std::clamp<uint64_t>(batch_bytes, 1, 1 << 30)};
                new (self) Scan(std::move(list), std::move(options));
            },
            nb::arg("segments"), nb::kw_only(), nb::arg("start"), nb::arg("end"), nb::arg("time_min"), nb::arg("time_max"),
            nb::arg("columns"), nb::arg("stream"), nb::arg("batch_rows"), nb::arg("batch_bytes"), nb::arg("frames") = false)
        .def(
            "next_batch",
            [](Scan &self, uint32_t columns, const std::string &stream) -> nb::object {
                BatchBuilder batch(columns, stream);
                bool more = false;
                without_interpreter([&] { more = self.fill(batch); });
                if (!more) return nb::none();
                return arrow_capsules(std::move(batch));
            },
            nb::arg("columns"), nb::arg("stream"))
        .def(
            "empty_batch",
            [](Scan &, uint32_t columns, const std::string &stream) { return arrow_capsules(BatchBuilder(columns, stream)); },
            nb::arg("columns"), nb::arg("stream"))
        .def_prop_ro("resume", &Scan::resume);
}

} // namespace penstock::bind
