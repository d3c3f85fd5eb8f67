"""`penstock.why` on graphs of waiting processes, one seed each: the chain is right in all of them."""

from __future__ import annotations

import os
import time

import pytest
from conftest import sized

import penstock
from tests.watch.why.waiting import Plan, plan_of, started

COUNT = int(os.environ.get("PENSTOCK_GRAPHS") or sized(10, 30, 1000))
FIRST = int(os.environ.get("PENSTOCK_SEED") or 0) * 1000
STATES = {"running": "running", "sleeping": "sleeping", "stopped": "stopped", "dead": "dead"}


def settled(plan: Plan, pids: list[int], others: list[int]) -> penstock.types.Why:
    """The graph once every process waits, and the last one has come to its end."""
    waiting = set(pids if plan.end == "cycle" else pids[:-1]) | set(others)
    while True:
        graph = penstock.why()
        there = {wait.pid for wait in graph.waits}
        ends = {one.pid: one.state for one in graph.processes}
        if there >= waiting and (plan.end == "cycle" or ends.get(pids[-1]) == STATES[plan.end]):
            return graph
        time.sleep(0.002)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_chain_of_a_random_graph_is_right(seed: int) -> None:
    """Each wait of the chain names its channel, what it is for, and the next process; the end is what keeps all of them waiting."""
    plan = plan_of(seed)
    print(plan)
    with started(plan, f"graph{seed}") as graph:
        found = settled(plan, graph.pids, graph.others)
        print(found)
        pids, count = graph.pids, len(plan.links)
        if plan.end == "cycle":
            assert len(found.deadlocks) == 1
            cycle = found.deadlocks[0]
            at = cycle.index(pids[0])
            assert [*cycle[at:], *cycle[:at]] == pids
            assert not found.culprits
        else:
            assert not found.deadlocks
            assert [one.pid for one in found.culprits] == [pids[-1]]
            assert found.process(pids[-1]).state == STATES[plan.end]
            ways = [chain for chain in found.chains if chain.waits[0].pid == pids[0]]
            assert [list(way.pids) for way in ways] == [pids]
            assert not ways[0].closes
        by_pid = {wait.pid: wait for wait in found.waits}
        assert set(by_pid) == set(pids[:count]) | set(graph.others)
        for at, link in enumerate(plan.links):
            wait = by_pid[pids[at]]
            assert wait.channel.endswith(graph.names[at])
            assert (wait.what, [one.how for one in wait.on]) == (link.what, [link.how])
            assert [one.pid for one in wait.on] == [pids[(at + 1) % len(pids)]]
            assert not wait.timed
        for other in graph.others:
            assert [one.pid for one in by_pid[other].on] == [pids[1]]
