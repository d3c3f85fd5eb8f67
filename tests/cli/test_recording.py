"""The command record: what it says of losses, and where it begins."""

import penstock
from penstock import cli
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
