"""Messages that a reader holds, beside the conformance suite's promises: repairs by readers, DLPack's versions, torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import warnings
from typing import Any

import numpy as np
import pytest

import penstock

PATIENCE = 60


@pytest.mark.parametrize("uri", ["log:a", "sync:a"])
def test_a_reader_fills_the_hole_of_a_dead_writer(uri):
    """A reader maps the terms read-only. It fills a hole through another mapping, and still cannot write to what it lends."""
    with penstock.publish(uri) as pub, penstock.subscribe(uri) as sub:
        for number in range(3):
            child = os.fork()
            if child == 0:
                claim = penstock.publish(uri).claim(100)
                claim.__enter__()[:] = b"x" * 100
                os.kill(os.getpid(), signal.SIGKILL)
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
            pub.send(b"%d" % number)
            with sub.borrow(timeout=PATIENCE) as view:
                assert bytes(view) == b"%d" % number
                assert view.readonly
        assert pub.statistics().totals.repaired == 3


@pytest.fixture
def frame() -> Any:
    with (
        penstock.publish("frames:a", shape=(4, 4), dtype="f4") as pub,
        penstock.subscribe("frames:a") as sub,
    ):
        pub.send(np.full((4, 4), 255, "f4"))
        yield sub.recv(timeout=1)


def test_dlpack_consumers_get_what_they_understand(frame):
    """An old consumer gets an error with the way to copy, a new one a read-only capsule, and a consumer that asks for a copy a private one."""
    for old in ({}, {"max_version": None}, {"max_version": (0, 8)}):
        with pytest.raises(BufferError, match=r"^frames:a: .*frame\.copy\(\), or copy=True"):
            frame.__dlpack__(**old)
    if np.lib.NumpyVersion(np.__version__) < "2.1.0":
        with pytest.raises(BufferError, match="NumPy"):
            frame.__dlpack__(max_version=(1, 0))
        return
    assert not np.from_dlpack(frame).flags.writeable
    mine = np.from_dlpack(frame, copy=True)
    mine /= 255
    assert (mine.max(), frame.array.max()) == (1, 255)


def test_a_copy_is_private(frame):
    for mine in (frame.copy(), np.array(frame), np.asarray(frame, "f8"), np.asarray(frame, ">f4")):
        assert mine.flags.writeable
        mine /= 255
    assert frame.array.max() == 255
    assert np.asarray(frame) is frame.array


WAYS = {
    "from_dlpack": "torch.from_dlpack(frame)",
    "as_tensor": "torch.as_tensor(frame)",
    "asarray": "torch.asarray(frame)",
    "from_numpy": "torch.from_numpy(frame.array)",
    "frombuffer": "torch.frombuffer(frame.array, dtype=torch.float32)",
    "asarray of the array": "torch.asarray(frame.array)",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_torch_cannot_write_to_a_frame(frame, way):
    """A tensor over a frame reads it. An operation in place ends its process with SIGSEGV, or it was an operation on a copy."""
    pytest.importorskip("torch", reason="torch is not installed")
    code = f"""
        import warnings, torch, penstock
        warnings.simplefilter("ignore")
        sub = penstock.subscribe("frames:a")
        frame = sub.latest()
        x = {way}
        assert x.max() == 255
        x.div_(255)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, timeout=PATIENCE)
    assert done.returncode == -signal.SIGSEGV, done.stderr.decode()[-500:]
    assert frame.array.max() == 255


def test_torch_takes_copies_without_a_warning(frame):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mine in (torch.from_numpy(frame.copy()), torch.from_dlpack(frame, copy=True), torch.tensor(frame.array)):
            mine.div_(255)
            assert mine.max() == 1
        assert frame.array.max() == 255
        with (
            penstock.publish("log:t", codec=penstock.array("f4", (2, 2))) as pub,
            penstock.subscribe("log:t") as sub,
        ):
            pub.send(torch.ones(2, 2))
            torch.from_numpy(sub.recv(timeout=1)).mul_(3)
            with pytest.raises(penstock.Invalid, match=r"^log:t: .*requires grad.*\.detach"):
                pub.send(torch.ones(2, 2, requires_grad=True))
            with pytest.raises(penstock.Invalid, match=r"^log:t: .*\.float\(\)"):
                pub.send(torch.ones(2, 2, dtype=torch.bfloat16))
            with pytest.raises(penstock.Invalid, match=r"^log:t: .*rounded"):
                pub.send(torch.ones(2, 2, dtype=torch.float64))
