"""The pages for those who come from another library: their programs, before and after, run and print what the page says.

The program for ROS 2 is shown as text alone: no package installs rclpy. Programs of mcap, torch and rosbags are run where these
are installed.
"""

import re
import subprocess
import sys

import pages
import pytest

PROGRAM = re.compile(r"```\{literalinclude\} \.\./\.\./examples/from/(\w+)\.py\n")
SAYS = re.compile(r"\n(?:It prints|Both print):\n\n```\n(.*?)```", re.S)
NEEDS = {"ros2_after": "rosbags", "mcap_before": "mcap", "mcap_after": "mcap", "dataloader_before": "torch"}
HERE = pages.ROOT / "docs" / "from"
PAGES = ("dataloader", "mcap", "ros2", "shared_memory")
WORDS_AT_MOST = 700


def shown(page):
    """The programs of a page in their order, and what they print."""
    text = (HERE / f"{page}.md").read_text()
    (output,) = SAYS.findall(text)
    return PROGRAM.findall(text), output


PROGRAMS = [(name, page) for page in PAGES for name in shown(page)[0]]


def test_every_program_is_on_one_page():
    there = sorted(path.stem for path in (pages.ROOT / "examples" / "from").glob("*.py"))
    assert sorted(name for name, _ in PROGRAMS) == there
    for name, page in PROGRAMS:
        assert name in (f"{page}_before", f"{page}_after")


@pytest.mark.parametrize(("name", "page"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_a_program_prints_what_its_page_says(name, page, tmp_path):
    pytest.importorskip(NEEDS.get(name, "penstock"))
    path = pages.ROOT / "examples" / "from" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", path], capture_output=True, text=True, timeout=600, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, shown(page)[1], "")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short_and_says_what_the_other_does_better(page):
    text = (HERE / f"{page}.md").read_text()
    assert len(text.split()) <= WORDS_AT_MOST
    assert re.search(r"^## What .+ (does|do) better$", text, re.M)
    assert "\n## Words\n" in text
