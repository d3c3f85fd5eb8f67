"""Planted bugs: plausible faults, each in a copy of the headers that it changes. The suites must find all.

Programs see a bug's headers before the others. Bugs in Python are planted by replacing functions.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evidence import anchors, planted_native
from evidence.bug import (
    CHECK,
    CLOCK_CHECK,
    COPY_CHECK,
    EARLY_KILL,
    EARLY_MODEL,
    FRAME_FUZZ,
    FRAME_KILL,
    FRAME_MODEL,
    FRAME_STRESS,
    KILL,
    LAST_KILL,
    MODEL,
    NET_CHECK,
    NET_EXTENSIONS,
    NET_SIM,
    PIPE_KILL,
    PIPE_MODEL,
    PIPE_STRESS,
    RING_FUZZ,
    RING_KILL,
    RING_MODEL,
    RING_STRESS,
    RKILL,
    SCRIBBLE,
    SEAL_CHECK,
    STRESS,
    SYNC_MODEL,
    UDP_CHECK,
    UDP_KILL,
    UDP_MODEL,
    UDP_STREAMS,
    WAIT_CHECK,
    Bug,
)
from evidence.bug_list import BUGS
from evidence.build import ROOT, ended, patience, run
from evidence.model import functions, sources
from evidence.native import SANITIZED
from evidence.planted import PYTHON_BUGS
from evidence.report import WHOLE, WORKERS, Row, sliced


def faulty_headers(bug: Bug, texts: dict[str, str], index: dict[str, list[anchors.Function]]) -> dict[str, str]:
    """The headers that this bug changes, with the bug in them."""
    try:
        return anchors.replaced(
            texts, [(anchors.place(function, good, index), bad) for function, good, bad in bug.edits]
        )
    except LookupError as error:
        raise SystemExit(f"planted bug {bug.what!r} does not fit the core any more: {error}") from None


def plant() -> Path:
    """A copy of the sources, and beside it a folder for each bug's headers; the folder of all."""
    folder = ROOT / "build" / "bugs"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "native", folder / "native", ignore=shutil.ignore_patterns("bind"))
    for number, bug in enumerate(BUGS, 1):
        for name, text in faulty_headers(bug, sources(), functions()).items():
            path = _headers(folder, number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder


def _headers(folder: Path, number: int) -> Path:
    """Where bug `number` has its headers; there is nothing for 0, no bug."""
    return folder / f"bug{number}"


TRIES = 5
HANGS = 120  # seconds on an idle machine: no planted bug's tests take half as long
UNBUILT = "does not build"
COMPILER = ["g++", "-std=c++20", "-O1", "-w", "-pthread"]
PLATFORM = [
    f'-DPENSTOCK_{seam}="../model/{header}.hpp"'
    for seam, header in (("PLATFORM", "platform"), ("LIVENESS", "byte_locks"), ("FILES", "files"))
]
LOOKS = ("--preemptions 1 --stale 1 --most 2000 --first 1", "--preemptions 2 --stale 2 --most 60000 --first 1")
# The network log's scenarios are wide: a look at three processes, and at their list of images.
WIDE_LOOKS = ("--preemptions 1 --stale 1 --most 8000 --first 1", "--preemptions 2 --stale 2 --most 16000 --first 1")
# Suite → source, how to compile it, how to run it: what a shallow look finds needs no deep one.
PROGRAMS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    MODEL: (
        "model/log_scenarios.cpp",
        PLATFORM,
        tuple(f"{look} --without ring_,frames_,sync_,pipe_,early_,udp_,waiter_" for look in LOOKS),
    ),
    SYNC_MODEL: ("model/sync_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix sync_" for look in LOOKS)),
    PIPE_MODEL: ("model/pipe_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix pipe_" for look in LOOKS)),
    PIPE_KILL: ("kill/pipe_kill.cpp", [], ("--kills 2",)),
    EARLY_MODEL: ("model/early_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix early_" for look in LOOKS)),
    EARLY_KILL: ("kill/early_kill.cpp", [], ("--kills 2",)),
    UDP_MODEL: ("model/udp_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix udp_" for look in WIDE_LOOKS)),
    UDP_KILL: ("kill/udp_kill.cpp", [], ("--kills 2 --parts 2 --part 1",)),
    UDP_CHECK: ("tests/udp_check.cpp", [], ("",)),
    UDP_STREAMS: ("tests/udp_streams.cpp", [], ("",)),
    SEAL_CHECK: ("tests/seal_check.cpp", [], ("",)),
    PIPE_STRESS: ("tests/pipe_stress.cpp", ["-fsanitize=address", "-fno-sanitize-recover=all"], ("--seconds 1",)),
    RING_MODEL: ("model/ring_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix ring_" for look in LOOKS)),
    FRAME_MODEL: ("model/frame_scenarios.cpp", PLATFORM, tuple(f"{look} --prefix frames_" for look in LOOKS)),
    KILL: ("kill/log_kill.cpp", [], ("--kills 2",)),
    LAST_KILL: ("kill/last_kill.cpp", [], ("--kills 2",)),
    RKILL: ("kill/recording_kill.cpp", [], ("--rounds 2 --kills 4",)),
    CHECK: ("tests/recording_check.cpp", [], ("--rounds 300",)),
    CLOCK_CHECK: ("tests/clock_check.cpp", [], ("--seed 1 --rounds 100",)),
    WAIT_CHECK: ("tests/wait_check.cpp", [], ("",)),
    COPY_CHECK: ("tests/copy_check.cpp", [], ("",)),
    SCRIBBLE: (
        "hostile/scribble.cpp",
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ("--rounds 8 --kind 0",),
    ),
    NET_CHECK: ("tests/net_check.cpp", ["-DPENSTOCK_TERM_LENGTH_MIN=256"], ("",)),
    NET_EXTENSIONS: ("tests/net_extensions.cpp", [], ("",)),
    NET_SIM: ("tests/net_sim.cpp", ["-DPENSTOCK_TERM_LENGTH_MIN=256"], ("--lives 400",)),
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
# Further sources of a suite's program that see the bug, and those that need not.
MODELS = {
    MODEL: LOG_SCENARIOS,
    SYNC_MODEL: ("sync_scenarios",),
    RING_MODEL: ("ring_scenarios",),
    FRAME_MODEL: ("frame_scenarios",),
    PIPE_MODEL: ("pipe_scenarios",),
    EARLY_MODEL: ("early_scenarios",),
    UDP_MODEL: ("udp_scenarios", "udp_deaths"),
}
MORE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    FRAME_FUZZ: (("hostile/random_driver.cpp",), ()),
    RING_FUZZ: (("hostile/random_driver.cpp",), ()),
    **{
        suite: (
            tuple(f"model/{name}.cpp" for name in own[1:]),
            tuple(path.stem for path in sorted((ROOT / "native/model").glob("*.cpp")) if path.stem not in own),
        )
        for suite, own in MODELS.items()
    },
}


def _compile(folder: Path, suite: str, number: int) -> Path:
    source, flags, _ = PROGRAMS[suite]
    program = folder / f"{Path(source).stem}.{number}"
    native = folder / "native"
    include = [f"-I{_headers(folder, number)}", f"-I{native / 'core'}", f"-I{native / 'model'}"]
    seeing, made = MORE.get(suite, ((), ()))
    extra = [
        *(str(native / name) for name in seeing),
        *(str(folder / f"{name}.o") for name in made),
    ]
    run([*COMPILER, *flags, *include, str(native / source), *extra, "-o", str(program)])
    return program


def _notices(folder: Path, suite: str, number: int) -> bool:
    program = _compile(folder, suite, number)
    try:
        for arguments in PROGRAMS[suite][2]:
            command = [str(program), "--seed", "1", *arguments.split()]
            if ended(command, patience(90), SANITIZED) != 0:  # None: it hangs, and nobody would overlook that
                return True
        return False
    finally:
        program.unlink()


def _killer(folder: Path, number: int) -> str:
    """The first of the bug's suites that notices it, or nothing. Stress shows a race in some runs only: it has two."""
    programs = BUGS[number - 1].programs * 2
    try:
        return next((program for program in programs if _notices(folder, program, number)), "")
    except SystemExit:  # said already what the compiler says
        return UNBUILT


def _python_killer(name: str) -> str:
    """The tests that notice the bug, or nothing. A race shows in some runs only: it has several."""
    command = [sys.executable, "-m", "evidence.planted", name]
    for _ in range(TRIES):
        status = ended(command, patience(HANGS))
        if status is None or status == 1 or status < 0:  # a test that hangs or crashes notices the bug, too
            return PYTHON_BUGS[name].suite
    return ""


def kill_all(part: tuple[int, int] = WHOLE) -> Row:
    """Every planted bug against its suites; each of these suites must pass without one.

    part: (k, n) takes every n-th of the bugs, from the k-th on: each of them is compiled, or runs tests in a process of its own.
    """
    numbers = sliced(range(1, len(BUGS) + 1), part)
    in_python_too = sliced(list(PYTHON_BUGS), part)
    asked = sorted({suite for number in numbers for suite in BUGS[number - 1].programs})
    begun = time.monotonic()
    folder = plant()
    if any(name in planted_native.BUGS for name in in_python_too):  # built once, and before a clock runs
        os.environ[planted_native.BUILT] = str(planted_native.build())
    native = folder / "native"
    objects = sorted({name for _, made in MORE.values() for name in made})
    include = [f"-I{native / 'core'}", f"-I{native / 'model'}"]
    with ThreadPoolExecutor(WORKERS) as pool:
        list(
            pool.map(
                lambda name: run(
                    [
                        *(*COMPILER, *PLATFORM, *include, "-c"),
                        *(str(native / f"model/{name}.cpp"), "-o", str(folder / f"{name}.o")),
                    ]
                ),
                objects,
            )
        )
    with ThreadPoolExecutor(WORKERS) as pool:
        false_alarms = [
            suite
            for suite, alarm in zip(asked, pool.map(lambda r: _notices(folder, r, 0), asked), strict=True)
            if alarm
        ]
        killers = list(pool.map(lambda n: _killer(folder, n), numbers))
        in_python = list(pool.map(_python_killer, in_python_too))
    names = [*(BUGS[number - 1].what for number in numbers), *in_python_too]
    table = dict(zip(names, [*killers, *in_python], strict=True))
    alive = [name for name, killer in table.items() if killer in ("", UNBUILT)]
    failed = [f"suite {suite} fails without any bug" for suite in false_alarms]
    failed += [f"{table[name] or 'survived'}: {name}" for name in alive]
    return Row(
        "bugs",
        f"planted bugs: {len(table) - len(alive)} killed, of",
        len(table),
        len(failed),
        time.monotonic() - begun,
        f"python -m evidence bugs   # {'; '.join(failed[:3])}" if failed else "",
        details=table,
    )
