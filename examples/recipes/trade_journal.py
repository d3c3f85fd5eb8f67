"""Trading: a journal of all fills, checked byte by byte, and asked as a table."""

import tempfile

import pyarrow.compute as pc

import penstock

with tempfile.TemporaryDirectory() as folder:
    journal = penstock.Archive(folder)
    with penstock.publish("log:fills", codec="json") as fills, journal.record("log:fills"):
        for n in range(1000):
            fills.send({"symbol": "ACME" if n % 4 else "EMCA", "price": 10.0 + n % 7, "quantity": 100})
    print(f"damage: {journal.verify()}")
    table = journal.read("log:fills", decode=True)
    for row in (
        table.group_by("symbol").aggregate([("quantity", "sum"), ("price", "max")]).sort_by("symbol").to_pylist()
    ):
        print(row["symbol"], row["quantity_sum"], row["price_max"])
    print(f"in order of time: {bool(pc.all(pc.greater_equal(table['position'][1:], table['position'][:-1])).as_py())}")
