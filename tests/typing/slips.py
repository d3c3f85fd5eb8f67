"""Programs with a slip on every line that says that it is refused, and without one on all others. Never run: see `test_programs.py`."""

import dataclasses

import penstock
import penstock.spark.pipeline


@dataclasses.dataclass
class Pose:
    x: float


def options() -> None:
    penstock.publish("log:a", capacity=1 << 16, max_members=4, codec="json")
    penstock.publish("log:a", capcity=1 << 16)  # refused
    penstock.publish("log:a", window=1 << 16)  # refused
    penstock.publish("log:a", capacity="64KiB")
    penstock.publish("log:a", capacity=1.5)  # refused
    penstock.publish("frames:a", shape=(2, 2), buffer=3)  # refused
    penstock.publish("frames:a", shape=(2, 2), codec="json")  # refused
    penstock.publish("pipe:a", when_full="drop")  # refused
    penstock.subscribe("log:a", start="earliest", drop_after=1)
    penstock.subscribe("log:a", start="latest")  # refused
    penstock.subscribe("log:a", dropafter=1)  # refused
    penstock.subscribe("pipe:a", acknowledge="never")  # refused
    penstock.join("pipe:a", role="pair", max_messages=3)
    penstock.join("pipe:a", role="pear")  # refused
    penstock.join("pipe:a", role="pair", mark=3)  # refused
    penstock.Ring("a", capacity=1 << 16)
    penstock.Ring("a", term_length=1 << 16)  # refused
    penstock.publish(penstock.Log("a"), exclusive=True)
    penstock.publish(penstock.Log("a"), capacity=1 << 16)  # refused
    penstock.publish(penstock.Ring("a"), exclusive=True)  # refused
    penstock.publish(penstock.Zmq("tcp://a:1"), endpoints=["ipc://b"], options={"rcvhwm": 1}, last_value=True)
    penstock.publish("zmq+tcp://a:1", client_keys=["k"], options={"rcvhwm": 1}, last_value=True)
    penstock.publish(penstock.Zmq("tcp://a:1"), endpoints=5)  # refused
    penstock.subscribe(penstock.Zmq("tcp://a:1"), last_value=True)  # refused
    penstock.subscribe("zmq+tcp://a:1", options={"rcvhwm": 1.5})  # refused
    penstock.join("zmq+tcp://a:1", role="push", endpoints=["ipc://b"], client_keys=None)
    penstock.subscribe(penstock.Frames("a"), acknowledge="manual")  # refused


def handles() -> None:
    penstock.publish("log:a", codec="json").send({"a": 1}, timeout=1)
    penstock.publish("log:a").transmit(b"x")  # refused
    penstock.publish("log:a").send(b"x", timeout="soon")  # refused
    penstock.publish("frames:a", shape=(2, 2)).acquire().array[...] = 1
    penstock.publish("frames:a", shape=(2, 2)).aquire()  # refused
    penstock.publish("log:a").acquire()  # refused
    penstock.subscribe(penstock.Pipe("a")).acknowledge()
    penstock.subscribe(penstock.Pipe("a")).acknowlege()  # refused
    penstock.publish(penstock.Pipe("a")).recv()  # refused
    penstock.subscribe(penstock.Frames("a")).recv().meta["gain"]
    penstock.subscribe(penstock.Frames("a")).recv().metadata  # refused
    penstock.subscribe(penstock.Ring("a"), conflate=True).conflated
    penstock.subscribe("pipe:a", acknowledge="manual").acknowledge()
    penstock.join("pipe:a", role="request").request(b"x", timeout=1)
    penstock.join("pipe:a", role="request").recv()  # refused
    penstock.inspect("log:a").details["term_length"]
    penstock.inspect("log:a").tail  # refused
    penstock.join(penstock.Zmq("ipc:///tmp/a"), role="request").late
    penstock.join(penstock.Zmq("ipc:///tmp/a"), role="request").recv()  # refused
    penstock.join(penstock.Zmq("ipc:///tmp/a"), role="push").recv()  # refused
    penstock.join(penstock.Zmq("ipc:///tmp/a"), role="pull").send(b"x")  # refused
    penstock.join(penstock.Pipe("a"), role="pull")  # refused


def archives(archive: penstock.Archive) -> None:
    archive.read("log:a", decode=True, since="yesterday").num_rows
    archive.read("log:a", decod=True)  # refused
    archive.replay_onto("log:a", "log:b", limit=3, until="1h ago")
    archive.replay_onto("log:a", "log:b", limits=3)  # refused
    archive.record("log:a", drop_aftr=1)  # refused


def pipelines(archive: str) -> None:
    penstock.spark.pipeline.run(None, archive, "tables", new_keys="rescue")
    penstock.spark.pipeline.run(None, archive, new_keys="rescue")  # refused


def values() -> None:
    poses = penstock.Log("a", Pose)
    penstock.publish(poses).send(Pose(1.0))
    penstock.publish(poses).send({"x": 1.0})  # refused
    penstock.subscribe(poses).recv().x
    penstock.subscribe(poses).recv().y  # refused
    penstock.subscribe(penstock.Pipe("a", Pose)).recv().y  # refused


def classes() -> None:
    penstock.publish("log:a", codec=Pose).send(Pose(1.0), timeout=1)
    penstock.publish("log:a", codec=Pose).send({"x": 1.0})  # refused
    penstock.publish("log:a", codec=penstock.objects(Pose, "msgpack")).send(1)  # refused
    penstock.subscribe("log:a", codec=Pose, start="earliest").recv(timeout=1).x
    penstock.subscribe("log:a", codec=Pose).recv().y  # refused
    for pose in penstock.subscribe("log:a", codec=Pose):
        pose.z  # refused
