"""A random history of an archive, its tables and others who work on them; after each step the tables are compared with a model."""

import contextlib
import json
import re
import time
from functools import partial
from pathlib import Path

from tables.histories import deaths, others, reader, values
from tables.histories.model import Bounds, Message, Model, after, bounds

import penstock
from penstock.tables import pipeline
from penstock.tables.folder.state import Restored

DAY = 86_400_000_000_000
CHANNELS = ["log:x", "log:y", "log:z"]
RING = "ring:r"


class History:
    """One history. `steps` says what was done, to be shown if it fails."""

    def __init__(self, folder, rng):
        self.rng, self.folder, self.out = rng, folder, folder / "tables"
        self.archive = penstock.Archive(folder / "archive")
        self.channels = CHANNELS[: rng.choice([1, 1, 2, 3])]
        self.codecs = dict.fromkeys(self.channels, "json")
        self.hints = rng.random() < 0.3
        self.messages, self.held = {}, set()
        self.models, self.cuts, self.erased = {"messages": Model()}, {}, []
        self.known, self.backups = {}, {}
        self.lost_meanwhile = set()  # (table, key) of rows that others may have deleted while the last run wrote
        self.orphans = set()  # files of a killed run that a backup brought back
        self.steps, self.number = [], 0
        self.sent, self.runs = {}, 0
        self.told, self.is_calm = False, True  # whether the last run named losses; that it went through
        self.now = time.time_ns()

    # ---- the archive ----

    def append(self):
        channel = self.rng.choice(self.channels)
        if self.rng.random() < 0.25:
            self.codecs[channel] = self.rng.choice(["json", "json", "msgpack", *values.DTYPES])
        codec = self.codecs[channel]
        payloads = [values.make(self.rng, codec, self.number + n) for n in range(self.rng.choice([1, 2, 5, 12]))]
        self.number += len(payloads)
        when = self.now - self.rng.choice([40, 20, 0, 0, 0]) * DAY + self.number
        self.say(f"append {len(payloads)} of {codec} to {channel}")
        self.append_to(channel, codec, payloads, range(when, when + len(payloads)))

    def append_to(self, channel, codec, payloads, times):
        self.archive.append(channel, payloads, codec=codec, encoded=True, times_ns=times)
        self.sent[channel] = (codec, payloads, times)
        fresh = self.look({channel: codec})
        assert [one.payload for one in fresh] == payloads

    def look(self, codecs):
        """New messages of the archive; no key comes twice. codecs: of the recordings that are new."""
        found, fresh = set(), []
        for info in self.archive.list():
            epoch = info.epoch - (1 << 64) if info.epoch >= 1 << 63 else info.epoch
            rows = self.archive.read(info.id, columns=("position", "timestamp_ns", "payload"))
            for position, moment, payload in zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True):
                key = (info.channel, epoch, position)
                found.add(key)
                if key not in self.messages:
                    one = Message(
                        info.channel, epoch, info.id, position, moment, bytes(payload), codecs.get(info.channel)
                    )
                    fresh.append(one)
                    self.messages[key] = one
                assert self.messages[key].payload == payload
        self.held = found
        return fresh

    def purge(self):
        infos = self.archive.list()
        if infos:
            info = self.rng.choice(infos)
            self.say(f"purge {info.id}")
            self.archive.purge(info.id, force=True)
            self.cuts.pop(info.id, None)
            self.look({})
            if info.channel in self.sent and self.rng.random() < 0.5:
                self.say(f"import into {info.channel} again")
                self.append_to(info.channel, *self.sent[info.channel])

    def cut(self):
        infos = [info for info in self.archive.list() if info.messages and info.channel != RING]
        if infos:
            info = self.rng.choice(infos)
            end = self.archive.truncate(info.id, self.rng.randrange(info.end_position + 1), force=True)
            self.say(f"cut {info.id} at {end}")
            self.cuts[info.id] = end
            self.look({})

    def lose(self):
        """A ring overruns its recorder."""
        if RING in self.channels:
            return
        self.say("a ring loses messages")
        self.channels.append(RING)
        self.codecs[RING] = None
        with penstock.publish(RING, capacity=1 << 16) as pub:
            for count in (3, 200, 3):
                sent = [bytes([n]) * 900 for n in range(count)]
                if count > 100:
                    for one in sent:
                        pub.send(one)
                    continue
                with self.archive.record(RING) as recorder:
                    for one in sent:
                        pub.send(one)
                    while recorder.progress()[0].position < pub.position:
                        assert recorder.error is None
        self.channels.remove(RING)
        self.look({})

    def is_gone(self, key):
        """Whether a message is behind a cut of a recording that is there."""
        one = self.messages[key]
        return one.recording in self.cuts and one.position >= self.cuts[one.recording]

    def is_erased(self, key):
        one = self.messages[key]
        return any(
            stream in (None, one.channel) and low <= one.timestamp_ns <= high for stream, low, high in self.erased
        )

    # ---- the tables ----

    def table(self, name):
        """The folder of a table: a stream's is found by its name."""
        if name in ("messages", "losses"):
            return self.out / name
        for folder in sorted((self.out / "streams").glob("*")):
            found = reader.snapshot(folder)
            if found is not None and found.name == name:
                return folder
        return None

    def tables(self):
        """(name, folder) of the tables that there are."""
        names = ["messages", *(channel for channel in self.channels if channel != RING)]
        found = [(name, self.table(name)) for name in names]
        return [(name, folder) for name, folder in found if folder is not None and reader.versions(folder)]

    def model(self, name):
        return self.models.setdefault(name, Model())

    def held_by(self, name):
        """The archive's messages that a table gets."""
        if name == "messages":
            return self.held
        return {key for key in self.held if key[0] == name}

    def check(self, name, low, *, maybe_edited=False, retyped=False):
        """Compares a table with its model's bounds, and takes it as it is from now on."""
        model, folder = self.model(name), self.table(name)
        found = None if folder is None else reader.snapshot(folder)
        if found is None:
            assert not low.least, (name, "there is no table")
            if folder is None or not folder.exists() or model.id:
                self.models[name] = Model()
            return
        rows = reader.rows(folder, found)
        keys = [(row.get("stream", name), row["epoch"], row["position"]) for row in rows]
        there = set(keys)
        assert len(there) == len(keys), (name, "a key is there twice")
        assert low.least <= there, (name, "rows are missing", self.told_of(low.least - there))
        assert there <= low.most, (name, "rows are too many", self.told_of(there - low.most))
        if model.id == found.id and not retyped:
            for column, kind in model.columns.items():
                assert found.columns[column] == kind, (name, column)
        edited = {key for key, row in zip(keys, rows, strict=True) if row["decode_error"] == "mine"}
        assert maybe_edited or edited == model.edited & there, (name, "edits")
        assert edited <= model.edited, (name, "edits")
        for key, row in zip(keys, rows, strict=True):
            self.check_row(name, self.messages[key], row, found, is_edited=key in edited)
        model.done |= there
        model.rows, model.edited, model.columns = there, edited, found.columns
        if model.id != found.id:
            model.kept = {}
        model.id, model.version = found.id, found.version
        model.kept[found.version] = (set(there), set(edited), dict(found.columns))

    def told_of(self, keys):
        return sorted((key[0], self.messages[key].recording, key[2], key in self.held) for key in keys)[:5]

    def check_row(self, name, message, row, found, *, is_edited):
        assert row["recording"] == message.recording
        assert row["timestamp_ns"] == message.timestamp_ns
        if name == "messages":
            assert row["payload"] == message.payload
            assert row["bytes"] == len(message.payload)
            if message.channel != RING and not is_edited:
                assert (row["decode_error"] is None) == values.decoded(message.codec, message.payload)[0]
        else:
            values.check_row(message.codec, message.payload, row, found.labels, is_edited=is_edited)

    def check_losses(self):
        lost = sum(info.lost_bytes for info in self.archive.list() if info.channel == RING)
        about = reader.snapshot(self.out / "losses")
        assert reader.left_behind(self.out / "losses", about) == []
        found = reader.rows(self.out / "losses", about)
        assert not lost or sum(row["bytes"] for row in found) == lost

    # ---- runs ----

    def options(self):
        rng = self.rng
        made = {"range_bytes": rng.choice([64, 300, 1 << 20]), "commit_bytes": rng.choice([1, 500, 1 << 20])}
        made["new_keys"] = rng.choice(["add", "add", "add", "rescue", "fail"])
        if self.hints and any(key[0] == self.channels[0] for key in self.held):
            made["schema"] = {self.channels[0]: ", ".join(f"{key} {kind}" for key, kind in values.SCHEMA.items())}
        if rng.random() < 0.1:
            made["keep"] = {None: "30d"}
            if any(key[0] == self.channels[0] for key in self.held):
                made["keep"][self.channels[0]] = rng.choice(["10d", "30d"])
        if rng.random() < 0.1:
            made["rebuild"] = [rng.choice(self.channels)]
        if "keep" in made:
            made["new_keys"] = "add"
        if rng.random() < 0.5:
            made["restored"] = rng.choice(["keep", "refill"])
        return made

    def set_back(self):
        """Table → how it was set back."""
        found = {}
        for name, folder in self.tables():
            model, known = self.model(name), self.known.get(name)
            if known is not None and known.id == model.id and reader.is_another(folder, known.version, known.commit):
                found[name] = "version"
            elif model.is_restored:
                found[name] = "restore"
        return found

    def run(self):
        """One run, which succeeds, is refused, leaves something out, or dies."""
        options, death = self.options(), self.rng.choice(["", "", "", "raise", "raise", "exit", "other"])
        self.lost_meanwhile = set()
        moment = deaths.some_moment(self.rng)
        before = {name: reader.snapshot(folder).version for name, folder in self.tables()}
        set_back = self.set_back()
        self.told, self.is_calm = False, not death and "rebuild" not in options
        error = self.attempt(options, death, moment)
        way = options.get("restored")
        if set_back and way is None:
            assert error in ("refused", "died") or isinstance(error, Restored), (set_back, error)
            for name in self.names():
                self.check(name, Bounds(self.model(name).rows, self.model(name).rows))
            return
        if set_back or "rebuild" in options:
            # What was asked for may be done or not: it is asked for until it is done.
            while error is not None:
                if "no table says" in str(error):  # the table was removed, and with it the codecs of what was purged
                    streams = options.pop("rebuild")
                    assert {key for key in self.model("messages").done - self.held if key[0] in streams}
                elif "rebuil" in str(error) and "for which there is no column" not in str(error):
                    assert self.may_refuse(options.pop("rebuild"), set_back, way), error
                options["new_keys"] = "add"
                error = self.attempt(options)
                assert error is None or "rebuild" in options, error
        elif error not in (None, "died", "refused"):
            assert options["new_keys"] == "fail", error
            assert "for which there is no column" in str(error), error
        self.compare(options, set_back, before, error)

    def attempt(self, options, death="", moment=0):
        """None, or why the run failed."""
        self.say(f"run {options}{f', {death} at {moment}' if death else ''}")
        error = None
        try:
            if death == "exit":
                status = deaths.killed(moment, self.archive.path, self.out, options)
                error = {0: None, 3: "refused", deaths.DIED: "died"}[status]
            else:
                happens = partial(self.meanwhile, death)
                with deaths.dying(moment, happens) if death else contextlib.nullcontext():
                    pipeline.run(self.archive.path, self.out, **options)
        except deaths.Death:
            error = "died"
        except penstock.PenstockError as found:
            error = None if self.is_true_loss(found, options) else found
        self.say(f"  → {error!r}")
        return error

    def is_true_loss(self, error, options):
        """Whether a run that did all else says of rows that they cannot come back, and the archive has some of a table's no more."""
        if not re.search(r"were not brought back: the archive has them no more.*; all else is in", str(error)):
            return False
        self.told = True
        known = set().union(*(one.done for one in (*self.models.values(), *self.known.values())))
        assert known - self.held
        return options.get("new_keys") != "fail" or "more); all else" not in str(error)  # it may have left out a stream

    def meanwhile(self, what):
        """At a moment of a run: its death, or another program's work."""
        if what != "other":
            deaths.raise_death()
        self.lost_meanwhile |= others.meanwhile(self)

    def may_refuse(self, streams, set_back, way):
        """Whether one of these tables cannot be made anew: there is none, or *messages* and the archive lack what it has."""
        (name,) = streams
        if self.table(name) is None or self.table("messages") is None or not self.models["messages"].id:
            return True
        messages = self.model("messages").copy()
        if "messages" in set_back and way == "refill":
            messages.refill(self.held)
        lacks = self.model(name).done - self.held
        return bool(lacks if messages.is_vague else lacks - messages.done)

    def names(self):
        return ["messages", *self.channels]

    def compare(self, options, set_back, before, error):
        """Compares all tables after a run. set_back: those of which the run was told what to do."""
        is_done, way = error is None, options.get("restored")
        rebuilt = set(options.get("rebuild", ()))
        old = set()
        if "keep" in options:
            old = {key for key, one in self.messages.items() if one.timestamp_ns < self.now - 5 * DAY}
        were = {name: self.model(name).copy() for name in self.names()}
        missed = set()
        for name in self.names():
            model, held = were[name], self.held_by(name)
            if name in set_back and way == "refill":
                known = set(self.known[name].done if set_back[name] == "version" else model.done)
                model.refill(held)
                lacks = known - held - model.done - model.unsure
                missed |= {key for key in lacks if not self.is_gone(key) and not self.is_erased(key)}
            elif set_back.get(name) == "version":
                model.done = set(self.known[name].done)
            if name in rebuilt:
                assert not is_done or not model.rows - were["messages"].done - held, (name, "a rebuild lost rows")
                model.rows = {key for key in were["messages"].rows if key[0] == name}
                model.done = {key for key in were["messages"].done if key[0] == name}
            wanted = after(model, held, self.is_gone, self.is_erased)
            lost = {key for where, key in self.lost_meanwhile if where == name}
            limits = bounds(model, wanted, is_done=is_done, optional=old | model.unsure | lost)
            self.check(
                name, limits, maybe_edited=bool(way) or name in rebuilt, retyped=name in rebuilt or name in set_back
            )
            now = self.model(name)
            now.unsure |= (old | lost) & held  # they may have been there, and gone, if the run was not done
            if is_done:
                now.done, now.is_restored, now.unsure, now.was = model.done | held, False, set(), set()
                now.is_vague = model.is_vague
            is_told = error not in ("died", "refused") or self.died_at_its_end(name, now)
            if is_told and now.id and now.version != before.get(name):
                self.known[name] = now.copy()
                self.known[name].commit = reader.commit(self.table(name), now.version)
            if is_done:
                asked = name in set_back or name in rebuilt or "keep" in options or lost
                self.check_commits(name, before, allowed=asked)
        if is_done:
            assert not missed or self.told or not self.is_calm, ("rows are gone and not named", self.told_of(missed))
            self.runs += 1
            self.check_losses()

    def died_at_its_end(self, name, model):
        """Whether a run that died has said how it leaves the table: it says so last."""
        folder = self.table(name)
        if folder is None:
            return False
        try:
            found = json.loads((self.out / ".known.json").read_text())["tables"]
            row = found[str(Path(folder).relative_to(self.out))]
        except (OSError, ValueError, KeyError):
            return False
        return (row["id"], row["version"]) == (model.id, model.version)

    def check_commits(self, name, before, *, allowed):
        """Only cuts, erasures and what was asked for remove rows, and every file is some commit's."""
        folder = self.table(name)
        if folder is None:
            return
        for operation, changes in reader.removals(folder, before.get(name, -1)):
            assert not changes or allowed or (operation == "DELETE" and (self.cuts or self.erased)), (name, operation)
        assert set(reader.left_behind(folder, reader.snapshot(folder))) <= self.orphans, name

    def say(self, text):
        self.steps.append(text)

    def finish(self):
        """A last run, which succeeds."""
        set_back, options = self.set_back(), {"restored": self.rng.choice(["keep", "refill"])}
        before = {name: reader.snapshot(folder).version for name, folder in self.tables()}
        self.told, self.is_calm = False, True
        error = self.attempt(options)
        assert error is None, error
        self.compare(options, set_back, before, error)
