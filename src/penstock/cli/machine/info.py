"""The command info: this machine, versions, folders, limits, and which packages are installed. `doctor` judges them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.machine import facts as machine
from penstock.cli.terminal import output


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("info")(info)


def info(json: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False) -> None:
    """Shows the machine, versions, folders, limits, and installed packages, for reports of bugs and measurements."""
    found = {
        "machine": machine.machine(),
        "versions": machine.versions(),
        "folders": machine.folders(),
        "limits": machine.limits(),
        "packages": machine.packages(),
    }
    if json:
        print(output.as_json(found))
        return
    for name, facts in found.items():
        output.say((name, "bold"))
        for fact, value in facts.items():
            about = _package(fact, value) if name == "packages" else _format_fact(fact, value)
            output.say(f"  {fact.removesuffix('_bytes').replace('_', ' '):<20} {about}")


def _format_fact(fact: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if fact.endswith("_bytes") or fact.startswith("net."):
        return output.size(value)
    if isinstance(value, list):
        return "  ".join(map(str, value))
    return output.count(value) if isinstance(value, int) else str(value)


def _package(name: str, version: str | None) -> str:
    use, extra = machine.PACKAGES[name]
    if version is not None:
        return f"{version}  ({use})"
    return f"not installed: {use} needs pip install '{f'penstock[{extra}]' if extra else name}'"
