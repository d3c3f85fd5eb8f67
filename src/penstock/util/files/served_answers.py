"""What a server of files answers, checked: a server may be hostile. Knows the actions of `served_files`, and no connection."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
FileName = Annotated[str, msgspec.Meta(pattern=r"^[^/\x00]{1,255}\Z")]
RecordingName = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{8}\Z")]
Kind = Literal["file", "folder", "none"]
Entry = tuple[str, Kind, Count, Count]  # a file's path, its kind, its bytes, and when it changed, in nanoseconds
Files = list[tuple[FileName, Count, Count]]  # names, bytes and times of change


class Wrong(ValueError):
    """An answer that is none."""


class Head(msgspec.Struct):
    """The first result of every action. errno: 0 of a good one."""

    errno: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0
    text: str = ""


class About(msgspec.Struct):
    """A recording in a look's head."""

    live: bool
    tags: tuple[str, str]
    bytes: list[tuple[FileName, Count]]
    older: Files | None = None
    newer: Files | None = None


def decoded(raw: bytes, kind: Any) -> Any:
    """JSON of a declared form."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError) as error:  # of text and of numbers too
        raise Wrong(str(error) or type(error).__name__) from None


def entries(raw: bytes, paths: list[str] | None, folder: str = "") -> list[Entry]:
    """The answer about paths, or about the entries of a folder."""
    found: list[Entry] = decoded(raw, list[Entry])
    if paths is not None and [one[0] for one in found] != paths:
        raise Wrong("it is about other paths than those that were asked for")
    if paths is None and not all(path.rpartition("/")[0] == folder for path, *_ in found):
        raise Wrong(f"it has paths that are not in {folder}")
    return found


def look(results: list[bytes], known: set[str]) -> dict[str, tuple[About, dict[str, bytes]]]:
    """A look's answer: of each recording, what there is, and the bytes of small files. known: recordings of which parts may be left out."""
    if not results:
        raise Wrong("it is empty")
    length, rest = decoded(results[0], Count), b"".join(results[1:])
    at, found = length, dict[str, tuple[About, dict[str, bytes]]]()
    for name, about in decoded(rest[:length], dict[RecordingName, About]).items():
        if name not in known and (about.older is None or about.newer is None):
            raise Wrong(f"files of {name} are left out")
        raws = dict[str, bytes]()
        for file, size in about.bytes:
            raws[file] = rest[at : at + size]
            at += size
        found[name] = about, raws
    if at != len(rest):
        raise Wrong(f"it has {len(rest):,} bytes instead of {at:,}")
    return found
