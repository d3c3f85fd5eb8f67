"""Counters of the programs' own: shared by processes and threads, shown by top and Prometheus."""

import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import penstock
from penstock.channels.storage import files
from penstock.front import counters as counters_module
from penstock.front.counters import Counts, counters
from penstock.watch import metrics


@pytest.mark.parametrize("wrong", ["é", "", "/a", "a b", ".a", "x" * 129])
def test_wrong_name_is_told(wrong):
    with pytest.raises(penstock.Invalid, match="is not a counter name: use 1 to 128 of"):
        penstock.counter(wrong)


def test_threads_and_processes_add_to_one_count():
    count = penstock.counter("camera/dropped")

    def add():
        for _ in range(10_000):
            count.add()

    threads = [threading.Thread(target=add) for _ in range(4)]
    children = []
    for _ in range(3):
        if (pid := os.fork()) == 0:
            add()
            os._exit(0)
        children.append(pid)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pid in children:
        os.waitpid(pid, 0)
    assert penstock.counter("camera/dropped").value == count.value == 70_000
    assert counters() == {"camera/dropped": 70_000}


def test_a_count_outlives_a_process_that_was_killed():
    program = "import os, signal, penstock; penstock.counter('lives').add(7); os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    assert penstock.counter("lives").value == 7


def test_top_and_prometheus_show_counters():
    penstock.counter("a").add(3)
    command = [sys.executable, "-m", "penstock", "top", "-n", "1", "--every", "0.1"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split() for line in shown.splitlines() if line.startswith("a ")] == [["a", "3", "0"]]
    rows = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    row = json.loads(rows)
    assert (row["counter"], row["value"]) == ("a", 3)
    assert 'penstock_counter_total{name="a"} 3.0' in metrics.text()


@pytest.mark.parametrize("name", ["", "a b", "../a", "a//b", ".a", "a" * 200, 7, None])
def test_odd_names_are_refused(name):
    with pytest.raises(penstock.Invalid):
        penstock.counter(name)


@pytest.mark.parametrize("amount", [1.5, True, "1", None, np.float64(2), np.True_])
def test_only_whole_numbers_are_added(amount):
    count = penstock.counter("camera/whole")
    with pytest.raises(TypeError) as raised:
        count.add(amount)
    name = type(amount).__name__
    assert str(raised.value).startswith(
        f"the counter camera/whole: add() takes a whole number from 0 to 2**64 - 1, not {name}: give int("
    )
    assert count.value == 0


@pytest.mark.parametrize(
    ("amount", "said"), [(-1, "below 0"), (1 << 64, "is larger"), (-(10**5000), "below 0")], ids=["-1", "2**64", "huge"]
)
def test_a_number_out_of_range_is_refused(amount, said):
    count = penstock.counter("camera/whole")
    with pytest.raises(penstock.Invalid, match=said):
        count.add(amount)
    assert count.value == 0


def test_numbers_of_other_libraries_are_added():
    count = penstock.counter("others")
    count.add(np.uint64(3))
    count.add(amount=np.int8(4))
    count.add(0)
    assert count.value == 7


def test_a_count_goes_on_at_0_behind_its_largest():
    """Shown, growing and read, it stays a number from 0 on."""
    count, clock = penstock.counter("wraps"), iter([0.0, 1.0, 2.0])
    counts = Counts(lambda: next(clock))
    count.add((1 << 64) - 2)
    assert counts.update()[0].value == (1 << 64) - 2
    count.add(5)
    assert count.value == 3
    row = counts.update()[0]
    assert (row.value, row.per_s) == (3, 5.0)
    assert repr(count) == "<Counter wraps at 3>"
    (files.private_folder(".counters") / "wraps").unlink()
    counters_module._opened.cache_clear()
    penstock.counter("wraps").add(2)
    row = counts.update()[0]
    assert (row.value, row.per_s) == (2, 2.0)  # it began again at 0


def test_a_file_that_is_no_counter_is_refused_and_left_out():
    penstock.counter("good").add()
    folder = files.private_folder(".counters")
    (folder / "long").write_bytes(b"x" * 100)
    (folder / "long").chmod(0o600)
    (folder / "link").symlink_to(folder / "good")
    (folder / "open").write_bytes(b"")
    (folder / "open").chmod(0o644)
    for name in ("long", "link", "open"):
        with pytest.raises(penstock.SystemFailure, match=name):
            penstock.counter(name)
    assert counters() == {"good": 1}
    assert (folder / "long").read_bytes() == b"x" * 100
