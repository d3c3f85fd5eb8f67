"""An archive of the classes that Spark loads, so that its JVM starts in half the time: made once per Java and PySpark.

The first session's JVM writes it when it exits; later ones map it. Lies in the user's cache. All that can go wrong only means that a JVM
starts as slowly as before. Knows files and the options of HotSpot; knows no Spark session.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
import zlib
from pathlib import Path

QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off", "-Xshare:auto")
MAGIC = (0xF00BABA8).to_bytes(4, "little")  # of an archive that is complete: HotSpot writes the header last
MAKING_SECONDS = 1800.0  # a JVM that was to write an archive this long ago has not, or runs still
UNUSED_SECONDS = 90 * 86400.0
KEPT = 6  # archives, those used last: each environment with Spark has its own, of some 180 MB
SWITCH = "PENSTOCK_CLASS_ARCHIVE"  # "off": neither used nor made


def cache() -> Path:
    """The user's folder for archives of classes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "classes"


def options(java: Path, spark: Path, purpose: str, *, make: bool = True) -> list[str]:
    """Options for a JVM that uses the archive, or writes it when it exits, if `make`. java, spark: their folders. purpose: sessions of
    one purpose load much the same classes; each purpose has an archive."""
    if os.environ.get(SWITCH) == "off":
        return []
    try:
        folder = cache()
        if re.search(r"[^A-Za-z0-9_./+=@-]", str(folder)):  # Spark would take the path apart
            return []
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_mine(folder):
            return []
        return _options(folder, _key(java, spark, purpose), make)
    except (OSError, RuntimeError):  # no home, no room, no permission
        return []


def _options(folder: Path, key: str, make: bool) -> list[str]:
    found = _sound(folder, key) or _adopted(folder, key)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(found)
        return [f"-XX:SharedArchiveFile={found}", *QUIET]
    is_coming = any(
        _age(path) < MAKING_SECONDS for path in folder.glob(f"{key}-*.new")
    )  # another JVM is going to write it
    if is_coming or not make:
        return []
    return [f"-XX:ArchiveClassesAtExit={folder}/{key}-{secrets.token_hex(4)}.new", *QUIET]


def _key(java: Path, spark: Path, purpose: str) -> str:
    """A name for what an archive depends on: HotSpot itself ignores one of another JVM, or of other jars."""
    facts = [purpose, str(java.resolve()), str(spark)]
    with contextlib.suppress(OSError):
        facts.append((java / "release").read_text())
    with os.scandir(spark / "jars") as jars:
        facts += sorted(f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars)
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _sound(folder: Path, key: str) -> Path | None:
    """The archive, if it is whole: its name has its checksum. Others go."""
    for path in sorted(folder.glob(f"{key}-*.jsa")):
        if _is_mine(path) and path.name == _name(key, path):
            return path
        with contextlib.suppress(OSError):
            path.unlink()
    return None


def _adopted(folder: Path, key: str) -> Path | None:
    """An archive that a JVM has written by now, under its name; None if there is none. Old files go."""
    found = None
    for path in folder.glob(f"{key}-*.new"):
        if _is_complete(path) and _is_mine(path):
            named = folder / _name(key, path)
            with contextlib.suppress(
                FileNotFoundError
            ):  # of two processes one comes too late, and finds it by its name the next time
                os.replace(path, named)
                os.utime(named)
                found = named
                break
    _tidy(folder)
    return found


def _tidy(folder: Path) -> None:
    """Removes archives that have not been used for long, the oldest of too many, and those that no JVM came to use."""
    for place, path in enumerate(sorted(folder.glob("*.jsa"), key=_age)):
        if place >= KEPT or _age(path) > UNUSED_SECONDS:
            path.unlink(missing_ok=True)
    for path in folder.glob("*.new"):
        if _age(path) > 86400:
            path.unlink(missing_ok=True)


def _is_complete(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def _name(key: str, path: Path) -> str:
    total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            total = zlib.crc32(block, total)
    return f"{key}-{total:08x}.jsa"


def _is_mine(path: Path) -> bool:
    found = path.lstat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
