"""Queries of DuckDB's SQL in Spark's: the tables that they name, and where the two languages mean different things."""

import pytest

import penstock

pytest.importorskip("sqlglot", reason="sqlglot is not installed: pip install 'penstock[spark]'")


@pytest.mark.parametrize(
    ("query", "tables", "text"),
    [
        ("select a.i from 'log:a' a", ["log:a"], "SELECT a.i FROM {t0} AS a"),
        (
            "from \"log:a\" select x = 'log:a' as y",
            ["log:a"],
            "SELECT x = 'log:a' AS y FROM {t0} AS `log:a`",
        ),
        (
            "with a as (select 1 as x) select * from a, `b:c`",
            ["b:c"],
            "WITH a AS (SELECT 1 AS x) SELECT * FROM a, {t0} AS `b:c`",
        ),
        (
            "select g[1], m['k'][2] from t, t",
            ["t"],
            "SELECT TRY_ELEMENT_AT(g, 1), TRY_ELEMENT_AT(m['k'], 2) FROM {t0} AS `t`, {t0} AS `t`",
        ),
        ("select m[g[-1]] from t", ["t"], "SELECT TRY_ELEMENT_AT(m, TRY_ELEMENT_AT(g, -1)) FROM {t0} AS `t`"),
        ("select '{t0}' from u", ["u"], "SELECT '{{t0}}' FROM {t0} AS `u`"),
        ("select 7 // 2, i from s.t order by i", [], "SELECT 7 DIV 2, i FROM s.t ORDER BY i NULLS LAST"),
    ],
)
def test_a_query_is_translated(query, tables, text):
    from penstock.spark.parsing import translation

    tree = translation.parse(query)
    assert translation.tables_of(tree) == tables
    assert translation.write(tree, {name: f"t{number}" for number, name in enumerate(tables)}) == text
    assert translation.tables_of(tree) == tables, "the tree is as it was"


def test_what_spark_has_no_words_for_is_one_line():
    from penstock.spark.parsing import translation

    for query in ("select 1; select 2", "pivot t on x", "copy t to 'x'", "select ("):
        with pytest.raises(penstock.Invalid, match="this is not") as caught:
            translation.parse(query)
        assert "\n" not in str(caught.value)
