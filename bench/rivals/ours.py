"""Penstock's log, one message at a time."""

from __future__ import annotations

import penstock

TERM = {64: 1 << 20, 1024: 1 << 22, 65536: 1 << 24, 1 << 20: 1 << 22}  # a log of 12 MiB fits into the cache


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the channel."""
    penstock.publish(f"log:{name}", term_length=TERM.get(size, 1 << 24)).close()


def prepare_whole(name: str, readers: int, size: int) -> None:
    """Makes a channel where a message of that size is one frame, as a claim and a batch must be."""
    penstock.publish(f"log:{name}", term_length=max(TERM.get(size, 1 << 24), 8 * size)).close()


def sender(name: str, readers: int, size: int) -> penstock.types.Publication:
    """A publication."""
    return penstock.publish(f"log:{name}")


def receiver(name: str, number: int, size: int, **options: float) -> penstock.types.Subscription:
    """A subscription."""
    return penstock.subscribe(f"log:{name}", start="earliest", **options)


def clean(name: str) -> None:
    """Removes the channel."""
    penstock.remove(f"log:{name}")
