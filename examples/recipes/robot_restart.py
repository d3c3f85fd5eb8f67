"""Robotics: nodes start in any order, and one is killed and started again. The control loop goes on."""

import multiprocessing

import penstock


def imu(begin: int) -> None:
    """A node that sends 100 readings, and ends only when it is killed."""
    with penstock.publish("log:robot.imu", codec="json") as pub:
        for n in range(begin, begin + 100):
            pub.send({"n": n, "gyro": [0.0, 0.1, 0.2]})
        multiprocessing.Event().wait()


def start(begin: int) -> multiprocessing.Process:
    """Starts the node in a process of its own."""
    node = multiprocessing.get_context("spawn").Process(target=imu, args=(begin,), daemon=True)
    node.start()
    return node  # type: ignore[return-value]


if __name__ == "__main__":
    with penstock.subscribe("log:robot.imu") as readings:  # before there is any publisher
        for begin in (0, 100):
            node = start(begin)
            got = [readings.recv(timeout=60)["n"] for _ in range(100)]
            print(f"readings {got[0]} to {got[-1]}")
            node.kill()
            node.join()
