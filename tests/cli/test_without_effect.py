"""An option that would have no effect beside another one is refused, before anything is made."""

import pytest

import penstock
from penstock import cli

PAIRS = [
    ["play", "nowhere", "--fast", "--speed", "2"],
    ["metrics", "--once", "--port", "1"],
    ["pub", "log:a", "--npz", "x.npz", "--file", "y"],
    ["pub", "log:a", "--npz", "x.npz", "--codec", "json"],
    ["pub", "log:a", "--npz", "x.npz", "--realtime", "--rate", "2"],
    ["top", "-m", "--json", "-n", "1"],
    ["sub", "log:a", "--last", "1", "--start", "earliest"],
    *(
        ["pipeline", "--out", "t", "--optimize", *words]
        for words in (
            ["nowhere"],
            ["--archive", "nowhere"],
            ["--engine", "spark"],
            ["--new-keys", "add"],
            ["--compression", "snappy"],
        )
    ),
]


@pytest.mark.parametrize("words", PAIRS, ids=" ".join)
def test_options_without_effect_are_refused(words, capsys):
    assert cli.run(words) == 1
    assert "has no effect with" in capsys.readouterr().err
    assert penstock.list_channels() == []


def test_a_file_that_is_not_there_leaves_no_channel_behind(tmp_path, capsys):
    assert cli.run(["pub", "log:a", "--file", str(tmp_path / "none")]) == 1
    assert "cannot read" in capsys.readouterr().err
    assert penstock.list_channels() == []


@pytest.fixture
def recorded(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:a") as a, penstock.publish("log:b") as b, archive.record(["log:a", "log:b"]):
        a.send(b"1")
        b.send(b"2")
    return archive


def test_two_channels_are_not_played_onto_one(recorded):
    for onto in ({"log:a": "log:q", "log:b": "log:q"}, {"log:a": "log:b"}):
        with pytest.raises(penstock.Invalid, match="would both be played to"):
            recorded.play(onto=onto, speed=None)
    with pytest.raises(penstock.NotFound):
        penstock.inspect("log:q")


def test_no_recording_goes_onto_zeromq(recorded):
    with pytest.raises(penstock.Unsupported, match="ZeroMQ"):
        recorded.replay_onto("log:a", "zmq+tcp://127.0.0.1:5599")
    with pytest.raises(penstock.Unsupported, match="ZeroMQ"):
        recorded.play("log:a", onto={"log:a": "zmq+tcp://127.0.0.1:5599"}, speed=None)


def test_a_bridge_whose_source_never_waits_has_no_drop_after(capsys):
    assert cli.run(["bridge", "ring:r", "log:b", "--drop-after", "1"]) == 1
    assert "drop_after is for sources whose writers wait" in capsys.readouterr().err
    assert penstock.list_channels() == []
