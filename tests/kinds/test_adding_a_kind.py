"""A kind is added by its own module and one line that registers it: docs/design/adding_a_kind.md."""

import asyncio
import re
import threading
from pathlib import Path

import pytest
from conformance import test_reading, test_writing
from conformance.subjects import Place, Subject

import penstock
from penstock.channels.uri import registry
from penstock.channels.uri.registry import kind_names, register

ROOT = Path(__file__).parents[2]
HOME = "kinds.toy_kind"
SUBJECT = Subject("toy", "toy", {"max_messages": 100})


@pytest.fixture
def toy(monkeypatch):
    """Registers the toy kind for one test, as `penstock/kinds/__init__.py` registers the others."""
    for table in ("_homes", "_kinds", "_foreign"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    register("toy", HOME, "KIND")
    return "toy:a"


def test_without_its_line_the_kind_is_unknown():
    assert "toy" not in kind_names()
    with pytest.raises(penstock.Invalid, match="no kind 'toy'"):
        penstock.publish("toy:a")


def test_messages_pass_through_the_front_door(toy):
    with penstock.publish(toy, codec="json") as pub, penstock.subscribe(toy) as sub:
        pub.wait_for_readers(1, timeout=60)
        assert pub.send({"t": 1}) == pub.position == len(b'{"t":1}')
        assert penstock.wait([sub], timeout=60) == [sub]
        assert sub.recv(timeout=60) == {"t": 1}
        assert penstock.wait([sub], timeout=0) == []
        status = pub.statistics()
        assert (status.channel, status.kind, status.readers, status.totals.messages_received) == (toy, "toy", 1, 1)
    assert isinstance(pub, penstock.types.Publication)
    assert isinstance(sub, penstock.types.Subscription)


def test_wait_takes_it_with_another_kind(toy):
    with (
        penstock.publish(toy) as pub,
        penstock.subscribe(toy) as sub,
        penstock.publish("log:a", capacity=1 << 16) as log,
        penstock.subscribe("log:a") as tail,
    ):
        log.send(b"x")
        assert penstock.wait([sub, tail], timeout=60) == [tail]
        sender = threading.Thread(target=pub.send, args=(b"y",))
        sender.start()
        assert penstock.wait([sub], timeout=60) == [sub]
        sender.join()
        assert asyncio.run(penstock.wait_async([tail, sub], timeout=60)) == [tail, sub]


def test_a_wrong_option_gets_a_suggestion(toy):
    with pytest.raises(TypeError, match="no option 'max_mesages'; did you mean 'max_messages'"):
        penstock.publish(toy, max_mesages=4)
    with pytest.raises(TypeError, match=r"'toy' has no option 'capacity'.*these have it: log:NAME"):
        penstock.publish(toy, capacity=1 << 16)
    with pytest.raises(penstock.Invalid, match=r"^toy:a: max_messages is 0"):
        penstock.publish(toy, max_messages=0)


def test_the_registry_answers_for_the_kind(toy, archive, monkeypatch):
    """A kind without shared memory is refused where others are listed, inspected and recorded; the errors say why."""
    assert "toy" in kind_names()
    with penstock.publish(toy):
        assert penstock.list_channels() == penstock.list_channels("*") == []
        for call in (penstock.inspect, penstock.remove, archive.record, penstock.list_channels):
            with pytest.raises(penstock.Unsupported, match=r"toy:\S+ is not in shared memory"):
                call(toy)
    with pytest.raises(penstock.Unsupported, match="nothing to join"):
        penstock.join(toy)
    with pytest.raises(penstock.Unsupported, match="fake:toy:a cannot be a channel within one process"):
        penstock.publish("fake:toy:a")
    with pytest.raises(penstock.Invalid, match="no kind 'toyy'; did you mean 'toy'"):
        penstock.publish("toyy:a")


def promises():
    """The promises of writing and reading, each with the error that the toy kind refuses it with."""
    refused = {"start_earliest", "start_position"}
    for module in (test_writing, test_reading):
        for name, promise in vars(module).items():
            if name.startswith("test_"):
                raises = penstock.Unsupported if name.removeprefix("test_") in refused else None
                marks = [pytest.mark.xfail(raises=raises, strict=True)] if raises else []
                yield pytest.param(promise, id=f"{module.__name__.rpartition('_')[2]}-{name}", marks=marks)


@pytest.mark.parametrize("promise", list(promises()))
def test_it_keeps_the_promises_of_every_kind(toy, promise):
    place = Place(SUBJECT, toy)
    try:
        promise(place)
    finally:
        place.close()


def test_the_page_names_files_that_exist():
    page = (ROOT / "docs" / "design" / "adding_a_kind.md").read_text()
    named = re.findall(r"`((?:src|native|tests|docs|tools|evidence|bench|examples)/[^`\s]*)`", page)
    assert len(named) > 30
    gone = [name for name in named if "NAME" not in name and not (ROOT / name).exists()]
    assert gone == []


def test_no_kind_is_left_behind():
    assert "toy" not in registry._homes
    assert "toy" not in registry._kinds
