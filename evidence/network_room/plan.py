"""What happens in a history of the room: programs on three machines, the wire between them, and their troubles. All of it follows from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from evidence.network_room.wire import HOSTS, Way

TERM, MTU = 1 << 16, 1408
SILENCE = 10.0  # seconds after which a session is lost


@dataclass(frozen=True)
class Publisher:
    """Sends `count` messages, `burst` of them every `pause` seconds, from `begins` on, and closes. waits: for so many subscriptions first."""

    host: int
    begins: float
    count: int
    burst: int
    pause: float
    longest: int  # bytes of a message
    waits: int


@dataclass(frozen=True)
class Reader:
    """archive: empty, `local` on the archive's machine, or `served` from another."""

    host: int
    begins: float
    archive: str = ""


@dataclass(frozen=True)
class Recorder:
    """sent: records what is sent on its machine; else what arrives."""

    host: int
    sent: bool
    serves: bool


@dataclass(frozen=True)
class Trouble:
    """what: cut, rough, short, pause, kill, power, move. who: a program's name. hosts: of a way, or of a machine. for_s: how long."""

    at: float
    what: str
    who: str = ""
    hosts: tuple[int, ...] = ()
    both: bool = True
    for_s: float = 0.0
    way: Way = field(default_factory=Way)


@dataclass(frozen=True)
class Plan:
    """A history."""

    seed: int
    keyed: bool
    flow: str
    way: Way
    publishers: tuple[Publisher, ...]
    readers: tuple[Reader, ...]
    recorder: Recorder | None
    troubles: tuple[Trouble, ...]

    @property
    def names(self) -> list[str]:
        """The names of the programs."""
        named = [f"publisher{n}" for n in range(len(self.publishers))] + [
            f"reader{n}" for n in range(len(self.readers))
        ]
        return named + ["recorder"] * (self.recorder is not None)

    def host_of(self, name: str) -> int:
        """The machine of a program."""
        if name == "recorder":
            assert self.recorder is not None
            return self.recorder.host
        role, number = name[:-1], int(name[-1])
        return (self.publishers if role == "publisher" else self.readers)[number].host


def _way(dice: random.Random, rough: float) -> Way:
    return Way(
        loss=dice.choice((0.0, 0.02, 0.2)) * rough,
        double=dice.choice((0.0, 0.02, 0.3)) * rough,
        hold=dice.choice((0.0, 0.05, 0.4)) * rough,
        late=dice.choice((0.001, 0.02)),
        delay=dice.choice((0.0, 0.0, 0.001, 0.01)),
    )


def drawn(seed: int, *, long: bool = False) -> Plan:
    """The history of a seed. long: more of the cuts are longer than a sender keeps its messages."""
    dice = random.Random(seed)
    receiving = dice.choice(((1,), (1,), (1, 2)))
    recorder = None
    if dice.random() < 0.5:
        sent = dice.random() < 0.5
        recorder = Recorder(host=0 if sent else receiving[0], sent=sent, serves=sent or dice.random() < 0.5)
    readers = []
    for host in receiving:
        for _ in range(dice.choice((1, 1, 2))):
            archive = ""
            if recorder is not None and dice.random() < 0.6:
                archive = "local" if host == recorder.host else "served" if recorder.serves else ""
            readers.append(Reader(host, dice.choice((0.0, 0.0, 0.3, 0.8)) if archive else 0.0, archive))
    count = dice.choice((30, 100, 300))
    at_start = sum(reader.begins == 0 for reader in readers) + (recorder is not None and not recorder.sent)
    burst = dice.choice((1, 4, 16))
    publishers = [
        Publisher(
            host=0,
            begins=dice.choice((0.0, 0.0, 0.5)) if number else 0.0,
            count=count,
            burst=burst,
            pause=dice.uniform(0.3, 2.0) / count * burst,
            longest=dice.choice((60, 600, 1300, 4000)),
            waits=at_start,
        )
        for number in range(dice.choice((1, 1, 2)))
    ]
    flow = dice.choice(("max", "min")) if len(receiving) > 1 else "max"
    plan = Plan(
        seed,
        dice.random() < 0.5,
        flow,
        _way(dice, dice.choice((0.0, 0.5, 1.0))),
        tuple(publishers),
        tuple(readers),
        recorder,
        (),
    )
    troubles = sorted(
        (_trouble(dice, plan, receiving, long=long) for _ in range(dice.choice((0, 1, 1, 2, 3)))),
        key=lambda one: one.at,
    )
    return Plan(**{**vars(plan), "troubles": tuple(troubles)})


def _trouble(dice: random.Random, plan: Plan, receiving: tuple[int, ...], *, long: bool) -> Trouble:
    at, other = dice.uniform(0.0, 1.5), dice.choice(receiving)
    what = dice.choice(("cut", "cut", "rough", "short", "pause", "pause", "kill", "kill", "power", "move"))
    if what == "power" and plan.recorder is None:
        what = "kill"
    if what == "cut":
        hosts = (0, other) if dice.random() < 0.5 else (other, 0)
        lasts = SILENCE + dice.uniform(0.5, 4) if dice.random() < (0.3 if long else 0.08) else dice.uniform(0.05, 2.0)
        return Trouble(at, what, hosts=hosts, both=dice.random() < 0.5, for_s=lasts)
    if what == "rough":
        return Trouble(at, what, hosts=(0, other), for_s=dice.uniform(0.1, 1.0), way=Way(0.5, 0.3, 0.3, 0.005, 0.05))
    if what == "short":
        return Trouble(
            at, what, hosts=(0, other), for_s=dice.uniform(0.3, 2.0), way=Way(longest=dice.choice((900, 1300)))
        )
    if what == "pause":
        lasts = SILENCE + 1 if dice.random() < (0.2 if long else 0.05) else dice.uniform(0.05, 1.5)
        return Trouble(at, what, who=dice.choice(plan.names), for_s=lasts)
    if what == "kill":
        return Trouble(at, what, who=dice.choice(plan.names), for_s=dice.uniform(0.0, 0.5))
    if what == "power":
        assert plan.recorder is not None
        return Trouble(at, what, hosts=(plan.recorder.host,), for_s=dice.uniform(0.0, 0.5))
    serving = {plan.recorder.host} if plan.recorder is not None and plan.recorder.serves else set()
    movable = sorted({0} - serving)
    if not movable:
        return Trouble(at, "pause", who=dice.choice(plan.names), for_s=dice.uniform(0.05, 1.5))
    return Trouble(at, "move", hosts=(movable[0],))


assert HOSTS == 3
