"""The command completion, and the shell's questions while a user types. Knows the app; opens no channel."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli import output

VARIABLE = "_PENSTOCK_COMPLETE"  # a shell sets it to ask
LINE, BREAKS = "_PENSTOCK_LINE", "_PENSTOCK_BREAKS"  # bash also says what was typed, and where it breaks words
BASH = f"""\
_penstock_completion() {{
    mapfile -t COMPREPLY < <(env {VARIABLE}=complete_bash \\
        {LINE}="${{COMP_LINE:0:COMP_POINT}}" {BREAKS}="$COMP_WORDBREAKS" "$1")
}}

complete -o default -F _penstock_completion penstock"""


class Shell(StrEnum):
    """Shells that can be taught."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("completion")(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Prints a script that completes commands, options and channels. In bash: eval "$(penstock completion bash)"."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shell is Shell.bash:
        print(BASH)
    else:
        print(get_completion_script(prog_name="penstock", complete_var=VARIABLE, shell=shell.value))


def answered(app: typer.Typer) -> bool:
    """Whether a shell asked, and got its answer. An unknown question gets none."""
    asked = os.environ.get(VARIABLE)
    if asked is None:
        return False
    from typer.completion import completion_init, shell_complete  # type: ignore[attr-defined]

    completion_init()
    with output.streams():
        if asked == "complete_bash":
            for text in _for_bash(app, os.environ.get(LINE, ""), os.environ.get(BREAKS, "")):
                print(text)
        else:
            shell_complete(typer.main.get_command(app), {}, "penstock", VARIABLE, asked)
    return True


def _for_bash(app: typer.Typer, line: str, breaks: str) -> list[str]:
    """Replacements for the text that bash completes: of an unquoted log:na that is na, as bash breaks words at colons."""
    from typer._completion_classes import BashComplete

    words, word, kept = split(line, breaks)
    asked = BashComplete(typer.main.get_command(app), {}, "penstock", VARIABLE)
    found = [str(item.value) for item in asked.get_completions(words[1:], word)]
    return [text[kept:] for text in found if text.startswith(word[:kept])]


def split(line: str, breaks: str) -> tuple[list[str], str, int]:
    """The words of a line that is not complete, without their quotes; the last one, and how much of it bash leaves as it is.

    breaks: characters at which bash breaks words also within one, such as a colon. A quoted one does not break.
    """
    words: list[str] = []
    word: str | None = None
    kept, quote, at = 0, "", 0
    while at < len(line):
        char = line[at]
        at += 1
        if quote:
            if char == quote:
                quote, kept = "", 0
                continue
            if char == "\\" and quote == '"' and line[at : at + 1] in ('"', "\\", "$", "`"):
                char, at = line[at], at + 1
            word = (word or "") + char
        elif char in "'\"":
            quote, word = char, word or ""
            kept = len(word)
        elif char.isspace():
            words += [] if word is None else [word]
            word, kept = None, 0
        elif char == "\\" and at < len(line):
            word, at = (word or "") + line[at], at + 1
        else:
            word = (word or "") + char
            kept = len(word) if char in breaks and char in ":=" else kept
    return words, word or "", kept


__all__ = ["add_commands", "answered", "split"]
