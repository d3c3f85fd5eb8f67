"""Rules of a Delta table that its writers must keep, and that a commit of whole files cannot: for such a table it is refused.

A commit adds files that others wrote. It evaluates no expression, and writes no value that a table asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.errors import Invalid
from penstock.tables.delta.files import Added

# Features that take nothing of a writer which adds files. Of those that take something, their use is found below.
FEATURES = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"}
FEATURES |= {
    "columnMapping",
    "timestampNtz",
    "deletionVectors",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "domainMetadata",
}
COLUMNS = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
}
ASK = "The pipeline cannot keep that rule: drop it, or keep it in a table of your own. The stream's new messages come with the next run"


def check_rules(
    place: object,
    properties: Mapping[str, str | None],
    fields: Sequence[Mapping[str, Any]],
    features: Iterable[str],
    adds: Sequence[Added],
    *,
    removes: bool,
) -> None:
    """`Invalid` for a commit that would break a rule of its table. fields: of its schema, as the log has them. removes: whether files go."""
    found = list(_broken(properties, fields, features, adds, removes))
    if found:
        raise Invalid(f"{place} {found[0]}. {ASK}")


def _broken(
    properties: Mapping[str, str | None],
    fields: Sequence[Mapping[str, Any]],
    features: Iterable[str],
    adds: Sequence[Added],
    removes: bool,
) -> Iterator[str]:
    if removes and properties.get("delta.appendOnly") == "true":
        yield "has the property delta.appendOnly, and rows are to be removed"
    if not adds:
        return
    for name, value in properties.items():
        if name.startswith("delta.constraints."):
            yield f"has the constraint {name.removeprefix('delta.constraints.')}: {value}"
    if properties.get("delta.columnMapping.mode") not in (None, "none"):
        yield "maps its columns to other names (delta.columnMapping.mode)"
    for name in sorted(set(features) - FEATURES):
        yield f"has the feature {name}"
    for field in fields:
        for key, text in COLUMNS.items():
            if any(key in one.get("metadata", {}) for one in _all_of(field)):
                yield f"has the column {field['name']}, which {text}"
        if field.get("nullable") is False and any(
            one.stats.get("nullCount", {}).get(field["name"]) != 0 for one in adds
        ):
            yield f"has the column {field['name']}, which is NOT NULL, and a message lacks its value"


def _all_of(found: Any) -> Iterator[Mapping[str, Any]]:
    """A field of a schema, and those inside."""
    if isinstance(found, Mapping):
        if "name" in found:
            yield found
        found = [value for key, value in found.items() if key != "metadata"]
    if isinstance(found, list):
        for one in found:
            yield from _all_of(one)
