"""pysyncq's queue by its names: what programs that use it expect."""

import multiprocessing as mp
import time

import pytest

import penstock
from penstock.compat.pysyncq import PySyncQ, QSet


def test_messages_are_triples():
    a, b = PySyncQ("q"), PySyncQ("q", create=False)
    a.open("a")
    b.open("b")
    a.append("greeting", "hello")
    a.append(b"\xff", 7)
    assert b.pop() == ("a", "greeting", "hello")
    assert b.pop(decode=False) == (b"a", b"\xff", b"7")
    assert b.pop() is a.pop() is None
    before = time.monotonic()
    assert b.pop(block=True, timer=0.05) is None
    assert time.monotonic() - before >= 0.05
    assert "sender=b" in str(b)
    a.close()
    b.close()
    b.close()
    with pytest.raises(penstock.NotFound):
        penstock.inspect("sync:q")
    with pytest.raises(RuntimeError, match="open"):
        b.append("x")


def test_screening_by_sets_that_may_change():
    a, b, c = PySyncQ("s"), PySyncQ("s"), PySyncQ("s")
    for queue, name in ((a, "a"), (b, "b"), (c, "c")):
        queue.open(name, filtself=name != "c")
    c.scrnsend.add("a")
    c.scrntype.add(b"noise")
    for queue in (a, b, c):
        queue.append("n", queue.sender)
        queue.append("noise", "x")
    assert [message[2] for message in c] == ["b", "c"]
    c.scrnsend.discard("a")
    a.append("", "now")
    assert list(c(block=True, timer=0.01)) == [("a", "", "now")]
    assert QSet(["x", b"y", 3]) == {b"x", b"y", b"3"}
    for queue in (a, b, c):
        queue.close()


def test_no_room_is_a_memory_error():
    a, b = PySyncQ("m", size=1 << 16), PySyncQ("m")
    a.open()
    b.open()
    with pytest.raises(MemoryError):
        a.append("", bytes(1 << 20), block=True, timer=None)
    for block in (False, True):
        with pytest.raises(MemoryError, match="no room"):
            while True:
                a.append("", bytes(1000), block=block, timer=0.02)
    a.close()
    b.close()
    with pytest.raises(MemoryError):
        PySyncQ("huge", size=1 << 40)


def _echo(queue, name, count):
    queue.open(name)
    queue.append("here", name, block=True, timer=None)
    for _ in range(count):
        while (message := queue.pop(block=True, timer=None))[0] != "parent":
            pass
        queue.append("echo", message[2], block=True, timer=None)
    queue.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_pattern_that_hangs_the_original(how):
    """Several that all echo, blocking, with more in flight than the queue holds."""
    count, body = 60, "x" * 8192
    theirs = PySyncQ(size=1 << 16, start=how)
    queue = PySyncQ(theirs.name, size=1 << 16)  # a fork would inherit what this one screens
    queue.open("parent")
    context = mp.get_context(how)
    children = [context.Process(target=_echo, args=(theirs, f"child-{i}", count)) for i in range(4)]
    for child in children:
        child.start()
    here = set()
    while len(here) < 4:
        message = queue.pop(block=True, timer=60)
        if message[1] == "here":
            here.add(message[2])
    for _ in range(count):
        queue.append("origin", body, block=True, timer=None)
    echoes = 0
    while echoes < 4 * count:
        message = queue.pop(block=True, timer=60)
        assert message is not None
        echoes += message[1:] == ("echo", body)
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    queue.close()
