"""Conditions on samples of counters, of made-up times."""

from penstock.watch.blackbox import samples
from penstock.watch.blackbox.config import Trigger


def test_a_low_rate_is_told_once_each_time_it_begins(monkeypatch):
    monkeypatch.setattr(samples, "latency_of", lambda about: None)
    sampled = samples.Sampled(Trigger(name="slow", rate="frames:camera", below=20, over="2s"))
    counts = (
        0,
        0,
        10,
        20,
        30,
        130,
        140,
        150,
        0,
        10,
        20,
    )  # not begun; slow; fast; slow; another channel of that name, slow
    told = [sampled.sample(2.0 * at, {"totals": {"messages_sent": count}}) != "" for at, count in enumerate(counts)]
    assert [at for at, one in enumerate(told) if one] == [3, 6, 10]
