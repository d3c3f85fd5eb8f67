"""A hand-written channel: a ring of fixed slots in multiprocessing.shared_memory, counters by struct, busy waiting."""

from __future__ import annotations

import struct
from multiprocessing import resource_tracker, shared_memory

SLOTS = 256
COUNTER = struct.Struct("<Q")
HEAD = 64 * 9  # the writer's counter, then up to eight readers', a line each


class _End:
    def __init__(self, name: str, size: int) -> None:
        self.slot = size + 8
        self.memory = shared_memory.SharedMemory(name)
        resource_tracker.unregister(f"/{name}", "shared_memory")  # else the first process to end removes it for all
        self.view = self.memory.buf

    def close(self) -> None:
        self.view.release()
        self.memory.close()


class _Sender(_End):
    def __init__(self, name: str, readers: int, size: int) -> None:
        super().__init__(name, size)
        self.readers, self.sent = range(1, readers + 1), 0

    def send(self, data: bytes) -> None:
        view, sent = self.view, self.sent
        while sent - min(COUNTER.unpack_from(view, 64 * i)[0] for i in self.readers) >= SLOTS:
            pass
        at = HEAD + sent % SLOTS * self.slot
        COUNTER.pack_into(view, at, len(data))
        view[at + 8 : at + 8 + len(data)] = data
        self.sent = sent + 1
        COUNTER.pack_into(view, 0, self.sent)


class _Receiver(_End):
    def __init__(self, name: str, number: int, size: int) -> None:
        super().__init__(name, size)
        self.mine, self.got = 64 * (number + 1), 0

    def recv(self) -> bytes:
        view, got = self.view, self.got
        while COUNTER.unpack_from(view, 0)[0] == got:
            pass
        at = HEAD + got % SLOTS * self.slot
        (length,) = COUNTER.unpack_from(view, at)
        data = bytes(view[at + 8 : at + 8 + length])
        self.got = got + 1
        COUNTER.pack_into(view, self.mine, self.got)
        return data


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the segment."""
    memory = shared_memory.SharedMemory(name, create=True, size=HEAD + SLOTS * (size + 8))
    resource_tracker.unregister(f"/{name}", "shared_memory")
    memory.close()


def sender(name: str, readers: int, size: int) -> _Sender:
    """The writer."""
    return _Sender(name, readers, size)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """A reader."""
    return _Receiver(name, number, size)


def clean(name: str) -> None:
    """Removes the segment."""
    memory = shared_memory.SharedMemory(name)
    memory.close()
    memory.unlink()
