"""NumPy dtypes as JSON, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import Invalid

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message")  # Python has no defaults here before 3.13


def dtype_of(description: Any) -> Any:
    """A NumPy dtype from JSON, refusing object columns (they are pickles)."""
    import numpy as np

    dtype = np.dtype(_fields(description))
    refuse_objects(dtype)
    return dtype


def refuse_objects(dtype: Any) -> None:
    if dtype.hasobject:
        raise Invalid(f"dtype {dtype} holds Python objects; messages carry plain numbers, strings and arrays of them")


def _fields(description: Any) -> Any:
    """A dtype's description from JSON, which has lists for its tuples: [[name, type or fields, shape], ...]."""
    if not isinstance(description, list):
        return description
    return [(name, _fields(kind), *(tuple(size) for size in shape)) for name, kind, *shape in description]


def description_of(dtype: Any) -> Any:
    """A dtype as JSON-ready data: its fields one after the other, without the gaps that an aligned one has."""
    found = []
    for name in dtype.names:
        base, shape = dtype[name].base, list(dtype[name].shape)
        found.append([name, description_of(base) if base.names else base.str, *([shape] if shape else [])])
    return found
