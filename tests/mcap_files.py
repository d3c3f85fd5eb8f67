"""MCAP files for tests, and what archives hold of them."""

from __future__ import annotations

from mcap.reader import make_reader
from mcap.writer import Writer


def write(path, topics, messages, *, finish=None, **options):
    """topics: name → (topic, encoding, schema or None, metadata). messages: (name, log time, data[, publish time, sequence])."""
    with open(path, "wb") as file:
        writer = Writer(file, **options)
        writer.start(profile="ros2", library="another")
        schemas = {}
        numbers = {}
        for name, (topic, encoding, schema, metadata) in topics.items():
            if schema is not None and schema not in schemas:
                schemas[schema] = writer.register_schema(*schema)
            numbers[name] = writer.register_channel(topic, encoding, schemas.get(schema, 0), metadata)
        for name, time, data, *rest in messages:
            publish, sequence = rest or (time, 0)
            writer.add_message(numbers[name], time, data, publish, sequence)
        if finish is not None:
            finish(writer)
        writer.finish()
    return path


def topic(name, encoding="json", schema=None, metadata=None):
    return name, encoding, schema, metadata or {}


def read(path):
    """(topic, encoding, schema, metadata, log time, data) of each message, by MCAP's own reader."""
    with open(path, "rb") as file:
        return [
            (
                channel.topic,
                channel.message_encoding,
                schema and (schema.name, schema.encoding, schema.data),
                channel.metadata,
                message.log_time,
                message.data,
            )
            for schema, channel, message in make_reader(file, validate_crcs=True).iter_messages()
        ]


def held(archive):
    """Channel → its messages, by all recordings."""
    found = {}
    for info in archive.list():
        found.setdefault(info.channel, []).extend(
            (m.time_ns, bytes(m.data)) for m in archive.replay(info.id, decode=False)
        )
    return found
