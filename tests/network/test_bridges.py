"""Bridges between machines: programs on both use the same local channels, and know nothing of the network."""

import contextlib
import json
import time

import pytest
from network.machines import machines

BRIDGE = "import runpy, sys; sys.argv[0] = 'penstock'; runpy.run_module('penstock', run_name='__main__')"
TALKING = """
import json, sys, time, penstock
name, other, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with penstock.publish("log:chat/room", codec="json") as pub, penstock.subscribe("log:chat/room") as sub:
    pub.wait_for_readers(2, timeout=120)
    print("begun", flush=True)
    sys.stdin.readline()  # the other one listens, too
    got, end = [], time.monotonic() + 300
    for number in range(count):
        pub.send([name, number], timeout=120)
        time.sleep(0.002)
    while not {(other, number) for number in range(count)} <= {tuple(one) for one in got} and time.monotonic() < end:
        got += sub.poll()
        penstock.wait([sub], 0.05)
    print("done", flush=True)
    sys.stdin.readline()
    got += sub.poll()
    mine, theirs = ([number for one, number in got if one == who] for who in (name, other))
    print(json.dumps([mine == list(range(count)), sorted(set(theirs)) == list(range(count)), len(theirs)]), flush=True)
"""
COUNT = 1500


def wait_for(process):
    line = process.stdout.readline().strip()
    assert line
    return line


def go_on(*processes):
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["none", "kill", "cut"])
def test_programs_of_two_machines_talk_over_bridges(tmp_path, trouble):
    """Each gets its own messages once and in order: nothing is echoed. It gets the other's at least once, also if a bridge is killed or
    the wire is cut for longer than a receiver is waited for."""
    with machines(tmp_path, "10.88.1.1", "10.88.1.2") as (a, b), contextlib.ExitStack() as stack:
        call = ("bridge", "chat/*", "--both", "--json")
        there = stack.enter_context(b.run(BRIDGE, *call, "udp://10.88.1.1:4000"))
        here = stack.enter_context(a.run(BRIDGE, *call, "udp://10.88.1.2:4000"))
        one = stack.enter_context(a.run(TALKING, "a", "b", str(COUNT)))
        other = stack.enter_context(b.run(TALKING, "b", "a", str(COUNT)))
        for talker in (one, other):
            assert wait_for(talker) == "begun"
        go_on(one, other)
        time.sleep(0.5)
        if trouble == "kill":
            for machine, victim, address in ((a, here, "10.88.1.2"), (b, there, "10.88.1.1")):
                victim.kill()
                victim.communicate()
                time.sleep(0.5)
                again = stack.enter_context(machine.run(BRIDGE, *call, f"udp://{address}:4000"))
                here, there = (again, there) if machine is a else (here, again)
        elif trouble == "cut":
            a.ip("link", "set", "wire", "down")
            time.sleep(7)
            a.ip("link", "set", "wire", "up")
        for talker in (one, other):
            assert wait_for(talker) == "done"
        go_on(one, other)
        for talker in (one, other):
            own_once, all_of_the_other, received = json.loads(wait_for(talker))
            assert own_once, "its own messages came back"
            assert all_of_the_other
            assert trouble != "none" or received == COUNT
        for process in (here, there):
            process.terminate()
            rows = [json.loads(line) for line in process.communicate(timeout=60)[0].splitlines()]
            assert len(rows) == 2
            assert trouble != "none" or all(row["lost"] == row["refused"] == row["resent"] == 0 for row in rows)
