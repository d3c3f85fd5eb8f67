"""The command completion, and the shell's questions while a user types. Knows the app; opens no channel."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.terminal import output

VARIABLE = "_PENSTOCK_COMPLETE"  # a shell sets it to ask
# typer splits the line at blanks, as for fish. bash breaks words at colons, too: it gets the text after the last one, unless the word is quoted.
BASH = rf"""_penstock_completion() {{
    local line="${{COMP_LINE:0:COMP_POINT}}"
    local word="${{line##*[[:space:]]}}"
    mapfile -t COMPREPLY < <(env {VARIABLE}=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS="$line" "$1")
    COMPREPLY=("${{COMPREPLY[@]%%$'\t'*}}")
    [[ $COMP_WORDBREAKS != *:* || $word == [\"\']* ]] || COMPREPLY=("${{COMPREPLY[@]#"${{word%"${{word##*:}}"}}"}}")
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
        shell_complete(typer.main.get_command(app), {}, "penstock", VARIABLE, asked)
    return True
