"""The tables of an archive: Delta tables that only ever gain rows, under a contract.

`run` and `follow` make them, on this machine and without a JVM (`penstock.spark.pipeline` has Spark do it); `read`, `uris` and
`open_table` read them; `optimize` and `erase` keep them. Needs `pip install 'penstock[tables]'`. Knows no Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from penstock.util.extras import explain_missing

with explain_missing("penstock.tables", extra="tables"):
    import pyarrow  # noqa: F401

from penstock.tables.following import check_follow
from penstock.tables.following import follow as _follow
from penstock.tables.keep import Optimized, erase, optimize
from penstock.tables.options import Given, Options, Outcome
from penstock.tables.pipeline import Pipeline, run
from penstock.tables.reading import names, open_table, read, streams, uris

__all__ = [
    "Optimized",
    "Outcome",
    "erase",
    "follow",
    "names",
    "open_table",
    "optimize",
    "read",
    "run",
    "streams",
    "uris",
]


def follow(
    archive: str | Path,
    out: str | Path,
    *,
    every: float = 0.0,
    until: Callable[[float], bool] | None = None,
    on_step: Callable[[Outcome], None] | None = None,
    **options: Unpack[Given],
) -> Outcome:
    """Brings the tables up to date, and continues as messages arrive. The sums of all steps, and the tables' rows at the end.

    every: seconds between two looks at the archive; 0 for as messages come, five times a second at most. until: waits for at most so many
    seconds as it is given, and says whether to end; by default nothing but an error or an interrupt ends it. on_step: called after each
    step. Other options, and errors, as of `run`; what is left out is logged once.
    """
    check_follow(every, until, on_step)
    with Pipeline(archive, out, Options.given(options)) as pipeline:
        outcome = _follow(pipeline, every=every, until=until, on_step=on_step)
    pipeline.check()
    return outcome
