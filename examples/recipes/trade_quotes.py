"""Trading: quotes on a ring. The feed never waits, and a strategy that falls behind knows how many quotes it lost."""

import numpy as np

import penstock

QUOTE = np.dtype([("symbol", "S8"), ("bid", "f8"), ("ask", "f8")])

with (
    penstock.publish("ring:quotes", codec=QUOTE, capacity=1 << 16) as feed,
    penstock.subscribe("ring:quotes") as fast,
    penstock.subscribe("ring:quotes") as slow,
):
    seen = 0
    for n in range(10_000):
        feed.send((b"ACME", n - 0.5, n + 0.5))
        if n % 100 == 99:
            seen += len(fast.poll())
    print(f"fast: {seen} seen, {fast.lost_messages} lost")
    seen = len(slow.poll())
    lost = slow.lost_messages or 0
    print(f"slow: all are seen or counted as lost: {lost > 0 and seen + lost == 10_000}")
    feed.send((b"ACME", 1.0, 2.0))
    print(f"and it goes on: bid {slow.recv(timeout=60)['bid']}")
