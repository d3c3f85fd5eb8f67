"""Machine learning: two loaders make batches, one trainer takes each once, and the epoch ends by itself."""

import multiprocessing

import numpy as np

import penstock

BATCH = penstock.array("f4", (256, 64))


def load(loader: int) -> None:
    """Makes twenty batches."""
    with penstock.publish("pipe:batches", codec=BATCH) as batches:
        for n in range(20):
            batches.send(np.full((256, 64), 100 * loader + n, "f4"))


if __name__ == "__main__":
    with penstock.subscribe("pipe:batches", until_end=True) as batches:
        loaders = [multiprocessing.get_context("spawn").Process(target=load, args=(n,)) for n in range(2)]
        with penstock.publish("pipe:batches", codec=BATCH, capacity=1 << 20, max_pipes=8):  # holds the epoch open
            for loader in loaders:
                loader.start()
            seen = [float(batches.recv(timeout=60)[0, 0]) for _ in range(40)]
            for loader in loaders:
                loader.join()
        print(f"{len(set(seen))} batches, each once: {sorted(seen) == [*range(20), *range(100, 120)]}")
        print(f"after the end of the epoch: {list(batches)}")
