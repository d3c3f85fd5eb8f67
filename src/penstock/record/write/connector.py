"""How archives reach channels: opened for a recorder, published onto, described, recorded by another process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock._native import core as _native
from penstock.channels.interfaces.publication import Publication
from penstock.channels.storage import inspection
from penstock.channels.storage.discovery import ChannelDiscovery, check_agrees, local, remove
from penstock.channels.uri.channel import FAKE
from penstock.channels.uri.opener import TEST_ONLY, parse
from penstock.channels.uri.value import AnyChannel, AnyChannels, open_carrying, several
from penstock.channels.uri.wildcards import is_pattern
from penstock.errors import NotFound, Unsupported
from penstock.record.write.past import Past
from penstock.record.write.process import ProcessRecorder


class Channels:
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

    def subscribe_past(self, channel: str, past: Past, *, sent: bool = False, **options: Any) -> Any:
        if sent:
            return self.subscribe(channel, sent=True, start="earliest", **options)
        parsed = local(channel)
        if parsed.kind.tap is None:
            raise Unsupported(f"{channel}: channels of kind {parsed.kind.name!r} cannot be recorded")
        return past.join(parsed, options)

    def publish(self, channel: AnyChannel, **options: Any) -> Publication:
        tested = {name: options.pop(name) for name in TEST_ONLY & options.keys()}
        opened: Publication = open_carrying(channel, options, options, tested)
        return opened

    def check_agreement(self, channels: AnyChannels, *, create: bool = True) -> None:
        given = several(channels)
        for one in given if isinstance(given, list) else [given]:
            check_agrees(one, create=create)

    def remove(self, channel: str) -> None:
        remove(channel)

    def describe(self, channel: str, *, pixels: bool = False) -> dict[str, Any]:
        parsed = local(channel)
        return inspection.describe(parsed.kind, parsed, pixels=pixels)

    def describe_opened(self, subscription: Any, *, pixels: bool = False) -> dict[str, Any]:
        parsed = local(subscription.channel)
        return inspection.describe_opened(parsed.kind, parsed, subscription, pixels=pixels)

    def identity(self, subscription: Any) -> object:
        if isinstance(subscription, _native.StreamHandle):
            return inspection.identity_opened(subscription)
        return id(subscription)  # of the publications of an address: several files

    def owners(self, channel: str) -> list[tuple[int, str, bool]]:
        parsed = local(channel)
        return inspection.owners(parsed.kind, parsed)

    def receives(self, channel: str) -> bool:
        try:
            found = inspection.inspect(local(channel).kind, local(channel))
        except NotFound:  # the files of killed publications alone
            return False
        return bool(found.details.get("images")) or any(member.reads for member in found.members)

    def discover(self, patterns: Sequence[str]) -> ChannelDiscovery:
        return ChannelDiscovery(patterns)

    def record_in_process(self, archive: Path, names: Sequence[str], options: dict[str, Any]) -> Any:
        for name in names:
            if name.startswith(f"{FAKE}:") if is_pattern(name) else parse(name).fake:
                raise Unsupported(f"{name} is within this process: a recorder in another one cannot read it")
        return ProcessRecorder(archive, names, options)
