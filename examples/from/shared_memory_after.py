"""From hand-made shared memory: a camera fills buffers in turn, and a viewer leases the newest image."""

from multiprocessing import get_context

import numpy as np

import penstock

IMAGES = 100
CAMERA = penstock.Frames("camera", shape=(480, 640), dtype="u1")


def camera() -> None:
    with penstock.publish(CAMERA) as pub:
        pub.wait_for_readers(1)
        for n in range(1, IMAGES + 1):
            with pub.acquire() as image:
                image.array[...] = n
                image.meta["n"] = n


if __name__ == "__main__":
    with penstock.subscribe(CAMERA) as sub:
        child = get_context("spawn").Process(target=camera)
        child.start()
        seen = 0
        while seen < IMAGES:
            with sub.recv(timeout=60) as image:
                seen = image.meta["n"]
                values = np.unique(image.array)
        print(f"image {seen} has only pixels of value {values}")
    child.join()
    penstock.remove(CAMERA)
