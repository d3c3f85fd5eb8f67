"""One asyncio task per channel."""

import asyncio

import penstock

NAMES = ("log:imu", "log:gps", "log:odometry")


async def listen(name: str) -> int:
    """Counts ten messages."""
    with penstock.subscribe(name, start="earliest") as sub:
        return len([await sub.recv_async() for _ in range(10)])


async def main() -> None:
    """Publishes on all channels while listening to them."""
    pubs = [penstock.publish(name) for name in NAMES]
    tasks = [asyncio.create_task(listen(name)) for name in NAMES]
    for _ in range(10):
        for pub in pubs:
            pub.send(b"reading")
        await asyncio.sleep(0.001)
    print(sum(await asyncio.gather(*tasks)))


asyncio.run(main())
