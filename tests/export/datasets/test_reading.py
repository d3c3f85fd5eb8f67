"""A training set as a data set: rows by number, in shares, in other processes, and for torch."""

import multiprocessing
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.export.datasets import reading

sys.path.insert(0, str(Path(__file__).parent))
import fake_torch

MS = 1_000_000  # nanoseconds


@pytest.fixture
def folder(archive, tmp_path):
    """A set of 1000 rows in several groups and three episodes, whose columns are of many types."""
    pictures = [np.full((3, 4), n % 256, "u1") for n in range(1000)]
    archive.append("log:camera", pictures, codec=penstock.array("u1", (3, 4)), times_ns=[n * MS for n in range(1000)])
    rows = [
        {"n": n, "gyro": [n / 2, 0.5], "grid": [[1, 2], [3, n]], "name": f"é{n}", "on": n % 2 == 0} for n in range(1000)
    ]
    archive.append("log:imu", rows, codec="json", times_ns=[n * MS for n in range(1000)])
    archive.append("log:gps", [{"lat": 1.0}], codec="json", times_ns=[500 * MS])
    archive.append("log:m", [b"start", b"start", b"start"], times_ns=[0, 100 * MS, 900 * MS])
    others = ["log:imu", "log:gps"]
    penstock.dataset(
        archive.path, tmp_path / "set", align="log:camera", others=others, tolerance="3ms", episodes="log:m"
    )
    return tmp_path / "set"


def test_a_message_is_chosen_with_all_its_fields(folder):
    data = penstock.open_dataset(folder, columns=["imu", "imu.n", "imu_position"])
    assert data.columns == ("imu.n", "imu.gyro", "imu.grid", "imu.name", "imu.on", "imu_position")
    assert data[3]["imu.n"] == 3
    with pytest.raises(penstock.NotFound, match="has no column 'im'"):
        penstock.open_dataset(folder, columns=["im"])


def test_rows_by_number_are_the_rows_in_order(folder, rng):
    data = penstock.open_dataset(folder)
    assert len(data) == 1000
    assert [row["index"] for row in data] == list(range(1000))
    for at in [0, 999, -1, -1000, *(rng.randrange(1000) for _ in range(50))]:
        row = data[at]
        n = row["index"]
        assert n == at % 1000
        assert (row["imu.n"], row["imu.gyro"].tolist(), row["imu.grid"].tolist()) == (n, [n / 2, 0.5], [[1, 2], [3, n]])
        assert (row["imu.name"], row["imu.on"]) == (f"é{n}", n % 2 == 0)
        assert row["camera"].dtype == np.uint8
        assert (row["camera"] == np.full((3, 4), n % 256)).all()
        row["camera"] += 1  # an array of the caller's own
        row["imu.gyro"] += 1
    assert data[7]["imu.gyro"].tolist() == [3.5, 0.5]
    assert [row["index"] for row in data[10:20:3]] == [10, 13, 16, 19]
    assert [(one.start, one.stop) for one in data.episodes] == [(0, 100), (100, 900), (900, 1000)]
    for wrong in (1000, -1001):
        with pytest.raises(IndexError, match="1000 rows"):
            data[wrong]


def test_columns_are_those_that_are_asked_for(folder):
    data = penstock.open_dataset(folder, columns=["imu.gyro", "imu_position", "gps.lat"])
    assert set(data[500]) == {"imu.gyro", "imu_position", "gps.lat"}
    assert (data[500]["gps.lat"], data[0]["gps.lat"]) == (1.0, None)
    assert "imu_position" in data.all_columns
    assert "imu_position" not in penstock.open_dataset(folder).columns
    for columns, error in ((["imu.giro"], "did you mean 'imu.gyro'"), ([], "empty"), ("imu.gyro", "must be a list")):
        with pytest.raises(penstock.PenstockError, match=error):
            penstock.open_dataset(folder, columns=columns)


@pytest.mark.slow
def test_shards_have_each_row_once(folder):
    data = penstock.open_dataset(folder, columns=["index"])
    for count in (1, 2, 3, 7, 1001):
        shards = [data.shard(index, count) for index in range(count)]
        assert sum(map(len, shards)) == 1000
        assert sorted(row["index"] for shard in shards for row in shard) == list(range(1000))
    halves = data.shard(1, 2).shard(0, 3)
    assert [row["index"] for row in halves][:3] == [1, 7, 13]
    assert (halves[2]["index"], len(halves)) == (13, 167)
    with pytest.raises(penstock.Invalid, match="index is 3"):
        data.shard(3, 3)


def read_as_worker(data, index, count, answers):
    """A child that is a worker of a DataLoader."""
    fake_torch.become_worker(index, count)
    answers.put([row["index"] for row in data])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_have_each_row_once(folder, method):
    """Also after the parent has read rows itself: a child opens files of its own."""
    data = penstock.open_dataset(folder, columns=["index", "camera"])
    assert data[5]["index"] == 5
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    children = [context.Process(target=read_as_worker, args=(data, index, 3, answers)) for index in range(3)]
    for child in children:
        child.start()
    found = [answers.get(timeout=120) for _ in children]
    for child in children:
        child.join()
    assert sorted(row for rows in found for row in rows) == list(range(1000))
    assert all(found)
    assert data[6]["index"] == 6


def test_it_pickles_by_its_folder(folder, archive):
    data = penstock.open_dataset(folder, columns=["index", "imu.n"]).shard(1, 2)
    assert data[0]["index"] == 1
    text = pickle.dumps(data)
    assert len(text) < 1000
    again = pickle.loads(text)
    assert (len(again), again[3], again.columns) == (500, data[3], data.columns)
    folder.rename(folder.with_name("old"))
    with pytest.raises(penstock.NotFound, match="no training set"):
        pickle.loads(text)
    penstock.dataset(archive.path, folder, align="log:imu")
    with pytest.raises(penstock.NotFound, match="built again"):
        pickle.loads(text)


def test_a_folder_that_is_no_set_is_refused(folder, tmp_path):
    for make, error in (
        (lambda path: None, "no training set"),
        (lambda path: path.write_text("{"), "certificate.json: "),
        (lambda path: path.write_text("[]"), "no certificate"),
        (lambda path: path.write_text('{"format": "penstock training set", "version": 99}'), "update Penstock"),
    ):
        (tmp_path / "x").mkdir(exist_ok=True)
        make(tmp_path / "x" / "certificate.json")
        with pytest.raises(penstock.PenstockError, match=error):
            penstock.open_dataset(tmp_path / "x")
    (folder / "data" / "part-000000.parquet").unlink()
    with pytest.raises(penstock.NotFound, match="build it again"):
        penstock.open_dataset(folder)[0]


def test_files_follow_each_other_in_large_sets(archive, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.export.datasets.writing.FILE_BYTES", 10_000)
    monkeypatch.setattr("penstock.export.datasets.writing.GROUP_ROWS", 7)
    monkeypatch.setattr(reading, "CACHED", 2)
    archive.append("log:c", [b"%05d" % n * 20 for n in range(1000)], times_ns=range(1000))
    penstock.dataset(archive.path, tmp_path / "set", align="log:c")
    data = penstock.open_dataset(tmp_path / "set")
    assert len(data.certificate["files"]) == 10
    assert [int(row["c"][:5]) for row in data] == list(range(1000))
    assert [int(data[at]["c"][:5]) for at in range(0, 1000, 97)] == list(range(0, 1000, 97))


def test_an_empty_set_has_no_rows(archive, tmp_path):
    archive.append("log:c", [b"x"], times_ns=[5])
    built = penstock.dataset(archive.path, tmp_path / "set", align="log:c", since=6, until=7)
    data = penstock.open_dataset(tmp_path / "set")
    assert (built.rows, len(data), list(data), data.episodes) == (0, 0, [], [])


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_loads_each_row_once_without_a_warning(folder, workers):
    torch_data = pytest.importorskip("torch.utils.data", reason="torch is not installed: pip install torch")
    columns = ["index", "camera", "imu.gyro", "imu.n", "imu.name"]
    data = penstock.open_dataset(folder, columns=columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for form, shuffle in ((data, True), (data.torch(), False)):
            loader = torch_data.DataLoader(form, batch_size=32, shuffle=shuffle, num_workers=workers)
            seen = []
            for batch in loader:
                assert batch["camera"].shape[1:] == (3, 4)
                assert (batch["camera"][:, 0, 0] == batch["imu.n"] % 256).all()
                seen += batch["index"].tolist()
            assert sorted(seen) == list(range(1000))
    with pytest.raises(penstock.Invalid, match=r"gps\.lat has no value in 996 rows"):
        penstock.open_dataset(folder, columns=["index", "gps.lat"]).torch()
