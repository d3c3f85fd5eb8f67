"""What is no channel, no path and no list is refused wherever one is to be given, as `Invalid`: before anything is made."""

import pytest

import penstock


@pytest.fixture
def archive(tmp_path):
    """An archive with ten messages."""
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:imu", codec="json") as imu, archive.record("log:imu"):
        for number in range(10):
            imu.send({"n": number})
    return archive


@pytest.mark.parametrize(
    "given", [None, 5, b"\xff", ["a"], object()], ids=["none", "number", "bytes", "list", "object"]
)
def test_what_is_no_channel_is_told(given):
    with pytest.raises(penstock.Invalid):
        penstock.Bridge(given, "log:b")
    with pytest.raises(penstock.Invalid):
        penstock.Bridge("log:a", given)
    for opener in (penstock.publish, penstock.subscribe, penstock.inspect):
        with pytest.raises(penstock.Invalid):
            opener(given)


@pytest.mark.parametrize("given", [None, 5, b"\xff", [5], object()], ids=["none", "number", "bytes", "list", "object"])
def test_what_is_no_channel_of_an_archive_is_told(archive, given):
    for call in (
        lambda: penstock.list_channels(given),
        lambda: archive.append(given, [b"1"]),
        lambda: archive.play(onto={given if given != [5] else 5: "log:b"}),
        lambda: archive.play(onto={"log:imu": given}),
        lambda: archive.watch([given]),
        lambda: archive.replay_onto("log:imu", given),
    ):
        with pytest.raises(penstock.Invalid):
            call()


@pytest.mark.parametrize("given", [None, 5, ["a"], object()], ids=["none", "number", "list", "object"])
def test_what_is_no_path_is_told(archive, given):
    for opener in (penstock.Archive, penstock.open_dataset, archive.replicate):
        with pytest.raises(penstock.Invalid, match="it must be a path or a URI"):
            opener(given)


@pytest.mark.parametrize("given", [None, 5, ["log:imu"]], ids=["none", "number", "list"])
def test_what_names_no_stream_is_told(archive, given):
    pytest.importorskip("duckdb")
    lake = penstock.lake(archive=archive)
    for call in (lambda: lake.align(given, ["log:imu"]), lambda: lake.reader(given), lambda: lake.cut(given)):
        with pytest.raises(penstock.Invalid, match="a stream is named by a string such as 'log:imu', not by"):
            call()


def test_what_is_no_list_of_handles_is_told():
    for given in (5, None):
        with pytest.raises(penstock.Invalid, match="wait takes a list of handles"):
            penstock.wait(given, 0)


def test_what_is_no_address_is_told(archive):
    pytest.importorskip("pyarrow.flight")
    for given in (5, "here", "127.0.0.1:70000"):
        with pytest.raises(penstock.Invalid, match="it must be HOST:PORT"):
            archive.serve(given)


def test_objects_of_an_archive_refuse_other_attributes(archive, tmp_path):
    pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("pyarrow.flight")
    penstock.dataset(archive.path, tmp_path / "set", align="log:imu")
    opened = penstock.open_dataset(tmp_path / "set")
    with archive.serve("127.0.0.1:0") as server:
        for one in (penstock.record.Pace(), archive.scan("log:imu"), opened, penstock.live_dataset("log:imu"), server):
            with pytest.raises(AttributeError, match="has no attribute 'speed' to set"):
                one.speed = 2
