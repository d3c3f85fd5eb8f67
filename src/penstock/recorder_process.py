"""The main of a recorder in a process of its own. Its parent's handle is `record.process`."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from typing import Any

from penstock import errors
from penstock.front import Archive


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main(job: str) -> int:
    """The child: records until its standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it then closes our input
    work = json.loads(job)
    try:
        recorder = Archive(work["archive"]).record(work["channels"], **work["options"])
        _say({"progress": [asdict(row) for row in recorder.progress()]})
        for _ in sys.stdin:
            _say({"progress": [asdict(row) for row in recorder.progress()]})
        _say({"progress": [asdict(row) for row in recorder.stop()]})
    except (errors.PenstockError, OSError) as error:
        _say({"error": type(error).__name__, "what": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
