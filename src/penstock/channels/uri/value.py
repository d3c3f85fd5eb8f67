"""A channel as a value: its name, its codec and the options that shape it. Each kind has its own class with its options.

Opens nothing, and knows no kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from penstock import codecs
from penstock.channels.uri.channel import FAKE
from penstock.channels.uri.opener import SIZES, open_handle, parse
from penstock.errors import Invalid, Mismatch
from penstock.util.units import size

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.codecs import Codec

    Message = TypeVar("Message", default=Any)
    Wrapped = TypeVar("Wrapped", bound="ChannelValue[Any]", default="ChannelValue[Any]")
else:
    from typing import TypeVar

    Message, Wrapped = TypeVar("Message"), TypeVar("Wrapped")


@dataclass(frozen=True, repr=False)
class ChannelValue(Generic[Message]):
    """A channel, written once and used by every program: `publish`, `subscribe` and `join` take it in place of a URI.

    Frozen, comparable and picklable; `str()` gives its URI. An option that is None is not chosen: a new channel then has the
    default, and an existing one may have any. Options in bytes take texts as "8MiB". `Invalid` for a name or an option that the
    kind does not have.
    """

    name: str
    codec: type[Message] | Codec[Message] | None = None
    _: KW_ONLY

    _prefix: ClassVar[str]  # of the URI

    def __post_init__(self) -> None:
        kind = parse(self.uri).kind
        for name in SIZES:
            if isinstance(given := getattr(self, name, None), str):
                object.__setattr__(self, name, size(given, name))
        try:
            kind.check(self.options())
            if self.codec is not None:
                codecs.resolve(self.codec)
        except Invalid as error:
            error.args = (f"{self.uri}: {error}",)
            raise

    @property
    def uri(self) -> str:
        """The channel's URI, as `log:imu`."""
        return f"{self._prefix}{self.name}"

    def options(self) -> dict[str, Any]:
        """The options that were chosen, without the codec."""
        return {name: value for name in self.option_names() if (value := getattr(self, name)) is not None}

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """The options of the channel."""
        return tuple(field.name for field in dataclasses.fields(cls) if field.name not in ("name", "codec"))

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        codec = () if self.codec is None else (getattr(self.codec, "__qualname__", None) or repr(self.codec),)
        options = (f"{name}={value!r}" for name, value in self.options().items())
        return f"{type(self).__name__}({', '.join((repr(self.name), *codec, *options))})"


@dataclass(frozen=True)
class Fake(Generic[Wrapped]):
    """A channel within this process, for tests: `Fake(Log("imu"))` behaves as the log does, and no other process sees it.

    `Unsupported` for a kind that cannot be within one process, `Invalid` for a channel that is already.
    """

    channel: Wrapped | str

    def __post_init__(self) -> None:
        if isinstance(self.channel, Tested):
            raise Invalid(f"{self.channel}: options of tests go around a fake channel: testing.channel(Fake(...), ...)")
        if parse(self.channel).fake:
            raise Invalid(f"{self.channel} is within this process already")
        parse(self.uri)

    @property
    def uri(self) -> str:
        """The channel's URI, as `fake:log:imu`."""
        return f"{FAKE}:{self.channel}"

    def __str__(self) -> str:
        return self.uri


@dataclass(frozen=True)
class Tested:
    """A channel with options that only tests have: see `penstock.testing.channel`."""

    channel: ChannelValue[Any] | Fake[Any] | str
    tested: dict[str, Any] = dataclasses.field(hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.channel, Tested):
            raise Invalid(f"{self.channel} has options of tests already: give it all of them at once")

    @property
    def uri(self) -> str:
        """The channel's URI."""
        return uri_of(self.channel)

    def __str__(self) -> str:
        return self.uri


AnyChannel = ChannelValue[Any] | Fake[Any] | Tested | str
FORM = {"codec", "shape", "dtype", "varies", "header"}  # of messages


def open_channel(verb: str, channel: AnyChannel, options: dict[str, Any]) -> Any:
    """Opens a handle on a channel given by its URI or as a value."""
    return open_handle(verb, uri_of(channel), options, shaping_of(channel), tested_of(channel))


def open_carrying(channel: AnyChannel, options: dict[str, Any], form: dict[str, Any], tested: Any = None) -> Any:
    """A publication for messages that exist. form: their codec, or the shape and dtype of frames. `Mismatch` for a value with another one;
    its other options come before those in `options`."""
    uri, shaping = uri_of(channel), shaping_of(channel) or {}
    for name in FORM & form.keys() & shaping.keys():
        wanted, found = shaping[name], form[name]
        if name == "codec":
            wanted, found = codecs.resolve(wanted), codecs.resolve(found)
            if codecs.agreed(found, wanted) is not None:
                continue
            wanted, found = codecs.bare(wanted.spec), codecs.bare(found.spec)
        if wanted != found:
            raise Mismatch(f"{uri} is given with {name}={wanted}, and its messages have {found}: leave {name} out")
    takes = parse(uri).kind.option_names("publish") - {"codec"}
    chosen = {name: value for name, value in shaping.items() if name in takes}
    return open_handle("publish", uri, options | chosen, None, tested_of(channel) | (tested or {}))


def shaping_of(channel: AnyChannel) -> dict[str, Any] | None:
    """The options and the codec of a value; None for a URI."""
    inner = channel.channel if isinstance(channel, Tested) else channel
    value = inner.channel if isinstance(inner, Fake) else inner
    if not isinstance(value, ChannelValue):
        return None
    return value.options() | ({} if value.codec is None else {"codec": value.codec})


def tested_of(channel: AnyChannel) -> dict[str, Any]:
    """The options that only tests have."""
    return channel.tested if isinstance(channel, Tested) else {}


def without_codec(channel: AnyChannel) -> Any:
    """The same channel, for a handle that passes bytes."""
    if isinstance(channel, Fake | Tested):
        return dataclasses.replace(channel, channel=without_codec(channel.channel))
    return dataclasses.replace(channel, codec=None) if isinstance(channel, ChannelValue) else channel


def uri_of(channel: AnyChannel) -> str:
    """The URI of a channel that may be a value. Any other value unchanged, for the caller's check."""
    return channel.uri if isinstance(channel, ChannelValue | Fake | Tested) else channel


def uris_of(channels: Any) -> Any:
    """The same of one channel or several, patterns among them."""
    given = several(channels)
    return [uri_of(channel) for channel in given] if isinstance(given, list) else uri_of(given)


def several(channels: Any) -> Any:
    """One channel as it is; several as a list."""
    return (
        list(channels)
        if isinstance(channels, Iterable) and not isinstance(channels, str | bytes | Mapping)
        else channels
    )


AnyChannels = AnyChannel | Iterable[AnyChannel]

__all__ = [
    "AnyChannel",
    "AnyChannels",
    "ChannelValue",
    "Fake",
    "Tested",
    "open_carrying",
    "open_channel",
    "several",
    "shaping_of",
    "tested_of",
    "uri_of",
    "uris_of",
    "without_codec",
]
