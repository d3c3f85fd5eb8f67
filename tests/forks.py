"""Programs that begin with the same modules: one interpreter loads these, and forks a child for each program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_FORKS = """
import gc, json, os, sys, tempfile
gc.freeze()
def forked(folder, program):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(error.fileno(), 2)
            os.chdir(folder)
            return program
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return [status, *(file.seek(0) or file.read().decode() for file in (out, error))]
done = []
for given in json.load(sys.stdin):
    done.append(forked(*given))
    if isinstance(done[-1], str):
        exec(done[-1])
        sys.exit()
print(json.dumps(done))
"""


def run_each(
    programs: Sequence[tuple[Path, str]], loaded: str, *arguments: str, before: Sequence[str] = ()
) -> list[tuple[int, str, str]]:
    """The status, output and errors of each program, which runs in a folder. loaded: the code in front of all. before: a command that runs it."""
    done = subprocess.run(
        [*before, sys.executable, "-c", f"{loaded}\n{_FORKS}", *arguments],
        input=json.dumps([(str(folder), program) for folder, program in programs]),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [tuple(one) for one in json.loads(done.stdout)]
