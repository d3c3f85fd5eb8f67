"""Words for waits and for what is waited for. Knows no channel's file."""

from __future__ import annotations

from penstock.channels.waiting.why.records import Wait, WaitedFor, WaitingProcess
from penstock.util.markup import count, size

STATES = {
    "waiting": "waits",
    "running": "is running",
    "sleeping": "sleeps outside of Penstock",
    "blocked": "is blocked in the kernel",
    "stopped": "is stopped",
    "dead": "is dead",
    "hidden": "is in another PID namespace",
}


def state_text(process: WaitingProcess) -> str:
    """What a process does, as the rest of a sentence."""
    if process.state == "foreign":
        return f"of user {process.user}: cannot be looked at"
    return STATES[process.state]


def seconds_text(seconds: float) -> str:
    """A length of time for people: 3.2 s, 2 min 5 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def wait_text(wait: Wait) -> str:
    """What a wait is for, and since when, as the rest of a sentence."""
    limit = ", until its timeout" if wait.timed else ""
    return f"waits for {purpose(wait)}, {seconds_text(wait.seconds)}{limit}"


def purpose(wait: Wait) -> str:
    """What a wait is for: "messages of log:imu"."""
    return f"{wait.what} {'in' if wait.what in ('room', 'a buffer') else 'of'} {wait.channel}"


def part_text(wait: Wait, one: WaitedFor) -> str:
    """The part of one that a wait is for, as the rest of a sentence."""
    many = count(one.amount)
    plural = "" if one.amount == 1 else "s"
    return {
        "writes": {"frames": "is to publish them", "a reply": "is to answer"}.get(wait.what, "is to write them"),
        "behind": f"has {size(one.amount)} to read",
        "claim": f"has an open claim of {size(one.amount)}",
        "leases": f"holds {many} frame{plural}",
        "unread": f"has {many} frame{plural} to receive",
        "fills": f"fills {many} buffer{plural}",
        "full": f"has {many} message{plural} to read",
        "answers": "has the request",
        "locks": "holds the channel's lock",
        "sends": "is to send them",
        "receives": f"has {size(one.amount)} to read" if one.amount else "is to read",
    }[one.how]


def nobody_text(wait: Wait) -> str:
    """The sentence for a wait that is for nobody who is there."""
    if wait.what == "readers":
        return "no more readers are there"
    if wait.what in ("room", "a buffer"):
        return "no reader is there" if wait.what == "room" else "every buffer is being filled"
    return "nobody is there to write them" if wait.what != "a reply" else "nobody is there to answer"
