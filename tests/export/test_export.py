"""Export and `read(decode=True)`: every decoded value of every row, in each format, by readers that know nothing of Penstock."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from decoder import generate
from decoder.rows import check_cells

import penstock
from penstock import codecs
from penstock._native import core
from penstock.cli import run
from penstock.columns import contract as contracts
from penstock.export import export
from penstock.record.read.rows import COMMON
from penstock.util import pool

POINT = np.dtype([("t", "f8"), ("id", "u2"), ("xyz", "f4", (3,)), ("tag", "S8"), ("at", "M8[ms]")])
NATIVE = [(form, reader) for form in ("parquet", "delta", "arrow") for reader in ("duckdb", "polars", "pandas")]


def send(archive, channel, codec, payloads):
    with penstock.publish(channel, codec=codec, term_length=1 << 20) as pub, archive.record(channel, extend=True):
        for payload in payloads:
            core.Publication.send(pub, payload)


def files(folder, form):
    if form == "delta":
        deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install deltalake")
        return sorted(deltalake.DeltaTable(folder).file_uris())
    return sorted(str(path) for path in folder.iterdir())


def by(reader, form, folder):
    """A stream's rows as a pyarrow table, read by `reader`."""
    found = files(folder, form)
    if reader == "duckdb":
        import duckdb

        with duckdb.connect() as db:
            db.execute("set TimeZone = 'UTC'")
            if form == "arrow":
                opened = pa.concat_tables([pa.ipc.open_file(path).read_all() for path in found])
                return db.from_arrow(opened).to_arrow_table()
            return db.sql("select * from read_parquet(?)", params=[found]).to_arrow_table()
    if reader == "polars":
        import polars

        one = polars.read_ipc if form == "arrow" else polars.read_parquet
        return polars.concat([one(path) for path in found]).to_arrow()
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    if form == "arrow":
        parts = [pandas.read_feather(path, dtype_backend="pyarrow") for path in found]
    else:
        parts = [pandas.read_parquet(path, dtype_backend="pyarrow") for path in found]
    return pa.Table.from_pandas(pandas.concat(parts), preserve_index=False)


@pytest.fixture
def sent(rng, archive):
    """Channel → (codec, payloads) of what is recorded: more keys and wider values come as the streams go on."""
    streams = {
        "log:j": (codecs.resolve("json"), generate.json_messages(rng, 400)),
        "log:m": (codecs.resolve("msgpack"), generate.msgpack_messages(rng, 200)),
        "log:s": (codecs.resolve(POINT), generate.records(rng, POINT, 300)),
        "log:b": (codecs.resolve("bytes"), [rng.randbytes(rng.randrange(60)) for _ in range(200)]),
    }
    for channel, (codec, payloads) in streams.items():
        send(archive, channel, codec, payloads[:150])
        send(archive, channel, codec, payloads[150:])
    return streams


def check(table, codec, payloads, contract):
    """Every row of a stream against an independent decode."""
    assert table["payload"].to_pylist() == payloads
    assert [name for name in table.column_names if name not in COMMON.names] == [column.name for column in contract]
    check_cells(codec.spec, contract, table, payloads)


def contract_of(folder, form="parquet"):
    """The columns of a stream's files."""
    opened = pq.read_schema if form == "parquet" else lambda path: pa.ipc.open_file(path).schema
    first, *others = [contracts.from_schema(opened(path)) for path in files(folder, form)]
    assert others == [first] * len(others)
    return first


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_every_row_in_every_format_by_every_reader(sent, archive, tmp_path, processes):
    """A pool has the same tasks as one process: of it, files and a table are read."""
    forms = ("parquet", "delta", "arrow") if processes == 1 else ("parquet", "delta")
    done = {
        form: export(archive.path, tmp_path / form, form=form, processes=processes, range_bytes=4096) for form in forms
    }
    for form, reader in [one for one in NATIVE if one[0] in forms]:
        assert {one.stream: one.rows for one in done[form].streams} == {c: len(p) for c, (_, p) in sent.items()}
        assert all(
            one.files >= 1 for one in done[form].streams
        )  # as many as ranges, which follow the recorder's blocks
        for one in done[form].streams:
            codec, payloads = sent[one.stream]
            if codec.spec["kind"] == "msgpack" and reader == "pandas":
                continue  # decimals of its own width; the other readers have them
            contract = contract_of(tmp_path / "parquet" / one.folder)
            check(by(reader, form, tmp_path / form / one.folder), codec, payloads, contract)


@pytest.mark.parametrize("reader", ["duckdb", "polars", "pandas"])
def test_csv(archive, tmp_path, reader):
    """Numbers and text as they are; bytes as hexadecimal digits; times as ISO 8601; lists as JSON; null is nothing, no text is \"\"."""
    stamp = np.datetime64("2026-01-31T12:00:00.250", "ms")
    with penstock.publish("log:s", codec=POINT) as pub, archive.record("log:s"):
        for i in range(50):
            pub.send(
                (
                    i / 3,
                    i,
                    (i, -i, np.inf if i == 7 else 0.5),
                    b'a\0,"b',
                    stamp if i % 2 else np.datetime64("NaT", "ms"),
                )
            )
    with penstock.publish("log:j", codec="json") as pub, archive.record("log:j"):
        for text in ("", 'x"y', "two\nlines", None, "plain"):
            pub.send({"text": text})
    export(archive.path, tmp_path / "o", form="csv")

    def read(folder):
        (path,) = files(tmp_path / "o" / folder, "csv")
        if reader == "duckdb":
            import duckdb

            with duckdb.connect() as db:
                return db.sql("select * from read_csv(?, all_varchar = true)", params=[path]).to_arrow_table()
        if reader == "polars":
            import polars

            return polars.read_csv(path, infer_schema=False).to_arrow()
        pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
        return pa.Table.from_pandas(pandas.read_csv(path, dtype="str", keep_default_na=False, na_values=[]))

    table = read("log_s")
    assert [float(text) for text in table["t"].to_pylist()] == [i / 3 for i in range(50)]
    assert [int(text) for text in table["id"].to_pylist()] == list(range(50))
    last = [json.loads(text) for text in table["xyz"].to_pylist()]
    assert last == [[i, -i, "inf" if i == 7 else 0.5] for i in range(50)]
    assert set(table["tag"].to_pylist()) == {b'a\0,"b'.hex()}
    assert [text or None for text in table["at"].to_pylist()] == [
        "2026-01-31T12:00:00.250000" if i % 2 else None for i in range(50)
    ]
    whole = archive.read("log:s", columns=["payload", "time", "timestamp_ns"])
    assert [bytes.fromhex(text) for text in table["payload"].to_pylist()] == whole["payload"].to_pylist()
    times = [time.strftime("%Y-%m-%dT%H:%M:%S.%fZ") for time in whole["time"].to_pylist()]
    assert table["time"].to_pylist() == times
    texts = read("log_j")["text"].to_pylist()
    if reader == "polars" or reader == "duckdb":  # pandas tells no empty text from none
        assert texts[3] is None
    assert [text or "" for text in texts] == ["", 'x"y', "two\nlines", "", "plain"]


def test_read_decodes_the_same(sent, archive, tmp_path):
    done = export(archive.path, tmp_path / "o")
    for one in done.streams:
        table = archive.read(one.stream, columns=["position", "payload"], decode=True, batch_rows=17)
        assert table.column_names[:4] == ["position", "payload", "decode_error", "_rescued"]
        check(table, *sent[one.stream], contracts.from_schema(table.schema))


def test_read_decoded_of_nothing_and_of_columns_that_are_refused(archive):
    with penstock.publish("log:s", codec=POINT) as pub, archive.record("log:s"):
        pub.send((1.5, 2, (1, 2, 3), b"x", np.datetime64("NaT", "ms")))
    table = archive.read("log:s", decode=True, since=2**62)
    assert table.num_rows == 0
    assert table.column_names[-5:] == ["t", "id", "xyz", "tag", "at"]
    assert archive.read("log:s", decode=True)["t"].to_pylist() == [1.5]
    with pytest.raises(penstock.Invalid, match="flags"):
        archive.read("log:s", columns=["flags"], decode=True)
    with pytest.raises(penstock.Invalid, match="frames"):
        archive.read("log:s", decode=True, frames=True)


def test_a_part_of_the_time_and_of_the_streams(sent, archive, tmp_path):
    whole = archive.read(1, columns=["timestamp_ns"])["timestamp_ns"].to_pylist()
    since, until = whole[20], whole[90]
    done = export(archive.path, tmp_path / "o", streams=["log:j"], since=since, until=until, range_bytes=1024)
    assert [one.stream for one in done.streams] == ["log:j"]
    found = by("polars", "parquet", tmp_path / "o" / "log_j")
    assert found["timestamp_ns"].to_pylist() == [time for time in whole if since <= time <= until]
    assert found["interval_ns"][0].as_py() == whole[20] - whole[19]
    with pytest.raises(penstock.NotFound, match="log:none"):
        export(archive.path, tmp_path / "p", streams=["log:none"])
    assert not (tmp_path / "p").exists()


def damage(archive, number):
    """Flips a bit in the middle of a recording's last segment."""
    path = max((archive.path / "recordings" / f"{number:08d}").glob("*.seg"))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def test_a_damaged_stream_is_an_error_and_the_others_come_out(sent, archive, tmp_path, capfd):
    damage(archive, 1)
    with pytest.raises(
        penstock.Corrupt, match=r"log:j: .*checksum of the block at position \d+ .* are left out, as a gap"
    ):
        export(archive.path, tmp_path / "o", range_bytes=1024)
    assert run(["export", str(archive.path), str(tmp_path / "p"), "--arrow"]) == 1
    told = capfd.readouterr()
    assert "warning: log:j: " in told.err
    assert (
        told.err.splitlines()[-1]
        == f"penstock: 1 part of the archive is damaged and left out; everything else is in {tmp_path}/p"
    )
    for folder, form in ((tmp_path / "o", "parquet"), (tmp_path / "p", "arrow")):
        for channel in ("log:m", "log:s", "log:b"):
            stream = channel.replace(":", "_")
            check(by("polars", form, folder / stream), *sent[channel], contract_of(folder / stream, form))
    everything = sent["log:j"][1]
    for folder, form in ((tmp_path / "o", "parquet"), (tmp_path / "p", "arrow")):
        left = by("polars", form, folder / "log_j")["payload"].to_pylist()
        assert 0 < len(left) < 400
        gaps = [everything[:k] + everything[400 - len(left) + k :] for k in range(len(left) + 1)]
        assert left in gaps, "all but one run of messages"


def test_the_command(sent, archive, tmp_path, capfd):
    out = tmp_path / "o"
    assert run(["export", str(archive.path), str(out), "--stream", "log:s", "--stream", "log:b", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert {one["stream"]: one["rows"] for one in told["streams"]} == {"log:s": 300, "log:b": 200}
    assert run(["export", str(archive.path), str(out)]) == 1
    assert "is not an empty folder" in capfd.readouterr().err
    assert run(["export", str(archive.path), str(tmp_path / "p"), "--csv", "--delta"]) == 1
    assert "choose one" in capfd.readouterr().err
    assert run(["export", str(archive.path), str(tmp_path / "p"), "--since", "2026-01-31T25:00:00"]) == 1
    assert "it must be a time such as" in capfd.readouterr().err
    assert run(["export", str(archive.path), str(tmp_path / "p"), "--compression", "nonsense"]) == 1
    assert (
        run(
            [
                "export",
                str(archive.path),
                str(tmp_path / "p"),
                "--since",
                "2000-01-31T12:00:00Z",
                "--until",
                "@1000000000",
            ]
        )
        == 0
    )
    assert "0 messages" in capfd.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "o", "p"]


def test_a_killed_export_leaves_no_folder_with_its_name(sent, archive, tmp_path):
    """Killed as it reports the first file; the next export takes the leavings away."""
    program = (
        "import os, signal, sys\n"
        "from penstock.export import export\n"
        "def die(what, done, count):\n"
        "    if done == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "export(sys.argv[1], sys.argv[2], processes=1, range_bytes=2048, progress=die)\n"
    )
    out = tmp_path / "o"
    done = subprocess.run([sys.executable, "-c", program, archive.path, out])
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
    assert len(list(tmp_path.glob(".o.*.new"))) == 1
    assert export(archive.path, out).rows == 1100
    assert not list(tmp_path.glob(".o.*.new"))


def test_an_interrupt_while_the_pool_starts_leaves_no_process(monkeypatch):
    start, started = pool.subprocess.Popen, []

    def interrupted(*arguments, **options):
        if started:
            raise KeyboardInterrupt
        started.append(start(*arguments, **options))
        return started[0]

    monkeypatch.setattr(pool.subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt), pool.Pool("penstock.export.task:run", 2):
        pass
    assert started[0].returncode is not None


def test_a_process_of_the_pool_that_dies_is_an_error(sent, archive, tmp_path, monkeypatch):
    enter = pool.Pool.__enter__

    def killed(self):
        enter(self)
        os.kill(self._children[0].pid, signal.SIGKILL)
        return self

    monkeypatch.setattr(pool.Pool, "__enter__", killed)
    with pytest.raises(penstock.SystemFailure, match="ended with signal 9"):
        export(archive.path, tmp_path / "o", processes=2, range_bytes=1024)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_streams_with_names_that_clean_alike_have_own_folders(archive, tmp_path):
    for channel in ("log:a.b", "log:a-b", "log:A.b"):
        send(archive, channel, "bytes", [channel.encode()])
    done = export(archive.path, tmp_path / "o")
    assert len({one.folder.lower() for one in done.streams}) == 3
    for one in done.streams:
        assert by("polars", "parquet", tmp_path / "o" / one.folder)["payload"].to_pylist() == [one.stream.encode()]
