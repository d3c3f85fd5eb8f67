"""The environment of the library's own processes."""

import os

from penstock.util.pool import environment_of_child


def test_numpy_starts_no_threads_unless_the_user_asks(monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert environment_of_child() == {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert environment_of_child()["OPENBLAS_NUM_THREADS"] == "3"
