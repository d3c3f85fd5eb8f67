"""Names of files that are about to replace others: no two writers have one, whatever their process ids."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from penstock.util.files.durable import fresh_path, write_atomically


def test_names_are_unique_though_the_process_is_the_same():
    names = {fresh_path(Path("a/b.json")) for _ in range(100)}
    assert len(names) == 100
    assert all(name.parent == Path("a") and name.name.endswith(f".{os.getpid()}.new") for name in names)


def test_threads_that_replace_one_file_do_not_tear_it(tmp_path):
    path = tmp_path / "state"
    begin = threading.Barrier(4)

    def write(letter):
        begin.wait()
        for _ in range(50):
            write_atomically(path, letter * 100_000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = path.read_text()
    assert len(text) == 100_000
    assert len(set(text)) == 1
    assert os.listdir(tmp_path) == ["state"]
