"""Calls of the command with any arguments, made from the app itself, so that a new command is called without being named here."""

import functools
import inspect
import itertools
import typing
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from penstock.cli.groups import MODULES, load

# What would take minutes, or start a JVM, is only refused, or done without one; test_cli and the suite of Spark have it.
ADDED = {"demo": ["--seconds", "nan"], "bench": [], "pipeline": ["--engine", "local"]}
OUTPUTS = ("file", "closed pipe", "full", "closed", "terminal")
INPUTS = ("nothing", "lines", "json", "noise", "closed")
SIGNALS = ("INT", "TERM", "HUP")

# Texts that rich, a terminal, a shell or a parser would interpret. Q…Z are joined if the markup between is read.
NASTY = (
    "Q[red]Z",
    "Q[/b]Z",
    "Q[bold]Z[/]",
    "[link=file:///x]Q[/link]Z",
    "log:camera:x",
    "Q:camera:Z",
    ":x:",
    "a\nb",
    "a\rb",
    "\x1b[31mQ\x1b[0m",
    "\x07",
    "häß€😀",
    "\udcff\udc80",
    "\u202eabc",
    "-",
    "--",
    "-x",
    "--nosuch",
    "",
    " ",
    "²",
    "٣",
    "%s{}",
    "{0}",
    "\\",
    "'\"",
    "x" * 5000,
    "~",
    "*",
)
INTEGERS = (
    "0",
    "1",
    "2",
    "5",
    "-1",
    "--5",
    "²",
    "٣",
    "7",
    str(2**63),
    str(2**70),
    "9" * 30,
    "9" * 5000,
    "1e3",
    "nan",
    "",
)
FLOATS = ("0", "0.05", "0.2", "1", "-1", "-0.0", "nan", "inf", "-inf", "1e300", "1e-300", "1e-10", "²", "1_0", "", "x")
CHANNELS = (
    *("log:x", "log:j", "log:m", "log:s", "log:z", "ring:r", "sync:s", "pipe:p", "frames:f", "frames:f/a", "log:none"),
    *(
        "log:strange",
        "ring:foreign",
        "log:folder",
        "fake:log:a",
        "log:",
        "log:a b",
        "LOG:x",
        "udp:x",
        "log:..",
        "frames:f/",
    ),
    *("zmq+ipc://no/such/x", "zmq+tcp://nohost..:x", "zmq+tcp://127.0.0.1:1", "log:" + "x" * 200, "x"),
)
PLACES = ("/proc/nope", "/dev/null", "/dev/null/x", "file:///x", "s3://a/b", "log:x", ".", "missing/deep", "x" * 300)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command. names: of an option; none: an argument."""

    name: str
    type: type
    names: tuple[str, ...]
    several: bool
    required: bool


def _parameter(parameter: inspect.Parameter, hint: typing.Any) -> Parameter | None:
    if not hasattr(hint, "__metadata__"):  # the context
        return None
    base, info = hint.__origin__, hint.__metadata__[0]
    inner = [part for part in typing.get_args(base) if part is not type(None)] if typing.get_args(base) else [base]
    several = any(typing.get_origin(part) is list for part in (base, *inner))
    plain = next((part for part in (typing.get_args(inner[0]) or inner) if isinstance(part, type)), str)
    names: tuple[str, ...] = ()
    if type(info).__name__ == "OptionInfo":
        first = (info.default,) if isinstance(info.default, str) else ()  # of an annotation, where there is no default
        names = (*first, *(info.param_decls or ())) or ("--" + parameter.name.replace("_", "-"),)
        if plain is bool and not first:
            names += ("--no-" + parameter.name.replace("_", "-"),)
    return Parameter(parameter.name, plain, names, several, parameter.default is inspect.Parameter.empty)


def commands() -> dict[str, list[Parameter]]:
    """Every command of the app with its parameters."""
    found = {}
    for command in [one for module in sorted({*MODULES.values()}) for one in load(module).registered_commands]:
        hints = typing.get_type_hints(command.callback, include_extras=True)
        parameters = inspect.signature(command.callback).parameters.values()
        made = [_parameter(parameter, hints[parameter.name]) for parameter in parameters]
        found[command.name] = [parameter for parameter in made if parameter is not None]
    return found


COMMANDS = commands()


LETTERS = st.characters(exclude_characters="\0/.", exclude_categories=["Cs"]) | st.sampled_from("\udcff\udc80[]:-")
ANY_TEXT = st.text(LETTERS, max_size=12)  # that an argument can be


VALID = {
    "channel": ("log:x", "log:j", "log:m", "log:s", "log:z", "ring:r", "sync:s", "pipe:p", "frames:f", "log:new"),
    "recording": ("1", "3", "4", "5", "log:x", "log:s", "log:m", "log:j"),
    "start": ("newest", "earliest", "earliest", "0", "0"),
    "words": ("bytes", "json", "msgpack", "snappy", "zstd", "none"),
    "files": ("lines", "arrays.npz", "dates.npz"),
    "int": ("0", "1", "2", "5"),
    "float": ("0.05", "0.2", "1", "3"),
}
FILES = ("broken.npz", "one.npy", "pickle.npz", "empty.npz", "lines", "good", "missing")


@functools.cache  # Hypothesis looks at each strategy anew
def value(parameter: Parameter, archives: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Valid, nearly valid and absurd values. No path leads out of the case's folder, but for some that refuse everything."""
    name, nasty = parameter.name, st.sampled_from(NASTY) | ANY_TEXT
    if parameter.type is int:
        if name == "term_length":  # a number that fits would take as much memory
            return _mostly(("65536",), INTEGERS, st.nothing())
        return _mostly(VALID["int"], INTEGERS, nasty)
    if parameter.type is float:
        return _mostly(VALID["float"], FLOATS, nasty)
    if name in ("channel", "channels", "onto", "source", "target", "back"):
        return _mostly(VALID["channel"], CHANNELS, nasty)
    if name in ("npz", "file", "data"):
        return _mostly(VALID["files"], FILES + PLACES, nasty)
    if name == "archive":
        return _mostly(archives, FILES + PLACES, nasty)
    if parameter.type is Path:
        return _mostly(("made", "good"), (*FILES, *PLACES), nasty)
    if name == "recording":
        return _mostly(VALID["recording"], ("log:none", *INTEGERS), nasty)
    if name == "start":
        return _mostly(VALID["start"], INTEGERS, nasty)
    if name == "master":
        return _mostly(("bogus",), ("local[", "local[x]", "spark:/x", ""), nasty)
    return _mostly(VALID["words"], ("pickle", "rar", "log", "ring", "pond"), nasty)


SHARES = ("valid",) * 32 + ("near",) * 3 + ("absurd",) * 2


@st.composite
def _mostly(draw, valid: tuple[str, ...], near: tuple[str, ...], absurd: st.SearchStrategy[str]) -> str:
    """Few calls would get far if every value were strange."""
    share = draw(st.sampled_from(SHARES))
    if share == "absurd" and not absurd.is_empty:
        return draw(absurd)
    return draw(st.sampled_from(valid if share == "valid" else near))


@dataclass
class Call:
    """One call: arguments and what is around it."""

    command: str
    arguments: list[str]
    environment: dict[str, str]
    encoding: str
    stdin: str
    stdout: str
    stderr: str
    signal: str


FOLDERS = ("channels",) * 30 + ("new", "relative", "open", "foreign", "file", "root", "link")
ENVIRONMENT = {
    "NO_COLOR": ("1", ""),
    "FORCE_COLOR": ("1",),
    "COLUMNS": ("1", "0", "-1", "²", "x", "9" * 5000, "40"),
    "LINES": ("1", "²"),
    "TERMINAL_WIDTH": ("1", "x"),
    "TERM": ("dumb", "xterm-256color", "", "nonsense"),
    "PENSTOCK_FAKE": ("1", "log", "pond", "ring,log"),
    "LANG": ("C", "de_DE.UTF-8", "nonsense"),
}


@st.composite
def calls(draw, archives: tuple[str, ...], weights: dict[str, int]):
    """A call of any command."""
    names = list(itertools.chain.from_iterable([name] * weights.get(name, 3) for name in COMMANDS))
    command = draw(st.sampled_from(names))
    arguments: list[list[str]] = []
    for parameter in COMMANDS[command]:
        usual = parameter.required or parameter.name in ("channels", "start", "limit", "timeout", "seconds")
        often = 19 if usual else 10 if parameter.name == "json" else 5
        if draw(st.sampled_from((True,) * often + (False,) * (20 - often))):
            made = value(parameter, archives)
            if not parameter.names:
                arguments.append(draw(st.lists(made, min_size=1, max_size=2)) if parameter.several else [draw(made)])
            elif parameter.type is bool:
                arguments.append([draw(st.sampled_from(parameter.names))])
            elif draw(st.booleans()):
                arguments.append([draw(st.sampled_from(parameter.names)), draw(made)])
            else:
                long = [name for name in parameter.names if name.startswith("--")]
                arguments.append([f"{long[0]}={draw(made)}"])
    if draw(st.integers(0, 29)) == 17:
        arguments.append([draw(st.sampled_from((*NASTY, "--help", "--version", "--json", "--limit", "-n")))])
    flat = list(itertools.chain.from_iterable(arguments)) + ADDED.get(command, [])
    before = draw(st.sampled_from(([],) * 30 + (["--nosuch"], ["--help"], ["-v"])))
    variables = draw(st.lists(st.sampled_from(sorted(ENVIRONMENT)), max_size=3, unique=True))
    environment = {name: draw(st.sampled_from(ENVIRONMENT[name])) for name in variables}
    usually = lambda usual, others: st.sampled_from((usual,) * 6 + others)  # noqa: E731
    return Call(
        command,
        [*before, command, *flat] if draw(st.integers(0, 49)) != 17 else flat,
        {**environment, "PENSTOCK_DIR": draw(st.sampled_from(FOLDERS))},
        draw(st.sampled_from(("utf-8", "utf-8", "ascii", "latin-1"))),
        draw(st.sampled_from(INPUTS)),
        draw(usually("file", OUTPUTS)),
        draw(usually("file", ("full", "closed", "terminal"))),
        draw(st.sampled_from(SIGNALS)),
    )
