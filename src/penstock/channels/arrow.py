"""Batches of messages as pyarrow's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    import pyarrow as pa


def to_batch(capsules: tuple[Any, Any]) -> pa.RecordBatch:
    """A pyarrow batch from the two capsules of the Arrow C data interface."""
    with explain_missing("poll_arrow()"):
        import pyarrow as pa

    return pa.RecordBatch._import_from_c_capsule(*capsules)
