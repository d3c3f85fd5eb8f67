"""Programs that are killed while a stream is queried: `python victims.py ROLE FOLDER NUMBER`. A writer notes each send, before and after."""

import signal
import sys
import time
from pathlib import Path

import numpy as np

import penstock
import penstock.tables

URI = "log:deaths"
CAPACITY = 1 << 16
MOST = 1 << 18  # messages of a writer
FRAME = 64  # bytes of each


def notes(folder, number, mode="r+"):
    """What a writer has sent: [0] is how many it began, then where each ended; 0 where that is not known."""
    return np.memmap(Path(folder, f"writer-{number}"), np.int64, mode, shape=(MOST + 1,))


def message(number, count):
    """One message: they all have the same size."""
    return {"w": f"{number:04}", "n": f"{count:06}"}


def write(folder, number):
    sent = notes(folder, number)
    with penstock.publish(URI, codec="json", capacity=CAPACITY) as publication:
        for count in range(MOST):
            sent[0] = count + 1
            sent[count + 1] = publication.send(message(number, count))
            if count % 100 == 0:
                time.sleep(0.1)


def record(folder, number):
    with penstock.Archive(Path(folder, "archive")).record(URI, start="earliest"):
        signal.pause()


def commit(folder, number):
    while True:
        penstock.tables.run(Path(folder, "archive"), Path(folder, "tables"))
        time.sleep(0.2)


def query(folder, number):
    lake = penstock.lake(Path(folder, "tables"), Path(folder, "archive"))
    while True:
        lake.sql(f"select count(*) from '{URI}'")


if __name__ == "__main__":
    {"write": write, "record": record, "commit": commit, "query": query}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
