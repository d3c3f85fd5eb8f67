"""Definitions of ROS 2 messages in IDL (ros2idl), as definitions of the same messages in `.msg` files: both have the same CDR.

Knows the codec of ROS 2, and the package rosbags, which parses IDL.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.codecs import ros2
from penstock.errors import Invalid
from penstock.util.extras import explain_missing

SEPARATOR = re.compile(r"^={3,}\s*\nIDL:.*$", re.MULTILINE)  # in front of each file's text
DIRECTIVE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)  # of a preprocessor, such as the includes of ROS's own files
NO_CODE = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)  # texts and comments
OTHER_BYTES = re.compile(r"@(optional|mutable|external|bit_bound)\b")


def described(message: str, definition: str) -> dict[str, Any]:
    """The description that a channel keeps, as of `ros2.described`.

    `Invalid` for a definition that cannot be read, `MissingPackage` without rosbags.
    """
    with explain_missing("reading messages of ROS 2"):
        from rosbags.typesys import get_types_from_idl
    ros2.check_length(message, definition)
    if found := OTHER_BYTES.search(NO_CODE.sub("", definition)):
        raise Invalid(f"the definition of {message} has {found[0]!r}, which is not read here")
    types: dict[str, Any] = {}
    try:
        for part in SEPARATOR.split(definition):
            if plain := DIRECTIVE.sub("", part).strip():
                types |= get_types_from_idl(plain)
    except Exception as error:  # rosbags has several, and its texts have the whole definition
        raise ros2.unreadable(message, error) from error
    if message not in types:
        raise Invalid(f"the definition of {message} lacks it: it has {', '.join(types) or 'nothing'}")
    return ros2.described(message, ros2.written(message, types))
