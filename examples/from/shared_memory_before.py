"""With multiprocessing.shared_memory: a camera writes over one image under a lock, and a viewer asks for the newest one."""

import time
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

SHAPE, IMAGES = (480, 640), 100


def camera(name: str, lock: Any, newest: Any) -> None:
    memory = SharedMemory(name=name)
    image = np.ndarray(SHAPE, "u1", buffer=memory.buf)
    for n in range(1, IMAGES + 1):
        with lock:  # a process killed in here stops all others
            image[...] = n
            newest.value = n
    del image
    memory.close()


if __name__ == "__main__":
    start = get_context("spawn")
    lock, newest = start.Lock(), start.Value("q", 0, lock=False)
    memory = SharedMemory(create=True, size=480 * 640)
    image = np.ndarray(SHAPE, "u1", buffer=memory.buf)
    child = start.Process(target=camera, args=(memory.name, lock, newest))
    child.start()
    seen, mine = 0, image
    while seen < IMAGES:
        with lock:
            changed = newest.value != seen
            if changed:
                seen, mine = newest.value, image.copy()
        if not changed:
            time.sleep(0.001)
    print(f"image {seen} has only pixels of value {np.unique(mine)}")
    child.join()
    del image
    memory.close()
    memory.unlink()
