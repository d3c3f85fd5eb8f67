"""Places of archives, tables and exports: a scheme that is not known is refused at every door, and makes no folder of its name."""

import os
import re
import shutil
import urllib.parse
from pathlib import Path

import pytest

import penstock
from penstock import tables
from penstock.cli import run
from penstock.export import export
from penstock.export.mcap import export_mcap, import_mcap

URIS = [
    "gs://b/x",
    "ssh://host/x",
    "hdfs://n/x",
    "abfss://c@a/x",
    "http://x/y",
    "nfs:/x",
    "S3A://b/x",
    "udp://10.0.0.1:4000/1",
]
DOORS = {
    "Archive": lambda uri, there: penstock.Archive(uri),
    "Archive, read only": lambda uri, there: penstock.Archive(uri, create=False),
    "push": lambda uri, there: penstock.Archive(there).push(uri),
    "pipeline from": lambda uri, there: tables.run(uri, "out"),
    "pipeline into": lambda uri, there: tables.run(there, uri),
    "tables": lambda uri, there: tables.names(uri),
    "table": lambda uri, there: tables.read(uri, "messages"),
    "export from": lambda uri, there: export(uri, "out"),
    "export into": lambda uri, there: export(there, uri),
    "MCAP from": lambda uri, there: export_mcap(uri, "out.mcap"),
    "MCAP into": lambda uri, there: export_mcap(there, uri),
    "import from": lambda uri, there: import_mcap(there, uri),
    "import into": lambda uri, there: import_mcap(uri, "in.mcap"),
}


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.parametrize("door", DOORS)
def test_an_unknown_scheme_is_refused(door, uri, archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export_mcap(archive.path, "in.mcap")
    before = sorted(os.listdir())
    with pytest.raises(penstock.Invalid, match=f"is a (URI of {uri.partition(':')[0].lower()}, |channel)"):
        DOORS[door](uri, archive.path)
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.parametrize(
    "command",
    [
        "recordings {}",
        "verify {}",
        "pipeline {} --out out",
        "pipeline archive --out {}",
        "export {} out",
        "export archive {}",
        "sql {} q",
        "export archive {} --mcap",
        "import {} in.mcap",
        "import archive {}",
    ],
)
def test_the_command_refuses_it_too(command, uri, archive, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir())
    assert run(command.format(uri).split()) == 2
    told = capsys.readouterr().err
    assert "is a URI of" in told or "is a channel" in told
    assert sorted(os.listdir()) == before


def test_a_file_uri_is_a_path_at_every_door(archive, tmp_path):
    for uri in (archive.path.as_uri(), f"file://localhost{archive.path}", f"FILE:{archive.path}"):
        opened = penstock.Archive(uri)
        assert opened.path == archive.path
        opened.append("log:a", [b"x"])
    assert archive.find(1).messages == 3
    export(archive.path.as_uri(), (tmp_path / "o").as_uri())
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["log_a"]


FILES = {
    "file://otherhost/tmp/x": "on the machine otherhost",
    "file://OTHER.example:80/tmp/x": "on the machine OTHER.example:80",
    "file://localhost.evil/x": "on the machine localhost.evil",
    "file:relative/x": "write file:///ABSOLUTE/PATH, or ./file:relative/x",
    "FILE:x": "write file:///ABSOLUTE/PATH, or ./FILE:x",
    "s3:bucket/x": "write s3://BUCKET/FOLDER, or ./s3:bucket/x",
    "file:///a?b": "write %3F",
    "file:///a#b": "%23 for #",
    "file:///a%zz": "%25 for %",
    "file:///a%00b": "a path cannot contain a NUL",
    "a\0b": "a path cannot contain a NUL",
}


@pytest.mark.parametrize("uri", FILES)
@pytest.mark.parametrize("door", DOORS)
def test_a_file_uri_of_elsewhere_or_of_nowhere_is_refused(door, uri, archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export_mcap(archive.path, "in.mcap")
    before = sorted(os.listdir())
    with pytest.raises(penstock.Invalid, match=re.escape(FILES[uri])):
        DOORS[door](uri, archive.path)
    assert sorted(os.listdir()) == before
    assert not os.path.exists("/otherhost")


@pytest.mark.parametrize("written", ["file://{}", "file:{}", "FILE://LOCALHOST{}", "file:///{}", "fIlE://LocalHost/{}"])
def test_a_file_uri_of_this_machine_is_unescaped_once(tmp_path, written):
    folder = tmp_path / "a b%20é?#"
    made = penstock.Archive(written.format(urllib.parse.quote(str(folder))))
    assert made.path == folder
    assert folder.is_dir()


COMMANDS = [
    "record {} log:q --seconds 0.01",
    "recordings {}",
    "verify {}",
    "repair {}",
    "replay {} 1",
    "play {} --fast --onto again/",
    "purge {} --max-age 900d",
    "consumers {}",
    "export {} out1 --csv",
    "export archive {}/out2 --csv",
    "export archive {}/out.mcap --mcap",
    "import {} in.mcap",
    "import archive {}/in.mcap",
]


@pytest.mark.parametrize("name", ["gs:/a/b", "gs://a/b", "file:a", "s3:b/c", "log:x"])
def test_the_advice_for_a_folder_works_in_each_command(name, archive, tmp_path, monkeypatch, capsys):
    """As the error prints it."""
    monkeypatch.chdir(tmp_path)
    archive.append("log:a", [b"x"])
    export_mcap(archive.path, "in.mcap")
    assert run(["recordings", name]) == 2
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())
    advised = f"./{name}"
    assert advised in told
    for command in COMMANDS:
        if "import" not in command.split()[0]:
            penstock.Archive(advised).append("log:a", [b"x"])
        if command.endswith("/in.mcap"):
            shutil.copy("in.mcap", f"{advised}/in.mcap")
        assert run(command.format(advised).split()) == 0, (command, capsys.readouterr().err)
    assert penstock.Archive(advised, create=False).path == tmp_path / Path(advised)
    assert not (tmp_path / "a").exists()


def test_a_channel_is_no_archive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(penstock.Invalid, match=r"log:imu is a channel: give an archive's folder \(\./log:imu"):
        penstock.Archive("log:imu")
    assert penstock.Archive("./log:imu").path == tmp_path / "log:imu"
