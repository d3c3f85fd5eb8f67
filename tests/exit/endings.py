"""Processes that end in every way with handles in every state. `python endings.py KIND TIMES STATE/ENDING ...`.

The parent imports the library once and forks; each child opens its handles, brings them into the state, and its interpreter ends by
itself. The ends of the children go to standard output as JSON.
"""

import asyncio
import json
import os
import re
import select
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import penstock

sys.path.append(str(Path(__file__).parents[1]))
from ports import free_port

SMALL = 1 << 16
ROLES = {"pair": "pair", "dealer": "router", "request": "reply"}


PORT = free_port()


def settle(listdir=os.listdir, nap=time.sleep, me=threading.get_native_id, look=open):
    """Until no other thread of this process has something to do, at most a second."""
    for _ in range(1000):
        nap(0.002)
        states = set()
        for thread in listdir("/proc/self/task"):
            try:
                with look(f"/proc/self/task/{thread}/stat") as stat:
                    states |= {stat.read().rpartition(")")[2].split()[0]} if int(thread) != me() else set()
            except OSError:  # it has ended
                pass
        if "R" not in states:
            return


def where(kind):
    """The channel of this kind."""
    if kind == "zmq":
        return f"zmq+ipc://{os.environ['PENSTOCK_DIR']}/e"
    if kind == "udp":
        return f"udp://127.0.0.1:{PORT}/7"
    return "fake:log:e" if kind == "fake" else f"{kind}:e"


def open_handles(kind):
    """(all handles, the one that reads, a way to send that waits, the bytes that a claim takes)"""
    if kind == "sync":
        writer, reader = (penstock.join("sync:e", name=name, capacity=SMALL) for name in "wr")
        return [writer, reader], reader, lambda: writer.send(b"x" * 1000), writer
    if kind in ROLES:
        options = {"capacity": SMALL, "max_pipes": 4, "max_members": 4}
        reader = penstock.join("pipe:e", role=ROLES[kind], **options)
        writer = penstock.join("pipe:e", role=kind, **options)
        send = (lambda: writer.request(b"x")) if kind == "request" else (lambda: writer.send(b"x"))
        return [writer, reader], reader, send, None
    if kind in ("mailbox", "thread pipe"):
        box = penstock.threads.Mailbox() if kind == "mailbox" else penstock.threads.Pipe()
        return [box], box, lambda: box.put(b"x"), None
    if kind == "zmq":
        writer, reader = penstock.publish(where(kind), linger=0), penstock.subscribe(where(kind))
        writer.wait_for_readers(1, timeout=60)
        return [writer, reader], reader, lambda: writer.send(b"x" * 1000), writer
    if kind == "udp":
        writer = penstock.publish(where(kind), term_length=SMALL, mtu=16384, linger=0.1, max_members=4)
        reader = penstock.subscribe(where(kind), max_members=4)
        writer.wait_for_readers(1, timeout=60)
        return [writer, reader], reader, lambda: writer.send(b"x" * 1000), writer
    name = where(kind)
    sizes = {"ring": "capacity", "pipe": "capacity"}
    options = {"shape": (SMALL,), "dtype": "u1"} if kind == "frames" else {sizes.get(kind, "term_length"): SMALL}
    if kind != "pipe":
        options["max_members"] = 4
    writer = penstock.publish(name, **options)
    reader = penstock.subscribe(name)
    return [writer, reader], reader, lambda: writer.send(b"x" * (SMALL if kind == "frames" else 1000)), writer


def thread(work):
    """A daemon thread, which has begun when this returns."""
    begun = threading.Event()

    def run():
        begun.set()
        work()

    threading.Thread(target=run, daemon=True).start()
    begun.wait()


def for_ever(call):
    """The work of a busy thread."""
    while True:
        call()


def receive(reader):
    """However this handle does it."""
    for name in ("recv", "get"):
        if hasattr(reader, name):
            return getattr(reader, name)
    raise AssertionError(reader)


async def _recv_async(reader, send, done):
    take = next(getattr(reader, name) for name in ("recv_async", "get_async") if hasattr(reader, name))
    task = asyncio.create_task(take())
    await asyncio.sleep(0)
    if done:
        send()
        await task
    else:
        task.cancel()


def bring(state, kind):
    """Opens handles and brings them into a state. Returns the objects to keep until the end."""
    handles, reader, send, writer = open_handles(kind)
    keep = list(handles)
    if state == "watched":
        keep.append(reader.fileno())
        settle()  # the thread that watches it sleeps on it
    elif state == "watched and busy":
        reader.fileno()
        thread(lambda: for_ever(lambda: (send(), reader.fileno())))
    elif state in ("awaited", "cancelled"):
        asyncio.run(_recv_async(reader, send, state == "awaited"))
    elif state == "waited for":
        thread(receive(reader))
        thread(lambda: for_ever(send))
        if kind != "mailbox":
            thread(lambda: for_ever(lambda: penstock.wait([reader])))
    elif state == "selected":
        descriptor = reader.fileno()
        thread(lambda: for_ever(lambda: select.select([descriptor], [], [])))
    elif state == "lent":
        send()
        keep.append(reader.recv() if kind == "frames" else reader.borrow(timeout=10))
        keep.append(keep[-1].array if kind == "frames" else keep[-1].__enter__())
    elif state == "claimed":
        keep.append(writer.acquire() if kind == "frames" else writer.claim(100))
        keep.append(memoryview(keep[-1].array if kind == "frames" else keep[-1].__enter__()))
    return keep


def end(ending):
    """Ends this process; returns for an ordinary end."""
    if ending == "exit in a thread":
        other = threading.Thread(target=lambda: sys.exit(7))
        other.start()
        other.join()
    elif ending == "os._exit":
        os._exit(0)
    elif ending == "raise":
        sys.stderr = open(os.devnull, "w")  # the traceback is Python's own  # noqa: SIM115  kept until the end
        raise KeyError("an end")
    elif ending == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()


# A thread still sends when the handles go, and nobody takes it: it is right to say so.
UNREAD = re.compile(r"udp://\S+: a publication has closed, and \d+ bytes of its stream were not received\n")
BUSY = ("watched and busy", "waited for")
EXPECTED = {"return": 0, "exit in a thread": 0, "os._exit": 0, "raise": 1, "signal": -signal.SIGTERM}


def newcomers(kind):
    """Whether every slot of the dead can be taken again."""
    if kind in ("fake", "mailbox", "thread pipe"):
        return True
    taken = []
    try:
        if kind in ("zmq", "udp"):  # the address is free again, and one reader is found there
            options = {"max_members": 4} if kind == "udp" else {}
            taken.append(penstock.publish(where(kind), linger=0, **options))
            taken.append(penstock.subscribe(where(kind), **options))
            taken[0].wait_for_readers(1, timeout=60)
            return True
        if kind == "sync":
            taken += [penstock.join("sync:e", name=str(i)) for i in range(8)]
        elif kind in ROLES:
            taken += [penstock.join("pipe:e", role="dealer" if kind == "dealer" else kind) for _ in range(2)]
        else:
            taken.append(penstock.publish(where(kind), **({"shape": (SMALL,)} if kind == "frames" else {})))
            taken += [penstock.subscribe(where(kind)) for _ in range(3)]
        return len(penstock.inspect("pipe:e" if kind in ROLES else where(kind)).members) >= len(taken)
    except penstock.Busy:
        return False
    finally:
        for handle in taken:
            handle.close()


def main():
    """Forks; in a child returns what must live until its interpreter ends."""
    kind, times = sys.argv[1], int(sys.argv[2])
    results = []
    root = Path(os.environ["PENSTOCK_DIR"])
    for state, ending in [pair.split("/") for pair in sys.argv[3:] for _ in range(times)]:
        os.environ["PENSTOCK_DIR"] = tempfile.mkdtemp(dir=root)
        errors = tempfile.TemporaryFile()  # noqa: SIM115  the child needs its descriptor
        pid = os.fork()
        if pid == 0:
            signal.alarm(120)
            os.dup2(errors.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            kept = bring(state, kind)
            end(ending)
            return kept
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        errors.seek(0)
        said = errors.read().decode(errors="replace")
        if kind == "udp" and state in BUSY:
            said = UNREAD.sub("", said)
        if status != EXPECTED[ending] or said or not newcomers(kind):
            results.append([state, ending, status, said[-400:]])
    print(json.dumps(results))
    return None


class Dawdling:
    """The interpreter's end takes a moment longer once the handles are gone: a native thread that lets go of the last of them runs
    before the process is gone. Modules are half gone by then, so it has what it needs of them."""

    def __del__(self, settle=settle):
        settle()


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    kept = main()
    last = Dawdling()  # a module's names go in the order in which they came
