"""Prints the packages that the library needs, one a line, as pyproject.toml names them: `needed`, and the names of extras."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def packages(name: str) -> list[str]:
    """The packages of an extra, also of the extras that it names: `penstock[record]`."""
    found = []
    for one in PROJECT["dependencies"] if name == "needed" else PROJECT["optional-dependencies"][name]:
        own = re.fullmatch(r"penstock\[(.*)\]", one)
        found += [package for extra in own[1].split(",") for package in packages(extra)] if own else [one]
    return found


print(*dict.fromkeys(package for name in sys.argv[1:] for package in packages(name)), sep="\n")
