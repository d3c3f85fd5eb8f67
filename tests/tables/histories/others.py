"""Other programs' work on tables between two runs, and what people do with their folders."""

import shutil

import deltalake
import polars
import pytest
from tables.histories import deaths, reader
from tables.histories.model import Bounds, Model

import penstock
from penstock.tables import keep, pipeline
from penstock.tables.folder import locked
from penstock.tables.folder.state import Restored

QUIET = {
    "compact": lambda table: table.optimize.compact(),
    "z-order": lambda table: table.optimize.z_order(["position"]),
    "vacuum": lambda table: table.vacuum(0, enforce_retention_duration=False, dry_run=False, full=True),
    "checkpoint": lambda table: table.create_checkpoint(),
    "property": lambda table: table.alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"}),
    "comment": lambda table: table.alter.set_table_description("mine"),
    "column": lambda table: table.alter.add_columns([deltalake.Field("mine", "string")]),
}


def chosen(history):
    """(name, folder, model) of a table; None if there is none."""
    there = history.tables()
    if not there:
        return None
    name, folder = history.rng.choice(there)
    return name, folder, history.model(name)


def unchanged(history, name):
    model = history.model(name)
    history.check(name, Bounds(model.rows, model.rows))


def work(history):
    """Work that changes no row."""
    if found := chosen(history):
        name, folder, model = found
        what = history.rng.choice(list(QUIET))
        if what == "column" and "mine" in model.columns:
            return
        history.say(f"{what} of {name}")
        QUIET[what](deltalake.DeltaTable(folder))
        model.is_vague |= what == "vacuum" and model.is_restored
        unchanged(history, name)


def delete(history):
    if found := chosen(history):
        name, folder, model = found
        limit = history.rng.choice([64, 200, 1000, 1 << 40])
        history.say(f"delete position < {limit} of {name}")
        deltalake.DeltaTable(folder).delete(f"position < {limit}")
        left = {key for key in model.rows if key[2] >= limit}
        history.check(name, Bounds(left, left))


def update(history):
    if found := chosen(history):
        name, folder, model = found
        history.say(f"update of {name}")
        deltalake.DeltaTable(folder).update({"decode_error": "'mine'"}, predicate="position < 200")
        model.edited |= {key for key in model.rows if key[2] < 200}
        unchanged(history, name)


def restore(history):
    """RESTORE to an older version, if its files are still there."""
    if found := chosen(history):
        name, folder, model = found
        version = history.rng.choice(list(model.kept))
        try:
            deltalake.DeltaTable(folder).restore(version)
        except deltalake.exceptions.DeltaError:
            return
        history.say(f"restore {name} to {version}")
        if not model.is_restored:
            model.was = set(model.rows)
        model.rows, model.edited, model.columns = (type(part)(part) for part in model.kept[version])
        model.is_restored = reader.snapshot(folder).version > model.version or model.is_restored
        model.is_vague |= bool(model.rows - model.done - history.held_by(name))
        unchanged(history, name)


def meanwhile(history):
    """Work on a table while a run writes. The keys of rows that it may have deleted."""
    found = history.tables()
    if not found:
        return set()
    name, folder = history.rng.choice(found)
    table = deltalake.DeltaTable(folder)
    if history.rng.random() < 0.3:
        limit = history.rng.choice([64, 200, 1000])
        history.say(f"  meanwhile delete position < {limit} of {name}")
        table.delete(f"position < {limit}")
        return {(name, key) for key in history.messages if key[2] < limit}
    # A VACUUM of young files takes what another has yet to commit, as Delta warns.
    left_out = {"vacuum", *(["column"] if "mine" in table.schema().to_json() else [])}
    what = history.rng.choice([one for one in QUIET if one not in left_out])
    history.say(f"  meanwhile {what} of {name}")
    QUIET[what](table)
    return set()


def lose_known(history):
    """The file beside the tables that says how the last run left them: without it, a backup cannot be told from the table."""
    if history.rng.random() < 0.3:
        history.say("lose what is known")
        (history.out / ".known.json").unlink(missing_ok=True)
        history.known.clear()


def back_up(history):
    if found := chosen(history):
        name, folder, model = found
        place = history.folder / f"backup-{len(history.steps)}"
        shutil.copytree(folder, place)
        history.say(f"back up {name}")
        history.backups[name] = (place, model.copy())


def put_back(history):
    """A table's folder is replaced by an older copy."""
    if history.backups:
        name = history.rng.choice(sorted(history.backups))
        place, model = history.backups[name]
        folder = history.table(name)
        if folder is None:
            return
        history.say(f"put {name} back")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(place, folder)
        history.orphans |= set(reader.left_behind(folder, reader.snapshot(folder)))
        history.models[name] = model.copy()
        unchanged(history, name)


def remove(history):
    if found := chosen(history):
        name, folder, _ = found
        history.say(f"remove {name}")
        shutil.rmtree(folder)
        history.models[name] = Model()


def erase(history):
    """An erasure, which may die."""
    rng = history.rng
    stream = rng.choice([None, *history.channels])
    about = sorted(one.timestamp_ns for one in history.messages.values() if stream in (None, one.channel))
    if not about:
        return
    since, until = sorted((rng.choice(about), rng.choice(about)))
    span = {"stream": stream, "since": since, "until": until}
    death, moment = rng.choice(["", "", "raise", "exit"]), deaths.some_moment(rng)
    history.say(f"erase {span} {death} {moment}")
    rows = set(history.model("messages").rows)
    error, count = None, None
    history.erased.append((stream, since, until))
    try:
        if death == "exit":
            error = {0: None, 3: "refused", deaths.DIED: "died"}[deaths.killed(moment, None, history.out, erasure=span)]
        elif death:
            with deaths.dying(moment, deaths.raise_death):
                keep.erase(history.out, **span)
        else:
            count = keep.erase(history.out, **span)
    except deaths.Death:
        error = "died"
    except Restored:
        error = "set back"
    except penstock.NotFound:
        error = "refused"
    history.say(f"  → {error}")
    assert error != "set back" or history.set_back()
    if error is None:
        gone = {key for key in rows if history.is_erased(key)}
        assert count in (None, len(gone))
    if error is not None and not is_noted(history, span):
        history.erased.pop()
    for name, _ in history.tables():
        model = history.model(name)
        left = {key for key in model.rows if not history.is_erased(key)}
        history.check(name, Bounds(left, left if error is None else model.rows))
    if error is None:
        for folder in {folder for _, folder in history.tables()}:
            on_disk(history, folder)


def is_noted(history, span):
    path = history.out / ".penstock" / "erased.json"
    return path.exists() and f'"since": {span["since"]}, "until": {span["until"]}' in path.read_text()


def on_disk(history, folder):
    """No file has an erased row, whether any version of the table has the file or not."""
    import pyarrow.parquet as pq

    messages = {(key[1], key[2]): key for key in history.messages}
    for path in folder.glob("*.parquet*"):
        for row in pq.ParquetFile(path).read(columns=["epoch", "position"]).to_pylist():
            assert not history.is_erased(messages[row["epoch"], row["position"]]), path


def two_at_once(history):
    if history.out.exists():
        history.say("two at once")
        with locked(history.out), pytest.raises(penstock.Busy):
            pipeline.run(history.archive.path, history.out)


def by_polars(history):
    """Another reader finds the same rows."""
    if found := chosen(history):
        _, folder, model = found
        rows = polars.read_delta(str(folder)).select("epoch", "position").rows()
        assert sorted(rows) == sorted(key[1:] for key in model.rows)


STEPS = {
    work: 6,
    delete: 2,
    update: 1,
    restore: 2,
    back_up: 2,
    put_back: 2,
    remove: 1,
    erase: 1,
    two_at_once: 1,
    by_polars: 2,
    lose_known: 1,
}
