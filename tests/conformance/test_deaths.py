"""Each member that dies is counted once, at the next look, on every kind; and the number never falls."""

from conformance.test_living import joined, read, start  # noqa: F401

import penstock


def test_each_dead_member_counts_once_at_the_next_look(place, start):  # noqa: F811
    """Two readers are killed, one after the other, while nobody opens the channel; then another one takes a slot."""
    pub = place.publish()
    if place.subject.kind == "zmq":
        return
    slots = 2 if place.subject.kind == "member" else 1  # one that reads and writes counts twice
    for dead in (slots, 2 * slots):
        child = start(lambda link: read(place, link))
        joined(place, child, pub)
        child.kill()
        for _ in range(2):
            assert penstock.inspect(place.uri).totals.reaped == dead
    with place.subscribe():
        assert penstock.inspect(place.uri).totals.reaped == 2 * slots
    assert penstock.inspect(place.uri).totals.reaped == 2 * slots
