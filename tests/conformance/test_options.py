"""Nothing is taken and ignored: each option of each verb of each kind is looked at, and a name that nothing has is refused with a near one."""

from __future__ import annotations

import inspect

import pytest

import penstock
from penstock.channels.uri.opener import TEST_ONLY
from penstock.channels.uri.registry import kind_named


class Odd:
    """A value that no option takes."""

    def __repr__(self) -> str:
        return "<odd>"


KINDS = {
    "log": "log:a",
    "ring": "ring:a",
    "sync": "sync:a",
    "pipe": "pipe:a",
    "frames": "frames:a",
    "udp": "udp://127.0.0.1:9/1",
}
KINDS |= {"fake": "fake:log:a", "zmq+tcp": "zmq+tcp://127.0.0.1:*", "zmq+ipc": "zmq+ipc:///tmp/none"}
NEEDED = {
    ("publish", "frames"): {"shape": (4,), "dtype": "u1"},
    ("subscribe", "frames"): {"shape": (4,), "dtype": "u1"},
}


def _verbs(name: str, uri: str) -> list[tuple[str, str, str]]:
    kind = kind_named({"fake": "log"}.get(name, name))
    return [(verb, name, uri) for verb in ("publish", "subscribe", "join") if getattr(kind, verb) is not None]


CASES = [
    pytest.param(verb, name, uri, option, id=f"{verb}-{name}-{option}")
    for kind, at in KINDS.items()
    for verb, name, uri in _verbs(kind, at)
    for option in sorted(kind_named({"fake": "log"}.get(name, name)).option_names(verb))
]


def _roles(verb: str, name: str) -> list[dict[str, object]]:
    if verb != "join" or name in ("sync", "fake"):
        return [{}]
    return [{"role": role} for role in ("request", "reply", "pair", "dealer", "router")]


@pytest.mark.parametrize(("verb", "name", "uri", "option"), CASES)
def test_option_is_looked_at(verb, name, uri, option):
    """Each option of each verb of each kind refuses a value that it cannot take, and the error names the channel and the option."""
    for role in _roles(verb, name):
        given = {**NEEDED.get((verb, name), {}), **role}
        with pytest.raises((penstock.PenstockError, TypeError), match=rf"{option}|<odd>|Odd") as caught:
            if option in TEST_ONLY:
                getattr(penstock, verb)(penstock.testing.channel(uri, **{option: Odd()}), **given).close()
            else:
                getattr(penstock, verb)(uri, **{**given, option: Odd()}).close()
        assert uri in str(caught.value)


@pytest.mark.parametrize(("verb", "name", "uri", "option"), CASES)
def test_wrong_option_suggests_the_right_one(verb, name, uri, option):
    """A name that is nearly an option's is refused, with the option's name; nothing was made."""
    if option in TEST_ONLY:
        with pytest.raises(TypeError, match=f"{option} is for tests: open penstock.testing.channel"):
            getattr(penstock, verb)(uri, **{**_roles(verb, name)[0], option: 1})
        return
    wrong = f"{option}s" if len(option) < 4 else option[:2] + option[3:]
    with pytest.raises(TypeError, match=f"no option '{wrong}'.*did you mean '"):
        getattr(penstock, verb)(uri, **{**_roles(verb, name)[0], wrong: 1})
    assert penstock.list_channels() == []


def _public_methods() -> list[str]:
    return [
        name
        for name, found in inspect.getmembers(penstock.Archive, inspect.isfunction)
        if not name.startswith("_") and len(inspect.signature(found).parameters) > 1
    ]


@pytest.mark.parametrize("name", _public_methods())
def test_archive_methods_suggest_too(archive, name):
    """Methods of archives do the same with their options."""
    method = getattr(archive, name)
    option = list(inspect.signature(method).parameters)[-1]
    with pytest.raises(TypeError, match=rf"{name}\(\) has no option '{option}x'; did you mean '{option}'"):
        method(**{f"{option}x": 1})


@pytest.mark.parametrize("uri", ["ring:a", "pipe:a", "frames:a"])
@pytest.mark.parametrize("start", ["earliest"])
def test_recording_from_no_past_is_refused(archive, uri, start):
    """A recording of a channel that keeps nothing cannot begin in its past. A pattern takes each channel from where it can."""
    shape = {"shape": (4,), "dtype": "u1"} if uri.startswith("frames") else {}
    with penstock.publish(uri, **shape), penstock.publish("log:kept") as kept:
        kept.send(b"before")
        with pytest.raises(penstock.Unsupported, match="earliest"):
            archive.record(uri, start=start)
        with archive.record("*", start=start) as recorder:
            assert set(recorder.recordings) == {uri, "log:kept"}
    assert {one.channel: one.messages for one in archive.list()} == {uri: 0, "log:kept": 1}


AERON = "aeron:udp?endpoint=127.0.0.1:9|stream-id=7|"
OF_PUBLICATIONS = [
    "mtu=1408",
    "term-length=64k",
    "session-id=77",
    "init-term-id=3",
    "linger=1s",
    "ttl=2",
    "fc=min",
    "so-sndbuf=64k",
]
OF_SUBSCRIPTIONS = ["rcv-wnd=64k", "reliable=false", "gtag=3"]


@pytest.mark.parametrize("parameter", [*OF_PUBLICATIONS, "term-id=1", "term-offset=0"])
def test_parameters_of_publications_are_refused_elsewhere(parameter):
    """A parameter of an Aeron URI that a subscription cannot heed is refused, by its name."""
    with pytest.raises(penstock.Unsupported, match=f"{parameter.partition('=')[0]} is for publications"):
        penstock.subscribe(AERON + parameter)


@pytest.mark.parametrize("parameter", OF_SUBSCRIPTIONS)
def test_parameters_of_subscriptions_are_refused_elsewhere(parameter):
    """And one that a publication cannot heed."""
    with pytest.raises(penstock.Unsupported, match=f"{parameter.partition('=')[0]} is for subscriptions"):
        penstock.publish(AERON + parameter)


@pytest.mark.parametrize("verb", ["publish", "subscribe"])
def test_manual_control_is_refused(verb):
    """`control-mode=manual` has no effect on either side."""
    with pytest.raises(penstock.Unsupported, match=r"control-mode=manual|destinations"):
        getattr(penstock, verb)(AERON + "control-mode=manual")


def test_near_names_of_uris():
    """Kinds and parameters that do not exist: the error says a near name."""
    with pytest.raises(penstock.Invalid, match="no kind 'lgo'; did you mean 'log'"):
        penstock.publish("lgo:a")
    with pytest.raises(penstock.Invalid, match="did you mean 'term-length'"):
        penstock.publish(AERON + "term-lenght=64k")
