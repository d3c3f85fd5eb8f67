"""Robotics: record several topics, play them again onto other names, and let a node that was written for the robot read them."""

import tempfile

import penstock


def node(channel: str) -> float:
    """A node under test: the greatest speed that it reads."""
    with penstock.subscribe(channel, start="earliest", until_end=True) as odometry:
        return max((message["speed"] for message in odometry), default=0.0)


with tempfile.TemporaryDirectory() as folder:
    bag = penstock.Archive(folder)
    with (
        penstock.publish("log:robot.odometry", codec="json") as odometry,
        penstock.publish("log:robot.command", codec="json") as command,
        bag.record(["log:robot.odometry", "log:robot.command"]),
    ):
        for n in range(500):
            odometry.send({"speed": n / 100})
            if n % 100 == 0:
                command.send({"go": n})
    print({info.channel: info.messages for info in bag.list()})
    with penstock.publish("log:again", codec="json") as keeps:  # so that the node has a channel to wait on
        bag.replay_onto("log:robot.odometry", "log:again")
        keeps.close()
        print(node("log:again"))
