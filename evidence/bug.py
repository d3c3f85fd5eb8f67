"""A bug that is planted into C++, and the test programs that must find it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bug:
    """In one function of the core, `good` is replaced by `bad`. `programs`: the test programs that must find it, in the order in which they run."""

    what: str
    function: str
    good: str
    bad: str
    programs: tuple[str, ...]
    more: tuple[tuple[str, str, str], ...] = field(default=())  # further replacements: function, good, bad

    @property
    def edits(self) -> tuple[tuple[str, str, str], ...]:
        """All replacements: function, good, bad."""
        return ((self.function, self.good, self.bad), *self.more)


MODEL, KILL, CHECK, RKILL, SCRIBBLE, STRESS = "model", "kill", "recording", "recording kill", "scribble", "stress"
RING_MODEL, RING_KILL, RING_STRESS, RING_FUZZ = "ring model", "ring kill", "ring stress", "ring fuzz"
SYNC_MODEL = "sync model"
PIPE_MODEL, PIPE_KILL, PIPE_STRESS = "pipe model", "pipe kill", "pipe stress"
FRAME_MODEL, FRAME_KILL, FRAME_STRESS, FRAME_FUZZ = "frame model", "frame kill", "frame stress", "frame fuzz"
EARLY_MODEL, EARLY_KILL = "early model", "early kill"
LAST_KILL = "last values kill"
NET_CHECK, NET_SIM, NET_EXTENSIONS = "network check", "network lives", "network extensions"
CLOCK_CHECK, WAIT_CHECK, COPY_CHECK = "clock", "waiting", "copying"
UDP_MODEL, UDP_KILL, UDP_CHECK, UDP_STREAMS, SEAL_CHECK = (
    "udp model",
    "udp kill",
    "udp check",
    "udp streams",
    "seal check",
)
