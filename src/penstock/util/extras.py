"""Optional packages: each is imported within `explain_missing`, whose error is one sentence with the extra to install.

Only this module knows the package of each extra. It must never know their use.
"""

from __future__ import annotations

from penstock.errors import MissingPackage

# A package's module: its name for pip, and the extra of pyproject.toml that brings it. No extra: pip's name alone.
EXTRAS = {
    "pyarrow": ("pyarrow", "record"),
    "deltalake": ("deltalake", "tables"),
    "pyspark": ("pyspark", "spark"),
    "duckdb": ("duckdb", ""),
    "pysail": ("pysail", "sail"),
    "sqlglot": ("sqlglot", "spark"),
    "pandas": ("pandas", "sail"),
    "grpc": ("grpcio", "sail"),
    "grpc_status": ("grpcio-status", "sail"),
    "typer": ("typer", "cli"),
    "rich": ("rich", "cli"),
    "psutil": ("psutil", "cli"),
    "starlette": ("starlette", "cli"),
    "uvicorn": ("uvicorn", "cli"),
    "zmq": ("pyzmq", "zmq"),
    "prometheus_client": ("prometheus-client", "metrics"),
    "foxglove": ("foxglove-sdk", "foxglove"),
    "rosbags": ("rosbags", "ros2"),
    "mcap": ("mcap", "mcap"),
    "lz4": ("lz4", "mcap"),
    "zstandard": ("zstandard", "mcap"),
    "google.protobuf": ("protobuf", "protobuf"),
    "matplotlib": ("matplotlib", "report"),
    "PIL": ("pillow", "frames"),
    "torch": ("torch", ""),
}


class explain_missing:  # noqa: N801  (used as a function is: `with explain_missing("poll_arrow()"): import pyarrow`)
    """Around imports of optional packages: if one is not installed, raises `MissingPackage` with the reason and the command that installs it.

    what: the subject of that sentence, as "poll_arrow()" or "the command penstock". extra: the one to name, where it brings more than
    the package's own extra does.
    """

    def __init__(self, what: str, *, extra: str | None = None) -> None:
        self._what, self._extra = what, extra

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModuleNotFoundError) and (
            text := describe_missing(error.name or "", self._what, self._extra)
        ):
            raise MissingPackage(text) from None


def check_installed(*modules: str, what: str, extra: str | None = None) -> None:
    """The same error for packages that are not installed. Imports none."""
    from importlib.util import find_spec

    for module in modules:
        with explain_missing(what, extra=extra):
            if find_spec(module) is None:
                raise ModuleNotFoundError(name=module)


def describe_missing(module: str, what: str, extra: str | None = None) -> str | None:
    """The sentence for a module that is not there. None if no extra brings it."""
    for known, (package, own) in EXTRAS.items():
        if module == known or module.startswith(f"{known}.") or known.startswith(f"{module}."):
            return f"{what} needs {package}: pip install " + (
                f"'penstock[{extra or own}]'" if extra or own else package
            )
    return None
