"""Types that users hold can be imported from `penstock.types`, the reference has them, and each public name has one home."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
import penstock.types
from penstock.channels.uri.registry import kinds
from penstock.front import opening

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference" / "api.md").read_text()
PUBLIC = ("penstock", "penstock.types", "penstock.record", "penstock.testing", "penstock.threads", "penstock.errors")


def test_the_reference_has_every_public_type_and_no_other():
    listed = re.findall(r"autoclass:: penstock\.types\.(\w+)", REFERENCE)
    assert sorted(listed) == sorted(penstock.types.__all__)
    assert penstock.types.__all__ == sorted(set(penstock.types.__all__))


def test_every_public_type_has_a_docstring():
    for name in penstock.types.__all__:
        assert getattr(penstock.types, name).__doc__, name


def test_types_that_the_verbs_return_are_public():
    """As the sources say it: an editor shows these names."""
    source = Path(inspect.getsourcefile(opening)).read_text()
    returned = set(re.findall(r"\) -> (\w+)(?:\[\w+\])?: \.\.\.", source))
    assert len(returned) > 10
    assert returned <= set(penstock.types.__all__)


def test_each_public_name_is_exported_once():
    homes = {}
    for module in PUBLIC:
        found = importlib.import_module(module)
        for name in found.__all__:
            thing = getattr(found, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                homes.setdefault(f"{thing.__module__}.{thing.__qualname__}", []).append(f"{module}.{name}")
    twice = {thing: names for thing, names in homes.items() if len(names) > 1}
    errors = {thing for thing in twice if issubclass_of_error(twice[thing])}
    assert not {thing: names for thing, names in twice.items() if thing not in errors}


def issubclass_of_error(names):
    """Errors are at the top, where programs catch them, and in their module, which documents them."""
    return sorted(name.rpartition(".")[0] for name in names) == ["penstock", "penstock.errors"]


@pytest.mark.parametrize("verb", ["publish", "subscribe", "join"])
def test_the_verbs_fit_a_screen(verb):
    import pydoc

    assert len(pydoc.render_doc(getattr(penstock, verb)).splitlines()) <= 40


TEST_ONLY = {"clock", "start_position", "initial_term_id", "start_sequence", "prefault"}
ELSEWHERE = {"codec", "shape", "acknowledge", "role"}  # of an overload of their own


@pytest.mark.parametrize(
    ("verb", "classes"),
    [
        ("publish", ("PublishOptions",)),
        ("subscribe", ("SubscribeOptions",)),
        ("join", ("SocketOptions", "MemberOptions")),
    ],
)
def test_the_typed_options_are_those_that_kinds_take(verb, classes):
    from penstock.front import options

    typed = {name for found in classes for name in getattr(options, found).__annotations__}
    taken = {name for kind in kinds() if getattr(kind, verb) for name in kind.option_names(verb)}
    assert typed - {"codec"} == taken - TEST_ONLY - ELSEWHERE | (typed & ELSEWHERE - {"codec"})


@pytest.mark.slow
def test_pyright_agrees_on_the_slips():
    pytest.importorskip("pyright", reason="pyright is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "tests/typing/slips.py"], cwd=ROOT, capture_output=True, text=True
    )
    refused = {int(found) for found in re.findall(r"slips\.py:(\d+):\d+ - error", done.stdout)}
    lines = (ROOT / "tests" / "typing" / "slips.py").read_text().splitlines()
    assert refused == {number for number, line in enumerate(lines, 1) if "# refused" in line}, done.stdout
