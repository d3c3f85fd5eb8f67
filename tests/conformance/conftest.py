"""Runs every promise over every subject, and expects a refusal exactly where `reasons` gives one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from conformance.reasons import marks, reason, socket_reason
from conformance.sockets import ALL, Meeting, Role
from conformance.subjects import SUBJECTS, Place, Subject

import penstock

M = TypeVar("M", Place, Meeting)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    promise = metafunc.function.__name__.removeprefix("test_")
    if "place" in metafunc.fixturenames:
        cases = [
            pytest.param(subject, id=subject.name.replace(":", "-"), marks=marks(why))
            for subject in SUBJECTS
            for why in [reason(promise, subject.kind, subject.backend)]
        ]
        metafunc.parametrize("place", cases, indirect=True)
    if "meeting" in metafunc.fixturenames:
        cases = [
            pytest.param(role, id=f"{role.backend}-{role.name}", marks=marks(why))
            for role in ALL
            for why in [socket_reason(promise, role.name, role.backend)]
        ]
        metafunc.parametrize("meeting", cases, indirect=True)


def _until_the_end(made: M, backend: str) -> Iterator[M]:
    """Gives a test's channel, and leaves nothing of it behind."""
    try:
        yield made
    finally:
        made.close()
        if backend == "fake":
            with contextlib.suppress(penstock.NotFound):
                penstock.remove(made.uri)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A channel of the subject, with no handle open yet."""
    subject: Subject = request.param
    if subject.kind == "zmq":
        pytest.importorskip("zmq")
    yield from _until_the_end(Place(subject, subject.address(tmp_path)), subject.backend)


@pytest.fixture
def meeting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Meeting]:
    """A channel for a socket of the role and its partner, with none there yet."""
    role: Role = request.param
    if role.backend == "zmq":
        pytest.importorskip("zmq")
    yield from _until_the_end(Meeting(role, role.address(tmp_path)), role.backend)
