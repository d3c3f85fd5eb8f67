"""A lake whose archive and tables are on an object storage, and whose memory is here."""

import json

import pytest

import penstock
import penstock.tables
from penstock.cli import run

pytest.importorskip("duckdb")


@pytest.mark.slow
def test_memory_here_continues_what_is_there(bucket, tmp_path, capsys):
    archive, query = penstock.Archive(tmp_path / "archive"), "select count(*) as n, sum(i) as s from 'log:a'"
    with penstock.publish("log:a", codec="json") as publication:
        for first in (0, 10):
            with archive.record("log:a", start="earliest" if first == 0 else "newest"):
                for number in range(first, first + 10):
                    publication.send({"i": number})
            archive.push(f"{bucket}/archive")
            if first == 0:
                penstock.tables.run(f"{bucket}/archive", f"{bucket}/tables")
        for number in range(20, 30):
            publication.send({"i": number})
        for lake in (
            penstock.lake(f"{bucket}/tables", f"{bucket}/archive"),
            penstock.lake(f"{bucket}/tables"),
            penstock.lake(archive=f"{bucket}/archive"),
        ):
            assert lake.sql(query).to_pylist() == [{"n": 30, "s": 435}]
            assert not lake.cut("log:a").missing
        with_places = ["--from", f"{bucket}/tables", "--from", f"{bucket}/archive"]
        assert run(["sql", query, "--json", *with_places]) == 0
        assert json.loads(capsys.readouterr().out) == {"n": 30, "s": 435}
        assert run(["sql", "select 1", "--from", f"{bucket}/none"]) == 1
        assert "neither an archive nor tables" in capsys.readouterr().err
