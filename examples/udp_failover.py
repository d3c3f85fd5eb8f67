"""Three subscribers of one endpoint. The holder of the socket is killed twice while messages flow: the last one gets all of them.

`python examples/udp_failover.py`, or with a channel of your own: `python examples/udp_failover.py udp://127.0.0.1:40123/7`
"""

import multiprocessing
import os
import signal
import sys
from typing import Any

import penstock

CHANNEL, COUNT = sys.argv[1] if len(sys.argv) > 1 else "udp://127.0.0.1:40123/7", 60_000


def read(there: Any, got: Any) -> None:
    with penstock.subscribe(CHANNEL, until_end=True) as sub:
        there.release()
        got.put(list(sub) == list(range(COUNT)))


if __name__ == "__main__":
    there = multiprocessing.Semaphore(0)
    got: Any = multiprocessing.SimpleQueue()
    for _ in range(3):
        multiprocessing.Process(target=read, args=(there, got)).start()
        there.acquire()
    with penstock.publish(CHANNEL, codec="json", term_length=1 << 20) as pub:
        pub.wait_for_readers(3, timeout=60)
        for number in range(COUNT):
            if number in (COUNT // 3, 2 * COUNT // 3):
                print(f"after {number} messages: kill -9 the owner of the socket")
                os.kill(penstock.inspect(CHANNEL).details["holder"], signal.SIGKILL)
            pub.send(number, timeout=60)
    print(f"the survivor has all {COUNT} messages, in order, each once: {got.get()}")
