"""`penstock sub --logs`: messages of a `penstock.LogHandler` as a program's log."""

from __future__ import annotations

import time
from typing import Any

import penstock
from penstock.cli.terminal import output

FIELDS = {"severity", "level", "logger", "message", "exception", "file", "line", "process", "dropped"}
STYLES = ((40, "bold red"), (30, "yellow"), (20, ""), (0, "dim"))


def say(subscription: penstock.types.Subscription, message: Any) -> None:
    """Prints a message with the time at which it was sent. `Invalid` for another message."""
    if not isinstance(message, dict) or not message.keys() >= FIELDS:
        raise penstock.Invalid(
            f"{subscription.channel}: its messages are no log lines, which penstock.LogHandler sends: leave out --logs"
        )
    sent_ns = subscription.last.time_ns
    clock = time.strftime("%H:%M:%S", time.localtime(sent_ns // 1_000_000_000))
    style = next(style for severity, style in STYLES if message["severity"] >= severity)
    if message["dropped"]:
        output.note(
            f"warning: process {message['process']} dropped {output.many(message['dropped'], 'record')} before the next"
        )
    output.say(
        (f"{clock}.{sent_ns // 1_000_000 % 1000:03} ", "dim"),
        (f"{message['level']:8} ", style),
        f"{message['logger']}: {message['message']}",
        (f"  ({message['file'].rpartition('/')[2]}:{message['line']}, process {message['process']})", "dim"),
    )
    for line in (message["exception"] or "").splitlines():
        output.say((f"    {line}", "dim"))
