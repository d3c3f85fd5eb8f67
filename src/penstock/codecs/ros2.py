"""The codec of ROS 2 messages: CDR, with the message's definition (ros2msg), which travels with the channel.

Knows the package rosbags, which parses definitions and reads and writes CDR; it is imported with the first message. Knows no channel.
"""

from __future__ import annotations

import functools
import keyword
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.codecs import packing
from penstock.errors import Invalid, text_of
from penstock.util.extras import explain_missing

TEXT_MAX = 1 << 20  # bytes of a definition
DEPTH = 16  # of messages in messages
ITEMS_MAX = 1000  # of a fixed array of texts or messages: rosbags makes code for each of them
EMPTY = "structure_needs_at_least_one_member"  # IDL's field of a message without fields
BYTES = ("byte", "char", "uint8", "octet")
STRINGS = ("string",)
NUMPY = {"bool": "?", "byte": "u1", "char": "u1", "octet": "u1", "float32": "<f4", "float64": "<f8"} | {
    f"{sign}int{bits}": f"<{letter}{bits // 8}" for sign, letter in (("", "i"), ("u", "u")) for bits in (8, 16, 32, 64)
}
TIMES = "builtin_interfaces/msg/"  # definitions of other tools leave these two out
_BUILDING = threading.Lock()  # rosbags gives the modules that it makes one name


class Field(NamedTuple):
    """A field of a message. kind: a plain type, or a message's name. form: "one", "fixed" or "sequence".

    size: of a fixed array its length, of a sequence its bound, 0 for none. text_max: the bound of a text in UTF-8, 0 for none.
    """

    name: str
    kind: str
    form: str
    size: int
    text_max: int

    @property
    def attribute(self) -> str:
        """Its name in rosbags' classes."""
        return f"{self.name}_" if keyword.iskeyword(self.name) else self.name


class Definition(NamedTuple):
    """A definition, read. message: the full name. fields: by message, those inside too. store: rosbags' types."""

    message: str
    fields: dict[str, tuple[Field, ...]]
    store: Any


def described(message: str, definition: str) -> dict[str, Any]:
    """The description that a channel keeps: without comments. `Invalid` for a definition that cannot be read, `MissingPackage` without rosbags."""
    read = _read(message, definition)
    try:
        short = str(read.store.generate_msgdef(read.message, ros_version=2)[0])
        _read(message, short)
    except Exception:  # rosbags writes no definition of an action's parts
        short = definition
    return unread(message, short)


def unread(message: str, definition: str) -> dict[str, Any]:
    """The description of a definition that nobody has read."""
    return {"kind": "ros2", "message": message, "definition": packing.pack(definition.encode())}


def definition_of(spec: Mapping[str, Any]) -> str:
    """The definition's text. ValueError if it is damaged."""
    return packing.unpack(spec["definition"], TEXT_MAX).decode()


def read(spec: Mapping[str, Any]) -> Definition:
    """The definition that a description has. `Invalid` if it is none."""
    return _read(str(spec["message"]), definition_of(spec))


def coders(spec: Mapping[str, Any]) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    """How messages are encoded and decoded. The definition is read with the first message: such a channel is listed without rosbags."""
    if not isinstance(spec["message"], str):
        raise TypeError("its message has no name")
    definition_of(spec)
    found = functools.partial(read, dict(spec))

    def encode(value: Any) -> bytes:
        about = found()
        made = _build(about, about.message, value, "")
        try:
            return bytes(about.store.serialize_cdr(made, about.message, little_endian=True))
        except Exception as error:
            raise Invalid(f"this {about.message} cannot be sent: {text_of(error)}") from error

    def parse(data: Any) -> dict[str, Any]:
        return parse_fields(found(), data)

    return encode, parse


def parse_fields(about: Definition, data: Any) -> dict[str, Any]:
    """A message's bytes as a dictionary. Any error of rosbags for bytes that are none."""
    view = memoryview(bytearray(data))  # its arrays may be changed, and outlive a borrowed message
    return _plain(about, about.message, about.store.deserialize_cdr(view, about.message))


def _plain(about: Definition, message: str, found: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field in about.fields[message]:
        value = getattr(found, field.attribute)
        if field.kind in about.fields:
            one = functools.partial(_plain, about, field.kind)
            value = one(value) if field.form == "one" else [one(item) for item in value]
        elif field.kind == "byte":  # rosbags gives it a sign
            value = value & 0xFF if field.form == "one" else value.view("u1")
        made[field.name] = value
    return made


# ---- values that go into messages ----


def _build(about: Definition, message: str, value: Any, place: str) -> Any:
    """rosbags' object of a message. `Invalid`, with the field's place, for what the definition does not hold."""
    fields = about.fields[message]
    if isinstance(value, Mapping):
        if more := [name for name in value if name not in {field.name for field in fields}]:
            raise Invalid(
                f"{message} has no field {place}{more[0]}: it has {', '.join(f.name for f in fields) or 'none'}"
            )
        missing = [field.name for field in fields if field.name not in value]
    else:
        missing = [field.name for field in fields if not hasattr(value, field.name)]
    if missing:
        raise Invalid(f"{type(value).__name__} is no {message}: the field {place}{missing[0]} is missing")
    given = {
        field.attribute: _fit(
            about,
            field,
            value[field.name] if isinstance(value, Mapping) else getattr(value, field.name),
            f"{place}{field.name}",
        )
        for field in fields
    }
    return about.store.types[message](**given)


def _fit(about: Definition, field: Field, value: Any, place: str) -> Any:
    if field.form == "one":
        return _fit_one(about, field, value, place)
    if field.kind in NUMPY:
        return _fit_numbers(field, value, place)
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__"):
        raise Invalid(f"{place} is {type(value).__name__}: it must be a list")
    _check_length(field, len(value), place)
    return [_fit_one(about, field, item, f"{place}[{at}]") for at, item in enumerate(value)]


def _fit_one(about: Definition, field: Field, value: Any, place: str) -> Any:
    from penstock.codecs import values

    if field.kind in about.fields:
        return _build(about, field.kind, value, f"{place}.")
    if field.kind in STRINGS:
        if not isinstance(value, str):
            raise Invalid(f"{place} is {type(value).__name__}: it must be text")
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise Invalid(f"{place} is no text in UTF-8: {error}") from error
        if "\0" in value or (field.text_max and size > field.text_max):
            why = "a NUL, where it would end" if "\0" in value else f"{size} bytes: {field.text_max} at most"
            raise Invalid(f"{place} has {why}")
        return value
    import numpy as np

    if type(value) is float and field.kind == "float64":
        return value
    if field.kind == "byte" and isinstance(value, bytes) and len(value) == 1:
        value = value[0]  # rclpy's own form
    try:
        found = values.fitted(value, np.dtype(NUMPY[field.kind]))
    except Invalid as error:
        raise Invalid(f"{place}: {error}") from error
    if found.ndim:
        raise Invalid(f"{place} is an array of shape {found.shape}: it must be one {field.kind}")
    return found.item() if field.kind != "byte" else found.view("i1").item()


def _fit_numbers(field: Field, value: Any, place: str) -> Any:
    import numpy as np

    from penstock.codecs import values

    if field.kind in BYTES and isinstance(value, bytes | bytearray | memoryview):
        value = np.frombuffer(value, "u1")
    try:
        found = values.fitted(value, np.dtype(NUMPY[field.kind]))
    except Invalid as error:
        raise Invalid(f"{place}: {error}") from error
    if found.ndim != 1:
        raise Invalid(f"{place} has {found.ndim} dimensions: it must have one")
    _check_length(field, len(found), place)
    return found


def _check_length(field: Field, length: int, place: str) -> None:
    if field.form == "fixed" and length != field.size:
        raise Invalid(f"{place} has {length} values: it must have {field.size}")
    if field.form == "sequence" and field.size and length > field.size:
        raise Invalid(f"{place} has {length} values: {field.size} at most")


# ---- definitions ----


def standard(message: str) -> str:
    with explain_missing("the codec of ROS 2"):
        from rosbags.typesys import Stores, get_typestore
    store = get_typestore(Stores.ROS2_JAZZY)
    if message not in store.fielddefs:
        raise Invalid(
            f"ROS 2 Jazzy has no message {message!r}: give its definition, or write it as 'sensor_msgs/msg/Imu'"
        )
    return str(store.generate_msgdef(message, ros_version=2)[0])


@functools.lru_cache(256)
def _read(message: str, text: str) -> Definition:
    with explain_missing("reading messages of ROS 2"):
        from rosbags.typesys import get_types_from_msg
    check_length(message, text)
    lines = [line.rstrip() for line in text.splitlines()]
    ruled = "\n".join("=" * 80 if re.fullmatch("={3,}", line) else line for line in lines) + "\n"
    with _BUILDING:
        try:
            types = get_types_from_msg(ruled, message)
            return _gather(next(iter(types)), types)
        except Invalid:
            raise
        except Exception as error:  # rosbags has several, and its texts have the whole definition
            raise unreadable(message, error) from error


def check_length(message: str, text: str) -> None:
    """`Invalid` for a definition that is too long."""
    if len(text) > TEXT_MAX:
        raise Invalid(f"the definition of {message} has {len(text):,} letters: {TEXT_MAX:,} at most")


def unreadable(message: str, error: Exception) -> Invalid:
    """The error for a definition that rosbags cannot read; error: its own."""
    short = (text_of(error).splitlines() or [type(error).__name__])[0][:100]
    if short.startswith("Could not parse"):  # the definition itself comes next
        short = "it cannot be parsed"
    return Invalid(f"the definition of {message} is none of ROS 2's: {short}")


def _gather(message: str, types: dict[str, Any]) -> Definition:
    """A message and those that it uses, of types that rosbags has read."""
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    for name in ("Time", "Duration"):
        if f"{TIMES}{name}" not in types:
            types |= get_types_from_msg("int32 sec\nuint32 nanosec\n", f"{TIMES}{name}")
    fields = {name: _fields(found[1]) for name, found in types.items()}
    used = _check(message, fields, ())
    store = get_typestore(Stores.EMPTY)
    store.register({name: found for name, found in types.items() if name in used})
    store.get_msgdef(message)
    return Definition(message, {name: fields[name] for name in used}, store)


def written(message: str, types: dict[str, Any]) -> str:
    """The definition, as `.msg` files have it, of types that rosbags has read. `Invalid` if it is not whole, or nothing here could hold it."""
    with _BUILDING:
        return str(_gather(message, types).store.generate_msgdef(message, ros_version=2)[0])


def _fields(found: Any) -> tuple[Field, ...]:
    """Fields of a message as rosbags has them. Each is (name, (1 plain, 2 message, 3 array or 4 sequence, more))."""
    made = []
    for name, (node, about) in found:
        form, size = "one", 0
        if int(node) in (3, 4):
            form = "fixed" if int(node) == 3 else "sequence"
            (node, about), size = about
        kind, text_max = about if int(node) == 1 else (about, 0)
        made.append(Field(name, kind, form, size, text_max))
    return () if [field.name for field in made] == [EMPTY] else tuple(made)


def _check(message: str, fields: dict[str, tuple[Field, ...]], inside: tuple[str, ...]) -> set[str]:
    """The messages that one uses. `Invalid` for a definition that is not whole, or that nothing here could hold."""
    used, outer = {message}, (*inside, message)
    for field in fields[message]:
        if field.kind not in NUMPY and field.kind not in STRINGS:
            if field.kind.split("/")[-1] == "wstring":
                raise Invalid(f"{message}.{field.name} is a wstring, whose bytes each middleware writes in its own way")
            if field.kind not in fields:
                raise Invalid(f"{message}.{field.name} is {field.kind}, which the definition lacks")
            if field.kind in outer or len(outer) > DEPTH:
                raise Invalid(f"{field.kind} holds itself, or is nested deeper than {DEPTH} messages")
            if field.kind not in used:
                used |= _check(field.kind, fields, outer)
        if field.form == "fixed" and field.kind not in NUMPY and field.size > ITEMS_MAX:
            raise Invalid(f"{message}.{field.name} has {field.size:,} texts or messages: {ITEMS_MAX:,} at most")
    return used
