"""Each promise is tried with our stand-in and, where it is installed, with the original: so the promise is true of both."""

import gc
import importlib
import os
import types
import uuid

import pytest

from penstock.compat import msgq as ours
from penstock.compat import visionipc as our_vision


def original(name, has):
    """The original's module; skips without it. PyPI's msgq is another library."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        pytest.skip(f"{name} is not installed")
    if not hasattr(module, has):
        pytest.skip(f"the installed {name} is another library of that name")
    return module


@pytest.fixture(params=["penstock", "original"])
def msgq(request):
    """msgq's interface."""
    return ours if request.param == "penstock" else original("msgq", "pub_sock")


@pytest.fixture(params=["penstock", "original"])
def vision(request):
    """VisionIPC's interface."""
    return our_vision if request.param == "penstock" else original("msgq.visionipc", "VisionIpcServer")


UNTIDY = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(params=["penstock", pytest.param("original", marks=UNTIDY)])
def pysyncq(request):
    """pysyncq's interface: `PySyncQ`, and its name for importing. The original's objects complain when they go."""
    name = "penstock.compat.pysyncq" if request.param == "penstock" else "pysyncq.pysyncq"
    module = original(name, "PySyncQ")
    yield types.SimpleNamespace(PySyncQ=module.PySyncQ, name=name, ours=request.param == "penstock")
    gc.collect()  # now, and not in another test


@pytest.fixture
def endpoint():
    """A name that nobody else uses: the originals have one folder for all."""
    return f"peers-{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def no_prefix(monkeypatch):
    """Nothing of the surroundings scopes names or makes sockets fake ones."""
    for name in ("OPENPILOT_PREFIX", "CEREAL_FAKE", "CEREAL_FAKE_PREFIX"):
        monkeypatch.delenv(name, raising=False)
        os.unsetenv(name)  # the original sets it in C, where os.environ does not see it
