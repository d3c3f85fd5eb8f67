"""Completion: a real bash on a terminal, with the line that the docs name in its startup file."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import penstock

COMMAND = Path(sys.executable).with_name("penstock")
PATIENCE = 60
bash = pytest.mark.skipif(shutil.which("bash") is None or not COMMAND.exists(), reason="needs bash and the command")


class Terminal:
    """A bash in which a user has completion, on a terminal of its own."""

    def __init__(self, home):
        start = home / "start"
        start.write_text(f"""\
PATH={COMMAND.parent}:$PATH PS1='> ' HISTFILE=
eval "$(penstock completion bash)"
bind 'set enable-bracketed-paste off'
bind 'set bell-style none'
penstock() {{ printf 'run:'; printf '<%s>' "$@"; echo ' end'; }}  # the completion asks the program
""")
        self.mine, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "HOME": str(home)}
        command = ["bash", "--noprofile", "--rcfile", str(start), "-i"]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=home,
            start_new_session=True,
            close_fds=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text):
        """Reads what the terminal shows, until it ends with a text."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.mine], [], [], 1)[0]:
                self.seen += os.read(self.mine, 65536).decode()
        shown, _, self.seen = self.seen.partition(text)
        return shown

    def run(self, typed):
        """The arguments with which the shell runs a line that a user typed, with a key for completion behind it."""
        self.until("> ")
        os.write(self.mine, f"{typed}\t\n".encode())
        return re.findall(r"<(.*?)>", self.until(" end\r\n").rpartition("run:")[2])

    def close(self):
        """Ends the shell."""
        self.process.kill()
        self.process.wait()
        os.close(self.mine)


@pytest.fixture
def shell(tmp_path):
    """A shell with completion, in which the command prints its arguments."""
    made = Terminal(tmp_path)
    yield made
    made.close()


@bash
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("penstock sub log:na", ["sub", "log:navigation"]),
        ("penstock sub log:", ["sub", "log:navigation"]),
        ("penstock sub lo", ["sub", "log:navigation"]),
        ('penstock sub "log:na', ["sub", "log:navigation"]),
        ("penstock sub 'log:na", ["sub", "log:navigation"]),
        ("penstock rm ring:imu log:na", ["rm", "ring:imu", "log:navigation"]),
        ("penstock sub fake:log:na", ["sub", "fake:log:na"]),
        ("penstock recordi", ["recordings"]),
        ("penstock sub --timeo", ["sub", "--timeout"]),
    ],
)
def test_bash_completes(shell, typed, words):
    with penstock.publish("log:navigation"), penstock.publish("ring:imu"):
        assert shell.run(typed) == words


@bash
def test_the_script_leaves_the_shell_as_it_was():
    script = 'before="$COMP_WORDBREAKS"; eval "$("$1" completion bash)"; [ "$before" = "$COMP_WORDBREAKS" ]; echo $?; declare -F'
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(COMMAND)], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stdout.split("\n") == ["0", "declare -f _penstock_completion", ""]


@bash
def test_the_function_answers_for_the_line_up_to_the_cursor():
    script = """
eval "$("$1" completion bash)"
COMP_LINE='penstock sub log:na --json' COMP_POINT=19 COMP_WORDS=(penstock sub log : na --json) COMP_CWORD=4
_penstock_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    with penstock.publish("log:navigation"), penstock.publish("log:names/one"):
        done = subprocess.run(
            ["bash", "-c", script, "bash", str(COMMAND)], capture_output=True, text=True, check=True, timeout=PATIENCE
        )
    assert done.stdout.split() == ["names/one", "navigation"]
