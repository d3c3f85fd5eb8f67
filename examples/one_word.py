"""One program for every kind of channel: `python examples/one_word.py log:a`, then ring:a, sync:a, pipe:a, frames:a, fake:log:a."""

import sys
import threading

import numpy as np

import penstock

SCAN = penstock.array("f4", (4, 3))  # every message is an array of this shape


def read(sub: penstock.types.Subscription) -> None:
    for message in sub:
        print(f"received {np.shape(message)} of {np.mean(message):.0f} from position {sub.last.position}")


def main(channel: str) -> None:
    with penstock.publish(channel, codec=SCAN) as pub:
        sub = penstock.subscribe(channel, until_end=True)
        reader = threading.Thread(target=read, args=(sub,))
        reader.start()
        for number in range(5):
            position = pub.send(np.full((4, 3), number, "f4"), timeout=5)
        status = pub.statistics()
    with sub:
        reader.join()
    print(f"{status.channel}: {status.totals.messages_sent} messages, {position} bytes of stream")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "log:a")
