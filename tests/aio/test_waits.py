"""Every waiting call under asyncio: cancelled, timed out, closed by others, its peer killed; the loop goes on meanwhile."""

import asyncio
import importlib
import inspect
import multiprocessing as mp
import pkgutil
import signal
import threading

import pytest
from aio import pulse, scenes, sync_scenes, zmq_scenes
from aio.scenes import SCENES, WAIT
from conftest import sized

import penstock

FORK = mp.get_context("fork")
ROUNDS = sized(12, 40, 600)
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")
INTERNAL = {"penstock.channels.waiting.loops", "penstock.channels.waiting.iteration"}  # the parts of waiting calls


def waiting_calls():
    """(class, method) of every public coroutine method and asynchronous iteration of the library's handles."""
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if module.name.split(".")[1] in ("spark", "cli") or module.name in INTERNAL:
            continue
        for name, cls in vars(importlib.import_module(module.name)).items():
            if (
                not inspect.isclass(cls)
                or name.startswith("_")
                or cls.__module__ != module.name
                or inspect.isabstract(cls)
                or getattr(cls, "_is_protocol", False)
            ):
                continue
            for method in dir(cls):
                public = not method.startswith("_") or method == "__aiter__"
                waits = inspect.iscoroutinefunction(getattr(cls, method)) or method == "__aiter__"
                if public and waits and cls.__module__ not in INTERNAL:
                    yield cls, method


def test_every_waiting_call_has_a_scene(tally):
    calls = set(waiting_calls())
    covered = set().union(*(covers for covers, _ in SCENES.values()))
    functions = {
        getattr(cls, method) for cls, method in covered | zmq_scenes.never_wait()
    }  # inherited ones are the same
    missing = {f"{cls.__name__}.{method}" for cls, method in calls - covered if getattr(cls, method) not in functions}
    assert missing == set()
    assert covered <= calls
    assert len(calls) > 20
    tally("waiting calls", len(calls))


@pytest.fixture(params=SCENES)
def opened(request):
    """Opens the scene, as often as it is asked to; all are closed afterwards."""
    made = []

    def open_it():
        made.append(SCENES[request.param][1]())
        return made[-1]

    yield open_it
    for scene in made:
        scene.close()


async def goes_on(scene, task):
    """The result of a call that is let go on."""
    deadline = asyncio.get_running_loop().time() + WAIT
    while not task.done():
        assert asyncio.get_running_loop().time() < deadline, "the call does not go on"
        await asyncio.to_thread(scene.let)
        await asyncio.wait([task], timeout=0.01)
    return task.result()


def test_the_loop_goes_on_while_a_call_waits(opened, tally):
    async def main(beating):
        scene = opened()
        tasks = [asyncio.create_task(scene.wait(i)) for i in range(3)]
        await pulse.beats(beating, 30)
        assert not any(task.done() for task in tasks)
        done = [(i, await goes_on(scene, task)) for i, task in enumerate(tasks)]
        scene.settled(await rest(scene, done))

    tally("beats of the loop beside waiting calls", pulse.run(main))


async def rest(scene, done):
    """Receives what else was sent."""
    receives = isinstance(scene, (scenes.Receiving, sync_scenes.Borrowing))
    while receives and scene.received < scene.sent:
        done.append((-1, await asyncio.wait_for(scene.wait(-1), WAIT)))
    return done


def test_a_call_that_is_cancelled_loses_and_doubles_nothing(opened, rng, tally):
    async def main(beating):
        scene = opened()
        done, waiting, number, cancelled = [], {}, 0, 0

        def collect():
            ended = [task for task in waiting if task.done()]
            done.extend((waiting.pop(task), task.result()) for task in ended)

        for _ in range(ROUNDS):
            while len(waiting) < 5:
                waiting[asyncio.create_task(scene.wait(number))] = number
                number += 1
            for _ in range(rng.randrange(3)):
                await asyncio.to_thread(scene.let)
            await asyncio.sleep(rng.choice((0, 0, 0.0005, 0.003)))
            for task in list(waiting):
                if rng.random() < 0.4 and task.cancel():
                    cancelled += 1
            if rng.random() < 0.5:
                await asyncio.to_thread(scene.let)
            await asyncio.wait(waiting, timeout=0)
            for task in [task for task in waiting if task.cancelled()]:
                del waiting[task]
            collect()
        for task in list(waiting):
            task.cancel()
        await asyncio.wait(waiting or [asyncio.create_task(asyncio.sleep(0))])
        for task in [task for task in waiting if task.cancelled()]:
            del waiting[task]
        collect()
        last = asyncio.create_task(scene.wait(number))
        done.append((number, await goes_on(scene, last)))
        scene.settled(await rest(scene, done))
        tally("calls cancelled", cancelled)

    pulse.run(main)


def test_a_call_that_timed_out_can_be_made_again(opened, tally):
    async def main(beating):
        scene = opened()
        for number in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(scene.wait(number), 0.01)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await scene.wait(number)
        done = [(7, await goes_on(scene, asyncio.create_task(scene.wait(7))))]
        scene.settled(await rest(scene, done))
        tally("calls timed out", 6)

    pulse.run(main)


@pytest.mark.parametrize("where", ["task", "thread"])
def test_closing_ends_every_call_that_waits(opened, where, tally):
    async def main(beating):
        scene = opened()
        tasks = [asyncio.create_task(scene.wait(i)) for i in range(3)]
        await pulse.beats(beating, 5)
        if where == "task":
            scene.handle.close()
        else:
            threading.Thread(target=scene.handle.close).start()
        ended, left = await asyncio.wait(tasks, timeout=WAIT)
        assert not left, "a call sleeps on"
        assert {type(task.exception()) for task in ended} == {penstock.Closed}
        with pytest.raises(penstock.Closed):
            await scene.wait(4)
        tally("calls ended by close", 4)

    pulse.run(main)


def _peer(name, channel, ready):
    """The other end, in a process of its own."""
    if name.startswith("sync send_async"):
        end = penstock.join(channel, name="reader", capacity=1 << 16)
    elif "request_async" in name:
        end = penstock.join(channel, role="reply")
    else:
        end = scenes.RECEIVES[name.rpartition(" ")[0]].sender(channel, None)
    ready.set()
    signal.pause()
    end.close()


def _killable():
    for name in SCENES:
        if name in zmq_scenes.made(scenes.RECEIVES["zmq"]):
            continue  # no process but this one has the other end
        quiet = ("thread", "mailbox", "fake", "socket", "publication", "member")
        if name.split(" ")[0] in quiet or "udp" in name or name.endswith("no server"):
            continue  # no process but this one has the other end, or there is none; udp: tests/network kills it
        yield name


@forks
@pytest.mark.parametrize("name", list(_killable()))
def test_a_peer_that_is_killed_leaves_a_call_that_works(name, tally):
    def opened(channel):
        if name == "sync send_async":
            return scenes.Appending(channel, reader=False)
        if "request_async" in name:
            return scenes.Asking(channel, served=False)
        kind, _, way = name.rpartition(" ")
        return scenes.Receiving(scenes.RECEIVES[kind], way, channel)

    kinds = {
        "sync send_async": "sync:a",
        "pipe request_async, no reply": "pipe:a",
        "zmq request_async, no reply": "zmq+ipc",
    }
    kind = kinds.get(name) or scenes.RECEIVES[name.rpartition(" ")[0]].channel
    child, channel = None, ""

    def prepare():
        nonlocal child, channel
        channel = scenes.name_of(kind)
        if not kind.startswith(("sync", "zmq")):  # the maker of the channel chooses how
            opened(channel).close()
        ready = FORK.Event()
        child = FORK.Process(target=_peer, args=(name, channel, ready), daemon=True)
        child.start()
        assert ready.wait(WAIT)

    async def main(beating):
        try:
            scene = opened(channel)
        except BaseException:
            child.kill()  # a process that sleeps on would hold up the next test that ends the fork server
            raise
        try:
            if "request_async" in name or kind.startswith("pipe"):
                await asyncio.to_thread(_met, scene)
            task = asyncio.create_task(scene.wait(1))
            await pulse.beats(beating, 20)
            assert not task.done()
            child.kill()
            if scene.after_kill in ("ends", "fails"):
                how, said, later = _ended(scene)
                with pytest.raises(how, match=said):
                    await asyncio.wait_for(task, WAIT)
                await asyncio.to_thread(child.join)
                with pytest.raises(how, match=later):
                    await asyncio.wait_for(scene.wait(1), WAIT)
                await asyncio.to_thread(scene.let)  # a new peer ends the end
                await asyncio.to_thread(_met, scene)
                task = asyncio.create_task(scene.wait(1))
                scene.settled(await rest(scene, [(1, await goes_on(scene, task))]))
            elif scene.after_kill == "goes on":
                await asyncio.wait_for(task, WAIT)
            else:
                await pulse.beats(beating, 20)
                assert not task.done()
                await asyncio.to_thread(child.join)
                if scene.after_kill == "lost":
                    task.cancel()
                    task = asyncio.create_task(scene.wait(1))
                scene.settled(await rest(scene, [(1, await goes_on(scene, task))]))
        finally:
            scene.close()
            child.kill()
            child.join()
        tally("peers killed", 1)

    pulse.run(main, prepare)


def _ended(scene):
    """How the call ends whose peer died, and what it says then and when it is made again."""
    if scene.after_kill == "fails":
        return penstock.Disconnected, "server died", "every peer that this could go to has left or died"
    if scene.way == "__aiter__":
        return penstock.Closed, "^the iteration has ended$", "^the iteration has ended$"  # the scene's own words
    return penstock.EndOfStream, "left, and all was read", "left, and all was read"


def _met(scene):
    """Until the peer is there."""
    if hasattr(scene.handle, "wait_for_readers"):
        scene.handle.wait_for_readers(1, timeout=WAIT)
