"""The demo on logs and on rings: processes that publish streams, processes that read all of them. Rings lose a burst, and count it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.demo.crew import Tally
from penstock.cli.demo.flow import Demo
from penstock.cli.demo.sources import BURST, CODECS, TELEMETRY, burst, drive, drive_records, drive_streams, telemetry


class Logs(Demo):
    """A log per stream: nothing is lost."""

    kind, takes_data, subscribers = "log", True, 2
    options: dict[str, Any] = {"term_length": 4 << 20}  # noqa: RUF012

    def __init__(self, seconds: float, data: Path | None) -> None:
        super().__init__(seconds, data)
        groups = list(TELEMETRY.values()) if data is None else [drive_streams(data)]
        if self.lossy:
            groups.append([BURST])
        for stream in [stream for group in groups for stream in group]:
            codec = CODECS[stream] if stream in CODECS else drive_records(data, stream)[0].dtype  # type: ignore[arg-type]
            self.channels[f"{self.kind}:{stream}"] = {"codec": codec, **self.options}
        self.subscribed = list(self.channels)
        self.writers = [(self.publish, group) for group in groups]
        what = f"{seconds:g} s of this host's telemetry" if data is None else "this drive's minute"
        self.about = (
            f"published {what} on {len(self.channels)} {self.kind}s to {self.subscribers} subscribers, and recorded it"
        )

    def publish(self, streams: list[str]) -> Tally:
        """A publishing process."""
        tally = Tally()
        with contextlib.ExitStack() as opened:
            channels = {stream: f"{self.kind}:{stream}" for stream in streams}
            pubs = {stream: opened.enter_context(penstock.publish(channel)) for stream, channel in channels.items()}
            if streams == [BURST]:
                for batch in burst():
                    tally.wrote[channels[BURST]] += pubs[BURST].offer_many(batch)
                return tally
            for stream, message in telemetry(streams, self.seconds) if self.data is None else drive(self.data, streams):
                pubs[stream].send(message)
                tally.wrote[channels[stream]] += 1
        return tally


class Rings(Logs):
    """A ring per stream, and one that laps its readers, because it is small."""

    kind, lossy = "ring", True
    options: dict[str, Any] = {"capacity": 4 << 20}  # noqa: RUF012

    def __init__(self, seconds: float, data: Path | None) -> None:
        super().__init__(seconds, data)
        self.channels[f"ring:{BURST}"]["capacity"] = 1 << 18
