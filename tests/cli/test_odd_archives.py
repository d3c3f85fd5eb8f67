"""Commands on archives and channels of which a part cannot be read: the part is named, and the rest is done."""

import json
import os

import pytest
from cli import running
from damage import flip

import penstock
from penstock._native import core
from penstock.tables import reading

LOCAL = ("--engine", "local")


@pytest.fixture
def run(tmp_path):
    """Calls the command in this process, in an empty folder."""
    return lambda *arguments: running.here(*arguments, folder=tmp_path)


@pytest.fixture
def mixed(tmp_path):
    """A json channel and its recording, whose second message is none."""
    with penstock.publish("log:j", codec="json", term_length=1 << 16) as pub:
        recorder = penstock.Archive(tmp_path / "a").record("log:j")
        pub.send(1)
        core.Publication.send(pub, b"{")
        pub.send(2)
        pub.send(3)
        recorder.stop()


@pytest.mark.parametrize("command", [("sub", "log:j", "--start", "earliest", "-n", "3"), ("replay", "a", "log:j")])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_message_that_does_not_decode_is_named_and_passed_over(run, mixed, command, form):
    done = run(*command, *form)
    assert done.status == (1 if command[0] == "replay" else 0)  # a recording is asked for as a whole
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["data"] if form else line for line in lines] == [1, 2, 3]
    said, *count = done.err.splitlines()
    assert said.startswith("warning: log:j: the message at position 64 (1 bytes) is not json: ")
    assert count == (["penstock: 1 message could not be decoded"] if command[0] == "replay" else [])


def test_a_limit_holds_for_what_is_published_too(run, mixed):
    with penstock.subscribe("log:k") as sub:
        done = run("replay", "a", "log:j", "--onto", "log:m", "-n", "1")
        assert (done.status, done.out) == (0, "1 message onto log:m\n")
        assert penstock.inspect("log:m").totals.messages_sent == 1
        assert sub.poll() == []


def test_archives_and_tables_may_be_file_uris(run, mixed, tmp_path):
    done = run("pipeline", "--archive", (tmp_path / "a").as_uri(), "--out", f"file://localhost{tmp_path}/t%20t", *LOCAL)
    assert (done.status, done.err) == (0, "")
    assert reading.read(tmp_path / "t t", "messages").num_rows == 4
    assert run("verify", (tmp_path / "a").as_uri()).status == 0
    refused = run("pipeline", "--archive", "ftp://bucket/a", "--out", "t", *LOCAL)
    assert refused.status == 2
    assert "is a URI" in refused.err


def test_a_damaged_recording_fails_the_pipeline_after_all_others(run, mixed, tmp_path, tally):
    archive = penstock.Archive(tmp_path / "a")
    for name in ("log:k", "log:l", "log:m"):
        with penstock.publish(name, term_length=1 << 16) as pub:
            recorder = archive.record(name)
            pub.send(b"x")
            recorder.stop()
    folders = archive.folders()
    index = folders[1].segments()[0].index
    index.write_bytes(b"no index at all")
    (folders[2].path / "recording.json").write_text("{")  # it has a copy, so nothing is lost
    for name in ("recording.json", "recording.copy"):
        (folders[3].path / name).write_text("{")
    for _ in range(2):  # and again: it is told as long as it is so
        done = run("pipeline", "--archive", "a", "--out", "t", *LOCAL)
        assert done.status == 1
        *before, said = done.err.splitlines()
        assert all(line.startswith("warning: ") for line in before), done.err
        assert said.startswith(f"penstock: recording 2 of log:k is damaged: {index}: ")
        assert said.endswith(
            "; it is left out. Run repair: it keeps all sound data (and 1 more); all else is in the tables"
        )
        assert reading.read(tmp_path / "t", "messages")["stream"].to_pylist() == ["log:j"] * 4 + ["log:l"]
    archive.repair()
    assert run("pipeline", "--archive", "a", "--out", "t", *LOCAL).status == 0
    tally("runs of the pipeline", 3)


def test_a_table_can_be_read_on_a_narrow_terminal(run, monkeypatch):
    monkeypatch.setattr("penstock.cli.terminal.output.shutil.get_terminal_size", lambda: os.terminal_size((40, 20)))
    monkeypatch.setattr("penstock.cli.terminal.output.ANY_WIDTH", 40)
    with penstock.publish("log:chan", term_length=1 << 16):
        done = run("ls")
    assert "log:chan" in done.out
    assert done.out.split()[:2] == ["channel", "writers"], "columns are left out, and no line is broken"
    assert max(map(len, done.out.splitlines())) <= 40


@pytest.mark.parametrize("command", [("record", "log:x"), ("repair",), ("purge", "1")])
def test_an_object_store_is_asked_for_no_folders_feature(run, command):
    name, *others = command
    done = run(name, "s3://no-such-bucket-anywhere/x", *others)
    assert (done.status, done.err) == (
        1,
        "penstock: s3://no-such-bucket-anywhere/x is on an object storage, where recordings can only be read\n",
    )


def test_a_folder_is_not_called_like_an_mcap_file(run, mixed, tmp_path):
    done = run("export", "a", "all.mcap")
    assert (done.status, done.out) == (1, "")
    assert done.err == "penstock: all.mcap would be a folder: add --mcap for an MCAP file, or name it otherwise\n"
    assert not (tmp_path / "all.mcap").exists()


@pytest.mark.parametrize("onto", [(), ("--onto", "log:again"), ("--json",)])
def test_a_replay_that_leaves_damage_out_fails_at_its_end(run, tmp_path, onto):
    archive = penstock.Archive(tmp_path / "a")
    for _ in range(2):  # a block each
        archive.append("log:x", [{"n": n} for n in range(500)], codec="json")
    segment = min((archive.path / "recordings" / "00000001").glob("*.seg"))
    flip(segment, 200)
    skipped = []
    left = len(list(archive.replay(1, on_skip=skipped.append)))
    assert len(skipped) == 1
    assert "bytes from position 0 on are left out" in skipped[0]
    with penstock.subscribe("log:again"):
        done = run("replay", "a", "1", *onto)
    assert done.status == 1
    assert done.err.splitlines()[-1] == "penstock: 1 damaged part of the recording left out"
    if not onto:
        assert len(done.out.splitlines()) == left
