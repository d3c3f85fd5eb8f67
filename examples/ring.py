"""A fast writer and two slow readers: nobody waits, and each knows what it did not get. `python examples/ring.py`"""

import penstock
from penstock.front import typed

with (
    penstock.publish("ring:example", capacity=1 << 20) as pub,
    penstock.subscribe("ring:example") as every,
    typed.subscribe_ring("ring:example", conflate=True) as latest,
):
    for number in range(50_000):
        pub.send(number.to_bytes(8, "little"))
    newest = int.from_bytes(latest.recv(), "little")
    read = len(every.poll(100_000))
    print(newest, read, every.lost_messages, latest.conflated + (latest.lost_messages or 0))
penstock.remove("ring:example")
