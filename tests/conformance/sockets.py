"""The sockets of the patterns: every role on every backend, each with the role that answers it, behind the same few calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.subjects import PATIENCE

import penstock

PARTNERS = {
    "pair": "pair",
    "dealer": "router",
    "router": "dealer",
    "request": "reply",
    "reply": "request",
    "push": "pull",
    "pull": "push",
}
ROLES = {"shm": tuple(PARTNERS)[:5], "fake": tuple(PARTNERS)[:5], "zmq": tuple(PARTNERS)}
HEADS = {"shm": "pipe:", "zmq": "zmq:"}  # fakes do what pipes do


@dataclass(frozen=True)
class Role:
    """One role on one backend."""

    name: str
    backend: str

    @property
    def partner(self) -> str:
        """The role that it talks to."""
        return PARTNERS[self.name]

    def address(self, folder: Path) -> str:
        """The URI of the channel in a test that owns `folder`."""
        return {"shm": "pipe:a", "fake": "fake:pipe:a", "zmq": f"zmq+ipc://{folder}/peer"}[self.backend]

    @property
    def options(self) -> dict[str, Any]:
        """Of small channels."""
        return {"linger": 0} if self.backend == "zmq" else {"capacity": 1 << 16, "max_messages": 64}


ALL = tuple(Role(name, backend) for backend, names in ROLES.items() for name in names)


@dataclass
class Meeting:
    """A socket of a role and its partner on a channel of one test."""

    role: Role
    uri: str
    handles: list[Any] = field(default_factory=list)

    @property
    def pattern(self) -> str:
        """A pattern that finds the URI in an error."""
        return re.escape(self.uri)

    def join(self, role: str, /, **options: Any) -> Any:
        """A socket of that role, called by its role unless `options` give a name."""
        binds = {"bind": not self.handles} if self.role.backend == "zmq" else {}
        called = "another pair" if role == "pair" and self.handles else f"a {role}"
        made = penstock.join(self.uri, role=role, **{"name": called, **binds, **self.role.options, **options})
        self.handles.append(made)
        return made

    def two(self, **options: Any) -> tuple[Any, Any]:
        """A socket and its partner, which know each other."""
        one = self.join(self.role.name, **options)
        other = self.join(self.role.partner, **options)
        for end in (one, other):
            end.wait_for_readers(1, timeout=PATIENCE)
        if "router" in (self.role.name, self.role.partner):  # over ZeroMQ it knows a dealer once that has sent
            router, dealer = (one, other) if self.role.name == "router" else (other, one)
            dealer.send(None if options.get("codec") else b"hello", timeout=PATIENCE)
            router.recv(timeout=PATIENCE)
        return one, other

    def to(self, role: str) -> dict[str, str]:
        """The arguments by which `send` of that role reaches its partner."""
        return {"to": "a dealer"} if role == "router" else {}

    def give(self, other: Any, body: Any) -> None:
        """The partner sends a message, or asks."""
        if self.role.partner == "request":
            other.submit(body, timeout=PATIENCE)
        else:
            other.send(body, timeout=PATIENCE, **self.to(self.role.partner))

    def exchange(self, one: Any, other: Any, body: Any) -> Any:
        """`body`, from the partner to the socket, or from a socket that does not receive to its partner."""
        if self.role.name not in ("request", "push"):
            self.give(other, body)
            return self.body(one.recv(timeout=PATIENCE))
        one.submit(body, timeout=PATIENCE) if self.role.name == "request" else one.send(body, timeout=PATIENCE)
        return self.body(other.recv(timeout=PATIENCE))

    def body(self, received: Any) -> Any:
        """The body of what a socket received."""
        return getattr(received, "body", received)

    def close(self) -> None:
        """Closes every socket."""
        for handle in self.handles:
            handle.close()
