"""Three programs, each of which waits for the one before it: a deadlock, and what `penstock why` says of it."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import penstock

WAYS = [("log:camera", "log:objects"), ("log:objects", "log:plan"), ("log:plan", "log:camera")]


def relay(source: str, target: str) -> None:
    """Passes messages on. Its program never gets one."""
    with penstock.subscribe(source) as sub, penstock.publish(target, codec="json") as pub:
        for message in sub:
            pub.send(message)


@contextlib.contextmanager
def deadlocked() -> Iterator[penstock.types.Why]:
    """The three programs, while they wait for each other."""
    programs = [subprocess.Popen([sys.executable, __file__, *way]) for way in WAYS]
    try:
        while not (found := penstock.why()).deadlocks:
            assert not any(program.poll() for program in programs), "a program ended by itself"
            time.sleep(0.01)
        yield found
    finally:
        for program in programs:
            program.kill()
            program.wait()
        for one in penstock.list_channels():
            if one.channel in dict(WAYS):
                penstock.remove(one.channel)


def main() -> None:
    with deadlocked() as found:
        print(found)


if __name__ == "__main__":
    if sys.argv[1:]:
        relay(*sys.argv[1:])
    else:
        main()
