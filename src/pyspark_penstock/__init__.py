"""Lets Spark find the data source `penstock` by itself: it imports every package whose name begins with `pyspark_`."""

try:
    from penstock.spark.source.data_source import PenstockDataSource as DefaultSource
except ImportError:  # Spark imports this wherever Penstock is: also with a PySpark that is too old for it
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
