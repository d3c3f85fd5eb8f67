"""A million jobs in thirty seconds, four workers, one killed every second: each is done once, or said to be given out again."""

import sys
import time
from multiprocessing import get_context

import penstock


def work():
    with penstock.subscribe("pipe:jobs") as jobs, penstock.publish("log:done", codec="json") as done:
        for job in jobs:
            done.send([int(job), jobs.redelivered])


if __name__ == "__main__":
    count, kills, seconds = map(int, sys.argv[1:] or (1_000_000, 30, 30))
    with penstock.subscribe("log:done", codec="json") as done, penstock.publish("pipe:jobs") as push:
        workers, sent, times, again, begun = [], 0, bytearray(count), set(), time.monotonic()
        while sent < count or push.waiting or done.lag:
            now = time.monotonic() - begun
            due = range(sent, min(sent + 500, count, int(count * now / seconds)))
            sent += push.offer_many([b"%d" % number for number in due])
            for job, redelivered in done.poll(10_000):
                times[job] += 1
                again |= {job} if redelivered else set()
            if now >= (len(workers) - 3) * seconds / kills:
                _ = [(w.kill(), print(f"{now:4.1f} s: {sum(times)} done, a worker killed")) for w in workers[-4:-3]]
                workers += [get_context("spawn").Process(target=work, daemon=True) for _ in range(1 if workers else 4)]
                _ = [worker.start() for worker in workers[-4:] if worker.pid is None]
    print(f"{count} jobs, {len(workers) - 4} workers killed, {times.count(0)} missing, {len(again)} given out again")
    assert all(n == 1 or job in again for job, n in enumerate(times))
