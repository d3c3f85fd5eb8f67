"""Bugs planted into folders that a group shares."""

from __future__ import annotations

import os
import time
from pathlib import Path

from evidence.planting import Planted

FOLDER, DOCTOR = "tests/share/test_folder.py", "tests/share/test_doctor.py"


def _a_folder_gets_its_mode_after_its_name() -> None:
    from penstock.channels.storage import access

    def make(path: str | Path, at: int | None = None) -> None:
        try:
            os.mkdir(path, 0o700, dir_fd=at)
            time.sleep(0.05)
            os.chmod(path, access.SHARED_FOLDER_MODE, dir_fd=at)
        except FileExistsError:
            pass

    access.make_folder = make


def _a_file_keeps_its_mode() -> None:
    from penstock.channels.storage import access

    access.grant = lambda fd, at: None


def _a_wrong_wish_to_share_is_ignored() -> None:
    from penstock.channels.storage import access

    access.is_shared = lambda: os.environ.get(access.VARIABLE) == access.GROUP


def _any_process_of_a_members_number_is_named() -> None:
    from penstock.util import processes

    class Everything(frozenset[tuple[int, int]]):
        def isdisjoint(self, other: object) -> bool:
            return False

    processes.open_files = lambda pid: Everything([(0, 0)])


BUGS: dict[str, Planted] = {
    "a shared folder gets its mode after its name": Planted(
        _a_folder_gets_its_mode_after_its_name, (f"{FOLDER}::test_nobody_sees_a_folder_half_made",)
    ),
    "a file in a shared folder keeps its mode": Planted(
        _a_file_keeps_its_mode, (f"{FOLDER}::test_a_file_has_its_mode_before_its_name",)
    ),
    "a wrong PENSTOCK_SHARE is ignored": Planted(
        _a_wrong_wish_to_share_is_ignored, (f"{FOLDER}::test_a_wrong_variable_is_refused",)
    ),
    "any process of a member's number is named": Planted(
        _any_process_of_a_members_number_is_named, (f"{DOCTOR}::test_a_members_command_is_that_of_its_own_process",)
    ),
}
