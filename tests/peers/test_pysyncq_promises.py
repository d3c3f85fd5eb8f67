"""The promises on which users of a pysyncq queue rely."""

import multiprocessing as mp
import pickle
import subprocess
import sys

import pytest
from peers.bounds import ends

import penstock
from penstock.compat.pysyncq import PySyncQ, QSet


def test_a_queue_that_is_missing_is_no_file(pysyncq, endpoint):
    with pytest.raises(FileNotFoundError):
        pysyncq.PySyncQ(endpoint, create=False)
    queue = pysyncq.PySyncQ(endpoint)
    assert pysyncq.PySyncQ(endpoint, create=False).name == endpoint  # it exists though nobody has opened it
    queue.open("a")
    queue.close()
    with pytest.raises(FileNotFoundError):
        pysyncq.PySyncQ(endpoint, create=False)


def test_a_queue_that_nobody_opened_goes_with_its_close(pysyncq, endpoint):
    pysyncq.PySyncQ(endpoint).close()
    with pytest.raises(FileNotFoundError):
        pysyncq.PySyncQ(endpoint, create=False)


def test_or_with_the_process_that_made_it(channel_folder):
    code = "from penstock.compat.pysyncq import PySyncQ; a = PySyncQ(); b = PySyncQ('kept'); c = PySyncQ('kept', create=False)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert list(channel_folder.iterdir()) == []


def test_looking_for_a_removed_queue_does_not_make_it(endpoint):
    made, looking = PySyncQ(endpoint), PySyncQ(endpoint, create=False)
    made.close()
    with pytest.raises(penstock.NotFound, match="create=True"):
        looking.open("b")
    assert penstock.list_channels() == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"start": "thread"}, ValueError),
        ({"start": ""}, ValueError),
        ({"start": 1}, ValueError),
        ({"size": -1}, ValueError),
        ({"size": 0}, ValueError),
        ({"size": 1 << 80}, MemoryError),
        ({"name": None, "create": False}, ValueError),
    ],
)
def test_arguments_that_make_no_sense(pysyncq, options, error):
    with pytest.raises(error):
        pysyncq.PySyncQ(**options)


@pytest.mark.parametrize("start", [None, *mp.get_all_start_methods()])
def test_the_start_method_is_kept(pysyncq, start):
    queue = pysyncq.PySyncQ(start=start, size=4096)
    assert queue.start in mp.get_all_start_methods()
    assert start in (None, queue.start)
    if start == "spawn":
        queue.open()
    queue.close()


def _child(queue, here, go):
    queue.open("child", filtself=False)
    here.set()
    go.wait()  # the original's members all have to be there before the first message
    queue.append("mine", "0")
    here.set()
    got = []
    while not got or got[-1][2] != "end":
        got.append(queue.pop(block=True, timer=30))
    queue.append("answer", ";".join(f"{sender}/{kind}/{body}" for sender, kind, body in got))
    queue.close()


@pytest.fixture
def default_start():
    """Sets the start method that `multiprocessing` has for all; the original's lock is bound to it."""
    yield lambda method: mp.set_start_method(method, force=True)
    mp.set_start_method(None, force=True)


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_screens_travel_to_children(pysyncq, start, tally, default_start):
    """However children begin, they screen what the object screened."""
    if not pysyncq.ours:
        default_start(start)
    context = mp.get_context(start)
    queue = pysyncq.PySyncQ(start=start, size=1 << 16)
    queue.scrnsend.add("loud")
    queue.scrntype.add("noise")
    here, go = context.Event(), context.Event()
    child = context.Process(target=_child, args=(queue, here, go))
    child.start()
    assert here.wait(60)
    here.clear()
    queue.open("parent")
    go.set()
    assert here.wait(60)
    for kind, body in (("noise", "1"), ("signal", "2"), ("signal", "end")):
        queue.append(kind, body)
    answer = None
    with ends("the child's answer"):
        while answer is None or answer[1] != "answer":
            answer = queue.pop(block=True, timer=8)
    assert answer == ("child", "answer", "child/mine/0;parent/signal/2;parent/signal/end")
    child.join(60)
    assert child.exitcode == 0
    queue.close()
    tally("children that inherited screens", 1)


def test_a_pickled_object_is_whole():
    queue = PySyncQ("pickled", size=1 << 20, start="spawn")
    queue.scrnsend.add("a")
    queue.open("me")
    queue.scrntype.add(5)
    copy = pickle.loads(pickle.dumps(queue))
    assert (copy.name, copy.size, copy.start, copy.create) == ("pickled", 1 << 20, "spawn", True)
    assert (copy.scrnsend, copy.scrntype) == ({b"a", b"me"}, {b"5"})
    assert type(copy.scrnsend) is QSet
    with pytest.raises(RuntimeError, match="open"):
        copy.pop()
    copy.open("you")
    queue.append("", "screened, for the copy screens me")
    assert copy.pop() is None
    copy.close()
    queue.close()


def test_screens_hold_in_a_queue_that_is_opened_again():
    """The sets are the object's, not the membership's."""
    queue, other = PySyncQ("again"), PySyncQ("again")
    other.open("other")
    queue.scrntype.add("noise")
    for _ in range(2):
        queue.open("me")
        other.append("noise", "x")
        other.append("signal", "y")
        assert [message[1] for message in queue] == ["signal"]
        queue.close()
    other.close()
