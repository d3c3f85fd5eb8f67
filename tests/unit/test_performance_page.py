"""The page of measurements says what the results say: means, runs that lie apart, aims, what was measured before."""

import json

import pytest

from bench import performance


def run(folder, value, *, met=True, machine="one machine", quick=False):
    folder.mkdir()
    why = "" if met else f"a bare call takes {value} ns"
    row = {"case": "64 B", "who": "penstock", "metric": "CPU per send", "unit": "ns"}
    content = {
        "question": "ring",
        "quick": quick,
        "machine": machine,
        "measured": "2026-01-02",
        "missing": {"msgq, 64 B": "not\ninstalled"},
        "results": [{**row, "value": value}, {**row, "who": "rival", "value": 4e6}],
        "aims": [{"case": "64 B", "metric": "CPU per send", "aim": "<= 60 ns", "value": value, "met": met, "why": why}],
    }
    (folder / "ring.json").write_text(json.dumps(content))
    return folder


def page(*folders, before=()):
    return performance.page(performance.load(list(folders)), performance.load(list(before)))


def test_one_run(tmp_path):
    text = page(run(tmp_path / "a", 50.0))
    assert "Measured on 2026-01-02: one machine." in text
    assert "| penstock | 50 |" in text
    assert "| rival | 4 M |" in text
    assert "| 64 B: CPU per send | ≤ 60 ns | 50 | yes |" in text
    assert "- msgq, 64 B: not installed" in text
    assert "## `ring`" in text
    assert "## `log_ipc`" not in text
    assert "Why aims" not in text


def test_runs_that_lie_apart_show_both_ends_and_what_was_before(tmp_path):
    now = [run(tmp_path / "a", 50.0), run(tmp_path / "b", 150.0, met=False)]
    text = page(*now, before=[run(tmp_path / "old", 200.0)])
    assert "| penstock | 100 (50 to 150) | 200 |" in text
    assert "| 64 B: CPU per send | ≤ 60 ns | 200 | 100 (50 to 150) | in some runs |" in text
    assert "the mean of 2 runs" in text
    assert text.count("Why aims are missed") == 1
    assert "- 64 B: CPU per send: a bare call takes 150.0 ns." in text


def test_results_that_do_not_compare_are_refused(tmp_path):
    one, other = run(tmp_path / "a", 1.0), run(tmp_path / "b", 1.0, machine="another")
    with pytest.raises(SystemExit, match="several machines"):
        page(one, other)
    with pytest.raises(SystemExit, match="--quick"):
        page(run(tmp_path / "c", 1.0, quick=True))
    with pytest.raises(SystemExit, match="no results"):
        page(tmp_path)
