"""The page of measurements says what the results say: means, runs that lie apart, aims, what was measured before."""

import json

import pytest

from bench import __main__ as bench_main
from bench import asked, chart, performance

BARE = {"case": "a bare call", "who": "a method that does nothing", "metric": "CPU per call", "unit": "ns", "value": 26}


def run(folder, value, *, met=True, machine="one machine", quick=False, short=False):
    folder.mkdir()
    why = "" if met else f"a bare call takes {value} ns"
    row = {"case": "64 B", "who": "penstock", "metric": "CPU per send", "unit": "ns"}
    content = {
        "question": "ring",
        "quick": quick,
        "short": short,
        "machine": machine,
        "measured": "2026-01-02",
        "missing": {"msgq, 64 B": "not\ninstalled"},
        "results": [{**row, "value": value}, {**row, "who": "rival", "value": 4e6}, BARE],
        "aims": [
            {"case": case, "metric": "CPU per send", "aim": "<= 60 ns", "value": value, "met": met, "why": why}
            for case in ("64 B", "64 B, one by one")
        ],
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
    assert "- 64 B: CPU per send; 64 B, one by one: CPU per send: a bare call takes 150.0 ns." in text


def test_results_that_do_not_compare_are_refused(tmp_path):
    one, other = run(tmp_path / "a", 1.0), run(tmp_path / "b", 1.0, machine="another")
    with pytest.raises(SystemExit, match="several machines"):
        page(one, other)
    with pytest.raises(SystemExit, match="--quick"):
        page(run(tmp_path / "c", 1.0, quick=True))
    with pytest.raises(SystemExit, match="no results"):
        page(tmp_path)


def test_the_first_table_has_before_now_rival_limit_and_aim(tmp_path):
    text = page(run(tmp_path / "a", 50.0), run(tmp_path / "b", 52.0))
    (line,) = [line for line in text.splitlines() if line.startswith("| ring, 64 B, send")]
    assert line == "| ring, 64 B, send | 86 ns | 51 ns | – | a method that does nothing: 26 ns | ≤ 60 ns | yes |"
    older = page(run(tmp_path / "c", 50.0), before=[run(tmp_path / "old", 90.0)])
    assert "| ring, 64 B, send | 90 ns | 50 ns |" in older
    assert "an earlier commit's" in older


def test_a_missing_rival_is_told_with_its_value_of_another_run():
    (row,) = [row for row in asked.ROWS if row.elsewhere]
    aim = {
        "case": row.aim[0],
        "metric": f"{row.aim[1]} (147 k/s elsewhere)",
        "aim": ">= 40 ×",
        "value": 41,
        "met": True,
    }
    ring = {"results": [], "aims": [aim]}
    assert f"| 16 × | 41 × | {row.elsewhere} | – | ≥ 40 × | yes |" in performance.first_table({"ring": [ring]}, {})[-2]
    case, who, metric = row.rivals[0].place
    ring["results"].append({"case": case, "who": who, "metric": metric, "unit": "messages/s", "value": 150_000})
    assert f"| {row.rivals[0].who}: 150,000 messages/s |" in performance.first_table({"ring": [ring]}, {})[-2]


def test_short_runs_say_so(tmp_path):
    assert "--short" not in page(run(tmp_path / "a", 50.0))
    assert "fewer repetitions" in page(run(tmp_path / "b", 50.0, short=True))


def test_the_last_two_runs_count_and_each_run_has_a_folder_of_its_own(tmp_path, monkeypatch, capsys):
    made = [bench_main.next_folder(tmp_path / "bench") for _ in range(11)]
    assert [path.name for path in made] == [str(number) for number in range(1, 12)]
    assert bench_main.runs(tmp_path / "bench") == made
    for folder, value in ((made[0], 1.0), (made[9], 50.0), (made[10], 52.0)):
        folder.rmdir()
        run(folder, value)
    monkeypatch.setattr(performance, "RESULTS", tmp_path / "bench")
    monkeypatch.setattr(performance, "TARGET", tmp_path / "performance.md")
    monkeypatch.setattr("sys.argv", ["bench.performance"])
    (tmp_path / "index.md").write_text("```{toctree}\nreference/kinds\nreference/growth\nreference/glossary\n```\n")
    assert performance.main() == 0
    assert performance.main() == 0
    assert "| ring, 64 B, send | 86 ns | 51 ns |" in (tmp_path / "performance.md").read_text()
    assert "10" in capsys.readouterr().out
    assert (tmp_path / "index.md").read_text().count("reference/growth\nperformance\nreference/glossary\n") == 1


def test_the_page_and_its_place_in_the_contents_come_together():
    index = performance.TARGET.with_name("index.md").read_text()
    assert ("\nperformance\n" in index) == performance.TARGET.exists()
    assert performance.LISTED_AFTER in index


def test_no_chart_is_drawn_of_a_quick_run(tmp_path):
    found = tmp_path / "log_ipc.json"
    found.write_text(json.dumps({"question": "log_ipc", "quick": True, "results": []}))
    with pytest.raises(SystemExit, match="--quick"):
        chart.main(found)


def test_bars_of_one_chart_have_calls_of_one_kind():
    assert not set(chart.NAMES) & set(chart.BATCHES)
    assert "penstock batches" in chart.BATCHES
    assert "penstock" in chart.NAMES
