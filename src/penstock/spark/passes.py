"""One pass of the pipeline: ranges that tables lack become files, files become commits, and older rows follow what became known.

Tasks do the reading and writing; here, on the driver, their answers become commits. Knows ledgers, plans and tasks; starts nothing.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from penstock.record import Range, ReadPlanner
from penstock.spark import amending
from penstock.spark.books import Books
from penstock.spark.engine import Engine
from penstock.spark.ledger import Row

COMMIT_RANGES = 64


class Work:
    """One pass over an archive: tasks, and the commits of their files. gaps: gets a line for each damaged block that was left out."""

    def __init__(self, books: Books, survey: ReadPlanner, engine: Engine, compression: str, gaps: list[str]) -> None:
        self.books, self.survey, self.engine = books, survey, engine
        self.options, self.gaps = {"compression": compression}, gaps

    def _do(self, what: str, tasks: list[Row], number: int = 0, count: int = 0) -> list[Row]:
        """The answers in the order of the tasks. Errors of a stream are noted: their answers have no files."""
        tasks = [{**task, **self.options, "number": number} for number, task in enumerate(tasks)]
        answers = sorted(self.engine.do(what, tasks, number, count), key=lambda answer: int(answer["number"]))
        self.books.damaged += [f"{answer['stream']}: {answer['error']}" for answer in answers if "error" in answer]
        for answer in answers:
            for text in answer.get("damaged", ()):
                if text not in self.gaps:  # two ranges may meet at it
                    self.gaps.append(text)
        return answers

    def cut(self) -> bool:
        """The tables follow recordings that were cut back. Whether there were such."""
        found = False
        for ledger in self.books.recorded():
            changes = amending.Amendments(ledger)
            for entry, position in ledger.forget(self.survey.cuts):
                changes.of(entry).below = position
            answers = self._do("cutting", changes.tasks())
            if any("error" in answer for answer in answers):
                self.books.drop(ledger)
                continue
            ledger.exchange(answers)
            found = self.books.commit(ledger) or found
        return found

    def bring(self, planned: list[tuple[Range, tuple[str, ...]]], commit_bytes: int) -> int:
        """New ranges, and what they change in older files. How many new rows *messages* has."""
        messages = self.books["messages"]
        self.books.mend(self._do)  # a killed run may have left something half done
        losses = amending.Losses(messages, self.survey)
        telling = [number for number, (_, names) in enumerate(planned) if "messages" in names]
        for number, lost in zip(telling, losses.assign([planned[number][0] for number in telling]), strict=True):
            planned[number] = (replace(planned[number][0], lost=lost), planned[number][1])
        rows = at = 0
        while at < len(planned):
            group = _first(planned[at:], commit_bytes)
            rows += self._batch(group, losses, at, len(planned))
            at += len(group)
        messages.exchange(self._do("amending", losses.settle().tasks()))
        self.books.commit(messages)
        return rows

    def _batch(self, group: list[tuple[Range, tuple[str, ...]]], losses: amending.Losses, at: int, count: int) -> int:
        """Some ranges, and one commit of each table that they touch."""
        books, messages = self.books, self.books["messages"]
        there = messages.intervals()
        answers = [answer for answer in self._write(group, at, count) if "error" not in answer]
        rows = 0
        for answer in answers:
            source, own = answer["source"], answer["source"]["channel"]
            for name, intervals in answer["done"].items():
                ledger = books.stream(own) if name == "stream" else books[name]
                ledger.take(source, intervals, answer["files"][name])
            if answer["files"].get("messages"):
                rows += answer["files"]["messages"][2]
            if "messages" in answer["done"]:
                where = {name: source[name] for name in ("channel", "epoch", "recording")}
                losses.tell([{**where, "start": low, "end": high, "at": row} for low, high, row in answer["told"]])
        changes = amending.Amendments(messages)
        amending.follow(messages, there, answers, changes)
        books.exchange("messages", self._do("amending", changes.tasks()))
        books.commit_all(self._do)
        return rows

    def _write(self, group: list[tuple[Range, tuple[str, ...]]], at: int, count: int) -> list[Row]:
        """The answers of all ranges. Ranges whose messages have more keys, or values of more kinds, than were known are read again
        once all are."""
        books = self.books
        generations: dict[int, int] = {}
        for info, cut in self.survey.cuts:
            generations[info.id] = generations.get(info.id, 0) ^ cut.token
        for one, _ in group:
            books.begin(one)
        todo, done = [(number, *pair) for number, pair in enumerate(group)], dict[int, Row]()
        while todo:
            tasks = [
                {
                    "kind": "range",
                    "stream": one.channel,
                    "range": asdict(one),
                    "generation": generations.get(one.recording, 0),
                    "places": books.places(one.channel, names),
                    **books.wanted(one),
                }
                for _, one, names in todo
            ]
            answers = self._do("writing", tasks, at, count)
            for answer, (number, one, _) in zip(answers, todo, strict=True):
                if "keys" in answer:
                    books.learn(one, answer["keys"])
                done[number] = {**answer, "given": tasks[answer["number"]]}
            todo = []
            for number, answer in done.items():
                if "keys" in answer or ("error" not in answer and books.is_stale(group[number][0], answer["given"])):
                    books.delete_files(answer)
                    todo.append((number, *group[number]))
        return [done[number] for number in range(len(group))]


def _first(planned: list[tuple[Range, tuple[str, ...]]], commit_bytes: int) -> list[tuple[Range, tuple[str, ...]]]:
    """As many ranges as one commit has."""
    size, found = 0, list[tuple[Range, tuple[str, ...]]]()
    for one in planned:
        if found and (size + one[0].bytes > commit_bytes or len(found) >= COMMIT_RANGES):
            break
        found.append(one)
        size += one[0].bytes
    return found
