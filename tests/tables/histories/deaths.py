"""Runs that die before or after the n-th of the calls that change the disk: by an exception, or with their whole process."""

import contextlib
import multiprocessing
import os
from unittest import mock

from penstock import Archive, PenstockError
from penstock.columns.parts import Writer
from penstock.tables import keep, pipeline
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table

CALLS = [
    (Place, "write"),
    (Place, "delete"),
    (Table, "commit"),
    (Table, "create"),
    (Table, "delete"),
    (Table, "vacuum"),
    (Table, "_add_columns"),
    (Writer, "close"),
    (Writer, "write"),
    (Archive, "note_consumer"),
    (os, "replace"),
]
DIED = 77


class Death(BaseException):
    """No code of the library may catch it for good."""


@contextlib.contextmanager
def dying(moment, die):
    """Within it, `die` is called at a moment: (n, before or after the n-th of all calls, or of those of one name)."""
    left, only = list(moment[:1]), moment[1]

    def tick():
        left[0] -= 1
        if left[0] == -1:
            die()

    def mortal(call):
        def made(*given, **named):
            tick()
            result = call(*given, **named)
            tick()
            return result

        return made

    with contextlib.ExitStack() as stack:
        for owner, name in CALLS if only is None else [call for call in CALLS if call[1] == only]:
            plain = owner.__dict__[name]
            made = classmethod(mortal(plain.__func__)) if isinstance(plain, classmethod) else mortal(plain)
            stack.enter_context(mock.patch.object(owner, name, made))
        yield


def some_moment(rng):
    """A moment for `dying`."""
    if rng.random() < 0.5:
        return rng.randrange(rng.choice([4, 16, 60])), None
    return rng.randrange(8), rng.choice(
        ["write", "write", "delete", "commit", "commit", "create", "vacuum", "close", "_add_columns"]
    )


def raise_death():
    raise Death


def _child(moment, archive, out, options, erasure):
    status = 1
    try:
        with dying(moment, lambda: os._exit(DIED)):
            if erasure is None:
                pipeline.run(archive, out, **options)
            else:
                keep.erase(out, **erasure)
        status = 0
    except PenstockError as error:
        print(repr(error), flush=True)
        status = 3
    finally:
        os._exit(status)


def killed(moment, archive, out, options=None, erasure=None):
    """Whether a process that ran a pipeline, or an erasure, died at that moment. It is forked from one that has no threads."""
    context = multiprocessing.get_context("forkserver")
    child = context.Process(target=_child, args=(moment, str(archive), str(out), options or {}, erasure))
    child.start()
    child.join()
    assert child.exitcode in (0, 3, DIED), child.exitcode
    return child.exitcode
