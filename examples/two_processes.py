"""A child process counts what its parent sends; handles are simply given to it."""

import multiprocessing

import penstock


def count(sub: penstock.types.Subscription, pub: penstock.types.Publication) -> None:
    """The child: until an empty message comes."""
    total = 0
    for message in sub:
        if not message:
            break
        total += int(message)
    pub.send(b"%d" % total)


if __name__ == "__main__":
    with penstock.publish("log:numbers") as numbers, penstock.subscribe("log:sums") as sums:
        arguments = (penstock.subscribe("log:numbers"), penstock.publish("log:sums"))
        child = multiprocessing.get_context("spawn").Process(target=count, args=arguments)
        child.start()
        for i in range(1000):
            numbers.send(b"%d" % i)
        numbers.send(b"")
        print(int(sums.recv(timeout=60)))
        child.join()
