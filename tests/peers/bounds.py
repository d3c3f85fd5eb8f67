"""A bound on calls that may hang: an alarm that tells a hang from progress, and says which call it was."""

import contextlib
import signal
import time

HANG = 10  # seconds


@contextlib.contextmanager
def ends(what):
    """The block ends within HANG seconds; how long it took is appended to what it gives."""

    def late(*_):
        raise AssertionError(f"{what} did not end within {HANG} seconds")

    took, before = [], signal.signal(signal.SIGALRM, late)
    signal.alarm(HANG)
    begun = time.monotonic()
    try:
        yield took
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        took.append(time.monotonic() - begun)
