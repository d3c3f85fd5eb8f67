"""Suites that are native programs: kills at every instruction, hostile memory, damaged recordings, stress under sanitizers."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evidence.build import ROOT, build, run
from evidence.report import WORKERS, Row, sliced

SANITIZED = {
    **os.environ,
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0",  # a child of udp_check starts a conductor of its own
}
LIVES_FAILED = 20  # of one worker: then something is wrong with all


def _lines(command: list[str]) -> tuple[list[dict[str, object]], str]:
    """A program's JSON lines, and the program's own failures."""
    done = subprocess.run(command, capture_output=True, text=True, env=SANITIZED)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    broken = "" if done.returncode in (0, 1) and rows else f"exit status {done.returncode}: {done.stderr[-300:]}"
    return rows, broken


def kill(*, long: bool, seed: int) -> list[Row]:
    """Operations on log and recording, stepped through by instruction, and killed for good."""
    if platform.machine() != "x86_64":
        return [Row("kill", "instructions stepped", 0, skipped="stepping to a place is written for x86-64")]
    programs = ("log_kill", "last_kill", "ring_kill", "frame_kill", "pipe_kill", "early_kill", "udp_kill")
    folder = build("plain", (*programs, "recording_kill")) / "kill"
    rounds, kills, steps_of_recordings = (1, 450, 60) if long else (1, 30, 4)
    commands = [
        [
            str(folder / program),
            *f"--seed {seed} --rounds {rounds} --kills {kills} --parts {WORKERS} --part {part}".split(),
        ]
        for program in programs
        for part in range(WORKERS)
    ]
    commands.append([str(folder / "recording_kill"), "--seed", str(seed), "--rounds", str(steps_of_recordings)])
    begun = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(_lines, commands))
    seconds = time.monotonic() - begun
    found = [row for rows, _ in answers for row in rows]
    broken = [f"{' '.join(c)}   # {b}" for c, (_, b) in zip(commands, answers, strict=True) if b]
    failed = [str(row["first"]) for row in found if row["failures"]] + broken
    count = {key: sum(int(str(row[key])) for row in found) for key in ("steps", "states", "kills", "failures")}
    failures = count["failures"] + len(broken)
    failure = f"{folder}/…_kill --seed {seed} --rounds {rounds}   # {failed[0]}" if failed else ""
    return [
        Row("kill", "instructions stepped through", count["steps"], failures, seconds, failure),
        Row("kill", "states recovered from a copy", count["states"]),
        Row("kill", "processes killed there, the living went on", count["kills"]),
    ]


def compiler() -> str:
    """A clang++ that has libFuzzer, or nothing."""
    for name in ("clang++", *(f"clang++-{n}" for n in range(22, 12, -1))):
        if shutil.which(name) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "f.cpp"
            source.write_text(
                'extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }\n'
            )
            made = subprocess.run([name, "-fsanitize=fuzzer,address", source, "-o", f"{folder}/f"], capture_output=True)
            if made.returncode == 0:
                return name
    return ""


PARSES = 16  # parses_each of hostile/fuzz.hpp: every input comes with its neighbours
# Target → inputs, short and long; longest input.
FUZZ = {
    "block": (600_000, 60_000_000, 256),
    "header": (150_000, 1_500_000, 256),
    "assembler": (120_000, 1_500_000, 256),
    "sync": (100_000, 2_000_000, 256),
    "log": (16_000, 300_000, 512),
    "ring": (4_000, 200_000, 512),
    "frames": (6_000, 300_000, 512),
    "pipe": (3_000, 100_000, 512),
    "recording": (16_000, 500_000, 1024),
    "wire": (120_000, 3_000_000, 256),
    "receiver": (16_000, 2_000_000, 512),
    "sender": (16_000, 2_000_000, 512),
    "seal": (2_000, 300_000, 512),
}


def fuzz_targets(*, long: bool) -> dict[str, tuple[int, int]]:
    """All of them, for `fuzz`."""
    return {name: (much if long else short, longest) for name, (short, much, longest) in FUZZ.items()}


FUZZED = {**SANITIZED, "ASAN_OPTIONS": "malloc_context_size=2:quarantine_size_mb=16"}


def fuzz(chosen: dict[str, tuple[int, int]], *, parts: int, seed: int) -> Row:
    """Parsers of foreign bytes under libFuzzer with ASan and UBSan; a canary that must be found.

    chosen: of each target, how many inputs, and the longest. parts: runs at once, each with a corpus of its own.
    """
    clang = compiler()
    if not clang:
        return Row(
            "hostile",
            "inputs parsed by fuzz targets",
            0,
            skipped="needs clang++ with libFuzzer (Debian: apt install clang, and libclang-rt-N-dev of its version)",
        )
    targets = tuple(f"fuzz_{name}" for name in (*chosen, "canary"))
    folder = build("fuzz", targets, compiler=clang) / "hostile"

    def one(job: tuple[str, int]) -> tuple[int, str]:
        target, part = job
        inputs, longest = chosen[target]
        with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as corpus:
            command = [
                str(folder / f"fuzz_{target}"),
                f"-seed={seed + part}",
                f"-runs={inputs // parts}",
            ]
            command += [
                f"-max_len={longest}",
                "-print_final_stats=1",
                f"-artifact_prefix={ROOT}/out/fuzz-{target}-",
                corpus,
            ]
            (ROOT / "out").mkdir(exist_ok=True)
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=FUZZED)
        runs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
        summary = re.search(r"SUMMARY: .*|runtime error: .*", done.stderr)
        wrong = (
            ""
            if done.returncode == 0
            else f"{' '.join(command[:4])}   # {summary.group(0) if summary else done.stderr[-200:]}"
        )
        return int(runs.group(1)) * PARSES if runs else 0, wrong

    begun = time.monotonic()
    canary = subprocess.run(
        [
            folder / "fuzz_canary",
            f"-seed={seed}",
            "-runs=1000000",
            "-max_len=256",
            f"-artifact_prefix={ROOT}/out/canary-",
        ],
        capture_output=True,
        env=SANITIZED,
        cwd=ROOT,
    )
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(one, [(target, part) for part in range(parts) for target in chosen]))
    failed = [wrong for _, wrong in answers if wrong]
    if canary.returncode == 0:
        failed.insert(0, f"{folder}/fuzz_canary   # the planted fault was not found: this suite is blind")
    row = Row("hostile", f"inputs parsed by {len(chosen)} fuzz targets", sum(n for n, _ in answers), len(failed))
    row.seconds = time.monotonic() - begun
    row.failure = failed[0] if failed else ""
    return row


def scribble(*, long: bool, seed: int) -> Row:
    """A peer writes random words into a channel's memory while others work in it."""
    program = build("asan", ("scribble",), sanitize="address,undefined") / "hostile" / "scribble"
    begun = time.monotonic()
    command = [str(program), "--seed", str(seed), "--rounds", "160" if long else "8"]
    rows, broken = _lines(command)
    done = rows[0] if rows else {"done": 0, "errors": 0, "failures": 0, "first": ""}
    failures = int(str(done["failures"])) + bool(broken)
    count = int(str(done["done"])) + int(str(done["errors"]))
    failure = f"{' '.join(command)}   # {done['first'] or broken}" if failures else ""
    return Row("hostile", "operations beside a scribbling peer", count, failures, time.monotonic() - begun, failure)


def corrupt(*, long: bool, seed: int) -> Row:
    """Recordings with flipped bytes and cut ends: found, located, never read as something else."""
    program = build("plain", ("recording_check",)) / "tests" / "recording_check"
    each = (5_000_000 if long else 110_000) // WORKERS
    begun = time.monotonic()
    commands = [[str(program), "--seed", str(seed + part), "--rounds", str(each)] for part in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        done = list(pool.map(lambda c: subprocess.run(c, capture_output=True, text=True), commands))
    failed = [f"{' '.join(c)}   # {d.stderr[-200:]}" for c, d in zip(commands, done, strict=True) if d.returncode]
    return Row(
        "recording",
        "damaged recordings",
        each * WORKERS,
        len(failed),
        time.monotonic() - begun,
        failed[0] if failed else "",
    )


def network(*, lives: int, seed: int) -> Row:
    """Lives of the network log's sender and receiver over a link that loses, doubles, reorders and parts."""
    program = build("plain", ("net_sim",)) / "tests" / "net_sim"
    each = -(-lives // WORKERS)
    begun = time.monotonic()

    def run(first: int) -> list[str]:
        """Each life that fails ends the program: it goes on behind that one."""
        failed, end = [], first + each
        while first < end and len(failed) < LIVES_FAILED:
            command = [str(program), "--seed", str(first), "--lives", str(end - first)]
            done = subprocess.run(command, capture_output=True, text=True)
            if not done.returncode:
                break
            failed.append(f"{program} {done.stderr.strip()[-400:]}")
            life = re.search(r"reproduce: net_sim --seed (\d+)", done.stderr)
            if not life:  # it died without a word
                failed.append(f"{' '.join(command)}   # exit status {done.returncode}: not known which life")
                break
            first = int(life[1]) + 1
        if len(failed) >= LIVES_FAILED:
            failed.append(f"{program} --seed {first} --lives {end - first}   # did not run: {LIVES_FAILED} had failed")
        return failed

    with ThreadPoolExecutor(WORKERS) as pool:
        failed = [one for part in pool.map(run, (seed + part * each for part in range(WORKERS))) for one in part]
    for one in failed[1:]:  # the row shows the first
        print(one, file=sys.stderr)
    return Row(
        "simulator",
        "lives of the network log",
        each * WORKERS,
        len(failed),
        time.monotonic() - begun,
        failed[0] if failed else "",
    )


def _checks(seed: int, seconds: int, *, long: bool) -> dict[str, list[str]]:
    """The native programs with their arguments."""
    random = ["--seed", str(seed)]
    stress = [*random, "--seconds", str(seconds)]
    return {
        "log_stress": stress,
        "last_stress": stress,
        "ring_stress": stress,
        "frame_stress": stress,
        "pipe_stress": stress,
        "log_crash": [],
        "members_crash": [],
        "recording_check": [*random, "--rounds", str(200 * seconds)],
        "clock_check": [*random, "--rounds", str(25 * seconds)],
        "wait_check": [],
        "copy_check": [],
        "net_check": [],
        "net_extensions": [],
        "net_sim": [*random, "--lives", str(100 * seconds)],
        "udp_check": [*random, "--scale", "4" if long else "1"],
        "udp_streams": [],
        "seal_check": random,
        "udp_takeover": [*random, "--messages", str(20_000 * seconds), "--every-ms", "50"],
    }


SANITIZERS = {"tsan": "thread", "asan": "address,undefined"}  # builds


def sanitizers(*, long: bool, seed: int, part: tuple[int, int]) -> Row:
    """Native programs under ThreadSanitizer, and under AddressSanitizer with UBSan and leak checking; a part of the suites has one of the two.
    Plain only those that send as fast as they can, unless `long`: what the others find, a sanitizer finds, too, and most of the time
    here goes into compiling."""
    begun = time.monotonic()
    plan, builds = [], {"plain": "", **dict(sliced(list(SANITIZERS.items()), (part[0], min(part[1], 2))))}
    for name, kinds in builds.items():
        checks = _checks(seed, 30 if long else 4, long=long)
        chosen = [check for check in checks if kinds or long or check.endswith(("_stress", "_crash"))]
        folder = build(name, tuple(chosen), sanitize=kinds) / "tests"
        plan += [[str(folder / check), *checks[check]] for check in chosen]
    failed, messages = [], 0
    for command in plan:
        done = subprocess.run(command, capture_output=True, text=True, env=SANITIZED)
        count = re.search(r"(\d+) messages", done.stdout)
        messages += int(count.group(1)) if count else 0
        if done.returncode != 0:
            failed.append(f"{' '.join(command)}   # {done.stderr[-200:]}")
    return Row(
        "sanitizer",
        f"messages by build: {', '.join(builds)}",
        messages,
        len(failed),
        time.monotonic() - begun,
        failed[0] if failed else "",
    )


def python_tests() -> Row:
    """The Python tests over an extension with ASan and UBSan, which are preloaded into the interpreter."""
    begun = time.monotonic()
    target = ROOT / "build" / "asan-python"
    run(
        [
            *(
                sys.executable,
                *["-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--upgrade"],
                str(ROOT),
            ),
            *("--target", str(target), "--config-settings=cmake.define.PENSTOCK_SANITIZE=address,undefined"),
            f"--config-settings=build-dir={ROOT / 'build' / 'asan-wheel'}",
        ]
    )
    libraries = [
        subprocess.run(
            ["g++", f"-print-file-name={name}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan", "libubsan")
    ]
    command = [sys.executable, "-m", "pytest", "-o", "addopts=--import-mode=importlib", "-q", "-p", "no:cacheprovider"]
    command += [
        f"tests/{name}.py"
        for name in (
            *(
                "kinds/test_log",
                "kinds/test_ring",
                "kinds/test_frames",
                "record/test_record",
                "record/test_record_frames",
            ),
            *("channels/test_files", "channels/test_waiting"),
        )
    ]
    environment = {
        **SANITIZED,
        "ASAN_OPTIONS": "detect_leaks=0",
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONPATH": str(target),
    }
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    passed = re.search(r"(\d+) passed", done.stdout)
    row = Row("sanitizer", "Python tests under preloaded ASan and UBSan", int(passed.group(1)) if passed else 0)
    row.seconds = time.monotonic() - begun
    if done.returncode != 0:
        row.failures = 1
        row.failure = (
            f"LD_PRELOAD='{environment['LD_PRELOAD']}' PYTHONPATH={target} {' '.join(command)}   # {done.stdout[-200:]}"
        )
    return row
