"""Rebuilds a stream's table, in one commit, from *messages*: with another schema, or with the columns of all its messages.

*messages* has what the archive has, and what was purged from it since; it lacks rows that were deleted or erased.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.columns import contract as contracts
from penstock.columns.contract.declared import inner
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError
from penstock.record import ReadPlanner, intervals
from penstock.tables.delta.files import Added
from penstock.tables.folder import Folder
from penstock.tables.folder.state import State
from penstock.tables.reading import check_files, files_of
from penstock.tables.schemas import of_stream, recording_key
from penstock.tables.work.engine import Engine, Progress, Row
from penstock.tables.work.tasks import sampled


def write_all(
    engine: Engine,
    parts: list[tuple[str, int]],
    found: dict[str, contracts.Contract],
    task: Callable[[int, contracts.Contract], Row],
    discard: Callable[[int, Row], None],
    report: Progress,
) -> list[Row]:
    """The answers of tasks, which share the columns of their stream. One whose new keys got other columns than the table gets is done
    again.

    parts: the stream and the size of each. found: the contract of each stream; it grows. task: makes one, by its number. discard:
    deletes the files of an answer.
    """
    done: dict[int, Row] = {}
    todo = list(range(len(parts)))
    while todo:
        tasks = [task(number, found.get(parts[number][0], ())) for number in todo]
        size, again = sum(parts[number][1] for number in todo), []
        for answer in sorted(engine.do("writing", tasks, size, report), key=lambda one: int(one["number"])):
            number = int(answer["number"])
            channel = parts[number][0]
            if "contract" in answer and channel in found:
                wanted = contracts.unpack(answer["contract"])
                found[channel] = contracts.merged(found[channel], wanted)
                if not set(wanted) <= set(found[channel]):
                    discard(number, answer)
                    again.append(number)
                    continue
            done[number] = answer
        todo = again
    for number, answer in done.items():
        answer["contract"] = found.get(parts[number][0], ())
    return [done[number] for number in range(len(parts))]


@dataclass(frozen=True)
class How:
    """How a table is rebuilt. declared: the columns of a stream that the user and its codecs declare."""

    engine: Engine
    declared: Callable[[str, Iterable[dict[str, Any]]], contracts.Contract]
    mode: str
    compression: str
    progress: Progress


def rebuild(how: How, folder: Folder, survey: ReadPlanner, channel: str) -> None:
    """Rebuilds a stream's table. `Invalid` if *messages* lacks rows that the table has and that the archive has no more."""
    stored, messages = folder.stream(channel), folder.messages.table
    if stored.table is None or messages is None:
        raise NotFound(f"{folder.place} has no table of {channel} to rebuild")
    codecs = _codecs(stored.state, survey, channel)
    if any(inner(codec)["kind"] == "frame" for codec in codecs.values()):
        raise Invalid(f"{channel} is a channel of frames, whose columns never change: there is nothing to rebuild")
    _check_complete(folder, survey, channel)
    of = [row for row in folder.messages.state.done if row["channel"] == channel]
    recordings = {recording_key(row["epoch"], row["recording"]) for row in of}
    if unknown := sorted(recordings - set(codecs)):
        raise Corrupt(
            f"no table says how the messages of recordings {', '.join(unknown)} (epoch/number) of {channel} are encoded"
        )
    files = files_of(messages, channel)
    check_files(messages, files)
    token = folder.begin_batch([stored.folder])
    try:
        contract = how.declared(channel, codecs.values())
        if how.mode == "add" or not contract:
            contract = sampled(messages.place, [file.path for file in files], channel, codecs, contract)

        def task(number: int, known: contracts.Contract) -> Row:
            return {
                "number": number,
                "file": files[number].path,
                "messages": str(messages.place),
                "channel": channel,
                "codecs": {name: codecs[name] for name in recordings},
                "places": {"stream": str(stored.place)},
                "contract": contracts.pack(known),
                "mode": how.mode,
                "batch": token,
                "compression": how.compression,
                "ingested_us": time.time_ns() // 1000,
            }

        def discard(_: int, answer: Row) -> None:
            for file in answer["files"].values():
                if file:
                    stored.place.delete(file[0])

        found = {channel: contract}
        answers = write_all(how.engine, [(channel, file.size) for file in files], found, task, discard, how.progress)
        if failed := [answer["error"] for answer in answers if "error" in answer]:
            raise PenstockError(f"{channel} was not rebuilt: {failed[0]}")
        adds = [Added.from_json(file) for answer in answers if (file := answer["files"].get("stream"))]
        stored.state.done = [dict(row) for row in of]
        stored.state.codecs = {name: codecs[name] for name in sorted(recordings)}
        kind = inner(next(iter(codecs.values()), {"kind": "bytes"}))["kind"]
        stored.commit(adds, schema=of_stream(found[channel], kind), replaces=True)
    except BaseException:
        folder.clean()
        raise
    folder.end_batch(token)


def _codecs(state: State, survey: ReadPlanner, channel: str) -> dict[str, dict[str, Any]]:
    """How each recording's messages are encoded: the archive's, and those that it has no more."""
    there = {
        recording_key(one.info.epoch, one.info.id): dict(one.info.codec)
        for one in survey.recordings
        if one.info.channel == channel
    }
    kept: Mapping[str, dict[str, Any]] = state.codecs
    return {**kept, **there}


def _check_complete(folder: Folder, survey: ReadPlanner, channel: str) -> None:
    have, held = folder.have(), survey.held(None)
    for key, parts in have["stream"].items():
        if key[0] == channel:
            lacks = intervals.without(parts, have["messages"].get(key, []))
            if intervals.without(lacks, intervals.union(held.get(key, []))):
                raise Invalid(
                    f"{channel} cannot be rebuilt: the archive has purged messages that its table has, and the table messages lacks them"
                )


__all__ = ["How", "rebuild", "write_all"]
