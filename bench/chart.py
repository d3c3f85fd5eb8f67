"""Draws docs/log_ipc.svg from a result of `python -m bench log_ipc --json FILE`: `python -m bench.chart FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "docs" / "log_ipc.svg"
NAMES = {
    "penstock": "Penstock, one by one",
    "penstock batches": "Penstock, batches",
    "pyaeron": "pyaeron",
    "pyzmq": "pyzmq",
    "mp_pipe": "multiprocessing.Pipe",
    "mp_queue": "multiprocessing.Queue",
    "faster_fifo": "faster-fifo",
    "iceoryx2": "iceoryx2",
}


def main(source: Path) -> None:
    """Throughput of 64-byte messages to one subscriber, one bar each."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "penstock", "font.size": 10})
    import matplotlib.pyplot as plt

    content = json.loads(source.read_text())
    rows = [
        r
        for r in content["results"]
        if r["case"] == "64 B, 1 subscriber" and r["metric"] == "throughput" and r["who"] in NAMES
    ]
    rows.sort(key=lambda r: r["value"])
    figure, axes = plt.subplots(figsize=(7.6, 0.7 + 0.34 * len(rows)))
    colors = ["#2563eb" if r["who"].startswith("penstock") else "#9ca3af" for r in rows]
    axes.barh([NAMES[r["who"]] for r in rows], [r["value"] / 1e6 for r in rows], color=colors, height=0.66)
    for place, row in enumerate(rows):
        axes.text(row["value"] / 1e6, place, f"  {row['value'] / 1e6:.2g}", va="center", fontsize=9)
    axes.set_xlabel("million 64-byte messages per second, process to process, from Python")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.margins(x=0.1)
    figure.savefig(TARGET, bbox_inches="tight", metadata={"Date": None})
    print(f"{TARGET} drawn from {source}, measured on {content['machine']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
