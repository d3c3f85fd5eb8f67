"""Writes docs/reference/kinds.md from the conformance suite: every promise, every kind, and why not. `--check` compares only."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from conformance.reasons import Different, Missing, Reason, Refused, reason, socket_reason  # noqa: E402
from conformance.sockets import ROLES  # noqa: E402
from conformance.subjects import KINDS, SUBJECTS  # noqa: E402

HEADINGS = {"member": '`join("sync:")`'}  # of columns that are no kind's own
FAKED = {subject.kind for subject in SUBJECTS if subject.backend == "fake"}
SUITE = (
    "test_writing.py",
    "test_reading.py",
    "test_last.py",
    "test_life.py",
    "test_living.py",
    "test_deadlines.py",
    "test_held.py",
    "test_arrays.py",
    "test_identity.py",
)
SOCKETS = "test_sockets.py"
PAGE = ROOT / "docs" / "reference" / "kinds.md"
HEAD = """# What each kind does

This page is made by `python tools/kinds.py` from the conformance suite (`tests/conformance`). Each row is one promise and one test,
which runs over every kind of channel: in shared memory, in `fake:` channels, over UDP and over ZeroMQ. Sockets have tables of their own, with a
column for each role: `penstock.join(channel, role=...)`. **yes** means that the test passes.
A number leads to the reason why a kind does not keep the promise; then the same program ends with the error in brackets,
so no call is ignored in silence. Two numbers mean two reasons. `join("sync:")` stands for members, which write and read. `fake:` channels do what their kind does,
unless a line below says otherwise.
"""


def promises(path: Path) -> tuple[str, list[tuple[str, str]]]:
    """The heading of one file of the suite, and (promise, what it says) of each test."""
    tree = ast.parse(path.read_text())
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    heading = (ast.get_docstring(tree) or "").strip().rstrip(".")
    return heading, [
        (test.name.removeprefix("test_"), " ".join((ast.get_docstring(test) or "").split())) for test in tests
    ]


def said(why: Reason) -> str:
    """A reason as the page gives it."""
    if isinstance(why, Refused):
        return f"{why.text} (`{why.error.__name__}`)"
    return why.text if isinstance(why, Different) else f"Not built yet: {why.text}"


def page() -> str:
    """The whole page."""
    notes: list[str] = []

    def cell(promise: str, kind: str, backend: str) -> str:
        return shown(reason(promise, kind, backend))

    def shown(why: Reason | None) -> str:
        if why is None:
            return "yes"
        if said(why) not in notes:
            notes.append(said(why))
        no = "not built" if isinstance(why, Missing) else "no"
        return f"{no} [{notes.index(said(why)) + 1}](#reasons)"

    lines = [HEAD]
    fakes: dict[str, list[str]] = {}
    for name in SUITE:
        heading, rows = promises(ROOT / "tests" / "conformance" / name)
        lines += [
            f"## {heading}",
            "",
            f"| promise | {' | '.join(HEADINGS.get(kind, f'`{kind}:`') for kind in KINDS)} |",
        ]
        lines.append("|---" * (len(KINDS) + 1) + "|")
        for promise, text in rows:
            lines.append(f"| {text} | {' | '.join(cell(promise, kind, 'shm') for kind in KINDS)} |")
            for kind in KINDS:
                why = reason(promise, kind, "fake")
                if kind in FAKED and why is not None and why != reason(promise, kind, "shm"):
                    fakes.setdefault(f"{text} | {cell(promise, kind, 'fake')} |", []).append(f"`fake:{kind}:`")
        lines.append("")
    for backend, where in (("shm", "`pipe:`"), ("zmq", "ZeroMQ")):
        heading, rows = promises(ROOT / "tests" / "conformance" / SOCKETS)
        roles = ROLES[backend]
        lines += [f"## {heading}, over {where}", ""]
        lines.append(f"| promise | {' | '.join(f'`{role}`' for role in roles)} |")
        lines.append("|---" * (len(roles) + 1) + "|")
        for promise, text in rows:
            cells = (shown(socket_reason(promise, role, backend)) for role in roles)
            lines.append(f"| {text} | {' | '.join(cells)} |")
        lines.append("")
    if fakes:
        lines += ["## Channels within one process", "", "| kinds | promise | |", "|---|---|---|"]
        lines += [*(f"| {' '.join(kinds)} | {row}" for row, kinds in fakes.items()), ""]
    lines += ["## Reasons", "", *(f"{number}. {note}" for number, note in enumerate(notes, 1)), ""]
    return "\n".join(lines)


def main() -> int:
    """0 if the page is what it should be."""
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
