"""The registry of kinds. `penstock.kinds` lists their modules here with `import penstock`; a kind is loaded when it is first used.

Imports as little as it can, since every import of `penstock` pays for it. Knows no kind.
"""

from __future__ import annotations

import copyreg
import importlib
from collections.abc import Callable

from penstock.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from penstock.channels.kind import Kind

_homes: dict[str, tuple[str, str]] = {}  # the module that makes a kind, and its name there
_kinds: dict[str, Kind] = {}  # the kinds loaded so far
_foreign: dict[str, str] = {}  # the scheme of another system's URIs, and their kind


def register(name: str, module: str, attribute: str, *, foreign: str | None = None) -> None:
    """Registers a kind of this process: an attribute of a module, which is loaded when the kind is first used.

    foreign: the scheme of another system's URIs for such channels.
    """
    _homes[name] = module, attribute
    if foreign is not None:
        _foreign[foreign] = name


def kinds() -> tuple[Kind, ...]:
    """Every kind that there is. Loads all of them."""
    return tuple(map(kind_named, _homes))


def kind_names() -> tuple[str, ...]:
    """The names of all kinds. Loads none."""
    return tuple(_homes)


def kind_named(name: str) -> Kind:
    """The kind of that name. `Invalid` if there is none."""
    found = _kinds.get(name)
    if found is not None:
        return found
    if name in _homes:
        module, attribute = _homes[name]
        kind: Kind = getattr(importlib.import_module(module), attribute)
        copyreg.pickle(type(kind), _as_name)
        return _kinds.setdefault(name, kind)
    from penstock.util.strict import near

    raise Invalid(
        f"there is no kind {name!r}{near(name, _homes)}; this version has {', '.join(kind.written for kind in kinds())}"
    )


def _as_name(kind: Kind) -> tuple[Callable[[str], Kind], tuple[str]]:
    """How a kind is pickled."""
    return kind_named, (kind.name,)


def kind_of(word: str) -> tuple[Kind, bool]:
    """The kind that a URI's first word names, and whether the rest has another system's syntax. `Invalid` if there is none."""
    foreign = word in _foreign
    return kind_named(_foreign.get(word, word)), foreign
