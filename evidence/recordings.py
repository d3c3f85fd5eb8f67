"""The suite of damaged archives: bytes of every file of the recording format are changed, files are cut, removed and swapped.

After each: no message is wrong, none is missing without a counted gap that it touches, `verify` says that something is wrong or the
change has no meaning, and `repair` leaves an archive that is right, without moving a sound segment.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import penstock
from evidence.build import ROOT
from evidence.report import WORKERS, Row

sys.path.insert(0, str(ROOT / "tests"))
from damage import Before, add_every_file, check, flip, two_recordings

SHARE = 400  # changes that one process tries


def files(archive: penstock.Archive) -> list[Path]:
    """Every file of it that has bytes, apart from the catalog, which is a cache whose rows `verify` compares."""
    found = sorted(path for path in archive.path.rglob("*") if path.is_file() and path.stat().st_size)
    return [path.relative_to(archive.path) for path in found if "catalog" not in path.name]


def changes(archive: penstock.Archive, *, long: bool, seed: int) -> list[tuple[str, str, int]]:
    """(what, file, where). Long: each byte of each file, and each length of it that is at an edge; short: some of each file."""
    rng, found = random.Random(seed), list[tuple[str, str, int]]()
    names = files(archive)
    for name in names:
        size = (archive.path / name).stat().st_size
        every = range(size) if long else sorted(rng.sample(range(size), min(size, 12)))
        found += [("flip", str(name), at) for at in every]
        found += [
            ("cut", str(name), at) for at in {0, 1, size // 2, size - 1, *(rng.randrange(size) for _ in range(3))}
        ]
        found.append(("remove", str(name), 0))
        alike = [other for other in names if other.suffix == name.suffix and other != name]
        found += [("swap", str(name), names.index(other)) for other in (alike if long else alike[:3])]
    return found


def _one(before: Before, whole: penstock.Archive, place: Path, change: tuple[str, str, int]) -> str:
    """Does one change to a copy. Returns the fault that followed, or nothing."""
    what, name, at = change
    shutil.rmtree(place, ignore_errors=True)
    copy = penstock.Archive(shutil.copytree(whole.path, place))
    path = copy.path / name
    number = int(path.parent.name) if path.parent.name.isdigit() else 0
    if what == "flip":
        flip(path, at, 1 << at % 8)
    elif what == "cut":
        os.truncate(path, at)
    elif what == "remove":
        path.unlink()
    else:
        shutil.copy(whole.path / files(whole)[at], path)
    hurt = before.hurt(number, path.name, at) if what == "flip" and number else None
    sound = (
        {one: hurt if one == number else [] for one in before.messages}
        if what == "flip"
        else dict.fromkeys(before.messages)
    )
    lost = {one: check(before, copy, one, allowed) for one, allowed in sound.items()}
    told = copy.verify()
    if what == "flip" and not told and name.endswith((".seg", ".idx", "synced", "cuts", "segments", "next", "id")):
        return "verify says nothing"
    if sum(lost.values()) and not told:
        return "messages are missing, and verify says nothing"
    data = {one: (copy.path / one).read_bytes() for one in files(copy) if one.suffix == ".seg"}
    copy.repair()
    # A query writes its ledger again; an archive's name cannot be made again.
    left = [one for one in copy.verify() if one.path.parent.name != "consumers" and one.path.name != "id"]
    if left:
        return f"after repair: {left[0].path.name}: {left[0].what}"
    if what == "flip" and {one: (copy.path / one).read_bytes() for one in data if (copy.path / one).exists()} != data:
        return "repair moved or changed a segment"
    again = {one: check(before, copy, one, allowed) for one, allowed in sound.items()}
    return "" if again == lost else f"{lost} messages were missing before repair, {again} after"


def _share(given: tuple[str, str, list[tuple[str, str, int]]]) -> list[str]:
    whole_at, channels, todo = given
    os.environ["PENSTOCK_DIR"] = channels
    logging.getLogger("penstock").setLevel(logging.CRITICAL)
    whole, wrong = penstock.Archive(whole_at), []
    before = Before.of(whole)
    place = Path(whole_at).with_name(f"copy{os.getpid()}")
    for change in todo:
        try:
            said = _one(before, whole, place, change)
        except Exception as error:  # any: it is the suite's finding
            said = f"{type(error).__name__}: {error}"
        if said:
            wrong.append(f"{change}: {said}")
    shutil.rmtree(place, ignore_errors=True)
    return wrong


def damage(*, long: bool, seed: int) -> Row:
    """Every file of the format, changed."""
    begun, root = time.monotonic(), Path(tempfile.mkdtemp(prefix="penstock-damage-", dir="/dev/shm"))
    was = os.environ.get("PENSTOCK_DIR")
    try:
        channels = root / "channels"
        channels.mkdir(mode=0o700)
        os.environ["PENSTOCK_DIR"] = str(channels)
        archive = two_recordings(penstock.Archive(root / "whole"))
        add_every_file(archive)
        todo = changes(archive, long=long, seed=seed)
        shares = [(str(archive.path), str(channels), todo[at : at + SHARE]) for at in range(0, len(todo), SHARE)]
        with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
            wrong = [one for found in pool.map(_share, shares) for one in found]
    finally:
        if was is None:
            os.environ.pop("PENSTOCK_DIR", None)
        else:
            os.environ["PENSTOCK_DIR"] = was
        shutil.rmtree(root, ignore_errors=True)
    row = Row("recording", "changes of every file of an archive", len(todo), len(wrong), time.monotonic() - begun)
    row.failure = f"--seed {seed}: {wrong[0]}" if wrong else ""
    row.details = {"wrong": wrong[:20]}
    return row


if __name__ == "__main__":
    print(damage(long="long" in sys.argv, seed=int(sys.argv[-1]) if sys.argv[-1].isdigit() else 1))
