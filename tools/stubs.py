"""Writes src/penstock/_native/core.pyi from the built module, or checks that the committed one is fresh (--check)."""

import inspect
import re
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

import penstock._native.core as native

STUB = Path(__file__).parent.parent / "src" / "penstock" / "_native" / "core.pyi"
HEADER = '"""Made by tools/stubs.py from the compiled module; `make stubs` writes it again."""\n\n'
# Facts that the generator cannot know: types behind Python objects, and methods that bypass nanobind's dispatch.
TYPES = [
    ("timeout: object | None", "timeout: float | None"),
    ("def __enter__(self) -> object", "def __enter__(self) -> memoryview"),
    ("-> dict:", "-> dict[str, Any]:"),
    ("-> list:", "-> list[Any]:"),
    ("-> tuple:", "-> tuple[Any, Any]:"),
    (
        "def sync_next_of_batch(member: SyncMember, first: bool) -> object:",
        "def sync_next_of_batch(member: SyncMember, first: bool) -> Any:",
    ),
    (
        "def sync_try_send(member: SyncMember, body: object | None, type: object | None) -> object:",
        "def sync_try_send(member: SyncMember, body: Any, type: str | bytes) -> int | None:",
    ),
    (
        "def offer_many(self, messages: object | None,",
        "def offer_many(self, messages: object,",
    ),  # a wrong one is refused in words
    ("ROLES: tuple", "ROLES: tuple[str, ...]"),
    ("WHEN_FULL: tuple", "WHEN_FULL: tuple[str, ...]"),
    ("INDEX_ENTRY: tuple", "INDEX_ENTRY: tuple[tuple[str, str], ...]"),
    ("RECORDED_COLUMNS: dict", "RECORDED_COLUMNS: dict[str, int]"),
    ("-> object: ...", "-> tuple[Any, Any] | None: ..."),
    ("type: object = ''", 'type: str | bytes = ""'),
    ("def offer_many(self, bodies: object,", "def offer_many(self, bodies: Iterable[Any] | Buffer,"),
    ("message: type,", "message: type[tuple[Any, ...]],"),
    ("def __iter__(self, /):", "def __iter__(self) -> Self:"),
    ("def __next__(self, /):", "def __next__(self) -> Any:"),
    (": type,", ": type[Exception],"),
    (": type)", ": type[Exception])"),
]
SIGNATURES = {
    "SyncMember.send": 'def send(self, body: Any, timeout: float | None = None, *, type: str | bytes = "") -> int:',
    "SyncMember.offer": 'def offer(self, body: Any, *, type: str | bytes = "") -> int | None:',
    "SyncMember.recv": "def recv(self, timeout: float | None = None) -> Any:",
    "SyncMember.try_recv": "def try_recv(self) -> Any:",
    "send": "def send(self, data: Buffer, timeout: float | None = None) -> int:",
    "offer": "def offer(self, data: Buffer) -> int | None:",
    "offer_many": "def offer_many(self, messages: Iterable[Buffer] | Buffer) -> int:",
    "put_nowait": "def put_nowait(self, item: Any) -> None:",
    "get": "def get(self, block: bool = True, timeout: float | None = None) -> Any:",
    "get_nowait": "def get_nowait(self) -> Any:",
    "put": "def put(self, item: Any) -> None:",
    "take": "def take(self, timeout: float | None = 0) -> Any:",
    "recv": "def recv(self, timeout: float | None = None) -> bytes:",
    "try_recv": "def try_recv(self) -> bytes | None:",
}
FUNCTIONS = {
    "def next_bytes(subscription):": ("def next_bytes(subscription: Subscription, /) -> bytes | None:"),
    "def pipe_answer(publication, subscription, to, id, kind, data):": (
        "def pipe_answer(publication: Publication, subscription: Subscription, to: int, id: int, kind: int, data: Buffer, /"
        ") -> tuple[int, int, int, bytes, bytes]:"
    ),
    "def pipe_ask(publication, subscription, id, kind, data, timeout):": (
        "def pipe_ask(publication: Publication, subscription: Subscription, id: int, kind: int, data: Buffer, "
        "timeout: float | None, /) -> bytes | tuple[int, tuple[int, int, int, bytes, bytes] | None] | None:"
    ),
}

IMPORTS = """from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from typing_extensions import Buffer
"""


def _method(match: re.Match[str]) -> str:
    owner = re.findall(r"^class (\w+)", match.string[: match.start()], re.MULTILINE)[-1]
    doc = inspect.getdoc(getattr(getattr(native, owner), match[1])) or ""
    lines = "\n".join(f"        {line}".rstrip() for line in doc.splitlines())
    signature = SIGNATURES.get(f"{owner}.{match[1]}") or SIGNATURES[match[1]]
    return f'    {signature}\n        """\n{lines}\n        """\n'


def generate() -> str:
    """The stub's text."""
    maker = StubGen(native, quiet=True, include_private=True)
    maker.put(native)
    text = maker.get()
    for found, meant in TYPES:
        text = text.replace(found, meant)
    for found, meant in FUNCTIONS.items():
        text = text.replace(found, meant)
    # Else type checkers would take any attribute, and the compiled module refuses the unknown ones.
    text = re.sub(r"    def __(set|del)attr__\(.*\n        \"\"\"Implement .*\"\"\"\n\n?", "", text)
    # These take anything, to say in one sentence what they want: a number.
    text = re.sub(r"\b(limit|max_bytes|length|count|now_ns): int \| None", r"\1: int", text)
    text = re.sub(r"    (\w+): types\.MethodDescriptorType = \.\.\.\n", _method, text)
    text, made = re.subn(r"from collections\.abc import [\w, ]+\nimport types\n", IMPORTS, text)
    assert made == 1, "the generator begins its stub in another way now"
    return HEADER + text


def main() -> int:
    """0 if the stub is, or now is, what the module says."""
    text = generate()
    if "--check" not in sys.argv:
        STUB.write_text(text)
        return 0
    if not STUB.exists() or STUB.read_text() != text:
        print("src/penstock/_native/core.pyi is not what the compiled module says: run make stubs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
