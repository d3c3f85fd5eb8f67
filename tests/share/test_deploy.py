"""`deploy/compose.yaml` and `deploy/pod.yaml`: they say what the page says, and their set-up, made with namespaces, passes messages."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from people import as_command, require_users

ROOT = Path(__file__).parents[2]
DEPLOY, PAGE = ROOT / "deploy", ROOT / "docs" / "containers.md"
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install pyyaml")


@dataclass(frozen=True)
class Program:
    """A container of one of the files."""

    name: str
    user: int
    group: int
    groups: Sequence[int]
    environment: dict[str, str]
    mounted: str
    command: Sequence[str]


@dataclass(frozen=True)
class Setup:
    """Containers, and the volume that they share: a tmpfs of these options, whose root has this group and mode."""

    programs: Sequence[Program]
    size: str
    group: int
    mode: int


def compose() -> Setup:
    """What `docker compose up` does."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    options = found["volumes"]["channels"]["driver_opts"]
    assert (options["type"], options["device"]) == ("tmpfs", "tmpfs")
    given = dict(option.split("=") for option in options["o"].split(","))
    assert given["uid"] == "0"
    programs = []
    for name, one in found["services"].items():
        user, group = map(int, one["user"].split(":"))
        volume, mounted = one["volumes"][0].split(":")
        assert volume == "channels"
        groups = list(map(int, one["group_add"]))
        programs.append(Program(name, user, group, groups, one["environment"], mounted, one["command"]))
    return Setup(programs, given["size"], int(given["gid"]), int(given["mode"], 8))


def pod() -> Setup:
    """What Kubernetes does: it gives an emptyDir the group fsGroup and the mode 2777, and that group to every container."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "pod.yaml").read_text())["spec"]
    volume = found["volumes"][0]
    assert volume["emptyDir"]["medium"] == "Memory"
    group = found["securityContext"]["fsGroup"]
    programs = []
    for one in found["containers"]:
        rights, (mount,) = one["securityContext"], one["volumeMounts"]
        assert mount["name"] == volume["name"]
        environment = {pair["name"]: pair["value"] for pair in one["env"]}
        programs.append(
            Program(
                one["name"],
                rights["runAsUser"],
                rights["runAsGroup"],
                [group],
                environment,
                mount["mountPath"],
                one["command"],
            )
        )
    return Setup(programs, volume["emptyDir"]["sizeLimit"].removesuffix("i"), group, 0o2777)


SETUPS = {"compose": compose, "pod": pod}


@pytest.fixture(params=SETUPS)
def setup(request: pytest.FixtureRequest) -> Setup:
    """One of the two."""
    return SETUPS[request.param]()


def test_the_files_share_one_folder_between_users(setup: Setup) -> None:
    """All programs have one folder and ask for sharing, are of different users, and have the volume's group as an additional one."""
    assert len({one.user for one in setup.programs}) == len(setup.programs) == 2
    assert 0 not in {one.user for one in setup.programs}
    for one in setup.programs:
        assert one.environment == setup.programs[0].environment
        assert one.environment["PENSTOCK_SHARE"] == "group"
        assert Path(one.environment["PENSTOCK_DIR"]).is_relative_to(one.mounted)
        assert setup.group in one.groups
        assert one.group != setup.group
    below = setup.programs[0].environment["PENSTOCK_DIR"] != setup.programs[0].mounted
    assert below == (setup.mode != 0o2770), "the root of an open volume is not a folder that a group shares"


@pytest.mark.parametrize("turned", [False, True], ids=["writer first", "reader first"])
def test_the_set_up_passes_messages(setup: Setup, parent: Path, turned: bool) -> None:
    """The very commands of the files, each in PID, mount and IPC namespaces of its own."""
    require_users()
    volume = parent / "volume"
    volume.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={setup.size}", "tmpfs", volume], check=True)
    try:
        os.chown(volume, 0, setup.group)
        volume.chmod(setup.mode)
        with running(setup.programs[::-1] if turned else setup.programs, volume) as started:
            for _ in range(2):
                assert re.search(r"\d\d:\d\d:\d\d", started["viewer"].stdout.readline())  # type: ignore[union-attr]
    finally:
        subprocess.run(["umount", "-l", volume], check=True)


@contextlib.contextmanager
def running(programs: Sequence[Program], volume: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """The programs, started in this order; killed at the end."""
    started: dict[str, subprocess.Popen[str]] = {}
    try:
        for one in programs:
            inside = f"/media{one.mounted}"  # nothing is made in this machine's root
            before = f"mount -t tmpfs tmpfs /media\nmkdir {inside}\nmount --bind {volume} {inside}"
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            environment = {**one.environment, "PATH": path, "HOME": "/", "PYTHONUNBUFFERED": "1"}
            environment["PENSTOCK_DIR"] = f"/media{environment['PENSTOCK_DIR']}"
            command = as_command(
                one.user, one.command, group=one.group, groups=one.groups, container=True, umask=0o022, before=before
            )
            started[one.name] = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd="/")
        yield started
    finally:
        for child in [child for one in started.values() for child in _children(one.pid)]:
            os.kill(int(child), signal.SIGKILL)
        for process in started.values():
            process.kill()
            process.communicate()


def _children(pid: int) -> Iterator[str]:
    try:
        yield from Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return


def test_the_page_shows_the_files() -> None:
    """Each line of YAML on the page is a line of one of the files."""
    text = PAGE.read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.S)
    assert blocks
    lines = {line.strip() for file in ("compose.yaml", "pod.yaml") for line in (DEPLOY / file).read_text().splitlines()}
    for block in blocks:
        for line in block.splitlines():
            assert line.strip() in lines | {"", "…"}, line
    for file in ("compose.yaml", "pod.yaml"):
        assert f"deploy/{file}" in text
