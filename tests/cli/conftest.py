"""Fixtures of the command's tests."""

import pytest

from penstock.cli import run


@pytest.fixture
def ask(capsys):
    """Calls `penstock sql` with words: (status, standard output, standard error)."""

    def asked(*words):
        capsys.readouterr()
        status = run(["sql", *words])
        return status, *capsys.readouterr()

    return asked
