"""Penstock's log, one message at a time."""

from __future__ import annotations

import penstock

# Of three such terms. Those for 1 MiB hold about as much as the rivals' queues, which is what a processor's cache holds.
TERM = {64: 1 << 20, 1024: 1 << 22, 65536: 1 << 24, 1 << 20: 1 << 22}


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the channel."""
    penstock.publish(f"log:{name}", term_length=TERM[size]).close()


def sender(name: str, readers: int, size: int) -> penstock.Publication:
    """A publication."""
    return penstock.publish(f"log:{name}")


def receiver(name: str, number: int, size: int, **options: float) -> penstock.Subscription:
    """A subscription."""
    return penstock.subscribe(f"log:{name}", start="earliest", **options)


def clean(name: str) -> None:
    """Removes the channel."""
    penstock.remove(f"log:{name}")
