"""Commands on archives: what they say of losses and of failures."""

import logging

import penstock
from penstock import cli
from penstock.cli import ending
from penstock.util.markup import size


def test_a_recording_says_how_much_it_lost(tmp_path, capsys):
    archive = penstock.Archive(tmp_path)
    with penstock.publish("ring:r", capacity="64KiB") as ring:
        with archive.record("ring:r"):
            ring.send(b"first")
        for _ in range(300):  # the ring overwrites most of them before the recorder continues
            ring.send(bytes(1000))
        assert cli.run(["record", str(tmp_path), "ring:r", "--extend", "--seconds", "0.1"]) == 0
    said, lost = capsys.readouterr(), archive.find("ring:r").lost_bytes
    assert lost > 200_000
    assert f", {size(lost)} lost" in said.out


def test_a_warning_about_a_system_call_has_no_number(capsys):
    error = penstock.SystemFailure(13, "a/b: Permission denied")
    with ending.logged():
        logging.getLogger("penstock").warning("%s. It goes on", error)
    assert capsys.readouterr().err == "warning: a/b: Permission denied. It goes on\n"
