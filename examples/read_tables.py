"""Reads the tables of `penstock pipeline ARCHIVE --out TABLES` without Spark: python read_tables.py TABLES log:imu"""

import sys

import duckdb
import polars

from penstock import tables

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out, channel = sys.argv[1:]
    print(tables.names(out), tables.streams(out))

    # DuckDB: the files of a snapshot. union_by_name, since files of older messages lack newer columns.
    files = tables.uris(out, channel)
    print(
        duckdb.sql(
            "select count(*), min(time), max(time) from read_parquet(?, union_by_name = true, hive_partitioning = false)",
            params=[files],
        )
    )

    # Polars reads Delta tables by their folder.
    folder = tables.open_table(out, channel).place.uri
    print(polars.scan_delta(folder).select(polars.len(), polars.col("position").max()).collect())

    # pandas, by way of pyarrow.
    print(
        tables.read(out, "messages", stream=channel, columns=["stream", "timestamp_ns", "bytes"]).to_pandas().describe()
    )
