"""No victim survives its test."""

import pytest
from crash import victims


@pytest.fixture(autouse=True)
def _no_victim_survives():
    yield
    victims.end_all()
