"""Handles in children: forked, spawned, forkserver; inherited and pickled."""

import contextlib
import itertools
import multiprocessing
import os
import pickle
import warnings
from multiprocessing import forkserver

import pytest
from ports import free_port

import penstock

METHODS = ["fork", "spawn", "forkserver"]


def echo(sub, pub):
    """Sends back everything, until an empty message."""
    for message in sub:
        pub.send(message[::-1])
        if not message:
            return


@pytest.fixture(autouse=True)
def new_fork_server():
    """A fork server keeps the environment of its start, and so the folder of channels of the test that started it."""
    forkserver._forkserver._stop()
    yield
    forkserver._forkserver._stop()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_child_gets_working_handles(method):
    context = multiprocessing.get_context(method)
    there, back = penstock.publish("log:there", term_length=1 << 16), penstock.publish("log:back", term_length=1 << 16)
    there_sub, back_sub = penstock.subscribe("log:there"), penstock.subscribe("log:back")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, from Python 3.12 on
        child = context.Process(target=echo, args=(there_sub, back))
        child.start()
    for i in range(100):
        there.send(b"m%d" % i)
        assert back_sub.recv(timeout=60) == (b"m%d" % i)[::-1]
        assert there_sub.recv(timeout=1) == b"m%d" % i  # the parent's own handle is as it was
    there.send(b"")
    child.join(60)
    assert child.exitcode == 0
    assert back.send(b"and on")


def test_a_handle_of_another_folder_says_so(tmp_path, monkeypatch):
    with penstock.publish("log:f", term_length=1 << 16) as pub:
        pickled = pickle.dumps(pub)
        here = os.environ["PENSTOCK_DIR"]
        monkeypatch.setenv("PENSTOCK_DIR", str(tmp_path))
        with pytest.raises(penstock.NotFound, match=f"in the folder {here}.*PENSTOCK_DIR={here}"):
            pickle.loads(pickled)


def test_an_inherited_subscription_resumes_at_the_same_position():
    pub, sub = penstock.publish("log:f", term_length=1 << 16), penstock.subscribe("log:f")
    for i in range(10):
        pub.send(b"%d" % i)
    assert [sub.recv(timeout=1) for _ in range(5)] == [b"%d" % i for i in range(5)]
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        got = b",".join(sub.poll())
        pub.send(b"from the child")
        os.write(write, got)
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 1000) == b"5,6,7,8,9"
    assert sub.poll() == [b"5", b"6", b"7", b"8", b"9", b"from the child"]


def test_a_child_does_not_keep_its_dead_parents_slots_alive(channel_folder):
    """The grandparent sees a killed child's slot freed although its own child, a fork of it, lives on."""
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    parent = context.Process(target=_parent_of_sleeper, args=(ready, release))
    parent.start()
    assert ready.wait(60)
    pub = penstock.publish("log:z")
    assert len([m for m in pub.statistics().members if m.role == "subscription"]) == 1
    parent.kill()
    parent.join()
    for _ in range(3000):  # much more than the window: only possible if the dead one no longer holds writers
        pub.send(b"x" * 100, timeout=10)
    release.set()


def _parent_of_sleeper(ready, release):
    import threading

    sub = penstock.subscribe("log:z", term_length=1 << 16)
    if os.fork() == 0:
        release.wait(60)
        os._exit(0)
    ready.set()
    threading.Event().wait(60)
    sub.close()


def test_pickled_handles_open_anew():
    pub, sub = penstock.publish("log:p", term_length=1 << 16), penstock.subscribe("log:p", drop_after=5)
    pub.send(b"a")
    sub.recv(timeout=1)
    pub.send(b"b")
    copy = pickle.loads(pickle.dumps(sub))
    assert copy.recv(timeout=1) == b"b"
    other = pickle.loads(pickle.dumps(pub))
    assert other.session != pub.session
    assert sub.recv(timeout=1) == b"b"
    sub.close()
    with pytest.raises(penstock.Closed):
        pickle.dumps(sub)


def test_a_channel_that_was_replaced_is_not_joined_after_a_fork():
    sub = penstock.subscribe("log:r", term_length=1 << 16)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        penstock.remove("log:r")
        penstock.publish("log:r", term_length=1 << 16).close()
        try:
            sub.try_recv()
        except penstock.Closed as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert b"replaced" in os.read(read, 1000)


def send_and_end(handle, count, closes):
    """What a child does with a handle that it was given."""
    if hasattr(handle, "wait_for_readers"):
        handle.wait_for_readers(1, timeout=60)
    for i in range(count):
        handle.send(b"%d" % i)
    if closes:
        handle.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("kind", "closes"),
    [("log", False), ("sync", False), ("pipe", False), *itertools.product(("udp", "zmq push"), (False, True))],
)
def test_what_a_child_of_multiprocessing_sent_arrives(kind, closes, method, tmp_path):
    count = 300
    with contextlib.ExitStack() as stack:
        if kind == "zmq push":
            place = f"zmq+ipc://{tmp_path}/given"
            reader = stack.enter_context(penstock.join(place, role="pull", bind=True))
            writer = stack.enter_context(penstock.join(place, role="push", bind=False))
        elif kind == "sync":
            writer, reader = (stack.enter_context(penstock.join("sync:given")) for _ in range(2))
        else:
            place = f"udp://127.0.0.1:{free_port()}/7" if kind == "udp" else f"{kind}:given"
            reader = stack.enter_context(penstock.subscribe(place))
            writer = stack.enter_context(penstock.publish(place))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, from Python 3.12 on
            child = multiprocessing.get_context(method).Process(target=send_and_end, args=(writer, count, closes))
            child.start()
        found = [reader.recv(timeout=60) for _ in range(count)]
        child.join()
        assert child.exitcode == 0
        assert [getattr(one, "body", one) for one in found] == [b"%d" % i for i in range(count)]
