"""Planted bugs: faults that somebody could make, each behind a switch in a copy of the headers. The rooms must find all.

The copy is built once; `PENSTOCK_BUG=n` chooses the fault. Bugs in Python are planted by replacing functions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from evidence.build import ROOT, run
from evidence.native import SANITIZED
from evidence.planted import PYTHON_BUGS
from evidence.room import WORKERS, Row

LOG, WRITER, READER, WAITING = "term_log.hpp", "log_writer.hpp", "log_reader.hpp", "waiting.hpp"
RECORDING, SCAN, CHECKSUM = "recording.hpp", "recording_scan.hpp", "checksum.hpp"


@dataclass(frozen=True)
class Bug:
    """A statement of one file is replaced by another. `rooms`: who is asked, in this order."""

    what: str
    file: str
    good: str
    bad: str
    rooms: tuple[str, ...]
    more: tuple[tuple[str, str, str], ...] = field(default=())  # further replacements: file, good, bad


MODEL, KILL, CHECK, RKILL, SCRIBBLE, STRESS = "model", "kill", "recording", "recording kill", "scribble", "stress"
BUGS = [
    Bug("a commit without release", WRITER,
        "frame->word0.release(pack_word0(place.length + header_length, place.flags, FrameType::data));",
        "frame->word0.relaxed(pack_word0(place.length + header_length, place.flags, FrameType::data));", (MODEL,)),
    Bug("a batch without release", WRITER,
        "log_->frame(at)->word0.release(pack_word0(first, flags_whole, FrameType::data));",
        "log_->frame(at)->word0.relaxed(pack_word0(first, flags_whole, FrameType::data));", (MODEL,)),
    Bug("a batch that shows its second frame first", WRITER,
        "if (i != 0) frame->word0.relaxed(pack_word0(length, flags_whole, FrameType::data));",
        "frame->word0.relaxed(pack_word0(length, flags_whole, FrameType::data));", (MODEL, KILL)),
    Bug("the header is written after the commit word", WRITER,
        "log_->write_header(frame, place.position, session_, clock_.now_ns());", ";", (MODEL, STRESS, KILL),
        ((WRITER, "if ((place.flags & flag_end) != 0) counters_->messages.bump(1);",
          "log_->write_header(frame, place.position, session_, clock_.now_ns()); counters_->messages.bump(1);"),)),
    Bug("the note goes before the frame is complete", WRITER,
        "log_->write_header(frame, place.position, session_, clock_.now_ns());",
        "settle(place.index); log_->write_header(frame, place.position, session_, clock_.now_ns());", (MODEL, KILL)),
    Bug("no note before the claim", WRITER,
        "note.where.release(claiming);\n        at = tail.acquire();", "at = tail.acquire();", (MODEL, KILL)),
    Bug("no note of the claim's place", WRITER,
        "note.where.release(at | claim_taken); // SYNC 5\n                return true;", "return true;", (KILL, MODEL)),
    Bug("a term's end is not padded", WRITER, "pad_term(at, left, note);", ";", (MODEL,)),
    Bug("padding is one frame too short", WRITER,
        "frame->word0.release(pack_word0(static_cast<uint32_t>(left), flags_whole, FrameType::pad)); // SYNC 1",
        "frame->word0.release(pack_word0(static_cast<uint32_t>(left > 32 ? left - 32 : 1), flags_whole, FrameType::pad));",
        (MODEL, KILL)),
    Bug("an exclusive tail moves by too much", WRITER,
        "if (exclusive_) tail.release(end);\n            else if (!tail.cas(at, end)) continue;",
        "if (exclusive_) tail.release(end + 32);\n            else if (!tail.cas(at, end)) continue;", (MODEL,)),
    Bug("two publications may claim the same place", WRITER,
        "if (exclusive_) tail.release(end);\n            else if (!tail.cas(at, end)) continue;",
        "tail.release(end);", (MODEL,)),
    Bug("an abort leaves its hole", WRITER,
        "frame->word0.release(pack_word0(length, flags_whole, FrameType::pad)); // SYNC 1\n        settle(place.index);",
        "(void)length; settle(place.index);", (MODEL,)),
    Bug("a settled claim's word is not free again", WRITER,
        "if (index != 0) open_ &= ~(1u << index);", ";", (STRESS,)),
    Bug("the limit moves and nothing is cleaned", LOG, "clean(lim + header_length, next + header_length);", ";", (MODEL, KILL)),
    Bug("cleaning is a header short", LOG,
        "clean(lim + header_length, next + header_length);", "clean(lim + header_length, next);", (MODEL, KILL)),
    Bug("the limit moves before the cleaning", LOG,
        "clean(lim + header_length, next + header_length);",
        "control_->limit.value.release(next); clean(lim + header_length, next + header_length);", (MODEL, KILL)),
    Bug("the window is forgotten", LOG,
        "return (slowest & ~uint64_t{frame_alignment - 1}) + geometry_.window;",
        "return (slowest & ~uint64_t{frame_alignment - 1}) + 4 * uint64_t{geometry_.term_length};", (MODEL, KILL)),
    Bug("the fastest subscription counts, not the slowest", LOG,
        "if (position < slowest) slowest = position;", "slowest = position;", (MODEL, KILL, STRESS)),
    Bug("subscriptions do not hold writers", LOG,
        "if (!is_active(s, Role::subscription)) continue;\n            const uint64_t position = s.reader.position.acquire(); // SYNC 3",
        "if (true) continue;\n            const uint64_t position = s.reader.position.acquire(); // SYNC 3", (MODEL, STRESS)),
    Bug("the position is shown a frame early", READER,
        "log_->me().reader.position.release(safe);", "log_->me().reader.position.release(safe + 512);", (MODEL, STRESS)),
    Bug("the position is never shown", READER,
        "log_->me().reader.position.release(safe);", ";", (MODEL,)),
    Bug("a borrowed message's bytes are given up", READER,
        "held_.push_back(position);", "(void)position;", (MODEL,)),
    Bug("the lock is taken from the living", LOG,
        "return seat_.taken_by_other(slot_byte(static_cast<uint32_t>(index)));", "return false;", (MODEL,)),
    Bug("the lock is never taken from the dead", LOG,
        "return seat_.taken_by_other(slot_byte(static_cast<uint32_t>(index)));", "return true;", (MODEL, KILL)),
    Bug("the lock is not given back", LOG, "~Held() { log_.release_lock(); }", "~Held() {}", (MODEL,)),
    Bug("the lock is given back without release", LOG,
        "control_->lock.value.release(0);", "control_->lock.value.relaxed(0);", (MODEL,)),
    Bug("a subscription appears before its position is set", LOG,
        "            start();\n", "            ;\n", (MODEL, KILL)),
    Bug("the dead's claims are not padded", LOG,
        "if (frame_length(word0) <= 0) pad_hole(position, length, word0);", ";", (KILL, MODEL)),
    Bug("a freed slot stays taken", LOG,
        "s.identity.role.release(static_cast<uint32_t>(Role::none));", ";", (MODEL, KILL),
        ((LOG, "s.identity.state.release(static_cast<uint32_t>(State::free));", ";"),)),
    Bug("a reaped slot's byte stays locked", LOG,
        "            seat_.give_back(slot_byte(i));\n            control_->totals.reaped.bump(1);",
        "            control_->totals.reaped.bump(1);", (KILL,)),
    Bug("the dead are never looked for", LOG,
        "if (!seat_.try_take(slot_byte(i))) continue;\n            clear_slot(i);", "continue;\n            clear_slot(i);",
        (MODEL, KILL)),
    Bug("a living claim is padded", LOG,
        "if (other == position) return false; // its owner lives and will finish", ";", (MODEL,),
        ((LOG, "if (where == claiming) return false;          // a living one may own this very place: look again later", ";"),)),
    Bug("a claim without a place yet is overlooked", LOG,
        "if (where == claiming) return false;          // a living one may own this very place: look again later", ";", (MODEL,)),
    Bug("a hole is padded over the next claim", LOG,
        "if (other > position) stop = std::min(stop, other);", ";", (MODEL, KILL)),
    Bug("a hole is filled without looking again", LOG,
        "at->word0.cas(seen, pack_word0(static_cast<uint32_t>(length), flags_whole, FrameType::pad))",
        "(at->word0.release(pack_word0(static_cast<uint32_t>(length), flags_whole, FrameType::pad)), seen == 0)", (MODEL,),
        ((LOG, "if (frame_length(word0) > 0) return true;\n        // Its owner died", "// Its owner died"),)),
    Bug("a waker does not look behind a fence", WAITING,
        "inline void event_notify(Atomic<uint32_t> &event) {\n    full_fence();",
        "inline void event_notify(Atomic<uint32_t> &event) {", (MODEL,)),
    Bug("a waker never wakes", WAITING, "event_wake(event); // who loses", "(void)0; // who loses", (MODEL,)),
    Bug("a sleeper leaves no sign", WAITING,
        "const uint32_t seen = event.set_bits(event_has_sleeper);", "const uint32_t seen = event.relaxed();", (MODEL,)),
    Bug("a slow reader is not told", READER,
        "if (log_->me().identity.state.acquire() == static_cast<uint32_t>(State::active)) return;", "return;", (MODEL,)),
    Bug("a slow reader is passed without being marked", LOG,
        "s.identity.state.release(static_cast<uint32_t>(State::dropped));", ";", (MODEL,)),
    Bug("padding is skipped by a header only", READER,
        "move_to(position_ + step);\n                if (position_ - begun > uint64_t{terms} * log_->geometry().term_length) return nullptr;",
        "move_to(position_ + header_length);\n                if (position_ - begun > uint64_t{terms} * log_->geometry().term_length) return nullptr;", (MODEL,)),
    Bug("any position is believed", LOG,
        "if (position % frame_alignment != 0) throw_unsound(position);", ";", (SCRIBBLE,)),
    Bug("any frame length is believed", READER,
        "if (length >= static_cast<int32_t>(header_length) && step <= log_->left_in_term(at) && frame_version(word0) == 0 &&",
        "if (length >= static_cast<int32_t>(header_length) && frame_version(word0) == 0 &&", (SCRIBBLE,)),
    Bug("any limit is believed", LOG,
        "if (allowed > lim && allowed - lim > uint64_t{terms + 1} * geometry_.term_length) throw_unsound(lim);", ";", (SCRIBBLE,)),
    Bug("a block's entry is written before its bytes", RECORDING,
        "data_->write_at(length_, run.data, run.length);", ";", (RKILL,),
        ((RECORDING, "add(entry);\n        position_ += run.length;",
          "add(entry); data_->write_at(length_, run.data, run.length);\n        position_ += run.length;"),)),
    Bug("blocks are written over each other", RECORDING, "        length_ += run.length;\n", "        ;\n", (RKILL, CHECK)),
    Bug("a block's last byte is not summed", RECORDING,
        "entry.block_crc = crc32c(run.data, run.length);", "entry.block_crc = crc32c(run.data, run.length - 1);", (RKILL, CHECK)),
    Bug("an entry's sum is not checked", SCAN,
        'if (!record_intact(entry)) what = "an index entry is damaged";', 'if (false) what = "an index entry is damaged";', (CHECK,)),
    Bug("a block's sum is not checked", SCAN, "} else if (found != entry.block_crc) {", "} else if (false) {", (CHECK,)),
    Bug("the seal names the wrong end", RECORDING,
        "entry.position = static_cast<int64_t>(position_);\n        entry.recorded_ns = recorded_ns;\n        entry.messages_before = messages_;\n"
        "        entry.kind = static_cast<uint16_t>(EntryKind::seal);",
        "entry.position = static_cast<int64_t>(position_ + 32);\n        entry.recorded_ns = recorded_ns;\n        entry.messages_before = messages_;\n"
        "        entry.kind = static_cast<uint16_t>(EntryKind::seal);", (RKILL, CHECK)),
]  # fmt: skip


def _bare(text: str) -> str:
    """Source without comments, so that a switch may stand anywhere."""
    return re.sub(r"[ \t]*//[^\n]*", "", text)


def plant() -> Path:
    """The copy of the sources with every bug in it, each behind a preprocessor switch; the folder."""
    folder = ROOT / "build" / "bugs"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "native", folder / "native", ignore=shutil.ignore_patterns("bind"))
    core = folder / "native" / "core"
    texts = {path.name: _bare(path.read_text()) for path in core.glob("*.hpp")}
    places: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for number, bug in enumerate(BUGS, 1):
        for file, good, bad in ((bug.file, bug.good, bug.bad), *bug.more):
            if texts[file].count(_bare(good)) != 1:
                raise SystemExit(f"planted bug {number}, {bug.what}, does not fit {file} any more: {good!r}")
            places.setdefault((file, _bare(good)), []).append((number, _bare(bad)))
    for (file, good), variants in places.items():
        tests = "".join(
            f"\n#{'el' if n else ''}if PENSTOCK_BUG == {bug}\n{bad}" for n, (bug, bad) in enumerate(variants)
        )
        if texts[file].count(good) != 1:
            raise SystemExit(f"two planted bugs overlap in {file} at {good!r}")
        texts[file] = texts[file].replace(good, f"{tests}\n#else\n{good}\n#endif\n")
    for name, text in texts.items():
        (core / name).write_text(text)
    return folder


EXPLORER = ("main", "explorer", "scheduler", "memory", "fibers")  # no bug is planted there
COMPILER = ["g++", "-std=c++20", "-O1", "-w", "-pthread"]
PLATFORM = ['-DPENSTOCK_PLATFORM="../model/platform.hpp"', '-DPENSTOCK_LIVENESS="../model/seat.hpp"']
# Room → source, how to compile it, how to run it: what a shallow look finds needs no deep one.
PROGRAMS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    MODEL: (
        "model/log_scenarios.cpp",
        PLATFORM,
        ("--preemptions 1 --stale 1 --most 2000 --first 1", "--preemptions 2 --stale 2 --most 60000 --first 1"),
    ),
    KILL: ("kill/log_kill.cpp", [], ("--kills 2",)),
    RKILL: ("kill/recording_kill.cpp", [], ("--rounds 2 --kills 4",)),
    CHECK: ("tests/recording_check.cpp", [], ("--rounds 300",)),
    SCRIBBLE: ("hostile/scribble.cpp", ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], ("--rounds 4",)),
    STRESS: ("tests/log_stress.cpp", [], ("--seconds 2",)),
}


def _compile(folder: Path, room: str, number: int) -> Path:
    source, flags, _ = PROGRAMS[room]
    program = folder / f"{Path(source).stem}.{number}"
    native = folder / "native"
    include = [f"-I{native / 'core'}", f"-I{native / 'model'}"]
    extra = (
        [
            *(str(native / f"model/log_{name}.cpp") for name in ("members", "deaths")),
            *(str(folder / f"{name}.o") for name in EXPLORER),
        ]
        if room == MODEL
        else []
    )
    run([*COMPILER, *flags, *include, f"-DPENSTOCK_BUG={number}", str(native / source), *extra, "-o", str(program)])
    return program


def _notices(folder: Path, room: str, number: int) -> bool:
    program = _compile(folder, room, number)
    try:
        for arguments in PROGRAMS[room][2]:
            command = [program, "--seed", "1", *arguments.split()]
            if subprocess.run(command, capture_output=True, timeout=90, env=SANITIZED).returncode != 0:
                return True
        return False
    except subprocess.TimeoutExpired:
        return True  # it hangs: nobody would overlook that
    finally:
        program.unlink()


def _killer(folder: Path, number: int) -> str:
    """The first of the bug's rooms that notices it, or nothing."""
    rooms = BUGS[number - 1].rooms
    return next((room for room in rooms if _notices(folder, room, number)), "")


def _python_killer(name: str) -> str:
    command = [sys.executable, "-m", "evidence.planted", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    return "simulator" if done.returncode == 1 else ""


def kill_all() -> Row:
    """Every planted bug against its rooms; each room must pass without one."""
    begun = time.monotonic()
    folder = plant()
    native = folder / "native"
    for name in EXPLORER:
        run([*COMPILER, *PLATFORM, f"-I{native / 'core'}", f"-I{native / 'model'}", "-c", str(native / f"model/{name}.cpp"),
             "-o", str(folder / f"{name}.o")])  # fmt: skip
    with ThreadPoolExecutor(WORKERS) as pool:
        false_alarms = [
            room
            for room, alarm in zip(PROGRAMS, pool.map(lambda r: _notices(folder, r, 0), PROGRAMS), strict=True)
            if alarm
        ]
        killers = list(pool.map(lambda n: _killer(folder, n), range(1, len(BUGS) + 1)))
        in_python = list(pool.map(_python_killer, PYTHON_BUGS))
    names = [*(bug.what for bug in BUGS), *PYTHON_BUGS]
    table = dict(zip(names, [*killers, *in_python], strict=True))
    alive = [name for name, killer in table.items() if not killer]
    failed = [f"room {room} fails without any bug" for room in false_alarms] + [f"survived: {name}" for name in alive]
    return Row(
        "bugs",
        f"planted bugs: {len(table) - len(alive)} killed, of",
        len(table),
        len(failed),
        time.monotonic() - begun,
        f"python -m evidence bugs   # {'; '.join(failed[:3])}" if failed else "",
        details=table,
    )
