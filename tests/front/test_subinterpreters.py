"""A subinterpreter cannot import the library. It is told so, and the main interpreter, and the end of the process, are as they were."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import sys
if sys.version_info < (3, 13):
    import _xxsubinterpreters as interpreters
else:
    import _interpreters as interpreters

def run(code, *kind):
    if sys.version_info < (3, 13):
        made = interpreters.create(isolated=not kind)
    else:
        made = interpreters.create(*kind)
    try:
        failed = interpreters.run_string(made, code)
    except Exception as error:
        failed = error
    return str(getattr(failed, "msg", failed) or "")
"""
USE = """
with penstock.publish("log:a") as pub, penstock.subscribe("log:a") as sub:
    pub.send(b"x")
    assert sub.recv(timeout=60) == b"x"
print("works")
"""


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HEAD + code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("kind", ["", ", 'legacy'"])
@pytest.mark.parametrize("before", ["", "import penstock\n" + USE])
@pytest.mark.parametrize("after", ["", "import penstock\n" + USE])
def test_a_subinterpreter_is_refused_and_nothing_else_changes(before, after, kind):
    """Alone, before and after the main interpreter's own import; isolated, and as web servers make them."""
    made = _python(f"{before}\nfor _ in range(2):\n    print(run('import penstock'{kind}))\n{after}")
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    ours = made.stdout.count("penstock cannot be imported in a subinterpreter")
    pythons = made.stdout.count("does not support loading in subinterpreters")  # from 3.12 on, of isolated ones
    assert ours + pythons == 2
    assert made.stdout.count("works") == (before != "") + (after != "")
