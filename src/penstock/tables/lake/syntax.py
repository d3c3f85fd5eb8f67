"""What a query in DuckDB's SQL asks, by DuckDB's own syntax tree: the streams that it names, and its calls of `align`.

Knows SQL; knows no stream and no view.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import Invalid

if TYPE_CHECKING:
    import duckdb

ALIGN = "align('log:camera', ['log:imu'], tolerance => '20ms')"


@dataclass(frozen=True)
class Aligned:
    """A call of `align` in a query, with its arguments."""

    stream: str
    others: tuple[str, ...]
    tolerance: Any


@dataclass(frozen=True)
class Query:
    """One query. sql: to be run, with a table in place of each call of `align`. tables: streams that it names. aligned: the calls, by table."""

    sql: str
    tables: list[str]
    aligned: dict[str, Aligned] = field(default_factory=dict)

    def streams(self) -> list[str]:
        """All streams that it needs."""
        found = dict.fromkeys(self.tables)
        for call in self.aligned.values():
            found |= dict.fromkeys((call.stream, *call.others))
        return list(found)


ONLY = "Only SELECT statements"  # of DuckDB's words for any other statement


def parse(connection: duckdb.DuckDBPyConnection, query: str) -> Query:
    """`Invalid` for what is not one query, and for a wrong call of `align`."""
    tree = _tree(connection, query)
    if tree["error"]:
        why = tree["error_message"]
        raise Invalid(f"this is not a query: {'write SELECT …' if ONLY in why else why}")
    if len(tree["statements"]) != 1:
        raise Invalid("this is not one query: write SELECT …")
    inside = {entry["key"].lower() for one in _nodes(tree) for entry in _common_tables(one)}
    tables: dict[str, None] = {}
    aligned: dict[str, Aligned] = {}
    for one in list(_nodes(tree)):
        if one.get("type") == "BASE_TABLE" and not one["schema_name"] and one["table_name"].lower() not in inside:
            tables[one["table_name"]] = None
        elif one.get("type") == "TABLE_FUNCTION" and _is_align(one["function"]):
            name = f"penstock align {len(aligned)}"
            aligned[name] = _call(connection, one["function"])
            table = _tree(connection, f'from "{name}"')["statements"][0]["node"]["from_table"]
            one |= table | {"alias": one["alias"] or "align", "column_name_alias": one["column_name_alias"]}
            del one["function"]
    if aligned:
        query = "pragma json_execute_serialized_sql('" + json.dumps(tree).replace("'", "''") + "')"
    return Query(query, list(tables), aligned)


def _tree(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    text = connection.execute("select json_serialize_sql(?::varchar)", [query]).fetchall()[0][0]
    found: dict[str, Any] = json.loads(text)
    return found


def _common_tables(node: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = node.get("cte_map", {}).get("map", [])
    return found


def _nodes(tree: Any) -> Iterable[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for one in tree:
            yield from _nodes(one)


# ---- calls of align ----


def _is_align(function: Mapping[str, Any]) -> bool:
    return function["function_name"].lower() == "align" and not function["schema"]


def _call(connection: duckdb.DuckDBPyConnection, function: Mapping[str, Any]) -> Aligned:
    given = [_argument(one) for one in function.get("arguments", function.get("children"))]  # DuckDB 2 and 1
    names = [name for name, _ in given]
    if names not in (["", ""], ["", "", ""], ["", "", "tolerance"]):
        raise Invalid(f"align takes a stream, a list of streams, and a tolerance or none: write {ALIGN}")
    tree = _tree(connection, "select 1")
    tree["statements"][0]["node"]["select_list"] = [expression for _, expression in given]
    try:
        stream, others, *tolerance = connection.execute(
            "from json_execute_serialized_sql(?::varchar)", [json.dumps(tree)]
        ).fetchall()[0]
    except Exception as error:
        raise Invalid(f"an argument of align is no constant: write {ALIGN}") from error
    if not (isinstance(stream, str) and isinstance(others, list) and all(isinstance(one, str) for one in others)):
        raise Invalid(f"align takes a stream and a list of streams, as texts: write {ALIGN}")
    return Aligned(stream, tuple(others), _number(tolerance[0]) if tolerance else None)


def _argument(given: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Its name, or none, and its expression."""
    found = given.get("expression", given)
    name = given.get("name") or found["alias"]
    if found["type"] == "COMPARE_EQUAL" and found["left"]["type"] == "COLUMN_REF":  # name = value
        name, found = found["left"]["column_names"][-1], found["right"]
    return name.lower(), found


def _number(value: Any) -> Any:
    """A decimal as a float."""
    from decimal import Decimal

    return float(value) if isinstance(value, Decimal) else value
