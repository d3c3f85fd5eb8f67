"""Layers of the core: its headers include downhill only and know no Python. import-linter keeps the package's (`pyproject.toml`)."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"
CORE = NATIVE / "core"
HEADERS = {path.relative_to(CORE).as_posix(): path.read_text() for path in sorted(CORE.rglob("*.hpp"))}
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)

# Folder → the folders that its headers may include, beside their own.
GROUND = {"ground", "ground/files", "ground/members", "ground/messages"}
LOG = {"log", "log/files", *GROUND}
PIPE = {"pipe", "pipe/queues", "pipe/table", "pipe/files", *GROUND}
MAY_INCLUDE: dict[str, set[str]] = {
    "ground": set(),
    "ground/files": {"ground"},
    "ground/members": {"ground/files", "ground"},
    "ground/messages": {"ground"},
    "log/files": GROUND,
    "log": LOG,
    "ring": GROUND,
    "pipe/files": GROUND,
    "pipe/table": {"pipe/files", *GROUND},
    "pipe/queues": {"pipe/table", "pipe/files", *GROUND},
    "pipe": PIPE,
    "threads": GROUND,
    "record": GROUND,
    "frames": {"ring", *GROUND},
    "sync": LOG,
    "ends": {"frames", "sync", "ring", "threads", *PIPE, *LOG},
    "status": {"frames", "ring", *PIPE, *LOG},
    "front/files": GROUND,
    "front/codecs": {"front/files", *GROUND},
    "front": {"front/codecs", "front/files", "status", "ends", "frames", "ring", *PIPE, *LOG},
    "": {"front"},
    "net/wire": {*LOG},
    "net/seal": {"net/wire", *GROUND},
    "net/io": {"net/seal", "net/wire", *GROUND},
    "net/send": {"net/io", "net/seal", "net/wire", *LOG},
    "net/receive/session": {"net/io", "net/wire", *LOG},
    "net/receive/files": {"net/io", "net/wire", *LOG},
    "net/receive/images": {"net/receive/session", "net/receive/files", "net/io", "net/wire", *LOG},
    "net/receive": {
        "net/receive/images",
        "net/receive/session",
        "net/receive/files",
        "net/io",
        "net/wire",
        *LOG,
    },
    "net": {"net/send", "net/receive"},
}


def folder(header: str) -> str:
    return header.rpartition("/")[0]


def test_core_includes_keep_to_the_allowed_edges():
    wrong = [
        f"{name} includes {include}"
        for name, text in HEADERS.items()
        for include in INCLUDE.findall(text)
        if include not in HEADERS or folder(include) not in {folder(name), *MAY_INCLUDE[folder(name)]}
    ]
    assert wrong == []


def test_core_headers_include_each_other_in_no_circle():
    TopologicalSorter({name: INCLUDE.findall(text) for name, text in HEADERS.items()}).prepare()


def test_ground_knows_no_kind():
    """The header has the list of numbers; sizes and lock bytes of a kind come from its layout file."""
    assert [name for name, text in HEADERS.items() if folder(name) in GROUND and re.search(r"\bKind::", text)] == []


def test_core_knows_no_python():
    assert [name for name, text in HEADERS.items() if "Python.h" in text or "nanobind" in text] == []


def test_handles_know_no_kind():
    """Publication, subscription and what they stand on serve every kind: they include no kind's ends."""
    for part in ("ground", "ends", "handles"):
        for path in sorted((NATIVE / "bind" / part).iterdir()):
            for include in INCLUDE.findall(path.read_text()):
                assert not include.endswith("_ends.hpp"), f"{path} includes {include}"
                kind = include.removeprefix("bind/").split("/")[0]
                assert kind not in {"log", "ring", "pipe", "frames", "sync", "udp"}, f"{path} includes {include}"


def test_no_module_has_the_name_of_a_function_beside_it() -> None:
    """The import of the module would replace the function: `penstock.spark.sql` is called, so there is no `spark/sql`."""
    shadowed = []
    for face in (NATIVE.parent / "src" / "penstock").rglob("__init__.py"):
        made = {one.name for one in ast.parse(face.read_text()).body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        there = {path.stem for path in face.parent.glob("*.py")} | {
            path.parent.name for path in face.parent.glob("*/__init__.py")
        }
        shadowed += [f"{face.parent}: {name}" for name in made & there]
    assert shadowed == []
