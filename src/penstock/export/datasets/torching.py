"""Data sets as torch's IterableDataset. The only module that imports torch, when the first one is made; needs `pip install torch`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.util.extras import explain_missing


def stream_of(source: Iterable[Any]) -> Any:
    """What a data set yields, for a DataLoader. Pickles with it: nothing is opened before a worker iterates."""
    return _stream_class()(source)


@functools.cache
def _stream_class() -> Any:
    with explain_missing("a data set of torch"):
        from torch.utils.data import IterableDataset

    class TorchStream(IterableDataset[Any]):
        def __init__(self, source: Iterable[Any]) -> None:
            super().__init__()
            self.source = source

        def __iter__(self) -> Iterator[Any]:
            return iter(self.source)

        def __reduce__(self) -> tuple[Any, ...]:
            return stream_of, (self.source,)

        def __repr__(self) -> str:
            return f"TorchStream({self.source!r})"

    return TorchStream
