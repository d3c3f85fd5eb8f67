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
from pathlib import Path

from evidence.bug_list import (
    BUGS,
    CHECK,
    FRAME_FUZZ,
    FRAME_KILL,
    FRAME_MODEL,
    FRAME_STRESS,
    IO_STRESS,
    KILL,
    MODEL,
    PIPE_KILL,
    PIPE_MODEL,
    PIPE_STRESS,
    RING_FUZZ,
    RING_KILL,
    RING_MODEL,
    RING_STRESS,
    RKILL,
    SCRIBBLE,
    STRESS,
    SYNC_MODEL,
)
from evidence.build import ROOT, run
from evidence.native import SANITIZED
from evidence.planted import PYTHON_BUGS
from evidence.room import WORKERS, Row


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
LOOKS = ("--preemptions 1 --stale 1 --most 2000 --first 1", "--preemptions 2 --stale 2 --most 60000 --first 1")
# Room → source, how to compile it, how to run it: what a shallow look finds needs no deep one.
PROGRAMS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    MODEL: (
        "model/log_scenarios.cpp",
        PLATFORM,
        tuple(f"{look} --without ring_,frames_,sync_,pipe_" for look in LOOKS),
    ),
    SYNC_MODEL: ("model/sync_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix sync_" for look in LOOKS)),
    PIPE_MODEL: ("model/pipe_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix pipe_" for look in LOOKS)),
    PIPE_KILL: ("kill/pipe_kill.cpp", [], ("--kills 2",)),
    IO_STRESS: ("tests/io_stress.cpp", ["-fsanitize=address", "-fno-sanitize-recover=all"], ("--seconds 2",)),
    PIPE_STRESS: ("tests/pipe_stress.cpp", ["-fsanitize=address", "-fno-sanitize-recover=all"], ("--seconds 1",)),
    RING_MODEL: ("model/ring_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix ring_" for look in LOOKS)),
    FRAME_MODEL: ("model/frame_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix frames_" for look in LOOKS)),
    KILL: ("kill/log_kill.cpp", [], ("--kills 2",)),
    RKILL: ("kill/recording_kill.cpp", [], ("--rounds 2 --kills 4",)),
    CHECK: ("tests/recording_check.cpp", [], ("--rounds 300",)),
    SCRIBBLE: (
        "hostile/scribble.cpp",
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ("--rounds 8 --kind 0",),
    ),
    STRESS: ("tests/log_stress.cpp", [], ("--seconds 2",)),
    RING_KILL: ("kill/ring_kill.cpp", [], ("--kills 2",)),
    RING_STRESS: ("tests/ring_stress.cpp", [], ("--seconds 2",)),
    RING_FUZZ: (
        "hostile/fuzz_ring.cpp",
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DPENSTOCK_TERM_LENGTH_MIN=256"],
        ("--runs 1500",),
    ),
    FRAME_KILL: ("kill/frame_kill.cpp", [], ("--kills 2",)),
    FRAME_STRESS: ("tests/frame_stress.cpp", [], ("--seconds 2",)),
    FRAME_FUZZ: (
        "hostile/fuzz_frames.cpp",
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DPENSTOCK_TERM_LENGTH_MIN=256"],
        ("--runs 1500",),
    ),
}
LOG_SCENARIOS = ("log_scenarios", "log_members", "log_deaths")
# Further sources of a room's program that see the bug, and those that need not.
MODELS = {
    MODEL: LOG_SCENARIOS,
    SYNC_MODEL: ("sync_scenarios",),
    RING_MODEL: ("ring_scenarios",),
    FRAME_MODEL: ("frame_scenarios",),
    PIPE_MODEL: ("pipe_scenarios", "object_scenarios"),
}
MORE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    FRAME_FUZZ: (("hostile/random_driver.cpp",), ()),
    RING_FUZZ: (("hostile/random_driver.cpp",), ()),
    **{
        room: (
            tuple(f"model/{name}.cpp" for name in own[1:]),
            (*EXPLORER, *(name for other, names in MODELS.items() if other != room for name in names)),
        )
        for room, own in MODELS.items()
    },
}


def _compile(folder: Path, room: str, number: int) -> Path:
    source, flags, _ = PROGRAMS[room]
    program = folder / f"{Path(source).stem}.{number}"
    native = folder / "native"
    include = [f"-I{native / 'core'}", f"-I{native / 'model'}"]
    seeing, made = MORE.get(room, ((), ()))
    extra = [
        *(str(native / name) for name in seeing),
        *(str(folder / f"{name}.o") for name in made),
    ]
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
    objects = sorted({name for _, made in MORE.values() for name in made})
    include = [f"-I{native / 'core'}", f"-I{native / 'model'}"]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(
            pool.map(
                lambda name: run(
                    [
                        *(*COMPILER, *PLATFORM, *include, "-DPENSTOCK_BUG=0", "-c"),
                        *(str(native / f"model/{name}.cpp"), "-o", str(folder / f"{name}.o")),
                    ]
                ),
                objects,
            )
        )
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
