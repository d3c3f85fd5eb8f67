"""Recordings that tests fill, and their tables as another reader sees them."""

import json

import polars

KEY = ["epoch", "position"]


def rows(out, name):
    """A table's rows, by another reader."""
    return polars.read_delta(str(out / name)).sort(KEY)


def fill(archive, channel, first, count, **kwargs):
    archive.append(channel, [{"i": n, "v": n / 2} for n in range(first, first + count)], codec="json", **kwargs)


def removals(out, name):
    """Operations of the commits that removed files."""
    found = []
    for path in sorted((out / name / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        operation = next((one["commitInfo"].get("operation") for one in actions if "commitInfo" in one), "")
        if any("remove" in one for one in actions):
            found.append(operation)
    return found


def is_whole(out, channel, name, count):
    """Both tables have each of the first messages once, under one key."""
    own, all_ = rows(out, f"streams/{name}"), rows(out, "messages").filter(polars.col("stream") == channel)
    assert sorted(own["i"].to_list()) == list(range(count))
    assert own.select(KEY).rows() == all_.select(KEY).rows()
    assert len(set(own.select(KEY).rows())) == count
