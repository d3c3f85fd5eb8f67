"""A reader of Delta tables of its own: the log's JSON and Parquet files. Knows nothing of penstock."""

import functools
import json
import os
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow.parquet as pq


@dataclass
class Snapshot:
    """A table as its log has it. columns: name → type, as the log writes it; labels: name → where messages have the value."""

    version: int
    id: str
    name: str
    columns: dict
    labels: dict
    files: list
    ever: set  # files that any commit added


def versions(table):
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def commit(table, version):
    """What the log says of a version; None if it is not there."""
    path = table / "_delta_log" / f"{version:020d}.json"
    return path.read_bytes() if path.exists() else None


def is_another(table, version, then):
    """Whether a table has not, or no more, the version that it had then. The log may have been cleaned up behind it."""
    now = commit(table, version)
    return versions(table)[-1] < version if now is None else now != then


def actions(table, version):
    return [json.loads(line) for line in commit(table, version).splitlines()]


def snapshot(table):
    """None if there is no table. A log whose files are the same is read once."""
    if not (table / "_delta_log").is_dir():
        return None
    with os.scandir(table / "_delta_log") as found:
        return _snapshot(table, tuple(sorted((one.name, *_stamp(one.stat())) for one in found)))


def _stamp(about):
    return about.st_ino, about.st_mtime_ns, about.st_ctime_ns, about.st_size


@functools.lru_cache(maxsize=64)
def _snapshot(table, stamps):
    """All commits must be there, from the first on, or from a checkpoint on: an erasure deletes those before."""
    found = versions(table)
    if not found:
        return None
    assert found[0] > 0 or found == list(range(len(found)))
    (files, ever, about), begin = ({}, set(), None), 0
    if found[0] > 0:  # from the newest checkpoint on
        begin = max(int(path.name[:20]) for path in (table / "_delta_log").glob("*.checkpoint.parquet")) + 1
        files, ever, about = checkpoint(table, begin - 1)
    for version in [one for one in found if one >= begin]:
        # A commit may remove files and add others, in any order of its lines.
        lines = actions(table, version)
        for line in lines:
            if "remove" in line:
                files.pop(unquote(line["remove"]["path"]), None)
            about = line.get("metaData", about)
        for line in lines:
            if "add" in line:
                path = unquote(line["add"]["path"])
                assert path not in files, "a file was added twice"
                files[path] = True
                ever.add(path)
    fields = json.loads(about["schemaString"])["fields"]
    columns = {field["name"]: json.dumps(_bare(field["type"]), sort_keys=True) for field in fields}
    assert len({name.casefold() for name in columns}) == len(columns)
    labels = {field["name"]: field["metadata"]["key"] for field in fields if "key" in field["metadata"]}
    return Snapshot(found[-1], about["id"], about["name"], columns, labels, list(files), ever)


def checkpoint(table, version):
    """(files, files that any commit added, metadata) of a checkpoint."""
    files, ever, about = {}, set(), None
    for row in pq.read_table(table / "_delta_log" / f"{version:020d}.checkpoint.parquet").to_pylist():
        for kind in ("add", "remove"):
            if row.get(kind):
                ever.add(unquote(row[kind]["path"]))
        if row.get("add"):
            files[unquote(row["add"]["path"])] = True
        about = row.get("metaData") or about
    return files, ever, about


def _bare(kind):
    """A type without comments."""
    if isinstance(kind, dict):
        return {key: _bare(value) for key, value in kind.items() if key != "metadata"}
    return [_bare(one) for one in kind] if isinstance(kind, list) else kind


def rows(table, found):
    """All rows, as dicts; columns that a file lacks are null."""
    made = []
    for path in found.files:
        for row in pq.ParquetFile(table / path).read(use_threads=False).to_pylist():
            assert row.keys() <= found.columns.keys(), "a file has a column that the table does not have"
            made.append({name: row.get(name) for name in found.columns})
    return made


def removals(table, since):
    """(operation, whether rows may have changed) of commits after a version that removed files."""
    found = []
    for version in versions(table):
        if version > since:
            lines = actions(table, version)
            gone = [line["remove"].get("dataChange", True) for line in lines if "remove" in line]
            if gone:
                named = [line["commitInfo"].get("operation", "") for line in lines if "commitInfo" in line]
                found.append((named[0] if named else "", any(gone)))
    return found


def left_behind(table, found):
    """Parquet files that no commit ever added."""
    return sorted(path.name for path in table.glob("*.parquet*") if path.name not in found.ever)
