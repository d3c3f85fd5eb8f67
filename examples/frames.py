"""A camera and a viewer: frames are filled in place and read by reference. `python examples/frames.py`"""

import numpy as np

import penstock

with (
    penstock.publish("frames:example", shape=(1080, 1920, 3), dtype="u1", buffers=4) as pub,
    penstock.subscribe("frames:example") as sub,
):
    kept = np.zeros(())
    for number in range(100):
        with pub.acquire() as frame:
            frame.array[...] = number
            frame.meta["gain"] = number / 10
        seen = sub.recv(timeout=1)
        if number == 10:
            kept = seen.array  # its buffer is not written to as long as this lives
    print(np.max(kept), np.mean(seen.array), seen.meta)
penstock.remove("frames:example")
