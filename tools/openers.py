"""Writes the options of `publish`, `subscribe` and `join` into `verbs.py`, `joining.py` and `typed.py`, from the kinds' own openers. `--check` compares only.

A kind's opener says which options there are. Here stand their types, which options each overload is chosen by, and nothing else. Return
types, docstrings and bodies are written by hand.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
from pathlib import Path

from penstock.channels.registry import kinds

ROOT = Path(__file__).parents[1]

FILES = ("verbs.py", "joining.py", "typed.py")
TYPES = {
    "acknowledge": 'Literal["next", "manual"]',
    "attributes": "dict[str, Any] | None",
    "bind": "bool",
    "buffers": "int",
    "capacity": "int",
    "clock": "ManualClock | None",
    "codec": "Any",
    "conflate": "bool",
    "control": "str | None",
    "connect_timeout": "float | None",
    "destinations": "Sequence[str] | None",
    "drop_after": "float | None",
    "dtype": "Any",
    "exclusive": "bool",
    "flow_control": "FlowControl",
    "group_tag": "int | None",
    "initial_term_id": "int",
    "interface": "str | None",
    "last": "int | None",
    "linger": "float | None",
    "max_members": "int",
    "max_messages": "int",
    "max_pipes": "int",
    "mtu": "int",
    "name": "str | bytes | None",
    "own": "bool",
    "pixels": "bool",
    "prefault": "bool",
    "receive_buffer": "int | None",
    "reliable": "bool",
    "role": "str",
    "secret_key": "Key",
    "send_buffer": "int | None",
    "server_key": "Key",
    "session": "int | None",
    "shape": "Sequence[int] | int",
    "spill_limit": "int",
    "spin": "float",
    "start": "Start",
    "start_position": "int",
    "start_sequence": "int",
    "stream_id": "int",
    "term_length": "int",
    "topics": "Topics",
    "ttl": "int",
    "until_end": "bool",
    "when_full": "WhenFull",
    "when_slow": "WhenSlow",
    "window": "int",
}
NARROWER = {  # (verb, kind, option)
    ("subscribe", "frames", "conflate"): "bool | None",
    ("publish", "pipe", "name"): "str | None",
    ("subscribe", "pipe", "name"): "str | None",
    ("join", "pipe", "name"): "str | None",
    ("join", "zmq", "name"): "str | None",
    ("join", "zmq", "bind"): "bool | None",
    ("publish", "udp", "term_length"): "int | None",
    ("publish", "udp", "capacity"): "int | None",
    ("publish", "udp", "linger"): "float",
    ("subscribe", "zmq", "start"): 'Literal["newest"]',
}
REFUSED = {
    "frames": {"codec"},
    "zmq": {"clock", "prefault", "until_end"},
}  # taken only to say why there is none
NAMES = {kind.name.partition("+")[0]: kind for kind in kinds()}
WITH_CODEC = tuple(name for name in NAMES if name != "frames")
CLASS = "type[Message] | Codec[Message]"
CHOSEN_BY = {  # an overload of `verbs.py`, by what it returns: its kinds, and the options that have to be given
    "FramePublication": (("frames",), ("shape",)),
    "Publication[Message]": (WITH_CODEC, ("codec",)),
    "Subscription[Message]": (WITH_CODEC, ("codec",)),
    "PullSubscription": (("pipe",), ("acknowledge",)),
    "FrameSubscription": (("frames",), ("connect_timeout",)),
    "ZmqSubscription": (("zmq",), ("topics",)),
    "Requester": (("pipe", "zmq"), ("role",)),
    "Replier": (("pipe", "zmq"), ("role",)),
    "Pair": (("pipe", "zmq"), ("role",)),
    "Dealer": (("pipe", "zmq"), ("role",)),
    "Router": (("pipe", "zmq"), ("role",)),
    "ZmqTalker": (("zmq",), ("role",)),
    "ZmqRouter": (("zmq",), ("role",)),
    "ZmqRequester": (("zmq",), ("role",)),
    "ZmqReplier": (("zmq",), ("role",)),
    "SyncMember": (("sync",), ()),
}
LEFT_TO_OTHERS = {"publish": {"shape"}, "subscribe": {"acknowledge", "connect_timeout", "topics"}, "join": {"role"}}


def options(verb: str, kind: str) -> list[str]:
    """The options that a kind's opener has, in its order."""
    found = NAMES[kind]
    names = []
    for parameter in list(inspect.signature(getattr(found, verb)).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            names += [field.name for field in dataclasses.fields(found.options)]
            names += ["prefault"] if found.memory is not None else []
        else:
            names.append(parameter.name)
    return names


def type_of(verb: str, among: tuple[str, ...], option: str) -> str:
    """The type of an option, as narrow as all of the kinds that have it allow."""
    having = [kind for kind in among if option in options(verb, kind)]
    found = {NARROWER.get((verb, kind, option), TYPES[option]) for kind in having}
    return found.pop() if len(found) == 1 else TYPES[option]


def parameters(function: ast.FunctionDef, exact: bool) -> list[str]:
    """The lines of a function's parameters. exact: of an opener of one kind."""
    verb, _, one = function.name.partition("_")
    returned = ast.unparse(function.returns) if function.returns is not None else ""
    overload = any(ast.unparse(decorator) == "overload" for decorator in function.decorator_list)
    every = tuple(kind for kind, found in NAMES.items() if getattr(found, verb) is not None)
    among, wanted = ((one,), ()) if exact and not overload else CHOSEN_BY.get(returned, (every, ()))
    wanted = ("role",) if exact and "role" in options(verb, one) else wanted
    general = not exact and not overload
    names: dict[str, None] = dict.fromkeys(wanted)
    for kind in among:
        refused = set() if general or len(among) > 2 else REFUSED.get(kind, set())
        names |= dict.fromkeys(name for name in options(verb, kind) if name not in refused)
    if overload and (returned not in CHOSEN_BY or wanted == ("codec",)):
        names = {name: None for name in names if name not in LEFT_TO_OTHERS[verb]}
    lines = ["    channel: str,", "    *,"]
    last = [name for name in ("clock", "prefault") if name in names]  # for tests and tuning
    for name in [*(name for name in names if name not in last), *last]:
        said = "Any" if general else role_of(function) if name == "role" and overload else type_of(verb, among, name)
        said = CLASS if name == "codec" and name in wanted else said
        default = "" if name in wanted else " = ..." if overload else " = OWN"
        lines.append(f"    {name}: {said}{default},")
    return lines


def role_of(function: ast.FunctionDef) -> str:
    """The literal of an overload's role, which is written by hand."""
    role = next(argument for argument in function.args.kwonlyargs if argument.arg == "role")
    assert role.annotation is not None
    return ast.unparse(role.annotation).replace("'", '"')


def written(path: Path) -> str:
    """The file with the parameters that it should have."""
    lines = path.read_text().split("\n")
    tree = ast.parse(path.read_text())
    for node in reversed(tree.body):
        if not isinstance(node, ast.FunctionDef) or node.name.partition("_")[0] not in ("publish", "subscribe", "join"):
            continue
        first, end = node.lineno, node.lineno  # `def NAME(` is line `first`, counted from 1
        while not lines[end].startswith(") -> "):
            end += 1
        lines[first:end] = parameters(node, path.name == "typed.py")
    return "\n".join(lines)


def main() -> int:
    """0 if the files are what they should be."""
    wrong = 0
    for name in FILES:
        path = ROOT / "src" / "penstock" / "front" / name
        found = written(path)
        if "--check" in sys.argv[1:]:
            wrong |= found != path.read_text()
        else:
            path.write_text(found)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
