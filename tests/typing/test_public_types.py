"""Types that users hold can be imported from `penstock.types`, and the reference has them."""

import inspect
import re
from pathlib import Path

import penstock
import penstock.types
from penstock.front import joining, typed, verbs

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text()


def test_the_reference_has_every_public_type_and_no_other():
    listed = re.findall(r"autoclass:: penstock\.types\.(\w+)", REFERENCE)
    assert sorted(listed) == sorted(penstock.types.__all__)
    assert penstock.types.__all__ == sorted(set(penstock.types.__all__))


def test_every_public_type_has_a_docstring():
    for name in penstock.types.__all__:
        assert getattr(penstock.types, name).__doc__, name


def test_what_openers_say_they_return_is_public():
    """As the sources say it: an editor shows these names."""
    returned = set()
    for module in (verbs, joining, typed):
        for line in Path(inspect.getsourcefile(module)).read_text().splitlines():
            if found := re.match(r"\) -> (\w+)", line):
                returned.add(found[1])
    assert returned - {"Any"} <= set(penstock.types.__all__)


def test_the_reference_has_every_typed_opener():
    openers = {name for name in vars(typed) if name.split("_")[0] in ("publish", "subscribe", "join")}
    assert len(openers) > 8
    assert all(inspect.getdoc(getattr(typed, name)) for name in openers)
    assert "automodule:: penstock.front.typed" in REFERENCE
