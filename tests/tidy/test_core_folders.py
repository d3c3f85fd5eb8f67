"""The core's folders: which may include which, no circle, nothing upward, at most three storeys."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
CORE = NATIVE / "core"

# Folder → the folders that its headers may include, beside their own.
MAY_INCLUDE: dict[str, set[str]] = {
    "ground": set(),
    "log": {"ground"},
    "ring": {"ground"},
    "pipe": {"ground"},
    "threads": {"ground"},
    "recording": {"ground"},
    "frames": {"ring", "ground"},
    "sync": {"log", "ground"},
    "net": {"log", "ground"},
}
STOREYS = 3


def includes(path: Path) -> list[tuple[int, str]]:
    """The quoted includes of a file, with their lines."""
    return [
        (number, found[1])
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := re.match(r'#include "([^"]+)"', line))
    ]


def headers(core: Path) -> list[Path]:
    return sorted(core.rglob("*.hpp"))


def faults(core: Path, may_include: dict[str, set[str]]) -> list[str]:
    """The faults of the includes below `core`, a sentence each."""
    found = []
    for path in headers(core):
        name = path.relative_to(core).as_posix()
        folder = name.split("/")[0]
        if folder not in may_include or name.count("/") != 1:
            found.append(f"{name}: headers of the core lie in one of the folders {', '.join(may_include)}")
            continue
        for line, include in includes(path):
            to = include.split("/")[0]
            if not (core / include).is_file():
                found.append(
                    f'{name}:{line} includes "{include}": includes are paths from native/core, as "log/term_log.hpp"'
                )
            elif to != folder and to not in may_include[folder]:
                found.append(
                    f'{name}:{line} includes "{include}": {folder} may include {", ".join(sorted(may_include[folder])) or "nothing else"}'
                )
    return found + circles(core)


def circles(core: Path) -> list[str]:
    """Headers that include each other."""
    graph = {path.relative_to(core).as_posix(): [include for _, include in includes(path)] for path in headers(core)}
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [f'{way[-1]} includes "{name}", a circle: {" -> ".join([*way[way.index(name) :], name])}']
        if name in done:
            return []
        found = [fault for include in graph.get(name, []) for fault in walk(include, [*way, name])]
        done.add(name)
        return found

    return [fault for name in graph for fault in walk(name, [])]


def test_includes_keep_to_the_allowed_edges():
    assert not faults(CORE, MAY_INCLUDE), "\n".join(faults(CORE, MAY_INCLUDE))


def test_the_allowed_edges_have_three_storeys_and_no_circle():
    def storey(folder: str, above: tuple[str, ...] = ()) -> int:
        assert folder not in above, f"a circle of folders: {' -> '.join([*above, folder])}"
        return 1 + max((storey(to, (*above, folder)) for to in MAY_INCLUDE[folder]), default=0)

    assert {folder: storey(folder) for folder in MAY_INCLUDE if storey(folder) > STOREYS} == {}


def test_every_folder_of_the_core_is_listed():
    assert {path.name for path in CORE.iterdir()} <= set(MAY_INCLUDE)


def test_names_of_headers_are_unique():
    """Reports, mutants and pages name a header by its file name."""
    names = [path.name for path in headers(CORE)]
    assert sorted(set(names)) == sorted(names)


def test_a_forbidden_include_and_a_circle_are_named(tmp_path):
    for name, text in {
        "ground/a.hpp": '#include "log/b.hpp"\n',
        "log/b.hpp": '#include "log/c.hpp"\n#include <vector>\n',
        "log/c.hpp": '#include "log/b.hpp"\n#include "c.hpp"\n',
        "loose.hpp": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = faults(tmp_path, MAY_INCLUDE)
    assert any(fault.startswith('ground/a.hpp:1 includes "log/b.hpp": ground may include') for fault in found), found
    assert any(fault.startswith('log/c.hpp:2 includes "c.hpp": includes are paths') for fault in found), found
    assert any("log/b.hpp -> log/c.hpp -> log/b.hpp" in fault for fault in found), found
    assert any(fault.startswith("loose.hpp: headers of the core lie in one of the folders") for fault in found), found


def test_handles_know_no_kind():
    """Publication, subscription and what they stand on serve every kind: they include no kind's ends."""
    for name in ("handle.hpp", "ends.hpp", "publication.hpp", "subscription.hpp", "tap.hpp", "wait.hpp", "waiting.cpp"):
        for line, include in includes(NATIVE / "bind" / name):
            assert not include.endswith("_ends.hpp"), f"native/bind/{name}:{line} includes {include}"
            assert include.split("/")[0] not in {"log", "ring", "pipe", "frames", "sync"}, f"{name}:{line}: {include}"
