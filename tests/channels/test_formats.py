"""Layouts that Python reads from the compiled module: files and messages of today must be read tomorrow, so they are fixed here."""

import struct

import numpy as np

from penstock._native import core as _native
from penstock.codecs import multipart
from penstock.record.format import folder
from penstock.record.read import scan


def test_headers_of_messages():
    assert _native.SYNC_HEADER == "<HHI"
    assert _native.FRAME_NOTE == "<HBBIQqq"
    assert multipart.SYNC_HEADER.size == 8
    assert struct.calcsize(_native.FRAME_NOTE) == 32


def test_an_index_entry():
    offsets = {name: (field[0].str, field[1]) for name, field in folder.ENTRY.fields.items()}
    assert offsets == {
        "position": ("<i8", 0),
        "length": ("<u4", 8),
        "block_crc": ("<u4", 12),
        "time_min": ("<i8", 16),
        "time_max": ("<i8", 24),
        "recorded_ns": ("<i8", 32),
        "messages_before": ("<u8", 40),
        "begins": ("<u4", 48),
        "kind": ("<u2", 52),
        "spare": ("<u2", 54),
        "payload": ("<u4", 56),
        "crc": ("<u4", 60),
    }
    assert isinstance(folder.ENTRY, np.dtype)
    assert (folder.ENTRY.itemsize, _native.INDEX_HEADER_LENGTH) == (64, 64)
    assert (folder.BLOCK, folder.GAP, folder.SEAL) == (0, 1, 2)


def test_names_and_numbers_in_shared_memory():
    assert _native.ROLES == ("none", "push", "pull", "pair", "request", "reply", "dealer", "router", "tap")
    assert _native.WHEN_FULL == ("wait", "drop_newest", "drop_oldest")
    assert (_native.NAME_MAX, _native.LIFE_BYTE, _native.MISSING_LENGTH) == (64, 8, 32)


def test_columns_of_a_recording():
    names = ("stream", "session", "position", "time", "timestamp_ns", "recorded_ns", "flags", "lost", "payload")
    assert {name: 1 << bit for bit, name in enumerate(names)} == scan.COLUMNS
