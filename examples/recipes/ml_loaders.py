"""Machine learning: several loader processes fill large batches in place, and one trainer gets each of them without a copy."""

import multiprocessing as mp

import penstock

LOADERS = [penstock.Frames(f"batches/{number}", shape=(64, 3, 224, 224), buffers=3) for number in range(4)]
BATCHES = 20


def load(channel: penstock.Frames) -> None:
    with penstock.publish(channel) as pub:
        pub.wait_for_readers(1)
        for batch in range(BATCHES):
            with pub.acquire() as frame:  # waits while the trainer is behind
                frame.array[...] = batch


if __name__ == "__main__":
    for channel in LOADERS:
        mp.get_context("spawn").Process(target=load, args=(channel,)).start()
    open_now, seen = [penstock.subscribe(one, when_slow="wait", until_end=True) for one in LOADERS], []
    while open_now:
        for sub in penstock.wait(open_now):
            try:
                with sub.recv() as frame:
                    seen.append((sub.channel, int(frame.array[-1, -1, -1, -1])))
            except penstock.EndOfStream:
                open_now.remove(sub)
                penstock.remove(sub.channel)
    once = sorted(seen) == [(str(channel), batch) for channel in LOADERS for batch in range(BATCHES)]
    print(f"{len(LOADERS) * BATCHES} batches of {len(LOADERS)} loaders sent, {len(seen)} arrived, each once: {once}")
