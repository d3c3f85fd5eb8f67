"""Checks of the command doctor for containers and several users: whose channels are seen here, and whose are not.

Knows namespaces, mounts and owners. Looks at other processes as far as this user may.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from penstock.channels.storage import access, files
from penstock.channels.uri.registry import kind_names
from penstock.cli.channels.members import channel_files
from penstock.cli.machine.facts import existing
from penstock.cli.machine.findings import Finding
from penstock.util import processes

SHARED_MEMORY = Path("/dev/shm")
CONTAINER_BYTES = 64 << 20  # of /dev/shm, as Docker and Kubernetes make it
MACHINES_IPC = "ipc:[4026531839]"  # the kernel's first IPC namespace has this number on every machine
MARKS = ("/.dockerenv", "/run/.containerenv")  # files of Docker's and Podman's containers
MAGIC = b"PENSTOCK"  # at the beginning of a channel's file
SHOWN = 5
LARGER = "docker run --shm-size=1g, in a compose file shm_size: 1g, in Kubernetes an emptyDir with medium: Memory at /dev/shm"
ONE_FOLDER = "set PENSTOCK_DIR to one folder and PENSTOCK_SHARE=group in all programs, which need a group in common"


def mounted_at(path: Path) -> tuple[str, str]:
    """The mount point of a path that exists, and the name of its file system; of the last mount, where several are at one point."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = {str(one) for one in (path.resolve(), *path.resolve().parents)}
    found = ("", "tmpfs")
    for point, kind, *_ in mounts:
        if point in above and len(point) >= len(found[0]):
            found = (point, kind)
    return found


def is_container_size(total: int) -> bool:
    """Whether shared memory has the size that containers get."""
    return total <= CONTAINER_BYTES


def check_container() -> Finding:
    """Whether programs outside this container see its channels."""
    namespace = _namespace("self", "ipc")
    if namespace in ("", MACHINES_IPC) and not any(map(os.path.exists, MARKS)):
        return Finding("good", "no container: channels are those of this machine")
    point = mounted_at(existing(files.folder()))[0]
    if namespace == MACHINES_IPC:
        return Finding("good", f"a container with the machine's IPC namespace: channels in {point} are the machine's")
    if Path(point) != SHARED_MEMORY:
        return Finding(
            "good", f"a container with channels in {point}: programs see them that have the same folder there"
        )
    return Finding(
        "note",
        f"a container whose IPC namespace ({namespace}) is not the machine's: only containers that share {SHARED_MEMORY} see channels in it",
        "docker run --ipc=container:NAME, in a compose file ipc: service:NAME; or mount one folder in all of them, and set PENSTOCK_DIR to it",
    )


def check_elsewhere() -> Finding:
    """Whether processes have channels open that are not seen here, because they have another /dev/shm."""
    mine, here = _namespace("self", "mnt"), channel_files()
    found = []
    for entry in sorted(filter(str.isdecimal, os.listdir("/proc")), key=int):
        if _namespace(entry, "mnt") in ("", mine):  # this one, or of another user
            continue
        folder = _unseen_folder(entry, here)
        if folder:
            name = processes.command_of(int(entry))
            found.append(f"process {entry}{f' ({name})' if name else ''} in {folder}")
    if not found:
        return Finding("good", "no process that is seen here has channels in another container")
    return Finding(
        "note",
        f"channels of other containers are not seen here: {'; '.join(found[:SHOWN])}{'; …' if len(found) > SHOWN else ''}",
        "share its /dev/shm (docker run --ipc=container:NAME), or mount one folder in both, and set PENSTOCK_DIR to it",
    )


def check_users() -> Finding:
    """Whether other users have channels on this machine."""
    found = []
    with contextlib.suppress(OSError), os.scandir(SHARED_MEMORY) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                theirs = about.st_uid != os.geteuid() and Path(entry.path) != files.folder()
                if entry.name == f"penstock-{about.st_uid}" and stat.S_ISDIR(about.st_mode) and theirs:
                    found.append(f"user {about.st_uid} in {entry.path}")
    if access.is_shared():
        folder = files.folder()
        group = f"group {access.group_name(os.stat(folder).st_gid)}" if folder.exists() else "a group"
        return Finding("good", f"channels are shared with {group}: its members can read, change and remove them")
    if not found:
        return Finding("good", f"channels are private to user {os.geteuid()}, and no other has any")
    return Finding(
        "note",
        f"other users have channels, which user {os.geteuid()} does not see: {'; '.join(sorted(found)[:SHOWN])}{'; …' if len(found) > SHOWN else ''}",
        f"run as that user; or, to share, {ONE_FOLDER}",
    )


def _namespace(pid: str, kind: str) -> str:
    """A process's namespace; empty if this user may not see it."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    return ""


def _unseen_folder(pid: str, here: set[tuple[int, int]]) -> str:
    """The folder, as a process names it, of a channel that it has open and that is not in the folder here. Empty if there is none."""
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                opened = f"/proc/{pid}/fd/{number}"
                path, about = os.readlink(opened), os.stat(opened)
                named = path.startswith("/") and path.rpartition(".")[2] in kind_names()
                unseen = stat.S_ISREG(about.st_mode) and (about.st_dev, about.st_ino) not in here
                if named and unseen and _is_channel(opened):
                    return os.path.dirname(path)
    return ""


def _is_channel(path: str) -> bool:
    with open(path, "rb", buffering=0) as file:
        return file.read(len(MAGIC)) == MAGIC
