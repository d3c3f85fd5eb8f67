"""Robotics: a detector that is slower than its camera always takes the newest frame, and its frame never changes under it."""

import numpy as np

import penstock

FRONT = penstock.Frames("robot.front", shape=(480, 640), dtype="u1", buffers=8)

with penstock.publish(FRONT) as camera, penstock.subscribe(FRONT) as detector:
    for n in range(5):
        with camera.acquire() as frame:
            frame.array[...] = n
            frame.meta["n"] = n
    with detector.recv(timeout=60) as seen:
        for n in range(5, 10):  # the camera goes on meanwhile
            camera.send(np.full((480, 640), n, "u1"))
        print(f"frame {seen.meta['n']} has only pixels of value {np.unique(seen.array)[0]}")
    with detector.recv(timeout=60) as seen:
        print(f"then frame {seen.array[0, 0]}")
penstock.remove(FRONT)
