"""Which part of a data set a process reads: a share of it, and within it a worker's of torch's DataLoader. Imports no torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Share:
    """The part `index` of `count` equal parts."""

    index: int = 0
    count: int = 1

    def within(self, outer: Share) -> Share:
        """This part of a part."""
        return Share(outer.index + outer.count * self.index, outer.count * self.count)


def worker() -> Share:
    """The part of this worker of a DataLoader; the whole elsewhere."""
    utils: Any = sys.modules.get("torch.utils.data")
    info = None if utils is None else utils.get_worker_info()
    return Share() if info is None else Share(info.id, info.num_workers)


def in_worker() -> bool:
    """Whether this process is a worker of a DataLoader."""
    utils: Any = sys.modules.get("torch.utils.data")
    return utils is not None and utils.get_worker_info() is not None
