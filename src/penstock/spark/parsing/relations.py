"""The tables that a query reads, as Spark's own parser sees them: subqueries and common table expressions are taken into account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def relations(spark: SparkSession, query: str) -> list[str]:
    """Names of tables that a query reads, in its order. Names with a catalog or a schema are Spark's own and not among them.

    Raises Spark's ParseException for a text that is no query.
    """
    inner = getattr(spark, "_jsparkSession", None)
    if inner is None:
        raise Invalid("tables of SQL need a Spark session of this process: with Spark Connect, define them in Python")
    found: dict[str, None] = {}
    _walk(inner.sessionState().sqlParser().parseQuery(query), frozenset(), found)
    return list(found)


def _walk(plan: Any, hidden: frozenset[str], found: dict[str, None]) -> None:
    kind = plan.getClass().getSimpleName()
    if kind == "UnresolvedRelation":
        parts = list(_each(plan.multipartIdentifier()))
        if len(parts) == 1 and parts[0].lower() not in hidden:
            found[parts[0]] = None
    elif kind == "UnresolvedWith":
        # An expression sees those before it, and itself if the WITH is recursive; the query behind WITH sees all.
        seen = hidden
        for one in _each(plan.cteRelations()):
            name = one._1().lower()
            _walk(one._2(), seen | {name} if plan.allowRecursion() else seen, found)
            seen = seen | {name}
        hidden = seen
    for child in (*_each(plan.children()), *_each(plan.subqueries())):
        _walk(child, hidden, found)


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]
