"""Pages, docstrings and error texts name only commands and options that exist, and whole calls have what they need."""

import pytest
from tidy import commands

from penstock.cli import app

THE = commands.Commands(app)


def test_every_call_and_option_that_a_text_names_exists() -> None:
    texts = commands.texts()
    assert sum(len(list(commands.calls(one))) for one in texts) > 90
    assert [problem for one in texts for problem in commands.problems(THE, one)] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("penstock inspect URI", "there is no command inspect"),
        ("$ penstock archive pull A B", "there is no command archive pull"),
        ("see penstock sub log:x --fast", "sub has no option --fast"),
        ("penstock top      the same live; --hertz: rates", "top has no option --hertz"),
        ("it holds no tables: run penstock pipeline --out X", "pipeline lacks --archive"),
        ("penstock pipeline --archive X", "pipeline lacks --out"),
        ("penstock replay ARCHIVE", "replay lacks RECORDING"),
        ("cat x | penstock pub --codec json", "pub lacks CHANNEL"),
        ("--no-such-option", "there is no option --no-such-option"),
        ("the option --no-such-option is wrong", "there is no option --no-such-option"),
    ],
)
def test_a_wrong_text_is_found(text: str, why: str) -> None:
    (found,) = commands.problems(THE, commands.Named("src/penstock/x.py:1", text))
    assert found.endswith(f": {why}")


@pytest.mark.parametrize(
    "text",
    [
        "penstock sub log:x | head --lines 1",
        "`penstock record --all` records all",
        "pip install penstock --user",
        "penstock pipeline --optimize --out X",
        "run penstock pipeline A --out X",
        "penstock pipeline … --tables my.sql",
        "import penstock as p",
        "penstock bench log_ipc --quick --anything",
        "penstock -v record A log:x",
        "penstock export A OUT --parquet",
        "run penstock repair X in a shell",
    ],
)
def test_a_right_text_is_left_alone(text: str) -> None:
    assert list(commands.problems(THE, commands.Named("docs/x.md:1", text))) == []
