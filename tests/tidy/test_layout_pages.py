"""The tables of byte layouts in the design pages say what the headers say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_term_log_page_has_the_offsets_of_its_header():
    text = (ROOT / "native" / "core" / "log" / "files" / "log_layout.hpp").read_text()
    page = (ROOT / "docs" / "design" / "term_log.md").read_text()
    for name, offset in re.findall(r"Paired<Atomic<\w+>> (\w+);\s*// (\d+)", text):
        assert re.search(rf"\| {4096 + int(offset)} \| `{name}`", page), f"{name} at {4096 + int(offset)}"


HEADER_WORDS = {
    "ground/files/channel_header.hpp": {"Header": None},
    "log/files/log_layout.hpp": {"LogWords": "log, sync"},
    "ring/ring_layout.hpp": {"RingWords": "ring, frames"},
    "frames/frame_layout.hpp": {"FrameWords": "frames"},
    "pipe/files/pipe_layout.hpp": {"PipeWords": "pipe"},
}


def test_channel_file_page_lists_every_word_of_its_headers():
    page = (ROOT / "docs" / "design" / "channel_file.md").read_text()
    for file, structures in HEADER_WORDS.items():
        text = (ROOT / "native" / "core" / file).read_text()
        for structure, kinds in structures.items():
            body = re.search(rf"struct {structure} {{\n(.*?)\n}};", text, re.DOTALL)[1]
            words = re.findall(r"(\w+)(?:\[\d+\])?;\s*// (\d+)", body)
            assert len(words) == len(body.splitlines()), f"{file}: each word of {structure} on a line with its offset"
            for name, offset in words:
                if name not in ("unused", "ring"):
                    row = f"| {offset} | `{name}`" if kinds is None else f"| {kinds} | {offset} | `{name}`"
                    assert row in page, f"{file}: {row}"


def test_channel_file_page_lists_every_lock_byte():
    page = (ROOT / "docs" / "design" / "channel_file.md").read_text()
    locks: dict[str, str] = {}
    for path in sorted((ROOT / "native" / "core").rglob("*.hpp")):
        for body in re.findall(r"namespace lock_byte \{\n(.*?)\n\}", path.read_text(), re.DOTALL):
            locks.update(re.findall(r"constexpr uint64_t (\w+) = ([\w +]+);", body))
    assert set(locks) == {"life", "opening", "writer", "owner", "socket"}
    numbers = {"control_offset": "4096", "owner + 1": "4097"}
    for name, byte in locks.items():
        assert f"| {numbers.get(byte, byte)} | `lock_byte::{name}`" in page


CONTROLS = {
    "ring": ("ring/ring_layout.hpp", "RingControl"),
    "network_log": ("net/receive/files/endpoint_layout.hpp", "EndpointControl"),
}


@pytest.mark.parametrize("page", CONTROLS)
def test_a_page_lists_every_part_of_its_control_page(page):
    """The second page of a file: each offset that its header notes, and no other."""
    file, structure = CONTROLS[page]
    header = (ROOT / "native" / "core" / file).read_text()
    body = re.search(rf"struct {structure} {{\n(.*?)\n}};", header, re.DOTALL)[1]
    offsets = {4096 + int(at) for at in re.findall(r"(?:Paired<|alignas).*// (\d+)", body)}
    text = (ROOT / "docs" / "design" / f"{page}.md").read_text()
    table = re.search(r"^\| 0 \| the \[header\].*?\n(.*?)^\| 8192 \|", text, re.DOTALL | re.MULTILINE)[1]
    assert {int(at) for at in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == offsets


def test_frames_pages_offsets_are_the_rings():
    header = (ROOT / "native" / "core" / "ring" / "ring_layout.hpp").read_text()
    page = (ROOT / "docs" / "design" / "frame_pool.md").read_text()
    for name in ("room", "used", "turn"):
        at = re.search(rf"offsetof\(RingControl, {name}\) == (\d+)", header)[1]
        assert f"| 4096 + {at} | `{name}`" in page
    at = re.search(r"offsetof\(RingSlot, identity.waits\) == (\d+)", header)[1]
    assert f"| 8192 + 256 i + {at} | `waits`" in page
