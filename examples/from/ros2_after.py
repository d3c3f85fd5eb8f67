"""From ROS 2: a controller turns readings of a gyroscope into commands; both start in any order, each in a process of its own."""

import multiprocessing

import penstock

GYRO = penstock.Log("robot/gyro", penstock.ros2msg("geometry_msgs/msg/Vector3"))
COMMAND = penstock.Log("robot/cmd_vel", penstock.ros2msg("geometry_msgs/msg/Twist"))


def drive() -> None:
    with penstock.publish(GYRO) as gyro:
        for n in range(100):
            gyro.send({"x": 0.0, "y": 0.0, "z": n / 100})


def control() -> None:
    with penstock.subscribe(GYRO, start="earliest", until_end=True) as gyro, penstock.publish(COMMAND) as command:
        for reading in gyro:
            still = {"x": 0.0, "y": 0.0, "z": 0.0}
            command.send({"linear": still, "angular": {**still, "z": -reading["z"]}})


if __name__ == "__main__":
    with penstock.subscribe(COMMAND, until_end=True) as commands:
        for node in (control, drive):
            multiprocessing.get_context("spawn").Process(target=node).start()
        turns = [command["angular"]["z"] for command in commands]
    print(f"{len(turns)} commands, the last one turns by {turns[-1]}")
    penstock.remove(GYRO)
    penstock.remove(COMMAND)
