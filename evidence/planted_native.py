"""Bugs planted into the bindings: one copy of the compiled module holds them all, and `PENSTOCK_BUG=n` wakes one.

The copy is built when it is first asked for, once for all of them. A few bugs of what Python adds to the bindings are here, too.
"""

from __future__ import annotations

import fcntl
import importlib.abc
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from evidence import anchors
from evidence.build import ROOT, tool
from evidence.planting import Planted

FOLDER = ROOT / "build" / "native-bugs"
MODULE = "penstock._native.core"
BUILT = "PENSTOCK_NATIVE_BUGS"  # where the module is, if it was built
SWITCH = """
#include <cstdlib>
#include <dlfcn.h>
namespace penstock {
inline bool planted(int bug) {
    static const int chosen = std::getenv("PENSTOCK_BUG") == nullptr ? 0 : std::atoi(std::getenv("PENSTOCK_BUG"));
    return chosen == bug;
}
}
"""


@dataclass(frozen=True)
class NativeBug:
    """`good` in a function of the bindings or the core becomes `bad`, in which PLANTED means that the bug is awake."""

    what: str
    function: str
    good: str
    bad: str
    tests: tuple[str, ...]


HELD = "tests/conformance/test_held.py"
FORK = "tests/fork/test_fork.py::test_a_child_forked_during_a_wait_leaves_nothing_behind"
EXIT = "tests/exit/test_exit.py::test_the_interpreter_ends_with_handles_in_every_state"
INSIDE = "tests/threads/test_shared_handles.py::test_a_take_inside_a_take_gets_another_message"
DECODE = "tests/columns/test_decoding.py"
LOCK = "tests/threads/test_lock.py"
WHY = "tests/watch/why/test_why.py"
NATIVE_BUGS = (
    NativeBug(
        "a fork inherits what other threads were doing",
        "Handle::busy",
        "busy_ = 0;",
        "if (!PLANTED) busy_ = 0;",
        (f"{FORK}[log]",),
    ),
    NativeBug(
        "a take that allocates between the look and the copy",
        "SyncMember::consume",
        "const auto [sender, type] = reader.texts();",
        "if (PLANTED) made = empty_tuple(); $0",
        (f"{INSIDE}[try_recv]",),
    ),
    NativeBug(
        "a file of a serving thread keeps its mode in a shared folder",
        "share_file",
        "fchmod(fd, shared_file_mode) != 0",
        "(!PLANTED && $0)",
        ("tests/share/test_folder.py::test_files_of_a_serving_thread_have_the_groups_mode",),
    ),
    NativeBug(
        "a reader of frames maps them to be written",
        "FramePool::make_read_only",
        "map_->protect(geometry_.buffers_page(), geometry_.buffers_end());",
        "if (!PLANTED) $0",
        (f"{HELD}::test_a_write_by_mistake_ends_the_writer_alone[frames]",),
    ),
    NativeBug(
        "a reader of a log maps the terms to be written",
        "TermLog::make_read_only",
        "map_->protect(terms_offset(geometry_.slot_count), terms_end(geometry_));",
        "if (!PLANTED) $0",
        (f"{HELD}::test_a_write_by_mistake_ends_the_writer_alone[log]",),
    ),
    NativeBug(
        "a socket lends from the mapping that it writes to",
        "PipeReaderEnd::readable_bytes",
        "map = peer_->file().lent_mapping(locks());",
        "if (!PLANTED) $0",
        ("tests/conformance/test_sockets.py::test_a_socket_lends_what_nobody_changes[shm-pair]",),
    ),
    NativeBug(
        "a repair writes where the terms are only read",
        "TermLog::writable_terms",
        "if (!map_->protects())",
        "if (PLANTED || !map_->protects())",
        ("tests/channels/test_held.py::test_a_reader_fills_the_hole_of_a_dead_writer[log:a]",),
    ),
    NativeBug(
        "an array of objects is sent as its addresses",
        "BufferArgument::BufferArgument",
        "if (holds_addresses(view_.format))",
        "if (!PLANTED && holds_addresses(view_.format))",
        ("tests/conformance/test_arrays.py::test_arrays_of_objects[log]",),
    ),
    NativeBug(
        "a claim is committed while an array of it is in use",
        "ClaimView::commit",
        "if (shared())",
        "if (shared() && !PLANTED)",
        (f"{DECODE}::test_an_array_of_a_claim_cannot_change_what_was_sent",),
    ),
    NativeBug(
        "an aborted claim's place is given back under its array",
        "ClaimView::abort",
        "if (shared()) aborting_ = true;",
        "if (shared() && !PLANTED) aborting_ = true;",
        (f"{DECODE}::test_views_of_a_claim_lie_over_nothing_else",),
    ),
    NativeBug(
        "what is held back on a pipe counts as done",
        "PipeReaderEnd::defer_ack",
        "peer_->acknowledger().defer_ack();",
        "if (!PLANTED) peer_->acknowledger().defer_ack();",
        (f"{DECODE}::test_a_pipe_message_is_not_done_before_it_is_reported",),
    ),
    NativeBug(
        "a socket lends several parts as one",
        "SocketReaderEnd::read_in_place",
        "if (in_parts())",
        "if (in_parts() && !PLANTED)",
        ("tests/conformance/test_sockets.py::test_socket_borrows[shm-pair]",),
    ),
    NativeBug(
        "an error in the middle of a batch costs the batch",
        "Subscription::next_of_batch",
        "catch (...) { keep_current();",
        "catch (...) { if (PLANTED) throw; keep_current();",
        (f"{DECODE}::test_a_poll_that_meets_its_own_end_gives_what_it_has",),
    ),
    NativeBug(
        "a thread that cannot start is nobody's error",
        "start_background_thread",
        "catch (const std::system_error &error) {",
        "catch (const std::system_error &error) { if (PLANTED) throw std::runtime_error(error.what());",
        ("tests/channels/test_waiting.py::test_lack_of_memory_is_an_error_of_this_library",),
    ),
    NativeBug(
        "the lock gives up on a crowd",
        "acquire_robust_lock",
        "if (for_one_holder && holder != blamed)",
        "if (!PLANTED && for_one_holder && holder != blamed)",
        (f"{LOCK}::test_a_lock_that_changes_hands_is_waited_for",),
    ),
    NativeBug(
        "a native thread owns what Python must end",
        "PipeReaderEnd::watched",
        "return std::make_shared<PipeWatched>(peer_, until_end);",
        # the thread that drops the last reference takes the GIL for that, in a destructor
        "if (PLANTED) return std::make_shared<PipeWatched>(std::shared_ptr<PipePeer>(peer_.get(), [kept = peer_](PipePeer *) {"
        ' std::thread([kept]() noexcept { const int state = ((int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure"))();'
        ' ((void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release"))(state); }).detach(); }), until_end); $0',
        (f"{EXIT}[pipe]",),
    ),
    NativeBug(
        "the dead are counted",
        "Participants::lives",
        "const bool there = locks_.member_at($a);",
        "const bool there = PLANTED || locks_.member_at($a);",
        ("tests/conformance/test_living.py::test_a_killed_reader_is_not_counted[log]",),
    ),
    NativeBug(
        "a member that comes leaves no event",
        "LogMembers::attach",
        "if (events_ != nullptr && role == Role::subscription)",
        "if (events_ != nullptr && role == Role::subscription && !PLANTED)",
        ("tests/kinds/sync/test_sync_changes.py::test_a_member_that_joined_and_left_is_named",),
    ),
    NativeBug(
        "a log that was never published to has ended",
        "TermLog::has_been_published",
        "return control_.sessions.value.relaxed() != first_session(geometry_);",
        "return PLANTED || control_.sessions.value.relaxed() != first_session(geometry_);",
        ("tests/channels/test_end_of_stream.py::test_a_channel_without_a_publication_has_no_end[log]",),
    ),
    NativeBug(
        "a spin looks at no socket",
        "MessageTarget::serve_socket",
        "source_->serve_socket();",
        "if (!PLANTED) source_->serve_socket();",
        ("tests/network/test_processes.py::test_a_subscription_that_spins_looks_at_its_socket",),
    ),
    NativeBug(
        "a wait that is over is still noted",
        "Waiter::~Waiter",
        "target_.note(0);",
        "if (!PLANTED) target_.note(0);",
        (f"{WHY}::test_wait_of_a_thread_is_seen_and_ends",),
    ),
    NativeBug(
        "a note says when its last sleep began",
        "Waiter::note",
        "thread_number(), begun_ns_,",
        "thread_number(), PLANTED ? monotonic_ns() : begun_ns_,",
        (f"{WHY}::test_wait_lasts_since_its_begin",),
    ),
    NativeBug(
        "an awaited wait that is over is still noted",
        "AwaitNote::end",
        "if (--end_->awaits == 0 && !closed())",
        "if (--end_->awaits == 0 && !closed() && !PLANTED)",
        (f"{WHY}::test_wait_in_an_event_loop_is_seen[log]",),
    ),
    NativeBug(
        "the note of the dead is believed",
        "WaitFacts::add",
        "member.dead ? 0 : note.relaxed()",
        "member.dead && !PLANTED ? 0 : note.relaxed()",
        (f"{WHY}::test_note_of_the_dead_is_no_wait",),
    ),
    NativeBug(
        "a slot's next owner has the note of the dead",
        "Ring::attach",
        "s.reader.wait.relaxed(0);",
        "if (!PLANTED) $0",
        (f"{WHY}::test_slot_of_the_dead_has_no_note",),
    ),
    NativeBug(
        "a request waits for every server",
        "PipeWaits::for_messages",
        "answered += replies.writer.messages.relaxed();",
        "answered += PLANTED ? 1 : replies.writer.messages.relaxed();",
        (f"{WHY}::test_each_kind_of_wait_says_its_part[request]",),
    ),
)


def sources() -> dict[str, str]:
    """The bindings and the core: path below native/ → text."""
    native = ROOT / "native"
    paths = [*sorted(native.rglob("core/**/*.hpp")), *sorted(native.rglob("bind/**/*.[hc]pp"))]
    return {path.relative_to(native).as_posix(): path.read_text() for path in paths}


def planted_sources(texts: dict[str, str]) -> dict[str, str]:
    """The sources that have a bug, by path, with all of them asleep."""
    index = anchors.index_of(texts)
    try:
        changes = [
            (
                anchors.place(bug.function, bug.good, index),
                bug.bad.replace("PLANTED", f"::penstock::planted({number})"),
            )
            for number, bug in enumerate(NATIVE_BUGS, 1)
        ]
        changed = anchors.replaced(texts, changes)
    except LookupError as error:
        raise SystemExit(f"a planted bug does not fit the bindings any more: {error}") from None
    atomics = "core/ground/atomics.hpp"
    changed[atomics] = texts[atomics].replace("#pragma once\n", "#pragma once\n" + SWITCH, 1)
    return changed


def _write(path: Path, text: str) -> None:
    """Only what changed, so that only that is compiled again."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def build() -> Path:
    """The module with all bugs, built now if the sources changed; its path."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        texts = sources()
        for name, text in {**texts, **planted_sources(texts)}.items():
            _write(FOLDER / "native" / name, text)
        _write(FOLDER / "CMakeLists.txt", (ROOT / "CMakeLists.txt").read_text())
        env = {key: value for key, value in os.environ.items() if key not in ("PENSTOCK_PLANT", "PYTHONPATH")}
        env["CMAKE_BUILD_PARALLEL_LEVEL"] = str(os.cpu_count() or 1)
        nanobind = subprocess.run(
            [sys.executable, "-m", "nanobind", "--cmake_dir"], env=env, capture_output=True, text=True, check=True
        )
        launcher = shutil.which("ccache")
        options = {
            "CMAKE_MAKE_PROGRAM": tool("ninja"),
            "CMAKE_BUILD_TYPE": "Bugs",
            "CMAKE_CXX_FLAGS": "-O1",
            "Python_EXECUTABLE": sys.executable,
            "nanobind_DIR": nanobind.stdout.strip(),
            **({"CMAKE_CXX_COMPILER_LAUNCHER": launcher} if launcher else {}),
        }
        out = FOLDER / "out"
        configure = [
            tool("cmake"),
            "-S",
            str(FOLDER),
            "-B",
            str(out),
            "-G",
            "Ninja",
            *(f"-D{k}={v}" for k, v in options.items()),
        ]
        for command in (configure, [tool("cmake"), "--build", str(out)]):
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"could not build the module with bugs: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return next(out.glob("core*.so"))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module with bugs in the place of the one that is installed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_file_location(fullname, self._path) if fullname == MODULE else None


def _wake(number: int) -> Callable[[], None]:
    """Plants the native bug of that number: before the library is imported, into this process and its children."""

    def plant() -> None:
        path = os.environ.get(BUILT) or str(build())
        os.environ[BUILT], os.environ["PENSTOCK_BUG"] = path, str(number)
        sys.meta_path.insert(0, _Finder(Path(path)))

    return plant


def _poll_loses_a_batch() -> None:
    from penstock.channels import handles

    def poll(self: handles.NativeSubscription, limit: int = 1000) -> list[object]:
        raw = iter(lambda: handles._native.next_bytes(self), None)
        return [self._decode(message) for message, _ in zip(raw, range(limit), strict=False)]

    handles.NativeSubscription.poll = poll  # type: ignore[method-assign]


def _a_child_removes_no_queue() -> None:
    from penstock.kinds.sync import opener as sync

    plain, parent = sync._remove_if_last, os.getpid()
    sync._remove_if_last = lambda *given: plain(*given) if os.getpid() == parent else None


def _claims_do_not_encode() -> None:
    from penstock.channels import handles

    del handles.EncodingPublication.claim


def _a_relative_folder_follows_the_working_directory() -> None:
    from penstock.channels.storage import files

    files._folder = Path  # type: ignore[assignment]


BUGS: dict[str, Planted] = {
    **{bug.what: Planted(_wake(number), bug.tests) for number, bug in enumerate(NATIVE_BUGS, 1)},
    "poll loses a batch with a message that does not decode": Planted(
        _poll_loses_a_batch, (f"{DECODE}::test_a_bad_message_costs_no_other",)
    ),
    "the last member removes no queue in a forked child": Planted(
        _a_child_removes_no_queue,
        ("tests/fork/test_fork.py::test_the_last_member_removes_the_queue_even_in_a_fork",),
    ),
    "a claim writes bytes that no codec made": Planted(
        _claims_do_not_encode, (f"{DECODE}::test_a_claim_where_messages_are_encoded_is_refused",)
    ),
    "a relative folder of channels follows the working directory": Planted(
        _a_relative_folder_follows_the_working_directory,
        ("tests/fork/test_fork.py::test_a_relative_folder_stays_where_it_was",),
    ),
}
