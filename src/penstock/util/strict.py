"""Errors for unknown names: attributes of handles, and options. Each error suggests a similar name.

Knows no class and no option.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, ParamSpec, TypeVar

from penstock._native import core as _native

Strict = _native.Strict  # objects of such a class accept only declared public attributes
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def near(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'codec'?", or nothing if no known name is near."""
    import difflib  # only where something is wrong

    names = sorted(known)
    lowered = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), lowered, 1, 0.6)
    return f"; did you mean {lowered[close[0]]!r}?" if close else ""


def check_names(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """TypeError for an option that there is not, with a similar one."""
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() has no option {name!r}{near(name, known)}")


def checks_names(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function whose TypeError for an unknown keyword suggests a similar one."""
    parameters = inspect.signature(function).parameters
    known = frozenset(parameters) - {"self"}

    @functools.wraps(function)
    def checked(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        check_names(function.__name__, named, known)
        return function(*given, **named)

    return checked


def check_attribute(target: Any, name: str) -> None:
    """AttributeError unless a class of `target` declares that its objects have this attribute. Called by the compiled core."""
    kind = type(target)
    if any(name in vars(base).get("__annotations__", ()) for base in kind.__mro__):
        return
    place = "" if isinstance(target, type) else f"{_channel(target)}"
    settable = {declared for base in kind.__mro__ for declared in vars(base).get("__annotations__", ())}
    names = [found for found in dir(kind) if not found.startswith("_")]
    read = near(name, (found for found in names if found not in settable and not _has_setter(kind, found)))
    hint = near(name, settable) or read.replace("did you mean", "it has").replace("?", ", which can only be read.")
    raise AttributeError(
        f"{place}a {kind.__name__} has no attribute {name!r} to set{hint or '.'} Options are given when it is opened",
        name=name,
    )


def _has_setter(kind: type, name: str) -> bool:
    return getattr(inspect.getattr_static(kind, name), "fset", None) is not None


def _channel(target: Any) -> str:
    try:
        return f"{target.channel}: "
    except Exception:  # a thing without a channel
        return ""
