"""With the package mcap: a program writes what it does into a file for Foxglove, and another one reads the file."""

import json
import tempfile
import time

from mcap.reader import make_reader
from mcap.writer import Writer

FIELDS = {axis: {"type": "number"} for axis in "xyz"}

with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/drive.mcap", "wb") as stream:
        writer = Writer(stream)
        writer.start()
        described = json.dumps({"type": "object", "properties": FIELDS}).encode()
        schema = writer.register_schema(name="foxglove.Point3", encoding="jsonschema", data=described)
        channel = writer.register_channel(topic="/robot/at", message_encoding="json", schema_id=schema)
        for n in range(100):
            now, data = time.time_ns(), json.dumps({"x": n / 10, "y": 0.0, "z": 0.0}).encode()
            writer.add_message(channel, log_time=now, publish_time=now, data=data)
        writer.finish()
    with open(f"{folder}/drive.mcap", "rb") as read:
        found = [(kind, json.loads(message.data)) for kind, _, message in make_reader(read).iter_messages()]

kind, last = found[-1]
assert kind is not None
print(f"{len(found)} messages of {kind.name}, the last one at {last['x']}")
