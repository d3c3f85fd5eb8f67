"""Machine learning: what a program saw becomes a data set: recorded as it ran, exported as Parquet, read by Polars."""

import tempfile

import polars

import penstock
from penstock.export import export

with tempfile.TemporaryDirectory() as folder:
    archive = penstock.Archive(f"{folder}/archive")
    with penstock.publish("log:samples", codec="json") as samples, archive.record("log:samples"):
        for n in range(1000):
            samples.send({"x": n / 1000, "label": n % 3})
    outcome = export(f"{folder}/archive", f"{folder}/out", form="parquet")
    frame = polars.read_parquet(f"{folder}/out/log_samples/*.parquet").select("x", "label")
    print(outcome.rows, frame.shape, frame["label"].value_counts().sort("label").rows())
