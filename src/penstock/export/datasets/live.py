"""`penstock.live_dataset`: the messages of a channel as a data set. Each process that iterates opens a subscription of its own.

Knows channels; knows no archive, no file and no torch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from penstock._native import core as _native
from penstock.channels.checks import limit_of, whole
from penstock.channels.storage.discovery import inspect
from penstock.channels.uri.opener import parse, subscription_options
from penstock.channels.uri.value import AnyChannel, open_channel, uri_of
from penstock.codecs import Codec
from penstock.errors import EndOfStream, Invalid, NotFound, Unsupported
from penstock.export.datasets.workers import Share, in_worker, worker
from penstock.kinds.frames.frame import Frame
from penstock.util.strict import Strict, near

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

log = logging.getLogger("penstock")

MIX = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: neighbours are spread over all workers
WHOLE = Share()
PARTLESS = {
    True: "each message goes to one process anyway",
    False: "its messages have no positions",
}  # by whether it has one reader


class LiveDataset(Strict, Iterable[Any]):
    """The messages of a channel, as they come. Made by `penstock.live_dataset`. Nothing is open until it is iterated, and each iteration has a subscription of its own.

    Pickles by its channel and options. The iterator is for one thread at a time.
    """

    def __init__(self, channel: AnyChannel, *, timeout: float | None = None, **options: Any) -> None:
        self._channel, self._uri = channel, uri_of(channel)
        kind = parse(self._uri).kind
        limit_of(timeout, self._uri)
        known = subscription_options(self._uri)
        for name in options:
            if name not in known:
                raise TypeError(
                    f"{self._uri}: live_dataset on channels of this kind has no option {name!r}{near(name, known)}"
                )
        self._timeout, self._options, self._share = timeout, options, Share()
        self._one_reader, self._numbered = kind.one_reader, kind.memory is not None and not kind.one_reader
        if "until_end" in known and (self._numbered or self._one_reader):
            self._options.setdefault("until_end", True)
        if kind.by_reference and not {"conflate", "last"} & set(options):
            self._options["conflate"] = False
        self._begins: int | None = None  # where all workers begin, unless an option says it
        has_sessions = kind.memory is not None and kind.memory.looks is not None  # each has positions of its own
        if self._numbered and not has_sessions and not {"start", "last"} & set(options):
            self._begins = _end_of(self._uri)
        self._oldest = "earliest" if kind.keeps else "newest"

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return self._uri

    def __repr__(self) -> str:
        return f"<LiveDataset {self._uri}>"

    def __iter__(self) -> LiveRows:
        mine = worker().within(self._share)
        if mine.count > 1 and not (self._one_reader or self._numbered):
            raise Unsupported(
                f"{self._uri}: its messages have no positions by which {mine.count} workers could share them: take one worker, or a pipe: channel"
            )
        sub, missed = self._open()
        return LiveRows(sub, self._timeout, mine, missed, shared=self._one_reader)

    def _open(self) -> tuple[Any, int]:
        """A subscription, and the bytes that it missed since the channel no longer has the messages with which the data set begins."""
        if self._begins is None:
            return open_channel("subscribe", self._channel, dict(self._options)), 0
        try:
            return open_channel("subscribe", self._channel, {**self._options, "start": self._begins}), 0
        except Invalid:
            sub = open_channel("subscribe", self._channel, {**self._options, "start": self._oldest})
        return sub, max(0, int(sub.position) - self._begins)

    def shard(self, index: int, count: int) -> LiveDataset:
        """The part `index` of `count`: every message is in one part alone, by its position. For processes of the caller's own; the workers of a DataLoader
        share out each part. `Unsupported` for channels without such positions: a pipe shares its messages out by itself."""
        if not self._numbered:
            raise Unsupported(f"{self._uri}: it has no parts: {PARTLESS[self._one_reader]}")
        count = whole(count, "count", 1)
        made = _again(self._channel, self._timeout, self._options, self._begins)
        made._share = Share(whole(index, "index", 0, count - 1), count).within(self._share)
        return made

    def torch(self) -> IterableDataset[Any]:
        """The same messages as torch's IterableDataset, for a DataLoader. Needs `pip install torch`."""
        from penstock.export.datasets.torching import stream_of

        return stream_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._channel, self._timeout, self._options, self._begins, self._share)


class LiveRows(Iterator[Any]):
    """One iteration over a live data set. A context manager; `close` ends it.

    A message that does not decode raises `DecodeError`, and the next call continues behind it; so it does after `TimedOut`.
    """

    def __init__(self, sub: Any, timeout: float | None, share: Share, missed: int, *, shared: bool) -> None:
        self._sub, self._timeout, self._share, self._missed, self._shared = sub, timeout, share, missed, shared
        self._lost = missed
        # A DataLoader asks its workers in turn. One that it does not ask keeps no message of a pipe from the others.
        self._pauses = shared and in_worker()

    @property
    def lost(self) -> int:
        """Bytes that this iteration missed, since it read too slowly or the channel no longer had them."""
        if self._sub is not None:
            self._lost = self._missed + int(self._sub.lost)
        return self._lost

    def __next__(self) -> Any:
        while self._sub is not None:
            try:
                found = self._sub.recv(self._timeout)
            except EndOfStream:
                self.close()
                break
            if self._pauses:
                _native.pipe_pause(self._sub)
                return found
            if self._shared or self._is_mine():
                return _own(found)
            if isinstance(found, Frame):
                found.release()
        raise StopIteration

    def _is_mine(self) -> bool:
        """Whether the message is this worker's: its position decides, which is the same for every reader."""
        if self._share.count == 1:
            return True
        last = self._sub.last
        number = (int(last.position) >> 5) + int(last.session or 0)
        return (number * MIX % (1 << 64) >> 32) % self._share.count == self._share.index

    def close(self) -> None:
        """Closes the subscription. Safe to call twice."""
        if self._sub is None:
            return
        if lost := self.lost:
            log.warning("%s: %d bytes were lost: this data set was too slow for the channel", self._sub.channel, lost)
        sub, self._sub = self._sub, None
        sub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own(message: Any) -> Any:
    """A message in memory of its own: frames are shared with other readers."""
    if not isinstance(message, Frame):
        return message
    with message:
        return message.copy()


def _end_of(uri: str) -> int:
    """The channel's present end; 0 if it is not there yet."""
    try:
        status = inspect(uri)
    except NotFound:
        return 0
    return 0 if status.state == "open" else int(status.position)


def _again(
    channel: AnyChannel, timeout: float | None, options: dict[str, Any], begins: int | None, share: Share = WHOLE
) -> LiveDataset:
    made = LiveDataset(channel, timeout=timeout, **options)
    made._begins, made._share = begins, share
    return made


def live_dataset(
    channel: AnyChannel, *, codec: Codec[Any] | Any = None, timeout: float | None = None, **options: Any
) -> LiveDataset:
    """A live channel as a data set: it yields messages until the channel's publications have closed or died and everything was read.

    Opens nothing now: each process that iterates, as a worker of a DataLoader, opens a subscription of its own. On `pipe:` the workers share the messages as
    any subscriptions do, and those of a killed worker go to another. On other kinds each worker reads the channel and yields the messages that are its own by
    their positions, so that together they yield each once.

    It begins at the channel's present end, or with the first message of a channel that is not there yet; start= says otherwise. Another iteration begins there again,
    as far as the channel still has it. options: those of `penstock.subscribe` for that kind; `until_end=False` never ends. timeout: seconds without a message of
    the channel after which `TimedOut` is raised. Frames are yielded as arrays of their own.

    `Unsupported` if several workers iterate over a channel of ZeroMQ, which has no positions.
    """
    if codec is not None:
        options["codec"] = codec
    return LiveDataset(channel, timeout=timeout, **options)
