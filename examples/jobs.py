"""A million jobs, four workers, one of them killed every second: each job is done once, or said to be given out again."""

import multiprocessing
import sys
import time

import penstock


def work():
    with penstock.subscribe("pipe:jobs") as jobs, penstock.publish("log:done", codec="json") as done:
        for job in jobs:
            done.send([int(job), jobs.redelivered])


if __name__ == "__main__":
    count, every = (int(sys.argv[1]), float(sys.argv[2])) if len(sys.argv) > 2 else (1_000_000, 1.0)
    new = multiprocessing.get_context("spawn").Process
    with penstock.subscribe("log:done", codec="json") as done, penstock.publish("pipe:jobs") as push:
        workers, sent, times, again, due = [], 0, bytearray(count), set(), 0.0
        while sent < count or push.waiting or done.lag:
            sent += push.offer_many([b"%d" % number for number in range(sent, min(sent + 50, count))])
            for job, redelivered in done.poll(10_000):
                times[job] += 1
                again |= {job} if redelivered else set()
            if len(workers) < 34 and time.monotonic() > due:
                _ = [worker.kill() for worker in workers[-4:-3]]
                workers += [new(target=work, daemon=True) for _ in range(1 if workers else 4)]
                _ = [worker.start() for worker in workers if worker.pid is None]
                due = time.monotonic() + every
    print(f"{count} jobs, {len(workers) - 4} workers killed, {times.count(0)} missing, {len(again)} given out again")
    assert all(n == 1 or job in again for job, n in enumerate(times))
