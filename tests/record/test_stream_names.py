"""Names that stand for streams and keys where these cannot be written: none for two things, the same everywhere."""

import json

import deltalake
import duckdb
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock import tables
from penstock.columns.names import RESERVED, folded, unique
from penstock.columns.parts import table_name
from penstock.export import export

PART = st.text("aAbB09._-x", min_size=1, max_size=12)
CHANNEL = st.builds(
    lambda kind, parts: f"{kind}:{'/'.join(parts)}",
    st.sampled_from(["log", "ring"]),
    st.lists(PART, min_size=1, max_size=4),
)
KEYS = {"价格": 1, "数量": 2, "हिन्दी": 3, "naïve": 4, "a b": 5, "a,b": 6, "Ünit": 7, "ünit": 8, "😀": 9, "time": 10}


@given(st.lists(CHANNEL, min_size=2, max_size=2, unique=True))
def test_two_channels_have_two_names_without_case(channels):
    first, second = map(table_name, channels)
    assert first != second
    assert first == first.lower()
    assert first.replace("_", "a").isalnum()


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("log:imu", "log_imu"),
        ("log:robot/imu", "log_robot__imu"),
        ("log:front_left/cam", "log_front_left__cam"),
        ("log:data/arrM", "log_data__arrm_fb732688"),
        ("log:a__b", "log_a__b_f676e234"),
        ("log:x_0123abcd", "log_x_0123abcd_e1b52c4f"),
    ],
)
def test_a_name_follows_from_the_channel_alone(channel, name):
    assert table_name(channel) == name
    assert len(table_name(channel + "y" * 200)) <= 100


@given(st.lists(st.text(max_size=8), max_size=12, unique=True))
def test_two_keys_have_two_columns(keys):
    names = unique(keys)
    assert len({folded(name) for name in names}) == len(keys)
    assert not {folded(name) for name in names} & RESERVED
    for name in names:
        name.encode()
        assert not set(name) & set(" ,;{}()\n\t=")


def test_keys_in_any_script_are_columns_of_that_name(archive, tmp_path):
    with penstock.publish("log:shop/orders", codec="json") as pub, archive.record("log:shop/orders"):
        for _ in range(3):
            pub.send(KEYS)
    assert tables.run(archive.path, tmp_path / "t").rows == 3
    exported = export(archive.path, tmp_path / "o")
    assert tables.streams(tmp_path / "t") == {"log:shop/orders": "streams/log_shop__orders"}
    assert [one.folder for one in exported.streams] == ["log_shop__orders"]
    table = deltalake.DeltaTable(tmp_path / "t" / "streams" / "log_shop__orders")
    of_polars = polars.read_delta(str(tmp_path / "t" / "streams" / "log_shop__orders"))
    names = ["价格", "数量", "हिन्दी", "naïve", "a_b", "a_b_", "Ünit", "ünit_", "😀", "time_"]
    for found in (
        table.to_pyarrow_table().column_names,
        of_polars.columns,
        tables.read(tmp_path / "t", "log:shop/orders").column_names,
    ):
        assert set(names) <= set(found)
    assert of_polars.select(names).row(0) == tuple(KEYS.values())
    (file,) = (tmp_path / "o" / "log_shop__orders").iterdir()
    assert duckdb.sql(f"select 价格, हिन्दी, \"😀\" from '{file}' limit 1").fetchall() == [(1, 3, 9)]
    decoded = penstock.Archive(archive.path).read("log:shop/orders", decode=True)
    assert set(names) <= set(decoded.column_names), json.dumps(decoded.column_names)
