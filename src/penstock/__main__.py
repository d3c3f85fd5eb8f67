"""The command `penstock`, and `python -m penstock`. Ctrl-C ends it without a trace also while the command's modules are imported."""

from __future__ import annotations

import gc
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Imports the command and runs it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing has begun yet that would have to be undone
    from penstock.errors import MissingPackage, NotFound
    from penstock.util.extras import check_installed

    try:
        if sys.argv[1:] == ["--cmakedir"]:  # needs no package of the command
            from penstock.util.headers import get_cmake_prefix

            sys.stdout.write(get_cmake_prefix() + "\n")
            return
        check_installed("typer", "rich", "psutil", what="the command penstock")
    except (MissingPackage, NotFound) as error:
        sys.exit(f"penstock: {getattr(error, 'strerror', None) or error}")
    gc.disable()  # modules are no garbage: a sixth of the CPU time would go into looking. `groups` enables it when the command is loaded
    from penstock.cli import main as command

    signal.signal(signal.SIGINT, handler)
    command()


if __name__ == "__main__":
    main()
