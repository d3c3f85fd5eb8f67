"""Nobody but the registry decides by a channel's kind: see `decisions.py` for the rule."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from tidy.decisions import decisions, in_folder

import penstock
from penstock import typed
from penstock.kinds import kinds

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "penstock"
VERBS = ("publish", "subscribe", "join")
# Options that openers take to say why their kind cannot have them: its typed opener may leave them out.
REFUSED = {"codec", "clock", "control", "prefault", "until_end"}


def test_no_decision_by_kind_outside_the_registry():
    assert in_folder(SOURCES) == {}, "ask the channel's kind: give `penstock.kinds.Kind` a field that answers"


@pytest.mark.parametrize(
    "code",
    [
        'if parsed.kind == "pipe": pass',
        'found = channel.kind in ("log", "sync")',
        "same = one.kind != other.kind",
        "first = channel.kind.name == name",
        "if kind in KINDS: pass",
        'lossy = word == "ring"',
        'ROOMS = {"log": 1, "ring": 2}',
        'LOCAL = ("log", "ring")',
        'match kind:\n    case "pipe":\n        pass',
        "from penstock.shm.frames import Frame\nif isinstance(found, int | Frame): pass",
    ],
)
def test_a_decision_is_found(code):
    assert len(decisions(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        'plain = codec.kind == "bytes"',
        'whole = number.dtype.kind == "f"',
        'axes.set_yscale("log")',
        'early("sync", name)',
        "if channel.kind.memory is None: pass",
        "if channel.kind.lossy: pass",
        "if pipe is not None: pass",
    ],
)
def test_what_is_none(code):
    assert decisions(code) == []


@pytest.mark.parametrize("verb", VERBS)
def test_the_front_door_has_every_option_of_every_kind_and_no_other(verb):
    """`publish`, `subscribe` and `join` list their options for editors: here the list is held to the kinds'."""
    listed = set(inspect.signature(getattr(penstock, verb)).parameters) - {"channel"}
    had = set().union(*(kind.option_names(verb) for kind in kinds() if getattr(kind, verb) is not None))
    assert listed == had


@pytest.mark.parametrize("verb", VERBS)
def test_the_overloads_have_those_options_too(verb):
    tree = ast.parse(Path(inspect.getsourcefile(getattr(penstock, verb))).read_text())
    named = {
        argument.arg
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == verb and node.decorator_list
        for argument in node.args.kwonlyargs
    }
    assert named == set(inspect.signature(getattr(penstock, verb)).parameters) - {"channel"}


def test_typed_openers_have_exactly_their_kinds_options():
    openers = {name: opener for name, opener in vars(typed).items() if name.split("_")[0] in VERBS}
    for kind in kinds():
        for verb in VERBS:
            opener = openers.get(f"{verb}_{kind.name.partition('+')[0]}")
            if opener is not None:
                options = set(inspect.signature(opener).parameters) - {"channel"}
                left_out = kind.option_names(verb) - options
                assert options <= kind.option_names(verb), opener
                assert left_out <= (REFUSED if kind.memory is None or kind.by_reference else {"control"}), opener


def test_the_lists_of_options_are_made_from_the_kinds():
    done = subprocess.run([sys.executable, ROOT / "tools" / "openers.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run python tools/openers.py: {done.stderr}"
