"""A kind of channel is one object that answers every question about it. This module has its class; `registry` finds the kinds.

Each kind's module builds its own `Kind`; `penstock.kinds` lists them. No other module asks which kind a channel has: it asks the
kind. Knows no kind and opens nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock._native import core as _native
from penstock.errors import Invalid, Unsupported

NAME = re.compile(
    r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*"
)  # files that begin with a dot are hidden
LONGEST_NAME = 128


def check_name(name: str, of: str = "channel") -> str:
    """`name`, or `Invalid` if it is not a channel's name. A name may have parts: robot/imu. of: what it names, for the error."""
    if len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise Invalid(
            f"{name!r} is not a {of} name: use 1 to {LONGEST_NAME} of the characters A-Z a-z 0-9 . _ -, "
            "with / between parts if there are several. No part begins with a dot"
        )
    return name


def nothing_beside(_: str) -> str | None:
    """For kinds whose channels have one file each."""
    return None


def nothing_in_use(_: Any) -> frozenset[str]:
    """The same."""
    return frozenset()


def nothing_to_sweep(_: Any) -> bool:
    """The same."""
    return False


class SessionLook(NamedTuple):
    """A look at the messages of one session. epoch: of their positions. codec: as a recording keeps it."""

    look: _native.Look
    epoch: int
    codec: dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Layout:
    """The layout of a kind's channels in shared memory.

    format: fills a new file's descriptor, or, with the open byte held, that of an open channel. inspect: a file's own status,
    with `capacity`, `max_members`, `position` and the entries that `details` names. open_slots: slots while the channel is open; None: channels
    of this kind are never open. member_slots: how many slots a member takes. beside: the name of the channel that a file beside the
    channel's own belongs to, by that file's name. sweep: removes what dead processes left of a channel in other folders; whether there was
    anything. in_use: names of such files that live handles still open by name, and unlink
    themselves. look: opens a look at a file's messages, which takes no slot; None: its messages cannot be looked at. looks: the same
    for kinds that keep each session in a file beside the channel's own. status: a channel's status, for kinds whose status is not in one file; with a handle, as that handle sees it.
    waits: the participants in a file, and for whom they wait; None: waits of its kind are not noted. network_waits: the same of a channel, for
    kinds whose participants wait for other machines.
    """

    format: Callable[..., None]
    inspect: Callable[[int, str], dict[str, Any]]
    open_slots: Callable[[Any], int] | None = None
    member_slots: int = 1
    details: tuple[str, ...] = ()
    beside: Callable[[str], str | None] = nothing_beside
    in_use: Callable[[Any], frozenset[str]] = nothing_in_use
    sweep: Callable[[Any], bool] = nothing_to_sweep
    look: Callable[[int, str], _native.Look] | None = None
    looks: Callable[[Any], list[SessionLook]] | None = None
    status: Callable[..., Any] | None = None
    waits: Callable[[int, str], list[dict[str, Any]]] | None = None
    network_waits: Callable[[Any], list[dict[str, Any]]] | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Kind:
    """One kind of channel.

    name: the scheme of its URIs. written: how its URI is written, for errors. prefix: between that word's colon and the channel's
    name. named: the channel's name from the rest of a URI; `Invalid` for a wrong name. foreign: the same for a URI in another system's syntax. options: the checked options of a new channel,
    with a `file_size` where it has a layout. value_options: those of them that a channel as a value has. memory: its layout in shared memory; None: it has none. publish, subscribe, join: open
    its handles; they take a `Channel` and keyword-only options. has_roles: whether `join` takes a role. tap: opens the end that a recorder
    reads; None: it cannot be recorded. sent_tap: the same at the sender, where channels leave the machine. left_tap: the same of what the dead received, where a process
    must receive for the others. recorded_as: the description that a recording keeps, from that of `memory`. own_positions: a recording counts its own positions, from 0. lossy: a slow reader
    loses messages, and makes no writer wait. keeps: it keeps messages that were read, so `start` may be in the past. by_reference: its
    messages name buffers, whose bytes a recording has on request. one_reader: each message goes to one of its readers. in_process: `fake:` channels of this kind exist.
    """

    name: str
    written: str
    options: type
    publish: Callable[..., Any]
    subscribe: Callable[..., Any]
    join: Callable[..., Any] | None = None
    has_roles: bool = False
    tap: Callable[..., Any] | None = None
    sent_tap: Callable[..., Any] | None = None
    left_tap: Callable[..., Any] | None = None
    memory: Layout | None = None
    recorded_as: Callable[[dict[str, Any]], dict[str, Any]] = dict
    prefix: str = ""
    value_options: tuple[str, ...] = ()
    named: Callable[[str], str] = check_name
    own_positions: bool = False
    foreign: Callable[[str], str] | None = None
    lossy: bool = False
    keeps: bool = False
    by_reference: bool = False
    one_reader: bool = False
    in_process: bool = True

    @property
    def has_looks(self) -> bool:
        """Whether its messages in memory can be looked at."""
        return self.memory is not None and not (self.memory.look is None and self.memory.looks is None)

    @property
    def layout(self) -> Layout:
        """Its layout in shared memory. `Unsupported` if it is not there."""
        if self.memory is None:
            raise Unsupported(
                f"{self.written} is not in shared memory: there is nothing to inspect, to remove or to record here"
            )
        return self.memory

    @property
    def shaping(self) -> frozenset[str]:
        """The options of a channel given as a value, and its codec."""
        return frozenset(self.value_options) | {"codec"}

    def check(self, options: dict[str, Any]) -> None:
        """`Invalid` if a channel cannot have these options."""
        self.options(**options)

    @functools.cache  # noqa: B019  (kinds live as long as the process)
    def option_names(self, verb: str) -> frozenset[str]:
        """The options of `publish`, `subscribe` or `join`, where the kind has it."""
        names, more = set(), False
        opener = getattr(self, verb)
        for parameter in list(inspect.signature(opener).parameters.values())[1:]:
            if parameter.kind is parameter.VAR_KEYWORD:
                more = True
            else:
                names.add(parameter.name)
        if more:  # the options of a new channel
            names |= {field.name for field in dataclasses.fields(self.options)}
            names |= {"prefault"} if self.memory is not None else set()
        return frozenset(names)
