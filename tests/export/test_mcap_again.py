"""MCAP: a file that is imported twice, an export that was killed, and what a command says of topics with several forms."""

import os

import pytest

import penstock
from penstock.cli import run

pytest.importorskip("mcap", reason="mcap is not installed: pip install 'penstock[mcap]'")

from mcap_files import held, read, topic, write

from penstock.export.mcap import export_mcap, import_mcap

BEGAN = 1_769_860_800 * 10**9


def file_of(path, begins, count=5):
    """A file with messages of two topics from a time on."""
    topics = {"a": topic("/a"), "b": topic("/b")}
    return write(path, topics, [(name, begins + at, b"%d" % at) for at in range(count) for name in topics])


def test_a_second_import_of_a_file_is_said(tmp_path, capsys):
    path, archive = file_of(tmp_path / "a.mcap", BEGAN), tmp_path / "archive"
    assert run(["import", str(archive), str(path)]) == 0
    assert "twice" not in capsys.readouterr().err
    assert run(["import", str(archive), str(path), "--stream", "/b"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "twice" in line]
    assert line.startswith("warning: log:b had messages of these times before")
    assert {name: len(rows) for name, rows in held(penstock.Archive(archive)).items()} == {"log:a": 5, "log:b": 10}


def test_the_next_file_of_a_bag_is_no_second_import(tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    for number in range(2):
        done = import_mcap(archive, file_of(tmp_path / f"{number}.mcap", BEGAN + 100 * number))
        assert done.overlaps == ()
    assert import_mcap(archive, tmp_path / "1.mcap").overlaps == ("log:a", "log:b")


def test_an_export_removes_what_a_killed_one_left(archive, tmp_path):
    """Files of a process that lives, of another export, and of others stay."""
    archive.append("log:a", [b"x"], times_ns=[BEGAN])
    gone = 1 << 22  # no process has this number: Linux gives smaller ones
    left = tmp_path / f".a.mcap.0123456789abcdef.{gone}.new"
    kept = [
        tmp_path / f".a.mcap.0123456789abcdef.{os.getpid()}.new",
        tmp_path / f".b.mcap.0123456789abcdef.{gone}.new",
        tmp_path / ".a.mcap.mine.new",
    ]
    for path in (left, *kept):
        path.write_bytes(b"half")
    export_mcap(archive.path, tmp_path / "a.mcap")
    assert len(read(tmp_path / "a.mcap")) == 1
    assert not left.exists()
    assert all(path.exists() for path in kept)


def test_the_forms_of_a_topic_are_told_apart(tmp_path, capsys):
    topics = {
        "one": topic("/t", schema=("a.One", "jsonschema", b'{"type": "object"}')),
        "other": topic("/t", schema=("a.Other", "jsonschema", b'{"type": "object"}')),
        "bare": topic("/t"),
        "else": topic("/u"),
    }
    path = write(tmp_path / "a.mcap", topics, [(name, BEGAN, b"{}") for name in topics])
    assert run(["import", str(tmp_path / "archive"), str(path)]) == 0
    lines = [line.partition(" is log:")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["renamed: '/t' of a.One", "renamed: '/t' of a.Other", "renamed: '/t' of json"]


def test_an_error_of_a_library_ends_with_one_period(archive):
    """rosbags' own texts end with one."""
    pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'penstock[ros2]'")
    codec = penstock.ros2msg("geometry_msgs/msg/Point")
    archive.append("log:p", [b"\0\3\0\0" + bytes(24)], codec=codec.spec, encoded=True, times_ns=[BEGAN])
    with pytest.raises(penstock.DecodeError) as found:
        list(archive.replay("log:p"))
    assert "encapsulation. The next call continues" in str(found.value)


def test_a_folder_of_a_bag_is_no_file(tmp_path, capsys):
    """ROS 2's own commands take the folder; the line names the files in it."""
    folder, archive = tmp_path / "drive", str(tmp_path / "archive")
    folder.mkdir()
    says = []
    for name in ("drive_0", "drive_1"):
        assert run(["import", archive, str(folder)]) == 1
        says.append(capsys.readouterr().err)
        file_of(folder / f"{name}.mcap", BEGAN)
    assert run(["import", archive, str(folder)]) == 1
    says.append(capsys.readouterr().err)
    assert "is a folder without a file of MCAP" in says[0]
    assert f"is a folder: import its file {folder / 'drive_0.mcap'}" in says[1]
    assert f"is a folder: import its 2 files in turn, {folder / 'drive_0.mcap'} first" in says[2]
    assert all(said.count("\n") == 1 for said in says)
    assert not (tmp_path / "archive").exists()
