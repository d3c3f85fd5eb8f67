"""`penstock.Archive`: an archive that knows how to reach channels. Joins workshops; does no work itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.appearing import Appearing
from penstock.channel import FAKE
from penstock.channels import opening
from penstock.clock import Clock
from penstock.errors import Unsupported
from penstock.front import local, parse, remove
from penstock.publication import Publication
from penstock.record.archive import Archive as _Archive
from penstock.record.process import ProcessRecorder
from penstock.verbs import publish
from penstock.wildcards import is_pattern


class _Channels:
    """How archives reach channels."""

    def subscribe(self, channel: str, *, sent: bool = False, **options: Any) -> Any:
        parsed = local(channel)
        if sent:
            if parsed.kind.sent_tap is None:
                raise Unsupported(
                    f"{channel}: sent=True is for channels that leave the machine (udp:); here readers and writers see the same"
                )
            return parsed.kind.sent_tap(parsed, **options)
        if parsed.kind.tap is None:
            raise Unsupported(f"{channel}: channels of kind {parsed.kind.name!r} cannot be recorded")
        return parsed.kind.tap(parsed, **options)

    def publish(self, channel: str, **options: Any) -> Publication:
        opened: Publication = publish(channel, **options)
        return opened

    def remove(self, channel: str) -> None:
        remove(channel)

    def describe(self, channel: str, *, pixels: bool = False) -> dict[str, Any]:
        parsed = local(channel)
        return opening.describe(parsed.kind, parsed, pixels=pixels)

    def appearing(self, patterns: Sequence[str]) -> Appearing:
        return Appearing(patterns)

    def record_in_process(self, archive: Path, names: Sequence[str], options: dict[str, Any]) -> Any:
        for name in names:
            if name.startswith(f"{FAKE}:") if is_pattern(name) else parse(name).fake:
                raise Unsupported(f"{name} is within this process: a recorder in another one cannot read it")
        return ProcessRecorder(archive, names, options)


class Archive(_Archive):
    """A folder of recordings: record, list, scan, replay, follow, verify, repair.

    Made if it does not exist, unless `create=False`: then `NotFound`. Safe to open from several processes at once.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, clock: Clock | None = None) -> None:
        super().__init__(path, connector=_Channels(), create=create, clock=clock)


__all__ = ["Archive"]
