"""What a commit of a table says besides its files: the transactions that name its writer's state, and the file of that state."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.tables.delta.files import Added
from penstock.tables.delta.places import Place
from penstock.util.extras import explain_missing

STATE = "_penstock"  # a folder in the table: readers and VACUUM leave folders with such names alone
APP = "penstock"  # the application whose transactions say which state is the table's
# In a state: the pipeline that made the table. Every commit with that state has a transaction of its name.
OWNER = "owner"


def file_actions(adds: Sequence[Added], removes: Iterable[str] = ()) -> list[Any]:
    """What adds and removes files."""
    load_deltalake()
    from deltalake.transaction import AddAction, RemoveAction

    now = math.floor(time.time() * 1000)
    fresh = [AddAction(one.path, one.size, {}, now, True, json.dumps(one.stats)) for one in adds]
    return [*fresh, *(RemoveAction(path, True, now) for path in removes)]


def app_of(owner: str) -> str:
    """The application of a pipeline."""
    return f"{APP}/{owner}"


def state_file(number: int) -> str:
    """The file of a state."""
    return f"state-{number}.json"


def next_state(
    place: Place, before: int, state: Mapping[str, Any] | None, marks: Mapping[str, int] | None, retries: int = 3
) -> tuple[int | None, Any]:
    """(number of the new state, properties of the commit that makes it the table's). The state is written first. retries: 0 where files
    are replaced: beside a compaction, delta-rs would keep both what it made and what this commit makes of them."""
    from deltalake import CommitProperties, Transaction

    number = None
    transactions = [Transaction(app, version) for app, version in (marks or {}).items()]
    if state is not None:
        number = max(time.time_ns(), before + 1)  # no killed writer has used it
        (place / STATE).write(state_file(number), json.dumps(state).encode())
        transactions.append(Transaction(APP, number))
        if state.get(OWNER):
            transactions.append(Transaction(app_of(state[OWNER]), number))
    return number, CommitProperties(app_transactions=transactions, max_commit_retries=retries)


def load_deltalake() -> Any:
    """The package, with its exceptions."""
    with explain_missing("a Delta table"):
        import deltalake
        import deltalake.exceptions
    return deltalake
