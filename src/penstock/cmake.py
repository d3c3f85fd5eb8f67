"""`python -m penstock.cmake` prints the folder for CMake: `cmake -DCMAKE_PREFIX_PATH="$(python -m penstock.cmake)"`."""

from __future__ import annotations

import sys

from penstock.errors import NotFound
from penstock.util.headers import get_cmake_prefix


def main() -> None:
    try:
        sys.stdout.write(get_cmake_prefix() + "\n")
    except NotFound as error:
        raise SystemExit(f"penstock: {error.strerror}") from None


if __name__ == "__main__":
    main()
