"""Promises of every kind, by the tests of `tests/conformance`, with one end in C++ and the other one in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance import test_last, test_life, test_reading, test_writing
from conformance.reasons import Refused, marks, reason
from conformance.subjects import SUBJECTS, Place, Subject
from cpp.driven import DrivenPublication, DrivenSubscription, Driver, text_of

import penstock

# Those that need nothing that only Python has: other threads on one handle, event loops, Arrow, forked children, pickles.
PROMISES = {
    test_writing: (
        "publication send offer full offer_many claim dropped_claim max_payload longer_than_max_payload wait_for_readers "
        "several_publications"
    ),
    test_reading: (
        "subscription recv poll borrow dropped_borrow last start_newest start_earliest start_position unkept_position lag "
        "received_or_counted every_reader_gets_every_message"
    ),
    test_life: "until_end remove any_order",
    test_last: "last_message last_nothing last_of_an_open_channel last_after_the_end last_of_fragments",
}
KINDS = ("log", "ring", "pipe", "sync", "frames")
ENDS = ("writer", "reader")  # the one in C++


class MixedPlace(Place):
    """A channel whose publications, or whose subscriptions, are in a process of C++."""

    def __init__(self, subject: Subject, driver: Driver, cpp: str) -> None:
        super().__init__(subject, f"{subject.kind}:a")
        self.driver, self.cpp = driver, cpp

    def publish(self, **options: Any) -> Any:
        if self.cpp != "writer":
            return super().publish(**options)
        self.handles.append(DrivenPublication(self.driver, self.uri, **{**self.subject.small, **options}))
        return self.handles[-1]

    def subscribe(self, **options: Any) -> Any:
        if self.cpp != "reader":
            return super().subscribe(**options)
        self.handles.append(DrivenSubscription(self.driver, self.uri, **{**self.subject.reader, **options}))
        return self.handles[-1]


@pytest.fixture(scope="module")
def driver(ends: Path) -> Iterator[Driver]:
    """One process for all tests: its ends are of one channel folder at a time."""
    made = Driver(ends)
    yield made
    made.close()


def promises() -> Iterator[Any]:
    subjects = [subject for subject in SUBJECTS if subject.backend == "shm" and subject.kind in KINDS]
    for module, names in PROMISES.items():
        for name in names.split():
            for subject in subjects:
                for cpp in ENDS:
                    why = reason(name, subject.kind, "shm")
                    if cpp == "reader" and isinstance(why, Refused) and why.error is TypeError:
                        why = Refused(why.text)  # C++ has one type of options for all kinds
                    promise = getattr(module, f"test_{name}")
                    yield pytest.param(promise, subject, cpp, id=f"{name}-{subject.kind}-{cpp}", marks=marks(why))


@pytest.mark.parametrize(("promise", "subject", "cpp"), list(promises()))
def test_cpp_keeps_the_promise(promise: Callable[[Place], None], subject: Subject, cpp: str, driver: Driver) -> None:
    """`writer`: the publications are in C++, `reader`: the subscriptions."""
    place = MixedPlace(subject, driver, cpp)
    try:
        promise(place)
    finally:
        place.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cpp", ENDS)
def test_statistics_are_those_of_python(kind: str, cpp: str, driver: Driver) -> None:
    """The status that C++ reads is the one of Python's end, before a publication, with messages, and after a reader has left."""
    (subject,) = (one for one in SUBJECTS if (one.kind, one.backend) == (kind, "shm"))
    place = MixedPlace(subject, driver, cpp)

    def compare(*ends: Any) -> None:
        ours, theirs = ends if isinstance(ends[1], DrivenPublication | DrivenSubscription) else ends[::-1]
        assert theirs.statistics() == text_of(ours.statistics())

    try:
        if kind != "frames" and cpp == "reader":
            early = place.subscribe()
            assert early.statistics() == text_of(penstock.inspect(place.uri))
            early.close()
        pub, sub = place.pair()
        compare(pub, sub)
        for number in range(3):
            pub.send(place.message(number))
        assert place.take(sub, 2) == [0, 1]
        compare(pub, sub)
        status = penstock.inspect(place.uri)
        assert (status.totals.messages_sent, status.totals.messages_received, status.readers) == (3, 2, 1)
        assert len({member.pid for member in status.members}) == 2
        other = place.subscribe()
        other.close()
        compare(pub, sub)
    finally:
        place.close()
