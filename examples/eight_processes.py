"""Eight processes write and read one queue. Three are killed, and the others go on. `python examples/eight_processes.py`"""

import multiprocessing

import penstock

NAMES = [f"worker-{number}" for number in range(8)]


def work(name: str) -> None:
    with penstock.join("sync:eight", name=name, capacity=1 << 16) as queue:
        queue.wait_for(NAMES, timeout=60)
        for number in range(5000):
            queue.send(f"{number}".zfill(64).encode())
            queue.poll()


if __name__ == "__main__":
    with penstock.join("sync:eight", name="watcher", capacity=1 << 16) as queue:
        workers = [multiprocessing.get_context("spawn").Process(target=work, args=(name,)) for name in NAMES]
        for worker in workers:
            worker.start()
        queue.wait_for(NAMES, timeout=60)
        doomed, seen = workers[:3], dict.fromkeys(NAMES, 0)
        living = True
        while living or queue.lag:
            living = any(
                worker.is_alive() for worker in workers
            )  # asked before the changes: the last one's end is among them
            changes = queue.changes()
            for message in queue.poll():
                seen[message.sender] += 1
            if doomed and sum(seen.values()) > (4 - len(doomed)) * 4000:
                doomed.pop().kill()
            for change in changes:
                print(change.name, "joined" if change.joined else f"left after {seen[change.name]} messages")
