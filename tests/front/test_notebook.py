"""Notebooks get well-formed tables with the values, and text in them cannot become markup."""

import xml.etree.ElementTree as ET

import penstock


def cells(html):
    """Rows of texts. Raises for markup that is not well-formed."""
    root = ET.fromstring(f"<div>{html}</div>")
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def test_channels_are_a_table():
    assert penstock.list_channels()._repr_html_() == "<p>no channels</p>"
    with penstock.publish("log:a", codec="json") as pub, penstock.subscribe("ring:b"):
        pub.send([1])
        head, first, second = cells(penstock.list_channels()._repr_html_())
        assert dict(zip(head, first, strict=True)) | {"memory": "", "bytes sent": "", "lag": ""} == {
            "channel": "log:a",
            "codec": "json",
            "memory": "",
            "writers": "1",
            "readers": "0",
            "messages sent": "1",
            "bytes sent": "",
            "lag": "",
            "lost": "0 B",
        }
        assert second[:2] == ["ring:b", "(open)"]
        assert isinstance(penstock.list_channels(), list)


def test_a_status_has_its_members():
    name = 'a<b>&"'
    with penstock.join("sync:a", name=name) as member:
        member.send(b"x", type="t")
        rows = cells(penstock.inspect("sync:a")._repr_html_())
        assert ["", "sync:a"] in rows
        assert [name, name] == [row[2] for row in rows if len(row) > 2][1:]
    with penstock.publish("log:a") as pub, penstock.subscribe("log:a"):
        pub.send(b"x" * 100)
        shown = {row[0]: row for row in cells(pub.statistics()._repr_html_())}
        assert shown["publication"][3] == "1"
        assert shown["subscription"][5] == "160 B"
        assert shown["sent"][1] == "1 messages, 100 B"


def test_an_archive_shows_its_recordings(tmp_path):
    archive = penstock.Archive(tmp_path / "a<b>")
    assert archive._repr_html_() == "<p>no recordings</p>"
    with penstock.publish("log:a", codec="json") as pub, archive.record("log:a"):
        pub.send([1])
    head, row = cells(archive._repr_html_())
    assert (row[head.index("channel")], row[head.index("messages")]) == ("log:a", "1")
    assert row[head.index("begins")].endswith(" UTC")
    assert "a&lt;b&gt;" in archive._repr_html_()
    assert cells(archive.list()._repr_html_()) == [head, row]
    assert cells(archive.find("log:a")._repr_html_()) == [head, row]


def test_completion_shows_public_names_only():
    assert set(dir(penstock)) == {
        *penstock.__all__,
        "blackbox",
        "types",
        "record",
        "testing",
        "threads",
        "__version__",
        "__doc__",
    }
