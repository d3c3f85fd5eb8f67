// Python's handles on recordings: appending from a subscription, reading the index, scanning, verifying.
#include "bind/ground/arrow_capsules.hpp"
#include "bind/handles/handle.hpp"

#include "ground/clock.hpp"
#include "record/recording_scan.hpp"
#include "record/segment_verify.hpp"

#include <nanobind/stl/optional.h>
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

    // Moves frames of the stream into the segment, up to `max_bytes` and the rest of a frame. Returns the bytes moved. Runs
    // without the GIL.
    uint64_t record(StreamHandle &stream, uint64_t max_bytes) {
        const StreamHandle::Busy busy(stream);
        StreamEnd &end = stream.ready();
        RunSource *runs = end.runs();
        if (runs == nullptr)
            throw Error(Code::invalid,
                        end.where() + (end.is_resolved() ? ": this subscription takes its messages away from others: a "
                                                           "recorder joins as a tap"
                                                         : ": nothing was published here yet"));
        uint64_t moved = 0;
        without_interpreter([&] {
            while (moved < max_bytes) {
                if (end.position() != writer_->position())
                    throw Error(runs->skips() ? Code::too_slow : Code::invalid,
                                end.where() + ": the subscription stands at " + std::to_string(end.position()) +
                                    ", the segment at " + std::to_string(writer_->position()));
                const FrameBlock run = runs->run(std::min<uint64_t>(block_max, max_bytes - moved));
                if (run.length == 0) {
                    if (end.position() != writer_->position()) continue;
                    if (end.repair()) continue; // a dead writer's claim is padded: what is committed behind it comes now
                    break;
                }
                writer_->append(run, system_ns(CLOCK_REALTIME), [&] { runs->check_run(); });
                runs->take_run(run);
                moved += run.length;
            }
            runs->show_position();
        });
        return moved;
    }
    // Records the open claim at which the stream is stuck as padding, for a recorder that ends. Returns its bytes; 0: no message
    // is committed behind it; -1: its length is not known, so what is behind it cannot be found.
    int64_t pad_claim(StreamHandle &stream) {
        const StreamHandle::Busy busy(stream);
        StreamEnd &end = stream.ready();
        RunSource *runs = end.runs();
        if (runs == nullptr || end.position() != writer_->position()) return 0;
        const std::optional<FrameBlock> claim = runs->open_claim();
        if (!claim) return -1;
        if (claim->length == 0) return 0;
        writer_->append(*claim, system_ns(CLOCK_REALTIME), [&] { runs->check_run(); });
        runs->take_run(*claim);
        return static_cast<int64_t>(claim->length);
    }
    // Appends one message that no channel holds in this form: a frame whose pixels were encoded. Returns the bytes that it takes.
    uint64_t append(const nb::bytes &payload, int64_t time_ns, int32_t session) {
        Message message;
        message.length = payload.size();
        message.time_ns = time_ns;
        message.session = session;
        if (message.length > INT32_MAX - 2 * header_length)
            throw Error(Code::too_large, "a message of " + std::to_string(message.length) + " bytes is too large to be recorded");
        FrameBlock run;
        run.length = align_frame(message.length + header_length);
        run.begins = 1;
        run.payload = message.length;
        run.time_min = run.time_max = time_ns;
        const void *bytes = payload.c_str();
        without_interpreter([&] {
            buffer_.resize(run.length);
            std::memset(buffer_.data() + run.length - frame_alignment, 0, frame_alignment);
            write_frame_header(buffer_.data(), 0, 0, 0, &message);
            std::memcpy(buffer_.data() + header_length, bytes, message.length);
            run.data = buffer_.data();
            writer_->append(run, system_ns(CLOCK_REALTIME), [] {});
        });
        return run.length;
    }
    void sync() {
        without_interpreter([&] { writer_->sync(); });
    }
    void seal() { writer_->seal(system_ns(CLOCK_REALTIME)); }
    void gap(uint64_t bytes) { writer_->append_gap(bytes, system_ns(CLOCK_REALTIME)); }
    SegmentWriter &writer() { return *writer_; }

  private:
    std::unique_ptr<SegmentWriter> writer_;
    std::vector<uint8_t> buffer_; // of one message
};

// The next message of a stream whose messages are a run each, as a recorder of frames with their pixels has them: its position,
// its payload, send time and session. None: there is none yet. After a loss the position is further on.
nb::object take_message(StreamHandle &stream) {
    const StreamHandle::Busy busy(stream);
    StreamEnd &end = stream.ready();
    RunSource *runs = end.runs();
    if (runs == nullptr) throw Error(Code::invalid, end.where() + ": no runs are read here");
    FrameBlock run;
    uint64_t position = 0;
    without_interpreter([&] {
        for (;;) {
            position = end.position();
            run = runs->run(block_max);
            if (run.length != 0 || (end.position() == position && !end.repair())) break;
        }
    });
    if (run.length == 0) return nb::none();
    const auto *frame = reinterpret_cast<const FrameHeader *>(run.data);
    const auto length = static_cast<size_t>(frame_length(frame->word0.relaxed())) - header_length;
    nb::object found = nb::make_tuple(position, nb::bytes(run.data + header_length, length), frame->reserved, frame->session);
    runs->check_run();
    runs->take_run(run);
    runs->show_position();
    return found;
}

// Passes the frames in front of the first message that was sent at `time_ns` or later. Returns how many messages begin there: the
// rest of one whose beginning is gone is none. For streams whose runs are read in place, which `take_run` passes.
uint64_t pass_older(StreamHandle &stream, int64_t time_ns) {
    const StreamHandle::Busy busy(stream);
    StreamEnd &end = stream.ready();
    RunSource *runs = end.runs();
    if (runs == nullptr) throw Error(Code::invalid, end.where() + ": no runs are read here");
    uint64_t older = 0;
    without_interpreter([&] {
        uint64_t length = block_max; // of a run; then one frame after the other
        for (;;) {
            const uint64_t position = end.position();
            const FrameBlock run = runs->run(length);
            if (run.length == 0) {
                if (end.position() != position || end.repair()) continue;
                break;
            }
            runs->check_run(); // what it says was read before writers went over it
            const bool is_due = run.begins != 0 && run.time_max >= time_ns;
            if (is_due && length == 1) break;
            if (is_due) {
                length = 1;
                continue;
            }
            older += run.begins;
            runs->take_run(run);
        }
        runs->show_position();
    });
    return older;
}

// Bytes that Python reads: of an object of an object storage. Called with the interpreter held.
class PythonSource final : public ByteSource {
  public:
    PythonSource(std::string path, nb::object reader) : path_(std::move(path)), reader_(std::move(reader)) {
        size_ = nb::cast<uint64_t>(reader_.attr("size")());
    }
    size_t read_at(uint64_t offset, void *to, size_t length) const override {
        if (length == 0) return 0;
        const auto bytes = nb::cast<nb::bytes>(reader_.attr("read_at")(offset, length));
        const size_t got = std::min(length, bytes.size()); // never more than was asked for
        std::memcpy(to, bytes.data(), got);
        return got;
    }
    uint64_t size() const override { return size_; }
    const std::string &path() const override { return path_; }

  private:
    std::string path_;
    nb::object reader_;
    uint64_t size_ = 0;
};

// None: files. Else a function of a path that gives an object with `size()` and `read_at(offset, length)`.
OpenSource opener(nb::object open) {
    if (open.is_none()) return open_file;
    return [open = std::move(open)](const std::string &path) -> std::unique_ptr<ByteSource> {
        return std::make_unique<PythonSource>(path, open(path));
    };
}

nb::dict index_of(const std::string &path, nb::object open, uint64_t recording) {
    const SegmentIndex index = read_index(path, opener(std::move(open)), recording);
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
    about["end"] = index.end;
    about["open"] = index.open;
    about["other"] = index.other;
    about["problems"] = problems;
    return about;
}

using SegmentPaths = std::vector<std::pair<std::string, std::string>>; // data, index

std::vector<Scan::Segment> segments_of(const SegmentPaths &paths) {
    std::vector<Scan::Segment> list;
    for (const auto &[data, index] : paths) list.push_back({data, index});
    return list;
}

// A scan, and what its batches are to hold.
struct ColumnScan {
    Scan scan;
    uint32_t columns;
    std::string stream;
    bool files; // Python does not read for it: the interpreter is not needed meanwhile
};

} // namespace

void bind_recording(nb::module_ &m) {
    nb::class_<RecordingSegment>(m, "RecordingSegment", "A segment being written. One thread at a time.")
        .def(nb::init<int, std::string, int, std::string, uint64_t, uint32_t, int32_t, int32_t, uint64_t, uint64_t, uint64_t,
                      uint64_t>(),
             nb::kw_only(), nb::arg("data_fd"), nb::arg("data_path"), nb::arg("index_fd"), nb::arg("index_path"), nb::arg("base"),
             nb::arg("term_length"), nb::arg("initial_term_id"), nb::arg("stream_id"), nb::arg("recording"),
             nb::arg("messages_before"), nb::arg("entries"), nb::arg("data_length"))
        .def("record", &RecordingSegment::record, nb::arg("stream"), nb::arg("max_bytes"))
        .def("pad_claim", &RecordingSegment::pad_claim, nb::arg("stream"))
        .def("append", &RecordingSegment::append, nb::arg("payload"), nb::arg("time_ns"), nb::arg("session"))
        .def("sync", &RecordingSegment::sync)
        .def("seal", &RecordingSegment::seal)
        .def("gap", &RecordingSegment::gap, nb::arg("bytes"))
        .def_prop_ro("position", [](RecordingSegment &self) { return self.writer().position(); })
        .def_prop_ro("length", [](RecordingSegment &self) { return self.writer().length(); })
        .def_prop_ro("messages", [](RecordingSegment &self) { return self.writer().messages(); });

    m.def("read_index", &index_of, nb::arg("path"), nb::arg("open") = nb::none(), nb::arg("recording") = 0);
    m.def(
        "verify_segment",
        [](const std::string &data_path, const std::string &index_path, nb::object open, uint64_t recording) {
            std::vector<uint64_t> bad;
            std::vector<Problem> found;
            if (open.is_none())
                without_interpreter([&] { found = verify_segment(data_path, index_path, bad, open_file, recording); });
            else found = verify_segment(data_path, index_path, bad, opener(std::move(open)), recording);
            nb::list problems;
            for (const Problem &p : found) problems.append(nb::make_tuple(p.path, p.offset, p.length, p.what));
            return nb::make_tuple(problems, bad);
        },
        nb::arg("data_path"), nb::arg("index_path"), nb::arg("open") = nb::none(), nb::arg("recording") = 0);

    nb::class_<ColumnScan>(m, "Scan", "Messages of a range of a recording as Arrow batches. One thread at a time.")
        .def(
            "__init__",
            [](ColumnScan *self, const SegmentPaths &segments, uint64_t start, uint64_t end, int64_t time_min, int64_t time_max,
               uint32_t columns, std::string stream, uint64_t batch_rows, uint64_t batch_bytes, bool frames, nb::object open,
               std::optional<nb::callable> later, uint64_t recording, std::optional<uint64_t> begins) {
                Scan::Later more;
                if (later)
                    more = [later = std::move(*later)] {
                        const nb::gil_scoped_acquire gil; // a scan of files runs without it
                        return segments_of(nb::cast<SegmentPaths>(later()));
                    };
                const ScanOptions options{start,
                                          end,
                                          time_min,
                                          time_max,
                                          frames,
                                          std::max<uint64_t>(batch_rows, 1),
                                          std::clamp<uint64_t>(batch_bytes, 1, 1 << 30),
                                          recording,
                                          begins};
                const bool files = open.is_none();
                new (self) ColumnScan{Scan(segments_of(segments), options, opener(std::move(open)), std::move(more)), columns,
                                      std::move(stream), files};
            },
            nb::arg("segments"), nb::kw_only(), nb::arg("start"), nb::arg("end"), nb::arg("time_min"), nb::arg("time_max"),
            nb::arg("columns"), nb::arg("stream"), nb::arg("batch_rows"), nb::arg("batch_bytes"), nb::arg("frames") = false,
            nb::arg("open") = nb::none(), nb::arg("later") = nb::none(), nb::arg("recording") = 0, nb::arg("begins") = nb::none(),
            nb::sig("def __init__(self, segments: collections.abc.Sequence[tuple[str, str]], *, start: int, end: int, time_min: "
                    "int, time_max: int, columns: int, stream: str, batch_rows: int, batch_bytes: int, frames: bool = False, "
                    "open: object | None = None, later: collections.abc.Callable[[], list[tuple[str, str]]] | None = None, "
                    "recording: int = 0, begins: int | None = None) -> None"))
        .def("next_batch",
             [](ColumnScan &self) -> nb::object {
                 BatchBuilder batch(self.columns, self.stream);
                 bool more = false;
                 if (self.files) without_interpreter([&] { more = self.scan.fill(batch); });
                 else more = self.scan.fill(batch);
                 if (!more) return nb::none();
                 return arrow_capsules(std::move(batch));
             })
        .def_prop_ro("resume", [](const ColumnScan &self) { return self.scan.resume(); })
        .def_prop_ro("gone", [](const ColumnScan &self) { return self.scan.gone(); })
        .def(
            "left_out",
            [](const ColumnScan &self, size_t first) {
                nb::list found;
                const auto &all = self.scan.left_out();
                for (size_t i = first; i < all.size(); ++i)
                    found.append(nb::make_tuple(all[i].start, all[i].end, all[i].what, all[i].in_index));
                return found;
            },
            nb::arg("first"), nb::sig("def left_out(self, first: int) -> list[tuple[int, int, str, bool]]"));
    m.def("take_message", &take_message, nb::arg("stream"),
          nb::sig("def take_message(stream: StreamHandle) -> tuple[int, bytes, int, int] | None"),
          "The next message of frames with their pixels: position, payload, send time in ns, session. None: there is none yet.");
    m.def(
        "pass_older", &pass_older, nb::arg("stream"), nb::arg("time_ns"),
        "Passes the frames in front of the first message that was sent at `time_ns` or later; how many messages begin there. Not "
        "of rings.");
    m.def("empty_batch", [](uint32_t columns) { return arrow_capsules(BatchBuilder(columns, "")); }, nb::arg("columns"));
}

} // namespace penstock::bind
