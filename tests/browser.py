"""A real Chromium for tests of pages: the one that CHROMIUM names, the system's, or the one that Playwright installed."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextlib.contextmanager
def opened() -> Iterator[Any]:
    """A browser without a window. Skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are tried with playwright")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with playwright.sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        except playwright.Error as error:
            line = str(error).splitlines()[0]
            pytest.skip(f"no Chromium: run playwright install chromium, or set CHROMIUM ({line})")
        try:
            yield browser
        finally:
            browser.close()
