"""Prints the packages that the library needs, one a line, as pyproject.toml names them: `needed`, and the names of extras."""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

for name in sys.argv[1:]:
    print(*(PROJECT["dependencies"] if name == "needed" else PROJECT["optional-dependencies"][name]), sep="\n")
