"""What tables must hold: one table's rows as sets of keys, and how runs change them."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Message:
    """A message of the archive. epoch: with a sign, as tables have it."""

    channel: str
    epoch: int
    recording: int
    position: int
    timestamp_ns: int
    payload: bytes
    codec: object

    @property
    def key(self):
        return self.channel, self.epoch, self.position


@dataclass
class Model:
    """A table. done: keys that count as read; edited: rows whose decode_error somebody has set; kept: rows and edits by version; was: rows
    before the first RESTORE; is_vague: where rows that came back end is not known, or which were there before;
    commit: what the log says of the version."""

    rows: set = field(default_factory=set)
    done: set = field(default_factory=set)
    edited: set = field(default_factory=set)
    columns: dict = field(default_factory=dict)
    id: str = ""
    version: int = -1
    is_restored: bool = False  # by RESTORE, and no run has been told what to do
    was: set = field(default_factory=set)
    is_vague: bool = False
    unsure: set = field(default_factory=set)  # rows that may have come and gone: too old
    kept: dict = field(default_factory=dict)
    commit: bytes | None = None

    def refill(self, held):
        """What becomes of a table that was set back: what is held is read again, and other rows that are gone do not count as read."""
        self.done -= held | (self.was - self.rows)

    def copy(self):
        return replace(
            self,
            **{name: type(value)(value) for name, value in self.__dict__.items() if isinstance(value, set | dict)},
        )


@dataclass
class Bounds:
    """What a table may hold after a run: all of `least`, and nothing but `most`."""

    least: set
    most: set


def after(model, held, is_gone, is_erased):
    """The rows of a table after a run that succeeds. held: the archive's messages of its streams; is_gone: behind a cut."""
    rows = {key for key in model.rows if not is_gone(key)}
    return {key for key in rows | (held - model.done) if not is_erased(key)}


def bounds(model, wanted, *, is_done, optional=frozenset()):
    """After a run: exactly `wanted` if it succeeded; else each change was made or not. optional: rows that may be gone."""
    if is_done:
        return Bounds(wanted - optional, wanted)
    return Bounds((wanted & model.rows) - optional, wanted | model.rows)
