"""Messages as buffers, and the errors of values that are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.codecs import values
from penstock.errors import Invalid

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)
else:
    from typing import TypeVar

    Message = TypeVar("Message")  # Python has no defaults here before 3.13


def unsendable(channel: str, error: Invalid) -> Invalid:
    """The error of a value that a codec cannot carry, with the channel's URI."""
    return Invalid(f"{channel}: {error}")


def no_message(channel: str, given: Any) -> TypeError:
    """The error of a value that is not bytes-like, as compiled methods raise it."""
    advice = ': encode it, or give the channel codec="json"' if isinstance(given, str) else ""
    return TypeError(f"{channel}: a message is bytes or another bytes-like object, not {type(given).__name__}{advice}")


def several(channel: str, messages: Sequence[Message]) -> Sequence[Message]:
    """The messages given to `offer_many`. TypeError, with the channel's URI, for anything that is not a sequence of them."""
    kind = type(messages)
    if isinstance(messages, str | bytes):
        raise Invalid(f"{channel}: offer_many takes a list of messages, not one message: use offer")
    if hasattr(kind, "__next__"):
        why = "it sends as many as there is room for, and the others would be lost with the iterator"
        raise TypeError(f"{channel}: offer_many takes a list of messages, not {kind.__name__}: {why}")
    if not hasattr(kind, "__getitem__") or not hasattr(kind, "__len__") or hasattr(kind, "keys"):
        raise TypeError(f"{channel}: offer_many takes a list of messages, not {kind.__name__}")
    return messages


def copied(channel: str, messages: Sequence[Any]) -> list[bytes]:
    """The bytes of a sequence's messages, each copied before the next is asked for: the sequence may make them in one buffer."""
    return [bytes(buffer_of(channel, message)) for message in several(channel, messages)]


def buffer_of(channel: str, data: Any) -> bytes | memoryview:
    """The bytes of a message in C order, copied where they are in another order; as compiled methods take them.

    TypeError for anything that is not a buffer. `Invalid` for arrays of Python objects and masked arrays.
    """
    if type(data) is bytes:
        return data
    try:
        values.refuse_unsendable(data)
        view = memoryview(data)
    except TypeError:
        raise no_message(channel, data) from None
    except Invalid as error:
        raise unsendable(channel, error) from None
    except ValueError as error:  # of times, for one, NumPy gives no bytes
        why = (
            f"{channel}: this {type(data).__name__} gives no bytes: {error}. Of an array of times send array.view('i8')"
        )
        raise Invalid(why) from None
    if values.has_addresses(view.format):
        raise unsendable(channel, Invalid(values.OBJECTS))
    return view if view.c_contiguous else view.tobytes()
