"""From torch's DataLoader: two loaders, programs of their own, load the batches of two epochs, each in a new order."""

import multiprocessing
from typing import Any

import numpy as np

import penstock

ORDERS = penstock.Pipe("loaders/orders", penstock.array("i8", (50,)))
BATCHES = penstock.Pipe("loaders/batches", penstock.array("f4", (50, 3, 32, 32)), capacity="4MiB", max_pipes=4)


def read(index: int) -> Any:
    return np.full((3, 32, 32), index, "f4")  # reads and decodes a file


def load() -> None:
    with penstock.subscribe(ORDERS, until_end=True) as orders, penstock.publish(BATCHES) as batches:
        for indexes in orders:
            batches.send(np.stack([read(index) for index in indexes]))


if __name__ == "__main__":
    random = np.random.default_rng(7)
    with penstock.subscribe(BATCHES) as batches, penstock.publish(ORDERS) as orders:
        for _ in range(2):
            multiprocessing.get_context("spawn").Process(target=load).start()
        orders.wait_for_readers(2)
        seen: list[float] = []
        for _ in range(2):
            for indexes in random.permutation(1000).reshape(-1, 50):
                orders.send(indexes)
            for _ in range(20):
                batch = batches.recv(timeout=60)  # torch.from_numpy(batch)
                seen += batch[:, 0, 0, 0].tolist()
    print(
        f"{len(seen)} images in 20 batches an epoch, each once an epoch: {sorted(seen[:1000]) == sorted(seen[1000:])}"
    )
    penstock.remove(ORDERS)
    penstock.remove(BATCHES)
