"""Delta tables, the Parquet files that their logs name, and the places that have both. Knows no message."""
