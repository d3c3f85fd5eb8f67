"""Eight processes write and read one queue; three are killed, and nobody waits for the dead. `python examples/eight_processes.py`"""

import multiprocessing
import random

import penstock

NAMES = [f"worker-{number}" for number in range(8)]


def work(name):
    with penstock.join("sync:eight", sender=name, size=1 << 16) as queue:
        queue.wait_for(NAMES, timeout=60)
        for number in range(5000):
            queue.append(f"{number}".zfill(64))
            queue.pop_many()


if __name__ == "__main__":
    with penstock.join("sync:eight", sender="watcher", size=1 << 16) as queue:
        workers = [multiprocessing.get_context("spawn").Process(target=work, args=(name,)) for name in NAMES]
        _ = [worker.start() for worker in workers]
        queue.wait_for(NAMES, timeout=60)
        doomed, seen = random.sample(workers, 3), dict.fromkeys(NAMES, 0)
        while any(worker.is_alive() for worker in workers) or queue.lag:
            changes = queue.changes()
            for message in queue.drain():
                seen[message.sender] += 1
            if doomed and sum(seen.values()) > (4 - len(doomed)) * 4000:
                doomed.pop().kill()
            for change in changes:
                print(change.sender, "came" if change.joined else f"left after {seen[change.sender]} messages")
