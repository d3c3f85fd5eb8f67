"""Bridges: the messages of channels onto other channels, as they are, and across machines by `udp:` and ZeroMQ.

A `Bridge` has a route for each channel. This module knows patterns, and the addresses at which many channels share one port. It must
never know a message.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from penstock import codecs
from penstock.channels.checks import callback, deadline_of, flag, seconds
from penstock.channels.storage.discovery import ChannelDiscovery
from penstock.channels.uri.channel import named
from penstock.channels.uri.opener import parse, subscription_options
from penstock.channels.uri.value import AnyChannel, ChannelValue, Fake, Tested
from penstock.channels.uri.wildcards import is_pattern, matches
from penstock.errors import Closed, Invalid, PenstockError, TooSlow, Unsupported
from penstock.front.bridge.bookmark import Bookmark
from penstock.front.bridge.route import Own, Route
from penstock.front.bridge.settings import Bridged, Settings
from penstock.front.opening import publish, subscribe
from penstock.front.waiting import wait
from penstock.kinds.udp import address, hosts
from penstock.util.strict import Strict

TURN = 1000  # messages of one channel before the next has its turn
LOOK_SECONDS = 0.1  # between two looks for new channels
TELL_SECONDS = 1.0  # between two lists of an address's channels
HELD_UP_SECONDS = 0.002  # until the next try, where a target has no room
DRAIN_SECONDS = 2.0  # at the end, for what receivers have yet to read
STATUS_SECONDS = 0.3  # in which a sender hears how far it was read
SAME = "{kind}:{name}"
UDP = "udp://"
log = logging.getLogger("penstock")


class Bridge(Strict):
    """Passes the messages of a channel on to another one, as they are, with their codec. For one thread at a time. A context manager.

    source: a channel; or a pattern such as ``robot/*``, with channels that appear later; or ``udp://HOST:PORT`` without a stream, for
    all channels that another bridge sends there. target: a channel; or, of several, ``udp://HOST:PORT``, where each channel has a
    stream of its own; or ``log:{name}``, a channel for each, also with ``{kind}``.

    both: the target's messages go to the source, too. Of a unicast `udp:` target this machine hears the same port. back: where to hear
    them instead. Nothing that the bridge wrote is sent back.

    start: "newest" or "earliest" or a position. None: where an earlier bridge of these two stopped, if that is still kept, or "newest". codec: of
    messages whose source does not say it. drop_after: seconds after which writers of the source no longer wait; None: they wait.
    `Unsupported` for `drop_after` where no source has writers that wait.

    `Busy` if another process has this bridge. `Invalid` and `Unsupported` for channels that cannot be bridged.

    >>> with penstock.publish("log:doc/a", codec="json") as pub, penstock.Bridge("log:doc/a", "log:doc/b") as bridge:
    ...     position = pub.send({"gyro": 0.1})
    ...     bridge.step()
    1
    """

    def __init__(
        self,
        source: AnyChannel,
        target: AnyChannel,
        *,
        both: bool = False,
        back: AnyChannel | None = None,
        start: str | int | None = None,
        codec: Any = None,
        drop_after: float | None = None,
    ) -> None:
        there, onto = named(source), named(target)
        answers = None if back is None else named(back)
        if flag(both, "both") and back is not None:
            raise Invalid("both and back are two ways to name where the other direction is heard: give one of them")
        seconds(drop_after, "drop_after")
        if isinstance(start, int) and (is_pattern(there) or _trunk(there)):
            raise Unsupported(f"start is {start}, a position of one channel: with {there}, give 'newest' or 'earliest'")
        sources = [there, onto] if both else [one for one in (there, answers) if one is not None]
        if drop_after is not None and not any(map(_has_drop_after, sources)):
            raise Unsupported(
                f"{', '.join(sources)}: drop_after is for sources whose writers wait (log, sync, udp): leave it out"
            )
        strict = not (is_pattern(there) or _trunk(there) or _trunk(onto))
        values = {
            str(parse(one)): one for one in (source, target, back) if isinstance(one, ChannelValue | Fake | Tested)
        }
        self._settings = Settings(f"{there} {onto}", start, codec, drop_after, strict, values=values)
        self._own: dict[str, Own] = {}
        self._ways: list[_Way] = []
        self._ended: list[Bridged] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._add(there, onto)
            if both or back is not None:
                heard = _heard(onto) if answers is None else answers
                if both and isinstance(target, ChannelValue):
                    values.setdefault(heard, replace(target, name=heard.removeprefix(target._prefix)))
                if strict:
                    for one in (there, heard):
                        if parse(one).kind.one_reader:
                            raise Unsupported(f"{one}: each message goes to one reader, so it has one direction")
                self._settings = replace(self._settings, latch=False)  # else two ends would exchange their last values
                self._add(heard, there if strict else SAME)
            undo.pop_all()

    def _add(self, source: str, target: str) -> None:
        if _is_same(source, target):
            raise Invalid(f"{source} is the source and the target: name two channels")
        if is_pattern(target):
            raise Invalid(f"{target} is a pattern, and a target is none: write 'log:{{name}}' for a channel for each")
        to, many = _trunk(target), "{" in target
        if is_pattern(source) or _trunk(source):
            if not (to or many):
                raise Invalid(
                    f"{source} is several channels, and {target} is one: write 'log:{{name}}', or udp://HOST:PORT"
                )
        elif not to:
            parse(target)
            if target.startswith(UDP):  # a host that nobody knows is an error now, not once there is a message
                hosts.resolved(address.endpoint(target.removeprefix(UDP).partition("/")[0]))
        if many and not to:
            _check_template(source, target)
        made = (_FromTrunk if _trunk(source) else _FromHere)(source, target, self._settings, self._own)
        self._ways.append(made)
        made.begin()

    def step(self, timeout: float | None = 0.05) -> int:
        """Passes on what there is, after at most `timeout` seconds. Returns how many messages. Call it again and again. timeout=None: waits for ever."""
        deadline = deadline_of(timeout)
        self._check_open()
        while True:
            for way in self._ways:
                way.look()
            routes, moved = self._routes(), 0
            for route in routes:
                try:
                    moved += route.step(TURN)
                except PenstockError as error:
                    if self._settings.strict:
                        raise
                    route.fail(error)
            left = math.inf if deadline is None else deadline - time.monotonic()
            if moved or left <= 0:
                return moved
            self._wait(routes, left)

    def _wait(self, routes: list[Route], seconds: float) -> None:
        held_up = any(route.is_held_up for route in routes)
        waits = [route.subscription for route in routes if route.subscription is not None and not route.is_held_up]
        waits += [way.told for way in self._ways if way.told is not None]
        seconds = min(seconds, HELD_UP_SECONDS if held_up else LOOK_SECONDS)
        with contextlib.suppress(TooSlow):  # the route counts it
            wait(waits, seconds) if waits else time.sleep(seconds)

    def run(self, until: Callable[[], object] | None = None) -> None:
        """Steps until a function, which is called ten times a second, returns something true."""
        callback(until, "until")
        self._check_open()
        while until is None or not until():
            self.step(LOOK_SECONDS)

    def progress(self) -> list[Bridged]:
        """How far it has come: a row for each channel and direction."""
        return self._ended or [route.row for route in self._routes()]

    def close(self) -> None:
        """Ends it. Waits at most two seconds for receivers to read what was sent; what they have not read is sent again by the next
        bridge of these two. Safe to call twice."""
        if not self._ways:
            return
        routes, now = self._routes(), time.monotonic()
        if any(route.is_from_afar for route in routes):
            time.sleep(STATUS_SECONDS)
        while not all(route.is_done for route in routes) and time.monotonic() < now + DRAIN_SECONDS:
            time.sleep(HELD_UP_SECONDS)
        self._ended = self.progress()
        for way in self._ways:
            way.close()
        self._ways = []

    def _routes(self) -> list[Route]:
        return [route for way in self._ways for route in way.routes.values()]

    def _check_open(self) -> None:
        if not self._ways:
            raise Closed(f"{self._settings.name.replace(' ', ' to ')}: the bridge is closed")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _has_drop_after(source: str) -> bool:
    """Whether drop_after may have an effect. Several channels may have it."""
    return is_pattern(source) or bool(_trunk(source)) or "{" in source or "drop_after" in subscription_options(source)


def _trunk(text: str) -> str:
    """The HOST:PORT of an address without a stream; empty for anything else."""
    if not text.startswith(UDP) or "/" in text.removeprefix(UDP):
        return ""
    return str(address.endpoint(text.removeprefix(UDP)))


def _heard(target: str) -> str:
    """Where the other direction of a target is heard."""
    if not target.startswith(UDP):
        if parse(target).kind.memory is None:
            raise Unsupported(f"{target} has one direction: name where to hear the other one: back=, or --back")
        return target
    at, slash, stream = target.removeprefix(UDP).partition("/")
    found = address.endpoint(at)
    if found.multicast:
        return target
    every = "[::]" if ":" in found.host else "0.0.0.0"
    return f"{UDP}{every}:{found.port}{slash}{stream}"


def _is_same(source: str, target: str) -> bool:
    """Whether two channels are one, by whatever names: then a bridge would pass on its own messages for ever."""
    if any(is_pattern(one) or _trunk(one) or "{" in one for one in (source, target)):
        return source == target or bool(_trunk(source) and _trunk(target) and _meet(_trunk(source), _trunk(target)))
    here, there = parse(source), parse(target)
    if here.kind.name == there.kind.name == "udp":
        (at, stream), (to, to_stream) = address.split(here.name), address.split(there.name)
        return stream == to_stream and _meet(str(at), str(to))
    return str(here) == str(there)


def _is_one(target: str, other: str) -> bool:
    """Whether two targets are one channel."""
    return str(parse(target)) == str(parse(other))


def _meet(heard: str, sent_to: str) -> bool:
    """Whether what is sent to one HOST:PORT is heard at the other one, on this machine."""
    at, to = address.endpoint(heard), address.endpoint(sent_to)
    if at.port != to.port:
        return False
    here, there = hosts.resolved(at), hosts.resolved(to)
    return here == there or (not any(here[0].removeprefix(hosts.V4)) and not to.multicast and hosts.is_local(there))


def _named(template: str, kind: str, name: str) -> str:
    """The channel of a template. `Invalid` for a template that makes none."""
    made = template.replace("{name}", name).replace("{kind}", kind)
    if "{name}" not in template:
        raise Invalid(f"{template!r} has no {{name}}: all channels would be one")
    parse(made)
    return made


def _check_template(source: str, target: str) -> None:
    """`Invalid` for a template that makes no channels, or some that the source's pattern matches."""
    kind, _, name = source.replace("*", "x").rpartition(":") if is_pattern(source) else ("", "", "x")
    made = _named(target, kind or "log", name)
    if is_pattern(source) and matches(source, made):
        raise Invalid(
            f"{target!r} makes channels such as {made}, which {source!r} matches: they would be bridged again and again"
        )


def _stream(channel: str) -> int:
    """A channel's stream at an address: the same for each machine that sends it."""
    return int.from_bytes(hashlib.blake2s(channel.encode(), digest_size=4).digest(), "big") >> 1 or 1


class _Way:
    """One direction. routes: by what they are found by. told: the subscription to the list of channels, where there is one."""

    def __init__(self, source: str, target: str, settings: Settings, own: dict[str, Own]) -> None:
        self.source, self.target, self.settings, self.own = source, target, settings, own
        self.routes: dict[str, Route] = {}
        self.told: Any = None
        self._pub: Any = None
        self._look_at = self._tell_at = 0.0
        self._refused: set[str] = set()
        self._mark = Bookmark(settings.name, f"{source} {target}", lasting=not source.startswith("fake:"))

    def begin(self) -> None:
        """Opens what can be opened at once."""
        if _trunk(self.target):
            self._pub = publish(f"{self.target}/0", codec="json", term_length=1 << 16, linger=0)

    def add(self, channel: str, source: str, codec: codecs.Codec | None, late: bool) -> None:
        """A route for a channel of this name. An error is one line in the log, unless there is one channel only."""
        try:
            if trunk := _trunk(self.target):
                target = f"{UDP}{trunk}/{_stream(channel)}"
            elif "{" in self.target:
                parsed = parse(channel)
                target = _named(self.target, parsed.kind.name, parsed.name)
            else:
                target = self.target
            if taken := next((one for one in self.routes.values() if _is_one(one.target, target)), None):
                raise Invalid(
                    f"{target} has the messages of {taken.source} already: tell them apart, as '{{kind}}:far/{{name}}' does"
                )
            whole = bool(_trunk(self.source)) and not address.endpoint(self.source.removeprefix(UDP)).multicast
            made = Route(
                source, target, self.settings, self.own, late=late, codec=codec, trunk=bool(trunk), whole=whole
            )
            self.routes[channel] = made
            made.step(0)  # it subscribes
        except PenstockError as error:
            if self.settings.strict:
                raise
            if channel not in self._refused:  # the far side names it again and again
                self._refused.add(channel)
                log.warning("%s is not bridged: %s", channel, error)

    def look(self) -> None:
        """Finds new channels, and tells the far side of them, if it is time."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            self.find()
        if self._pub is not None and now >= self._tell_at and self._pub.readers:
            self._tell_at = now + TELL_SECONDS
            for channel, route in self.routes.items():
                if (codec := route.carries) is not None:
                    self._pub.offer({"channel": channel, "codec": codec.spec})

    def find(self) -> None:
        """Makes routes for new channels."""

    def close(self) -> None:
        """Ends all routes."""
        for one in (*self.routes.values(), self.told, self._pub, self._mark):
            if one is not None:
                one.close()


class _FromHere(_Way):
    """From channels of this machine, or a single one elsewhere."""

    def begin(self) -> None:
        super().begin()
        self._late, self._discovery = (
            not self._mark.is_new,
            None,
        )  # a channel may have appeared since the last one ended
        named = not is_pattern(self.source)
        if named:
            self.add(str(parse(self.source)), self.source, None, False)
        if not named or parse(self.source).kind.in_process:
            self._discovery = ChannelDiscovery([self.source])
            self.find()

    def find(self) -> None:
        for channel in () if self._discovery is None else self._discovery.new():
            kind = parse(channel).kind
            if channel not in self.routes and kind.in_process and not kind.one_reader:
                self.add(channel, channel, None, self._late)
        self._late = True
        for route in self.routes.values():
            if route.was_replaced:
                route.begin_again()


class _FromTrunk(_Way):
    """From all channels that other bridges send to an address of this machine."""

    def begin(self) -> None:
        super().begin()
        for (
            channel,
            spec,
        ) in self._mark.kept.channels.items():  # at once: their senders go on as soon as this machine is heard
            self.add(channel, f"{self.source}/{_stream(channel)}", codecs.from_spec(spec), True)
        self.told = subscribe(f"{self.source}/0", codec="json")

    def find(self) -> None:
        for one in self.told.poll():
            channel, codec = str(one["channel"]), codecs.from_spec(one["codec"])
            route = self.routes.get(channel)
            if route is None:
                self.add(channel, f"{self.source}/{_stream(channel)}", codec, True)
            elif route.codec is None or codecs.bare(route.codec.spec) != codecs.bare(codec.spec):
                route.begin_again(codec)
            if self._mark.kept.channels.get(channel) != one["codec"]:
                self._mark.kept.channels[channel] = one["codec"]
                self._mark.save()


__all__ = ["Bridge", "Bridged"]
