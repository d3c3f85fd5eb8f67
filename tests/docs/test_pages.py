"""Every program on README.md, on the user's pages and in docstrings runs, in the order of its page, and prints what the page says."""

import contextlib
import doctest
import io
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pages
import pytest
from ports import free_port

import penstock.codecs
import penstock.front.opening

PROCESS = re.compile(r"process \d+ \(.*?\)(?= is)")  # another one in each run
ALONE = "its only thread"  # said of a process that has no other
NEEDS = {"channels/zmq": "zmq", "from/zeromq": "zmq", "archives/storage": "moto"}
# Pages whose programs need a JVM: tests/spark has them.
OF_SPARK = {"tables/spark", "tables/tables"}
RUN = [page for page in pages.PAGES if pages.blocks_of(page) and pages.name_of(page) not in OF_SPARK]
PAIRS = [page for page in pages.PAGES if pages.pairs_of(page)]

RECORDED = """
import penstock
with penstock.publish("log:imu", codec="json") as imu, penstock.Archive("my-archive").record("log:imu"):
    imu.send({"gyro": 0.1})
"""
# The reader's own program, and the data that a page takes for granted.
BEFORE = {
    "archives/export": RECORDED,
    "archives/storage": RECORDED,
    "testing": """
import threading
import penstock
def work():
    with penstock.subscribe("fake:log:in") as asked, penstock.publish("fake:log:out", codec="json") as results:
        for message in [asked.recv(timeout=60)]:
            results.send({"twice": 2 * message["n"]})
        try:
            asked.recv(timeout=60)
        except TimeoutError:
            pass
def start_my_program():
    threading.Thread(target=work).start()
""",
}


@pytest.fixture
def reader(tmp_path, monkeypatch, request):
    """The folder in which a reader pastes programs, with what the page's own environment is."""
    page = request.node.callspec.params["page"]
    name = pages.name_of(page)
    pytest.importorskip(NEEDS.get(name, "penstock"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    if name == "archives/storage":
        import boto3
        from conftest import storage_environment

        url = request.getfixturevalue("object_storage")
        for key, value in storage_environment(url).items():
            monkeypatch.setenv(key, value)
        boto3.client("s3", endpoint_url=url).create_bucket(Bucket="bucket")
    return name


def run_alone(code):
    """What a program prints that has a process to itself."""
    Path("lidar.py").write_text(code)
    return subprocess.run([sys.executable, "lidar.py"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("page", RUN, ids=pages.name_of)
def test_the_programs_of_a_page_run(page, reader):
    names, port = {}, str(free_port())
    exec(BEFORE.get(reader, ""), names)
    for number, block in enumerate(pages.blocks_of(page)):
        said = io.StringIO()
        code = block.code.replace("127.0.0.1:40123", f"127.0.0.1:{port}")  # others may have the page's port
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("error")
            if block.output is not None and ALONE in block.output:
                said.write(run_alone(code))
            else:
                exec(compile(code, f"{page.name}, program {number}", "exec"), names)
        if block.output is not None:
            assert PROCESS.sub("process 4242 (python lidar.py)", said.getvalue()) == block.output
    for value in names.values():
        if isinstance(value, penstock.types.Publication | penstock.types.Subscription):
            value.close()


def test_pages_may_be_tried_one_after_the_other(tmp_path, monkeypatch):
    """A reader pastes one page's programs after another's, and removes no channel in between. Two terminals come first."""
    monkeypatch.chdir(tmp_path)
    by_name = {pages.name_of(page): page for page in pages.PAGES}
    names = ["README", "start/five_minutes", "guide", "archives/recording", "archives/export", "archives/mcap"]
    names += [f"channels/{kind}" for kind in ("log", "ring", "sync", "pipe", "frames")]
    ((listen, sensor, _),) = pages.pairs_of(by_name["README"])
    listener = subprocess.Popen([sys.executable, "-c", listen], stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-c", sensor], check=True, timeout=120)
    assert listener.wait(120) == 0
    for name in names:
        held = {}
        for number, block in enumerate(pages.blocks_of(by_name[name])):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.code, f"{name}, program {number}", "exec"), held)
        for value in held.values():
            if isinstance(value, penstock.types.Publication | penstock.types.Subscription):
                value.close()


def beside(first, second, folder):
    """Starts the second program when the first is at the channel. Gives their outputs."""

    def start(arguments):
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=folder)

    running = [start(first)]
    deadline = time.monotonic() + 60
    while not any(status.members for status in penstock.list_channels("log:imu")):
        assert time.monotonic() < deadline
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert running[0].wait(0.01) is None, "it ended before the other came"
    running.append(start(second))
    said = [child.communicate(timeout=120)[0] for child in running]
    assert [child.returncode for child in running] == [0, 0]
    penstock.remove("log:imu")
    return said


@pytest.mark.parametrize("page", PAIRS, ids=pages.name_of)
def test_programs_for_two_terminals(page, tmp_path):
    ((first, second, output),) = pages.pairs_of(page)
    listen, sensor = ([sys.executable, "-W", "error", "-c", code] for code in (first, second))
    assert beside(listen, sensor, tmp_path) == [output, ""]
    assert beside(sensor, listen, tmp_path) == ["", output]


def test_the_commands_for_two_terminals_in_both_orders(tmp_path):
    text = (pages.ROOT / "docs" / "start" / "two_terminals.md").read_text()
    (sub,) = re.findall(r"^\$ (penstock sub .*)$", text, re.M)
    (pub,) = re.findall(r"^\$ (echo .*penstock pub .*)$", text, re.M)
    message = '{"t": 3, "gyro": [0, 0, 0]}\n'
    shell = ["bash", "-c", f"PATH={Path(sys.executable).parent}:$PATH; {sub} -n 1 2>/dev/null"]
    publish = ["bash", "-c", f"PATH={Path(sys.executable).parent}:$PATH; {pub} 2>/dev/null"]
    assert [one for one in beside(shell, publish, tmp_path) if one] == [message]
    subprocess.run(publish, check=True, stdout=subprocess.DEVNULL, timeout=120)
    assert subprocess.run(shell, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout == message


RECIPES = sorted((pages.ROOT / "examples" / "recipes").glob("*.py"))
RECIPE = re.compile(r"/recipes/(\w+\.py)\n:language: python\n```\n\nIt prints:\n\n```\n(.*?)```", re.S)


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_prints_what_its_page_says(path, tmp_path):
    outputs = dict(found for page in pages.PAGES for found in RECIPE.findall(page.read_text()))
    done = subprocess.run(
        [sys.executable, "-W", "error", path], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (0, outputs[path.name]), done.stderr


@pytest.mark.parametrize("module", [penstock.front.opening, penstock.codecs], ids=lambda m: m.__name__)
def test_docstring_examples(module):
    found = doctest.testmod(module, extraglobs={"penstock": penstock})
    assert found.attempted > 0
    assert found.failed == 0
