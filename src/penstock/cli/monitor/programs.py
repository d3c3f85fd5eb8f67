"""The programs behind members: a short name for each process, from its command line. Reads each process' command once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

import psutil

from penstock._native.core import command_of
from penstock.channels.status import ChannelStatus
from penstock.cli.channels.members import member_command

INTERPRETER = re.compile(r"(python|pypy)[0-9.]*|node|ruby|perl|bash|sh|java", re.ASCII)
LONGEST = 300  # characters of a command line that the page shows


def name_of(command: str) -> str:
    """A program's short name: the script or the module that an interpreter runs, or the program's own name."""
    words = command.split()
    if not words:
        return ""
    program = PurePath(words[0]).name
    if not INTERPRETER.fullmatch(program):
        return program
    if "penstock.record.recorder_process" in command:
        return "penstock recorder"
    if is_child(command):
        return f"{program} child"
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return _module(next(rest, program), rest)
        if word in ("-c", "-"):
            return f"{program} {word}"
        if word in ("-W", "-X"):
            next(rest, None)
        elif not word.startswith("-"):
            return _module(PurePath(word).name, rest)
    return program


def _module(name: str, rest: Iterable[str]) -> str:
    """A command of many jobs is known by its job."""
    return f"penstock {next(iter(rest), '')}".strip() if name == "penstock" else name


def is_child(command: str) -> bool:
    """Whether a process is one that `multiprocessing` started: its command line does not name its program."""
    return "multiprocessing.spawn" in command or "multiprocessing.forkserver" in command


class Programs:
    """Processes that are members of channels, by pid."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], dict[str, Any]] = {}

    def of(self, found: Iterable[ChannelStatus]) -> dict[str, dict[str, Any]]:
        """Each member's process. A reused process id is recognized by the time at which its member joined."""
        known, self._known = self._known, {}
        first: dict[int, int] = {}
        for status in found:
            for member in status.members:
                first[member.pid] = min(member.joined_ns, first.get(member.pid, member.joined_ns))
        for pid, joined in first.items():
            key = pid, joined
            self._known[key] = known.get(key) or self._read(pid, joined)
        return {str(pid): about for (pid, _), about in self._known.items()}

    def _read(self, pid: int, joined: int) -> dict[str, Any]:
        command = member_command(pid, joined)
        name = name_of(command)
        if is_child(command) and (parent := _parent(pid)):
            name = f"{parent} child"
        return {"name": name, "command": command[:LONGEST]}


def _parent(pid: int) -> str:
    """The name of the program that started a process; that of its parent's parent behind a fork server."""
    try:
        for above in psutil.Process(pid).parents():
            command = command_of(above.pid)
            if not is_child(command):
                return name_of(command)
    except psutil.Error:
        pass
    return ""
