"""Machine learning: the trainer shares its newest weights, and actors take them without a copy, however many there are."""

import numpy as np

import penstock

WEIGHTS = penstock.Frames("weights", shape=(1_000_000,), dtype="f4", buffers=6)

with penstock.publish(WEIGHTS) as trainer, penstock.subscribe(WEIGHTS) as early:
    for step in range(10):
        with trainer.acquire() as frame:
            frame.array[...] = step
            frame.meta["step"] = step
    with penstock.subscribe(WEIGHTS) as late:
        for name, actor in (("early", early), ("late", late)):
            weights = actor.latest()
            assert weights is not None
            with weights:
                print(f"{name}: step {weights.meta['step']}, mean {np.mean(weights.array):.1f}")
penstock.remove(WEIGHTS)
