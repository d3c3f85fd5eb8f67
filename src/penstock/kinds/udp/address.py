"""Addresses of `udp:` channels: `udp://HOST:PORT/STREAM`, and Aeron's own URIs, `aeron:udp?endpoint=HOST:PORT|stream-id=STREAM`.

Knows the syntax of both, and the option for each of Aeron's parameters. Resolves no name and opens nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import Invalid, Unsupported
from penstock.util import strict

WRITTEN = "udp://HOST:PORT/STREAM"
AERON_WRITTEN = "aeron:udp?endpoint=HOST:PORT|stream-id=STREAM"
AERON_PREFIX = "udp?"
PORT_MAX = 65535
CONTROL_MODES = ("dynamic", "manual")
_HOST_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}\.?)*")
_SIZE = re.compile(r"(\d+)([kKmMgG]?)")
_TIME = re.compile(r"(\d+)(ns|us|ms|s)?")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS = {None: 1e-9, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Endpoint:
    """A host and a port. host: a name, or an address without brackets. `str` gives it as URIs have it."""

    host: str
    port: int

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The host's address; None if it is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    @property
    def multicast(self) -> bool:
        """Whether it is a multicast group."""
        return self.address is not None and self.address.is_multicast

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint(text: str, what: str = "the address") -> Endpoint:
    """The host and the port in `HOST:PORT`; an IPv6 address is in brackets. `Invalid` for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon:
        raise Invalid(f"{what} {text!r} has no port: write HOST:PORT")
    if not host:
        raise Invalid(f"{what} {text!r} has no host: write HOST:PORT; 0.0.0.0 is every address of this machine")
    if "/" in port:
        raise Invalid(f"{what} {text!r} has no port at its end: write HOST:PORT")
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= PORT_MAX:
        raise Invalid(f"port {port} does not exist: ports are from 1 to {PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        try:
            return Endpoint(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        except ValueError:
            raise Invalid(f"{host} is not an IPv6 address") from None
    if "[" in host or "]" in host:
        raise Invalid(f"{text!r} has no pair of brackets around an IPv6 address: write [ADDRESS]:PORT")
    if ":" in host:
        raise Invalid(f"write an IPv6 address in brackets: [{host}]:{port}")
    try:
        return Endpoint(str(ipaddress.IPv4Address(host)), int(port))
    except ValueError:
        if not _HOST_NAME.fullmatch(host) or re.fullmatch(r"[0-9.]+", host):
            raise Invalid(f"{host!r} is neither a host's name nor an address") from None
    return Endpoint(host.lower(), int(port))


def stream(text: str) -> int:
    """A stream's number. `Invalid` for any other text."""
    if not re.fullmatch(r"-?\d{1,10}", text, re.ASCII) or not -(1 << 31) <= int(text) < 1 << 31:
        raise Invalid(f"stream {text!r} is not a signed 32-bit integer")
    return int(text)


def split(name: str) -> tuple[Endpoint, int]:
    """The endpoint and the stream of a channel's name."""
    at, _, number = name.rpartition("/")
    return endpoint(at), stream(number)


def parse_name(text: str) -> str:
    """A channel's name from the text after `udp://`. `Invalid` for any other text."""
    at, slash, number = text.rpartition("/")
    if not slash:
        raise Invalid(f"it names no stream: write {WRITTEN}")
    if not number or "/" in at:
        raise Invalid(f"a stream is one whole number at the end: write {WRITTEN}")
    return f"{endpoint(at)}/{stream(number)}"


def named_by_aeron(text: str) -> str:
    """A channel's name from the text after `aeron:`. `Invalid` for any other text, or for a parameter that Aeron does not have."""
    found = _parameters(text)
    at = found.get("endpoint", found.get("control"))  # a publication that is asked for its stream needs no endpoint
    if at is None or "stream-id" not in found:
        raise Invalid(f"it has no {'endpoint' if at is None else 'stream-id'}: write {AERON_WRITTEN}")
    return f"{endpoint(at)}/{stream(found['stream-id'])}"


def options(text: str, verb: str) -> dict[str, Any]:
    """Our options that the parameters of an Aeron URI mean for `publish` or `subscribe`.

    `Unsupported` for a parameter that Aeron has and we do not, and for one that only the other verb has: it would have no effect.
    """
    found = _parameters(text.partition(":")[2])
    made: dict[str, Any] = {}
    for name, value in found.items():
        if name in _NOT_BUILT:
            raise Unsupported(f"{text}: Aeron's {name} is not built: leave it out")
        meaning = _MEANINGS[name]
        if isinstance(meaning, str):
            if value != meaning:
                raise Unsupported(
                    f"{text}: Aeron's {name}={value} is not built: leave it out, or write {name}={meaning}"
                )
        elif meaning is not None:
            if verb not in meaning.verbs:
                raise _has_no_effect(text, name, verb)
            made[meaning.option] = meaning.read(name, value)
    made.update(_control(text, found, verb))
    if starts := {"term-id", "term-offset"} & found.keys():
        if verb != "publish":
            raise _has_no_effect(text, min(starts), verb)
        made.update(_start(text, found))
    return made


def _has_no_effect(text: str, name: str, verb: str) -> Unsupported:
    if verb == "publish":
        return Unsupported(f"{text}: {name} is for subscriptions: leave it out of the URI of a publication")
    why = (
        "; a subscription receives every session, and `last.session` has a message's session"
        if name == "session-id"
        else ""
    )
    return Unsupported(f"{text}: {name} is for publications: leave it out of the URI of a subscription{why}")


def _control(text: str, found: dict[str, str], verb: str) -> dict[str, Any]:
    """The control address, of a publication with several destinations or of its subscription."""
    mode = found.get("control-mode", "dynamic")
    if mode not in CONTROL_MODES:
        raise Invalid(f"{text}: control-mode={mode}: it must be {' or '.join(CONTROL_MODES)}")
    if mode == "manual":
        raise Unsupported(
            f"{text}: name the destinations in the call: penstock.publish({WRITTEN!r}, destinations=['HOST:PORT', …])"
            if verb == "publish"
            else f"{text}: control-mode=manual is for publications here: open a subscription for each endpoint, and read "
            "them by penstock.wait"
        )
    if "control" not in found:
        if "control-mode" in found and mode == "dynamic":
            raise Invalid(f"{text}: control-mode=dynamic needs control=HOST:PORT")
        return {}
    return {"control": str(endpoint(found["control"], "control"))}


def _start(text: str, found: dict[str, str]) -> dict[str, Any]:
    """The position at which a publication starts, from Aeron's three parameters."""
    missing = {"init-term-id", "term-id", "term-offset", "term-length"} - found.keys()
    if missing:
        raise Invalid(
            f"{text}: a start needs init-term-id, term-id, term-offset and term-length; {', '.join(sorted(missing))} is missing"
        )
    terms = (_parse_int("term-id", found["term-id"]) - _parse_int("init-term-id", found["init-term-id"])) & 0xFFFFFFFF
    return {
        "start_position": terms * _size("term-length", found["term-length"])
        + _size("term-offset", found["term-offset"])
    }


def _parameters(text: str) -> dict[str, str]:
    if not text.startswith(AERON_PREFIX):
        raise Invalid(f"only Aeron's UDP channels are known: write {AERON_WRITTEN}")
    found: dict[str, str] = {}
    for part in text.removeprefix(AERON_PREFIX).split("|"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise Invalid(f"{part!r} is not a parameter: write NAME=VALUE, separated by |")
        if name not in _MEANINGS and name not in _NOT_BUILT:
            hint = strict.near(name.replace("-", "_"), [known.replace("-", "_") for known in _MEANINGS]).replace(
                "_", "-"
            )
            raise Invalid(f"there is no parameter {name!r} here{hint or ';'} known are {', '.join(sorted(_MEANINGS))}")
        if name in found:
            raise Invalid(f"parameter {name!r} is given twice")
        found[name] = value
    return found


# ---- values of Aeron's parameters ----


def _parse_int(name: str, value: str) -> int:
    if not re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        raise Invalid(f"{name}={value}: it must be a whole number")
    return int(value)


def _size(name: str, value: str) -> int:
    found = _SIZE.fullmatch(value)
    if found is None:
        raise Invalid(f"{name}={value}: it must be a number of bytes, such as 65536 or 64k")
    return int(found[1]) * _UNITS[found[2].lower()]


def _duration(name: str, value: str) -> float:
    found = _TIME.fullmatch(value)
    if found is None:
        raise Invalid(f"{name}={value}: it must be a duration, such as 5s, 100ms, 10us or a number of nanoseconds")
    return int(found[1]) * _SECONDS[found[2]]


def _flag(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise Invalid(f"{name}={value}: it must be true or false")
    return value == "true"


def _text(_: str, value: str) -> str:
    return value


def _flow_control(name: str, value: str) -> Any:
    """`max`, `min`, or `tagged,g:TAG`."""
    word, *parts = value.split(",")
    given = dict(part.partition(":")[::2] for part in parts)
    if word in ("max", "min") and not given:
        return word
    if word == "tagged" and given.keys() == {"g"}:
        return {"tag": _parse_int(name, given["g"])}
    raise Unsupported(
        f"{name}={value}: flow control is max, min or tagged,g:TAG here; group sizes and timeouts are not built"
    )


@dataclass(frozen=True)
class _Means:
    option: str
    read: Callable[[str, str], Any]
    verbs: tuple[str, ...] = ("publish", "subscribe")


_SENDS, _RECEIVES = ("publish",), ("subscribe",)
# Ours; None: read elsewhere, or a label only; a text: the one value that is as we do it.
_MEANINGS: dict[str, _Means | str | None] = {
    "endpoint": None,
    "stream-id": None,
    "alias": None,
    "control": None,
    "control-mode": None,
    "term-id": None,
    "term-offset": None,
    "mtu": _Means("mtu", _size, _SENDS),
    "term-length": _Means("term_length", _size, _SENDS),
    "session-id": _Means("session", _parse_int, _SENDS),
    "init-term-id": _Means("initial_term_id", _parse_int, _SENDS),
    "linger": _Means("linger", _duration, _SENDS),
    "ttl": _Means("ttl", _parse_int, _SENDS),
    "fc": _Means("flow_control", _flow_control, _SENDS),
    "interface": _Means("interface", _text),
    "so-sndbuf": _Means("send_buffer", _size, _SENDS),
    "so-rcvbuf": _Means("receive_buffer", _size),
    "rcv-wnd": _Means("window", _size, _RECEIVES),
    "reliable": _Means("reliable", _flag, _RECEIVES),
    "gtag": _Means("group_tag", _parse_int, _RECEIVES),
    "eos": "true",
    "sparse": "false",
    "rejoin": "true",
    "tether": "true",
    "cc": "static",
    "ssc": "false",
    "group": "infer",
    "tags": "",
}
# Aeron has these, too, and we do not.
_NOT_BUILT = frozenset(
    {
        "channel-rcv-ts-offset",
        "channel-snd-ts-offset",
        "max-resend",
        "media-rcv-ts-offset",
        "nak-delay",
        "pub-wnd",
        "response-correlation-id",
        "response-endpoint",
        "untethered-linger-timeout",
        "untethered-resting-timeout",
        "untethered-window-limit-timeout",
    }
)
