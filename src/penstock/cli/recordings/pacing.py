"""Keys and a control channel that change the pace of a playing. Knows the terminal and one channel; knows no archive."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any

import penstock
from penstock.cli.terminal import output, screen
from penstock.record import Pace

KEYS = "space pauses, . plays one message, + and - change the rate, q ends"
COMMANDS = '{"do": "pause"}, resume, step (with "count"), rate (with "rate"), stop'


@contextlib.contextmanager
def pace(
    rate: float | None, paused: bool, control: str | None, quiet: bool, changed: Callable[[Pace], None]
) -> Iterator[Pace]:
    """A pace for the block. control: the channel of commands in JSON; it is made if it does not exist. quiet: no keys. changed: called after each change."""
    with contextlib.ExitStack() as opened:
        has_keys = not quiet and _is_in_front() and opened.enter_context(screen.single_keys())
        if paused and not has_keys and control is None:
            raise penstock.Invalid(
                "--pause needs something that ends the pause: keys, in a terminal in front and without --json, or --control with a channel of commands"
            )
        commands = None
        if control is not None:
            opened.enter_context(penstock.publish(control, codec="json"))  # so that others find it
            commands = opened.enter_context(penstock.subscribe(control))
        if has_keys:
            output.note(KEYS)

        def turn(one: Pace) -> None:
            for key in _keys() if has_keys else ():
                press(one, key)
                changed(one)
            for command in _commands(commands):
                obey(one, command)
                changed(one)

        yield Pace(rate, paused=paused, turn=turn if has_keys or commands is not None else None)


def press(one: Pace, key: str) -> None:
    """What a key does. Other keys do nothing."""
    if key == " ":
        one.resume() if one.paused else one.pause()
    elif key == ".":
        one.step()
    elif key in ("+", "-") and one.rate is not None:
        one.rate = one.rate * 2 if key == "+" else one.rate / 2
    elif key == "q":
        one.stop()


def obey(one: Pace, command: Any) -> None:
    """What a command does. One that is none is said in a line, and changes nothing."""
    do = command.get("do") if isinstance(command, dict) else None
    plain: dict[Any, Callable[[], None]] = {"pause": one.pause, "resume": one.resume, "stop": one.stop}
    try:
        if isinstance(do, str) and do in plain:
            plain[do]()
        elif do == "step":
            one.step(command.get("count", 1))
        elif do == "rate":
            one.rate = command["rate"]
        else:
            raise penstock.Invalid(f"there are {COMMANDS}")
    except (penstock.Invalid, KeyError) as error:
        why = "its rate is missing" if isinstance(error, KeyError) else error
        output.note(f"warning: {str(command)[:100]!r} is no command: {why}")


def _keys() -> str:
    """The keys pressed since the last call."""
    found = ""
    while select.select([sys.stdin], [], [], 0)[0]:
        read = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
        if not read:
            return found + "q"  # the terminal is gone
        found += read if not read.startswith("\x1b") else ""
    return found


def _commands(subscription: Any) -> Iterator[Any]:
    while subscription is not None:
        try:
            found = subscription.poll(16)
        except (penstock.DecodeError, penstock.TooSlow) as error:
            output.note(f"warning: {error}")
            continue
        if not found:
            return
        yield from found


def _is_in_front() -> bool:
    """Whether the terminal's keys are for this process: one in the background that asked for them would be stopped. A terminal that is not the
    process' controlling one stops nobody."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError as error:
        return error.errno == errno.ENOTTY
