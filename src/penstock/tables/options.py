"""The options of a pipeline, checked, and what a run tells of itself."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from penstock.channels import checks
from penstock.channels.uri.value import AnyChannel, uri_of, uris_of
from penstock.columns.contract import types
from penstock.columns.contract.decoding import MODES
from penstock.errors import Invalid
from penstock.util.strict import check_names
from penstock.util.units import seconds

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "brotli", "none")
COMMIT_BYTES = 256 << 20
RANGE_BYTES = 32 << 20
ON_RESTORE = ("keep", "refill")
Span = float | str | datetime.timedelta


@dataclass(frozen=True)
class Outcome:
    """The result of a run. rows: of *messages*, new in this run; total_rows: in the table now, with those that others added or deleted;
    engine: spark or local; own: the user's tables (`penstock.spark`), with the errors of those that failed; erased: messages that were read and
    left out, because their send time was erased."""

    ranges: int
    rows: int
    total_rows: int
    streams: tuple[str, ...]
    seconds: float
    engine: str
    own: tuple[Any, ...] = ()
    erased: int = 0


class Given(TypedDict, total=False):
    """The options of `penstock.tables.run`."""

    compression: str
    schema: Mapping[Any, str]
    new_keys: str
    keep: Mapping[Any, Span] | Span | None
    range_bytes: int
    commit_bytes: int
    restored: str | None
    rebuild: Sequence[AnyChannel]


@dataclass(frozen=True)
class Options:
    """How tables are made; see `run`. `Options.given` is for names that a user wrote."""

    compression: str = "snappy"
    schema: Mapping[Any, str] = field(default_factory=dict)
    new_keys: str = "add"
    keep: Mapping[Any, Span] | Span | None = None
    range_bytes: int = RANGE_BYTES
    commit_bytes: int = COMMIT_BYTES
    restored: str | None = None
    rebuild: Sequence[AnyChannel] = ()

    @classmethod
    def given(cls, options: Mapping[str, Any]) -> Options:
        """From options by name. TypeError for one that there is not."""
        check_names("run", options, cls.__dataclass_fields__)
        return cls(**options)

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise Invalid(f"compression is {self.compression!r}: there are {', '.join(COMPRESSIONS)}")
        if self.new_keys not in MODES:
            raise Invalid(f"new_keys is {self.new_keys!r}: it must be {', '.join(MODES)}")
        if self.restored not in (None, *ON_RESTORE):
            raise Invalid(f"restored is {self.restored!r}: it must be {' or '.join(ON_RESTORE)}")
        checks.whole(self.range_bytes, "range_bytes", 1)
        checks.whole(self.commit_bytes, "commit_bytes", 1)
        object.__setattr__(self, "rebuild", checks.texts(uris_of(self.rebuild), "rebuild", "streams"))
        if not isinstance(self.schema, Mapping):
            raise Invalid(
                f"schema is {self.schema!r}: it must be a mapping, as {{'log:imu': 'px double, ts timestamp'}}"
            )
        object.__setattr__(self, "schema", _by_stream(self.schema, "schema"))
        for stream, text in self.schema.items():
            try:
                types.parse(text)
            except Invalid as error:
                raise Invalid(f"the schema of {stream}: {error}") from None
        if isinstance(self.keep, Mapping):
            object.__setattr__(self, "keep", _by_stream(self.keep, "keep"))
        self.ages()

    def ages(self) -> dict[str | None, int]:
        """How long rows are kept, in nanoseconds, by stream; None: of all others."""
        given = self.keep if isinstance(self.keep, Mapping) else {None: self.keep} if self.keep is not None else {}
        return {stream: int(seconds(span, "keep") * 1e9) for stream, span in given.items()}


def _by_stream(given: Mapping[Any, Any], name: str) -> dict[Any, Any]:
    """A mapping of streams, by their URIs; None stands for all others. `Invalid` for a key that is no stream."""
    found = {uri_of(stream): value for stream, value in given.items()}
    checks.texts([stream for stream in found if stream is not None], name, "streams, each with its value")
    return found
