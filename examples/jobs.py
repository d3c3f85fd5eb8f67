"""A million jobs in thirty seconds. One of four workers is killed every second; each job is done once or reported as redelivered."""

import sys
import time
from multiprocessing import get_context

import penstock

JOBS = penstock.Pipe("jobs", bytes)


def work() -> None:
    with penstock.subscribe(JOBS) as jobs, penstock.publish("log:done", codec="json") as done:
        for job in jobs:
            done.send([int(job), jobs.redelivered])


if __name__ == "__main__":
    count, kills, span = map(int, sys.argv[1:] or (1_000_000, 30, 30))
    with penstock.subscribe("log:done", codec="json") as done, penstock.publish(JOBS) as push:
        workers = [get_context("spawn").Process(target=work, daemon=True) for _ in range(4 + kills)]
        sent, started, times, again, begun = 0, 0, bytearray(count), {-1}, time.monotonic()
        while sent < count or push.unread_messages or done.lag:
            now = time.monotonic() - begun
            sent += push.offer_many([b"%d" % n for n in range(sent, min(sent + 500, count, int(count * now / span)))])
            for job, redelivered in done.poll(10_000):
                times[job] += 1
                again |= {job} if redelivered else set()
            if started < len(workers) and now >= (started - 3) * span / kills:
                workers[started].start()
                workers[started - 4].kill() if started > 3 else None
                started += 1
    assert all(n == 1 or job in again for job, n in enumerate(times))
    print(f"{count} jobs, {started - 4} workers killed, {times.count(0)} missing, {len(again) - 1} redelivered")
