"""What `publish`, `subscribe` and `join` give is what their overloads declare: for every kind and role, by value and by URI."""

import ast
import importlib
import inspect
import re
import typing
from pathlib import Path

import pytest
from ports import free_port

import penstock
import penstock.testing
from penstock.front import opening
from penstock.types import HistorySubscription

VALUES = {
    "Log": lambda folder: penstock.Log("a"),
    "Ring": lambda folder: penstock.Ring("a"),
    "Sync": lambda folder: penstock.Sync("a"),
    "Pipe": lambda folder: penstock.Pipe("a"),
    "Frames": lambda folder: penstock.Frames("a", shape=(2, 2)),
    "Udp": lambda folder: penstock.Udp(f"127.0.0.1:{free_port()}/1"),
    "Zmq": lambda folder: penstock.Zmq(f"ipc://{folder}/a"),
}
URIS = {"Fake": "fake:log:a", "Tested": "fake:log:a"}
JOINED_BY_FAKE = {"Sync": "fake:sync:a", "Pipe": "fake:pipe:a"}


def _imported():
    """Name → module of what the overloads name: they are imported for type checkers only."""
    tree = ast.parse(Path(opening.__file__).read_text())
    return {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("penstock.")
        for alias in node.names
    }


IMPORTED = _imported()


def _declared():
    """(verb, kind, role, class) of every overload and each kind that it takes."""
    for verb in ("publish", "subscribe", "join"):
        for overload in typing.get_overloads(getattr(opening, verb)):
            signature = inspect.signature(overload)
            name = re.match(r"\w+", signature.return_annotation)[0]
            role = signature.parameters.get("role")
            roles = re.findall(r"\w+", role.annotation.removeprefix("Literal")) if role else [None]
            kinds = re.findall(r"[A-Z]\w*", re.sub(r"\[[^]]*\]", "", signature.parameters["channel"].annotation))
            for kind in kinds:
                for one in roles:
                    yield verb, kind, one, getattr(importlib.import_module(IMPORTED[name]), name)


DECLARED = sorted(_declared(), key=lambda found: [str(part) for part in found])


def test_every_verb_kind_and_role_is_declared():
    found = {(verb, kind) for verb, kind, _, _ in DECLARED}
    assert {("publish", kind) for kind in VALUES} | {("subscribe", kind) for kind in VALUES} <= found
    roles = {(kind, role) for verb, kind, role, _ in DECLARED if verb == "join" and role}
    both = ("request", "reply", "pair", "dealer", "router")
    assert {("Pipe", role) for role in both} | {("Zmq", role) for role in (*both, "push", "pull")} <= roles


@pytest.mark.parametrize(
    ("verb", "kind", "role", "declared"),
    DECLARED,
    ids=[f"{verb}-{kind}-{role or ''}-{cls.__name__}" for verb, kind, role, cls in DECLARED],
)
def test_a_handle_is_what_is_declared(verb, kind, role, declared, tmp_path):
    if kind == "Zmq":
        pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'penstock[zmq]'")
    options = {} if role is None else {"role": role}
    if kind in URIS:
        channel = URIS[kind] if verb != "join" else JOINED_BY_FAKE["Pipe" if role else "Sync"]
        if kind == "Tested":
            channel = penstock.testing.channel(channel)
    else:
        channel = VALUES[kind](tmp_path)
    if declared is HistorySubscription:
        options["archive"] = penstock.Archive(tmp_path / "archive").path
    if verb == "join" and kind == "Sync":
        options["name"] = "one"
    for given in (channel, str(channel)) if kind in VALUES and kind != "Frames" else (channel,):
        with getattr(penstock, verb)(given, **options) as handle:
            assert isinstance(handle, declared), (given, type(handle))


def test_a_pusher_receives_nothing(tmp_path):
    with penstock.publish("pipe:a") as pusher:
        assert not hasattr(pusher, "recv")
