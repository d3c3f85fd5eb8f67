"""Batches of messages as pyarrow's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock._native import core as _native
from penstock.channels.loops import readable as readable
from penstock.channels.publication import Publication
from penstock.channels.subscription import Subscription
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)

    class _WritingHandle(_native.Publication, Publication[Message]):
        def send(self, data: Message, timeout: float | None = None) -> int: ...  # type: ignore[override]
        def offer(self, data: Message) -> int | None: ...  # type: ignore[override]
        def offer_many(self, messages: Sequence[Message]) -> int: ...  # type: ignore[override]

    class _ReadingHandle(_native.Subscription, Subscription[Message]):
        def recv(self, timeout: float | None = None) -> Message: ...  # type: ignore[override]
        def try_recv(self) -> Message | None: ...  # type: ignore[override]
        def __iter__(self) -> Iterator[Message]: ...  # type: ignore[override]
else:  # a compiled class takes no parameter, and can have no second base that does
    from typing import TypeVar

    Message = TypeVar("Message")
    _WritingHandle, _ReadingHandle = {Message: _native.Publication}, {Message: _native.Subscription}


def to_batch(capsules: tuple[Any, Any]) -> pa.RecordBatch:
    """A pyarrow batch from the two capsules of the Arrow C data interface."""
    with explain_missing("poll_arrow()"):
        import pyarrow as pa

    return pa.RecordBatch._import_from_c_capsule(*capsules)
