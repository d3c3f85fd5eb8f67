// Waits, for Python: those of a channel's participants, and the note of a wait in an event loop.
#include "bind/ground/stable_abi.hpp"
#include "bind/handles/publication.hpp"
#include "bind/handles/subscription.hpp"
#include "bind/why/wait_facts.hpp"

#include "log/files/log_layout.hpp"
#include "pipe/files/pipe_layout.hpp"
#include "ring/ring_layout.hpp"

namespace penstock::bind {

namespace {

// Those of a channel without a first publication, which all of them wait for.
nb::list open_waits(int fd, const std::string &path, const std::string &kind) {
    const Mapping map(fd, size_of_file(fd), false);
    const auto *header = reinterpret_cast<const Header *>(map.bytes());
    const bool ring = kind == "ring", pipe = kind == "pipe";
    const KindLayout &layout = ring ? ring_kind : pipe ? pipe_kind : kind == "sync" ? sync_kind : log_kind;
    const OpenPart part = read_open_part(map.bytes(), map.size(), path, layout);
    if (header->kind != static_cast<uint32_t>(layout.number)) throw Error(Code::mismatch, path + ": another kind");
    WaitFacts facts;
    for (uint32_t i = 0; i < part.slots; ++i) {
        const uint64_t at = slots_offset + uint64_t{i} * layout.slot_size;
        if (!holds_member(fd, at)) continue;
        const auto add = [&](const auto &identity, const Atomic<uint64_t> &note, const char *role, std::string name) {
            if (identity.state.relaxed() != 0)
                facts.add({i, role, identity.pid.relaxed(), identity.joined_ns.relaxed(), false, std::move(name), {}}, note,
                          [](WaitsFor) { return WaitReasons{}; });
        };
        const uint8_t *bytes = map.bytes() + at;
        if (ring) {
            const auto &s = *reinterpret_cast<const RingSlot *>(bytes);
            add(s.identity, s.reader.wait, "subscription", {});
        } else if (pipe) {
            const auto &s = *reinterpret_cast<const PeerSlot *>(bytes);
            add(s.identity, s.counters.wait, role_name(static_cast<PeerRole>(s.identity.role.relaxed())), read_name(s.identity));
        } else {
            const auto &s = *reinterpret_cast<const Slot *>(bytes);
            add(s.identity, s.counters.wait, "subscription", kind == "sync" ? read_name(s.identity) : std::string());
        }
    }
    return facts.members();
}

// The note of a coroutine, or of a thread that sleeps in several slices (`blocks`). begin() before it sleeps, end() when the wait
// is over. Several may wait on one handle.
class AwaitNote {
  public:
    AwaitNote(nb::object owner, bool members, bool timed, bool blocks)
        : owner_(std::move(owner)), timed_(timed), blocks_(blocks) {
        if (nb::isinstance<Publication>(owner_)) {
            Publication &publication = *nb::inst_ptr<Publication>(owner_);
            end_ = std::static_pointer_cast<End>(publication.end().shared_from_this());
            what_ = members ? WaitsFor::readers : WaitsFor::room;
        } else {
            end_ = std::static_pointer_cast<End>(nb::cast<Subscription &>(owner_).end().shared_from_this());
        }
    }
    ~AwaitNote() { end(); }
    AwaitNote(const AwaitNote &) = delete;
    AwaitNote &operator=(const AwaitNote &) = delete;

    void begin() {
        if (closed()) return;
        if (!begun_) {
            since_ns_ = monotonic_ns();
            fork_ = ForkGuard::generation();
            begun_ = true;
            ++end_->awaits;
        }
        end_->await_note = WaitNote{what_, timed_, thread_number(), since_ns_, blocks_ && only_thread()}.word();
        note_wait(*end_, 0);
    }
    void end() {
        if (!std::exchange(begun_, false) || fork_ != ForkGuard::generation()) return;
        if (--end_->awaits == 0 && !closed()) note_wait(*end_, 0);
    }

  private:
    bool closed() const {
        return nb::isinstance<Publication>(owner_) ? nb::inst_ptr<Publication>(owner_)->closed()
                                                   : nb::inst_ptr<Subscription>(owner_)->closed();
    }

    nb::object owner_;
    std::shared_ptr<End> end_;
    WaitsFor what_ = WaitsFor::messages;
    const bool timed_, blocks_;
    bool begun_ = false;
    int64_t since_ns_ = 0;
    uint32_t fork_ = 0;
};

// CPython notes an interrupt that leaves code made from text, as a data class is while its module loads. It then ends the process
// by SIGINT at last, also where the program caught it. The next code made from text takes that note back.
void forget_unhandled_interrupt() { nb::module_::import_("builtins").attr("exec")("", nb::dict()); }

} // namespace

std::string explain_wait(const End &end, WaitsFor what, int64_t warned_after_ns) {
    try {
        const PythonCall call;
        const nb::object made = nb::module_::import_("penstock.channels.waiting.reasons")
                                    .attr("explain")(end.locks().descriptor(), nb::steal(text_of(end.locks().path())),
                                                     static_cast<int>(what), warned_after_ns);
        return nb::cast<std::string>(made);
    } catch (const nb::python_error &error) { // an explanation is no reason to fail; Ctrl-C is
        if (error.matches(PyExc_Exception)) return {};
        forget_unhandled_interrupt();
        throw;
    }
}

void bind_why(nb::module_ &m) {
    nb::class_<AwaitNote>(m, "AwaitNote", "Notes in shared memory that a coroutine waits on a handle.")
        .def(
            "__init__",
            [](AwaitNote *self, nb::object handle, bool members, bool timed, bool blocks) {
                new (self) AwaitNote(handle, members, timed, blocks);
            },
            nb::arg("handle"), nb::arg("members"), nb::arg("timed"), nb::arg("blocks") = false,
            nb::sig("def __init__(self, handle: Publication | Subscription, members: bool, timed: bool, blocks: bool = False) -> "
                    "None"),
            "On a publication: for room, or with `members` for subscriptions. On a subscription: for messages. "
            "blocks: the thread sleeps, not a coroutine.")
        .def("begin", &AwaitNote::begin, "Before each sleep.")
        .def("end", &AwaitNote::end, "The wait is over. Safe to call twice.");
    const char *about =
        "The participants, their waits, and for whom they wait; the dead whose slots nobody has taken among them.";
    m.def(
        "take_reason", [](Publication &self) { return nb::steal<nb::str>(text_of(self.end().take_reason())); },
        nb::arg("publication"), "The end of the text of a wait that was in vain; empty if nothing is known.");
    m.def(
        "take_reason", [](Subscription &self) { return nb::steal<nb::str>(text_of(self.end().take_reason())); },
        nb::arg("subscription"), "The same.");
    m.def(
        "set_warn_after", [](int64_t ns) { warn_after_ns = ns <= 0 ? for_ever : ns; }, nb::arg("ns"),
        "A wait that lasts longer is logged once. 0: never.");
    m.def("log_waits", &log_waits, nb::arg("fd"), nb::arg("path"), nb::arg("sync") = false,
          nb::sig("def log_waits(fd: int, path: str, sync: bool = False) -> list[dict[str, Any]]"), about);
    m.def("ring_waits", &ring_waits, nb::arg("fd"), nb::arg("path"),
          nb::sig("def ring_waits(fd: int, path: str) -> list[dict[str, Any]]"), about);
    m.def("frames_waits", &frames_waits, nb::arg("fd"), nb::arg("path"),
          nb::sig("def frames_waits(fd: int, path: str) -> list[dict[str, Any]]"), about);
    m.def("pipe_waits", &pipe_waits, nb::arg("fd"), nb::arg("path"),
          nb::sig("def pipe_waits(fd: int, path: str) -> list[dict[str, Any]]"), about);
    m.def("endpoint_waits", &endpoint_waits, nb::arg("fd"), nb::arg("path"),
          nb::sig("def endpoint_waits(fd: int, path: str) -> list[dict[str, Any]]"), about);
    m.def("open_waits", &open_waits, nb::arg("fd"), nb::arg("path"), nb::arg("kind"),
          nb::sig("def open_waits(fd: int, path: str, kind: str) -> list[dict[str, Any]]"),
          "The same of a channel without a first publication.");
}

} // namespace penstock::bind
