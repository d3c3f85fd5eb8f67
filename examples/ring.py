"""A fast writer and two slow readers: nobody waits, and each knows what it did not get. `python examples/ring.py`"""

import penstock

RING = penstock.Ring("example", bytes, capacity="1MiB")

with (
    penstock.publish(RING) as pub,
    penstock.subscribe(RING) as every,
    penstock.subscribe(RING, conflate=True) as latest,
):
    for number in range(50_000):
        pub.send(number.to_bytes(8, "little"))
    newest = int.from_bytes(latest.recv(), "little")
    read = len(every.poll(100_000))
    print(newest, read, every.lost_messages, latest.conflated + (latest.lost_messages or 0))
penstock.remove(RING)
