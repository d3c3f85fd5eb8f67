"""The Python side of the robot: sends poses, reads the commands of C++ and the frames of its camera. `python examples/cpp/robot.py`

The four programs start in any order. This one is done last, and removes the channels: the next run begins with new ones.
"""

import math

import numpy as np

import penstock

POSE = np.dtype([("number", "<i8"), ("x", "<f8"), ("y", "<f8"), ("heading", "<f4")])
COMMAND = np.dtype([("number", "<i8"), ("wheels", "<f4", (2,))])
COUNT, FRAMES = 200, 100

with (
    penstock.subscribe("log:robot/command", codec=COMMAND) as commands,
    penstock.publish("log:robot/pose", codec=POSE) as poses,
    penstock.subscribe("frames:robot/camera", connect_timeout=60, conflate=False) as camera,
):
    poses.wait_for_readers(timeout=60)  # the controller
    for number in range(COUNT):
        angle = number / 10
        poses.send(np.array((number, math.cos(angle), math.sin(angle), angle % math.pi), POSE))
    answered = [int(commands.recv(timeout=60)["number"]) for _ in range(COUNT)]
    frames = [camera.recv(timeout=60).array[0, 0] for _ in range(FRAMES)]
    print(
        f"robot: {len(answered)} commands in order: {answered == list(range(COUNT))}, "
        f"{len(frames)} frames in order: {frames == list(range(FRAMES))}"
    )

for name in ("log:robot/command", "log:robot/pose", "frames:robot/camera"):
    penstock.remove(name)
