"""The help of each command: an example that the command line takes, and lines that fit the terminal."""

import re
import shlex

import pytest
import typer
from cli.running import run_here

from penstock import cli
from penstock.cli.groups import MODULES

EXAMPLE = re.compile(r"^Example:\n  (.+)\n\Z", re.M)


def every_command():
    """Every command, as its words: with those of groups, and the hidden ones."""
    root = typer.main.get_command(cli.app)
    for name in MODULES:
        command = root.commands[name]
        yield (name,)
        for inner in getattr(command, "commands", {}):
            yield (name, inner)


COMMANDS = list(every_command())


def example(words):
    """The example at the end of a command's help, as the words of the call of penstock in it."""
    done = run_here(*words, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = EXAMPLE.findall(done.stdout)
    piped = shlex.shlex(line, posix=True, punctuation_chars="|")
    piped.whitespace_split = True
    call = list(piped)
    if "|" in call:
        call = call[call.index("|") + 1 :]
    assert call[0] == "penstock"
    return call[1:]


def parse(call):
    """Has the command line read the words, as a call would, and runs nothing. Gives the names of the commands."""
    command, context, said = typer.main.get_command(cli.app), None, []
    name, rest = "penstock", call
    while True:
        context = command.make_context(name, list(rest), parent=context)
        if not getattr(command, "commands", None):
            return tuple(said)
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        said.append(name)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_has_an_example_that_parses(words):
    found = parse(example(words))
    assert found[: len(words)] == words


@pytest.mark.parametrize("words", [("record", "drive", "--second", "6"), ("ls", "--nosuch"), ("key", "new")])
def test_an_example_with_a_slip_would_not_parse(words):
    with pytest.raises(Exception, match=r"No such option|Missing parameter"):
        parse(words)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_fits_sixty_columns(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERMINAL_WIDTH", "60")
    lines = run_here(*words, "--help").stdout.splitlines()
    assert max(len(line) for line in lines[: lines.index("Example:")]) <= 60


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("key",), "Missing command. (penstock key --help lists them)"),
        (("archive",), "Missing command. (penstock archive --help lists them)"),
        (
            ("completion",),
            "Missing argument 'shell'. Choose from: bash, zsh, fish (penstock completion --help lists them)",
        ),
    ],
)
def test_a_command_without_its_word_is_an_error_of_one_line(words, said):
    done = run_here(*words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"penstock: {said}\n")
