"""Camera-like frames without a copy: written and read in place."""

import numpy as np

import penstock

shape = (480, 640)
with penstock.publish("log:camera") as pub, penstock.subscribe("log:camera") as sub:
    with pub.claim(480 * 640) as view:
        np.frombuffer(view, dtype="u1").reshape(shape)[:] = 7
    with sub.borrow(timeout=1) as view:
        print(np.frombuffer(view, dtype="u1").reshape(shape).mean())
