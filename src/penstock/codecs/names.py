"""The name of a channel's codec, without the codec: it may take NumPy or protobuf, and lists of channels show the name alone."""

from __future__ import annotations

import json
from typing import Any

from penstock.codecs import from_metadata

_PARTS: dict[str, dict[str, Any]] = {  # of the descriptions of channels' codecs
    "bytes": {},
    "json": {},
    "msgpack": {},
    "struct": {"dtype": list},
    "array": {"dtype": str, "shape": list},
    "protobuf": {"message": str, "files": str},
    "ros2": {"message": str, "definition": str},
}


def name_in(data: bytes, where: str) -> str:
    """The name of the codec in a channel's header, as `Codec.kind` has it; errors as of `from_metadata`.

    Of a description it checks only that its parts are there.
    """
    try:
        spec = json.loads(data)["codec"]
        name = spec["kind"]
        if name in _PARTS and all(isinstance(spec[part], kinds) for part, kinds in _PARTS[name].items()):
            return str(name)
    except (ValueError, KeyError, TypeError):
        pass
    return from_metadata(data, where).kind
