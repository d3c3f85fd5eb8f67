"""Where the C++ headers are that came with the library. Knows folders; opens nothing."""

from __future__ import annotations

import errno
from pathlib import Path

from penstock.errors import NotFound

_PACKAGE = Path(__file__).parents[1]


def get_include() -> str:
    """The folder of the C++ headers, for a compiler's `-I`: `#include <penstock.hpp>`. `NotFound` if they are not installed.

    Thread-safe.
    """
    return str(_found(_PACKAGE / "include", "penstock.hpp"))


def get_cmake_prefix() -> str:
    """The folder in which CMake's `find_package(penstock)` finds the headers: for `CMAKE_PREFIX_PATH`. `penstock --cmakedir` prints it. `NotFound` as `get_include`."""
    _found(_PACKAGE / "share/cmake/penstock", "penstockConfig.cmake")
    return str(_PACKAGE)


def _found(folder: Path, name: str) -> Path:
    if not (folder / name).exists():
        raise NotFound(
            errno.ENOENT,
            f"the C++ headers are not installed: there is no {folder / name}. Install penstock from a wheel",
        )
    return folder
