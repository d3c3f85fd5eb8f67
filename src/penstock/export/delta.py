"""A Delta table over Parquet files that were written already: one commit. Knows deltalake and part files."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa

from penstock.columns.parts import Part
from penstock.errors import PenstockError
from penstock.util.extras import check_installed
from penstock.util.files.storage import Place, delta_options


def needed() -> None:
    """Raises `MissingPackage` with the package to install if there is no deltalake."""
    check_installed("deltalake", what="an export to Delta")


def commit(table: Place, parts: list[Part], schema: pa.Schema, name: str) -> None:
    """Makes a new table of these files, which are in its folder. A part's path begins with the folder's name."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction

    now = time.time_ns() // 1_000_000
    actions: list[Any] = [
        AddAction(part.path.rpartition("/")[2], part.bytes, {}, now, True, json.dumps({"numRecords": part.rows}))
        for part in parts
    ]
    bare = pa.schema([field.remove_metadata() for field in schema])
    try:
        made = DeltaTable.create(table.uri, bare, name=name, storage_options=delta_options(table) or None)
        made.create_write_transaction(actions, "append", bare)
    except (DeltaError, OSError) as error:
        raise PenstockError(f"{table}: {' '.join(str(error).split())[:300]}") from error
