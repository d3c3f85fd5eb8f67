"""Tables with options, names and versions that are wrong: each error names the value and says what there is; nothing is written."""

import functools

import pytest

import penstock
from penstock import tables
from penstock.spark import pipeline


@pytest.fixture
def out(tmp_path):
    """Tables of ten messages, in a folder beside their archive."""
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:imu", codec="json") as imu, archive.record("log:imu"):
        for number in range(10):
            imu.send({"n": number})
    tables.run(tmp_path / "archive", tmp_path / "tables")
    return tmp_path / "tables"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"scema": {}}, TypeError, r"run\(\) has no option 'scema'; did you mean 'schema'\?"),
        ({"schema": "n long"}, penstock.Invalid, "schema is 'n long': it must be a mapping"),
        ({"commit_bytes": -5}, penstock.Invalid, "commit_bytes is -5: it must be a whole number from 1"),
        ({"range_bytes": 2.5}, penstock.Invalid, "range_bytes is 2.5: it must be a whole number from 1"),
        ({"rebuild": "log:imu"}, penstock.Invalid, "rebuild is 'log:imu': it must be a list of streams"),
        ({"rebuild": 5}, penstock.Invalid, "rebuild is 5: it must be a list of streams"),
    ],
)
@pytest.mark.parametrize("call", ["run", "follow"])
def test_a_wrong_option_is_told(out, tmp_path, call, options, error, text):
    with pytest.raises(error, match=text):
        getattr(tables, call)(tmp_path / "archive", tmp_path / "others", **options)
    assert not (tmp_path / "others").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"every": -1}, "every is -1: it must be None or seconds"),
        ({"every": "1s"}, "every is '1s': it must be"),
        ({"every": float("nan")}, "every is nan: it must be"),
        ({"until": 5}, "until is 5: it must be a function"),
        ({"on_step": 5}, "on_step is 5: it must be a function"),
    ],
)
def test_wrong_way_to_follow_is_told_before_tables_are_written(out, tmp_path, options, text):
    for call in (tables.follow, functools.partial(pipeline.follow, None)):
        with pytest.raises(penstock.Invalid, match=text):
            call(tmp_path / "archive", tmp_path / "others", **options)
    assert not (tmp_path / "others").exists()


def test_progress_of_tables_is_a_function(out, tmp_path):
    with pytest.raises(penstock.Invalid, match="progress is 5: it must be a function"):
        pipeline.run(None, tmp_path / "archive", tmp_path / "others", progress=5)
    assert not (tmp_path / "others").exists()


@pytest.mark.parametrize("places", [(None, "tables"), ("archive", None), (5, "tables")])
def test_what_is_no_place_is_told(out, tmp_path, places):
    given = [tmp_path / one if isinstance(one, str) else one for one in places]
    with pytest.raises(penstock.Invalid, match=r"is (None|5): it must be a path or a URI"):
        tables.run(*given)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"version": 99}, penstock.NotFound, r"has no version 99: the newest is \d"),
        ({"version": -1}, penstock.Invalid, "version is -1: it must be a whole number from 0"),
        ({"version": "1"}, penstock.Invalid, "version is '1': it must be a whole number from 0"),
        ({"version": True}, penstock.Invalid, "version is True: it must be a whole number from 0"),
        ({"columns": ["n", "m"]}, penstock.NotFound, "has no columns m; it has stream, .*, n"),
        ({"columns": "n"}, penstock.Invalid, "columns is 'n': it must be a list of names"),
        ({"stream": 5}, penstock.Invalid, "stream is 5: it must be a channel"),
    ],
)
def test_what_a_table_lacks_is_told(out, options, error, text):
    with pytest.raises(error, match=text):
        tables.read(out, "log:imu", **options)
    assert tables.read(out, "log:imu", columns=["n"]).to_pydict() == {"n": list(range(10))}


def test_a_name_that_is_no_text_is_told(out):
    with pytest.raises(penstock.Invalid, match="5 is no name of a table"):
        tables.open_table(out, 5)
    with pytest.raises(penstock.Invalid, match="stream is 5: it must be a channel"):
        tables.uris(out, "messages", stream=5)


def test_a_hint_for_plain_bytes_is_told(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    archive.append("log:one", [b"abc"])
    with pytest.raises(penstock.Invalid, match="log:one are plain bytes, which have no columns"):
        tables.run(archive.path, tmp_path / "tables", schema={"log:one": "px double"})


def test_a_version_whose_log_was_erased_is_told(out):
    tables.erase(out, "log:imu")
    with pytest.raises(penstock.NotFound, match="has no version 0: the log does not go back so far"):
        tables.read(out, "log:imu", version=0)
