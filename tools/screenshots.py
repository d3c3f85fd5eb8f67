"""Draws the pictures of the docs that show programs: `penstock top` beside a small robot of real processes, a query that is asked again and
again beside a sensor, what `penstock why` says of a deadlock, the monitor beside the demo, and a report of its archive. `python tools/screenshots.py why` draws one of
them: top, query, why, demo. The demo's need Chromium: the system's, or `playwright install chromium`, or CHROMIUM names a program.
"""

from __future__ import annotations

import contextlib
import io
import math
import multiprocessing
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

import penstock
from penstock.tables import pipeline

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
EXAMPLES = Path(__file__).parents[1] / "examples"
COLUMNS, LINES, LOOKS = 118, 12, 8
HOME = b"\x1b[H"
PENSTOCK = [sys.executable, "-u", "-m", "penstock"]
DEMO_SECONDS, LOOKS_BEFORE = 120, 20
PATIENCE_MS = 120_000  # of a loaded machine


def write(channel: str, rate: float, length: int) -> None:
    """A writer that sends at a steady rate until it is ended."""
    with penstock.publish(channel) as pub:
        while True:
            pub.send(bytes(length))
            time.sleep(1 / rate)


def read(channel: str, seconds: float) -> None:
    """A reader that takes so long for each message."""
    late = {"connect_timeout": 60.0} if channel.startswith("frames:") else {}
    with penstock.subscribe(channel, **late) as sub:
        while True:
            sub.recv()
            time.sleep(seconds)


def film(rate: float) -> None:
    """A camera of 640 by 480."""
    with penstock.publish("frames:front", shape=(480, 640)) as pub:
        while True:
            with pub.acquire() as frame:
                frame.array[...] = 7
            time.sleep(1 / rate)


CAST = (
    (write, ("log:imu", 200, 64)),
    (read, ("log:imu", 0)),
    (read, ("log:imu", 0.001)),
    (write, ("ring:lidar", 40, 65536)),
    (read, ("ring:lidar", 0.08)),
    (write, ("pipe:jobs", 60, 512)),
    (read, ("pipe:jobs", 0.03)),
    (read, ("pipe:jobs", 0.03)),
    (film, (30,)),
    (read, ("frames:front", 0)),
)


def last_look(folder: str, words: list[str], height: int = LINES) -> list[str]:
    """Runs a command on a terminal of its own and returns the lines of its last look."""
    mine, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, COLUMNS, 0, 0))
    environment = {
        **os.environ,
        "PENSTOCK_DIR": folder,
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "LINES": str(height),
    }
    shown = subprocess.Popen([*PENSTOCK, *words], stdin=theirs, stdout=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while seen.count(HOME) <= LOOKS:
        seen += os.read(mine, 65536)
    os.write(mine, b"q")
    shown.wait(timeout=60)
    look = seen.split(HOME)[-2].decode()
    return [re.sub(r"\x1b\[[KJ]|\r", "", line) for line in look.split("\n")]  # the terminal doubles "\r"


def draw_top() -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_DIR"] = folder
        cast = [context.Process(target=play, args=arguments) for play, arguments in CAST]
        for process in cast:
            process.start()
        while sum(status.writers + status.readers for status in penstock.list_channels()) < len(CAST):
            time.sleep(0.1)
        lines = last_look(folder, ["top", "--sort", "messages"])
        for process in cast:
            process.kill()
            process.join()
    draw_terminal("top", lines, "penstock top")


QUERY = "select time, gyro[1] as x, gyro[2] as y from 'log:imu' where time > now() - interval 5 seconds"


def sense() -> None:
    """A sensor with a smooth reading, 100 times a second."""
    with penstock.publish("log:imu", codec="json") as pub:
        while True:
            now = time.time()
            pub.send({"gyro": [math.sin(2 * now) + 0.1 * math.sin(23 * now), math.cos(3 * now)]})
            time.sleep(0.01)


def draw_query() -> None:
    """The chart of a query beside a sensor, after some seconds."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_DIR"] = folder
        sensor = multiprocessing.get_context("spawn").Process(target=sense)
        sensor.start()
        while not penstock.list_channels():
            time.sleep(0.1)
        lines = last_look(folder, ["sql", QUERY, "--chart", "--watch", "1s"], 18)
        sensor.kill()
        sensor.join()
    command = ["$ penstock sql --chart --watch 1s \\", f'  "{QUERY}"', ""]
    draw_terminal("query", [*command, *lines], "penstock sql --chart --watch 1s")


def draw_terminal(name: str, lines: list[str], title: str) -> None:
    """A terminal's lines as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    # Without the font that rich would fetch from another server.
    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)
    (PICTURES / f"{name}.svg").write_text(console.export_svg(title=title, code_format=form, unique_id=name))


@contextlib.contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that ends with the block, also where that fails."""
    process = subprocess.Popen(command, text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A real Chromium: the one that CHROMIUM names, the system's, or Playwright's own."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


def keep(page: Any, name: str) -> None:
    """The page as a small picture: 256 colours are enough for lines and text."""
    from PIL import Image

    taken = Image.open(io.BytesIO(page.screenshot()))
    taken.convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        PICTURES / f"{name}.png", optimize=True
    )


def draw_monitor(chromium: Any, url: str) -> None:
    """The monitor, as wide as a laptop's window and dark, and as wide as a phone."""
    for name, width, height, scheme in (("monitor", 1440, 900, "dark"), ("monitor_phone", 420, 820, "light")):
        view = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        view.set_default_timeout(PATIENCE_MS)
        view.goto(url)
        view.wait_for_selector("body[data-look]")
        while int(view.get_attribute("body", "data-look")) < LOOKS_BEFORE:
            time.sleep(0.1)
        if name == "monitor":
            view.locator(".rows .row").first.click()
            view.mouse.move(0, 0)
        two_later = int(view.get_attribute("body", "data-look")) + 2
        view.wait_for_function("look => Number(document.body.dataset.look) >= look", arg=two_later)
        keep(view, name)
        view.close()


def draw_report(chromium: Any, archive: Path) -> None:
    """The report of an archive's tables, as wide as a laptop's window."""
    tables = archive.parent / "tables"
    pipeline.run(archive, tables)
    subprocess.run([*PENSTOCK, "report", tables.name], check=True, cwd=tables.parent)  # the page names the folder
    view = chromium.new_page(viewport={"width": 1440, "height": 1000})
    view.goto((tables / "report.html").resolve().as_uri())
    keep(view, "report")
    view.close()


def draw_demo() -> None:
    """The monitor beside the demo, and then a report of what the demo recorded."""
    with contextlib.ExitStack() as left:
        folder = left.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))
        out = left.enter_context(tempfile.TemporaryDirectory())
        chromium = left.enter_context(browser())
        environment = {**os.environ, "PENSTOCK_DIR": folder}
        archive = Path(out, "archive")

        def records() -> bool:
            try:
                return any(info.messages for info in penstock.Archive(archive, create=False).list())
            except penstock.PenstockError:
                return False

        arguments = ["demo", "--seconds", str(DEMO_SECONDS), "--out", out]
        with running([*PENSTOCK, *arguments], env=environment) as demo:
            while not records():
                assert demo.poll() is None, "the demo ended before it recorded"
                time.sleep(0.1)
            (channels,) = Path(folder).glob("penstock-demo-*")
            beside = {**os.environ, "PENSTOCK_DIR": str(channels)}
            watching = [*PENSTOCK, "monitor", "--port", "0", "--archive", str(archive)]
            with running(watching, env=beside, stdout=subprocess.PIPE) as monitor:
                assert monitor.stdout is not None
                draw_monitor(chromium, monitor.stdout.readline().split()[1])
        draw_report(chromium, archive)


def draw_why() -> None:
    """What `penstock why` says of the deadlock that is among the examples."""
    sys.path.insert(0, str(EXAMPLES / "blackbox"))
    from deadlock import deadlocked

    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_DIR"] = folder
        with deadlocked():
            shown = subprocess.run([*PENSTOCK, "why"], capture_output=True, text=True, check=True).stdout
    pieces = [line[at : at + COLUMNS] for line in shown.splitlines() for at in range(0, len(line), COLUMNS)]
    draw_terminal("why", ["$ penstock why", *pieces], "penstock why")


DRAWN = {"top": draw_top, "query": draw_query, "why": draw_why, "demo": draw_demo}

if __name__ == "__main__":
    for name in sys.argv[1:] or DRAWN:
        DRAWN[name]()
