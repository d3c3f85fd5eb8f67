"""Configurations: mistakes are told in one line that names the place, and nothing else is ever raised."""

import contextlib
import dataclasses
import os
import re
import subprocess
import types
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.cli.channels.publishing import npz_records
from penstock.cli.tables.pipeline import _schemas as schemas
from penstock.kinds.udp import keys
from penstock.record.serve import server
from penstock.spark.parsing import definitions
from penstock.util.files import served_files, user_files
from penstock.watch.blackbox import BlackBox, toml_words
from penstock.watch.blackbox.config import Config, Trigger, load, read
from penstock.watch.blackbox.expressions import Condition, MissingField

PYTHONS = re.compile(r"`|\b(NoneType|None|str|int|float|bool|dict|object|Object|Expected)\b")  # its names of types
READERS = {  # of all files that a user names as configuration
    "black box": load,
    "schemas": lambda path: schemas([f"@{path}"]),
    "tables": lambda path: definitions.load([path]),
    "token": served_files.read_token,
    "roots": lambda path: served_files._read_roots(str(path)),
    "certificate": lambda path: server._certificate(str(path)),
    "key": keys.read,
    "npz": npz_records,
}
GOOD = 'archive = "a"\nchannels = ["robot/*"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("archive = \nx", "not TOML: Invalid value (at line 1, column 11)"),
        ('channels = ["a"]', "the key archive is missing: write archive = "),
        (GOOD + 'befor = "3s"', "there is no key befor: is before meant?"),
        (
            GOOD + "x = 3",
            "there is no key x: the keys are after, archive, before, channels, cool_down, drop_after, longest",
        ),
        (GOOD + "[[trigger]]\ndeath = 'a'\nnmae = 'b'", "trigger 1: there is no key nmae: is name meant?"),
        (
            'archive = 3\nchannels = ["a"]',
            'archive is a whole number: it must be a text, as archive = "/var/log/robot"',
        ),
        (
            GOOD.replace("channels", "#") + "channels = 1.5",
            'channels is a number: it must be an array, as channels = ["robot/*"]',
        ),
        ('archive = "a"\nchannels = ["a", 3]', "channels 2 is a whole number: it must be a text"),
        (GOOD + "before = true", 'before is a truth value: it must be a number or a text, as before = "30s"'),
        (GOOD + "before = 1979-05-27T07:32:00Z", "before is a date and time: it must be a number or a text"),
        (GOOD + "after = 07:32:00", "after is a time: it must be a number or a text"),
        (GOOD + "cool_down = {a = 1}", "cool_down is a table: it must be a number or a text"),
        (GOOD + "signal = 1", "signal is a whole number: it must be true or false, as signal = true"),
        (GOOD + "max_bytes = 1.5", "max_bytes is a number: it must be a whole number or a text"),
        (
            GOOD + "drop_after = -1",
            "drop_after is out of its range: it must be a number of at least 0, as drop_after = 0.5",
        ),
        (
            GOOD + "[trigger]\nname = 'x'",
            "trigger is a table: it must be an array, as [[trigger]], in a line of its own",
        ),
        (GOOD + "[[trigger]]\nmessage = 3\nwhen = 'a'", "trigger 1, key message is a whole number: it must be a text"),
        (
            GOOD + "[[trigger]]\nrate = 'log:a'\nabove = true",
            "trigger 1, key above is a truth value: it must be a number or a text",
        ),
        (
            GOOD + "[[trigger]]\nrate = 'log:a'\nabove = 'x'",
            "trigger 1: above is 'x': with rate it must be a number of messages",
        ),
        (GOOD + "[[trigger]]\nrate = 'log:a'\nbelow = -1", "trigger 1: below is -1: with rate it must be"),
        (
            GOOD + 'after = "10s"\nlongest = "3s"',
            "longest is '3s' and after is '10s': no snapshot may take less than after",
        ),
        (GOOD + "longest = 9", "longest is 9 and after is '10s'"),
        (GOOD + "[[trigger]]\nmessage = 'log:a'\nwhen = 'a == true'", "write True for the value"),
        (
            GOOD + "[[trigger]]\nmessage = 'log:a'\nwhen = 'a ** 2 > 1'",
            "'a ** 2' has no place in a condition: it takes comparisons",
        ),
        (
            GOOD + "[[trigger]]\nmessage = 'log:a'\nwhen = 'a if b else c'",
            "'a if b else c' has no place in a condition",
        ),
        (GOOD + "before = -3", "before is -3"),
        (GOOD + 'before = "soon"', "before is 'soon'"),
        (GOOD + 'max_bytes = "much"', "max_bytes is 'much'"),
        ('archive = "s3://b/a"\nchannels = ["a/*"]', "must be a folder of this machine"),
        ('archive = "a"\nchannels = []', "channels is empty"),
        ('archive = "a"\nchannels = ["zmq+tcp://a:1"]', "channels is 'zmq+tcp://a:1'"),
        (GOOD + "signal = false", "nothing could begin a snapshot"),
        (GOOD + "[[trigger]]\nname = 'x'", "trigger 1: it has none of message, rate"),
        (GOOD + "[[trigger]]\ndeath = 'a'\ncall = 'b'", "trigger 1: it has death and call of"),
        (GOOD + "[[trigger]]\ndeath = 'a'\nabove = 3", "trigger 1: above has no effect with death"),
        (GOOD + "[[trigger]]\nsilence = 'log:a'", "trigger 1: silence needs longer"),
        (GOOD + "[[trigger]]\nsilence = 'log:a'\nlonger = 'x'", "trigger 1: longer is 'x'"),
        (GOOD + "[[trigger]]\nrate = 'log:a'", "trigger 1: rate needs above or below"),
        (GOOD + "[[trigger]]\nrate = 'log:a'\nabove = 1\nbelow = 2", "every rate would be a reason"),
        (GOOD + "[[trigger]]\nrate = 'a/*'\nabove = 1", "rate is 'a/*': it must be one channel"),
        (GOOD + "[[trigger]]\nmessage = 'log:a'\nwhen = 'a ='", "trigger 1: when: 'a =' is not a condition"),
        (GOOD + "[[trigger]]\nmessage = 'pipe:a'\nwhen = 'a'", "goes to one reader"),
        (GOOD + "[[trigger]]\nmessage = 'ring:a'\nwhen = 'a'\nblock = true", "block has no effect with ring:a"),
        (GOOD + "[[trigger]]\ncall = 'a'\n[[trigger]]\ncall = 'a'", "trigger 2: another trigger is called 'call a'"),
        (GOOD + "[[trigger]]\nlatency = 'log:a'\nabove = '1ms'\nquantile = 2", "trigger 1, key quantile"),
        (GOOD + "[[trigger]]\nlatency = 'log:a'\nbelow = '2ms'", "trigger 1: below has no effect with latency"),
        (
            GOOD + "[[trigger]]\nrate = 'log:a'\nbelow = '2ms'",
            "trigger 1: below is '2ms': with rate it must be a number",
        ),
        (GOOD + "cool_down = '-1s'", "cool_down is '-1s': it must be 0 or more seconds"),
        (GOOD + "[[trigger]]\nmessage = 'log:a'\nwhen = 'max(a, key=b)'", "max takes values alone, and key is named"),
        (GOOD + "[[trigger]]\nmessage = 'log:a'\nwhen = 'abs(a, b) > 1'", "abs takes one value, not 2"),
        (GOOD + "[[trigger]]\nmessage = 'log:a'\nwhen = 'a > max()'", "max takes at least one value, not 0"),
        (GOOD + "[[trigger]]\nmessage = 'log:a'\nwhen = '\"%d\" % a'", "a text cannot be divided: % is the rest"),
        ('archive = "a"\nchannels = ["fake:*"]', "channels is 'fake:*': no channel in shared memory matches it"),
        ('archive = "a"\nchannels = ["zmq+*:*"]', "channels is 'zmq+*:*': no channel in shared memory matches it"),
    ],
)
def test_mistake_is_told_with_its_place(text, said):
    with pytest.raises(penstock.Invalid) as raised:
        read(text.encode(), "box.toml")
    assert str(raised.value).startswith("box.toml")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not PYTHONS.search(str(raised.value))


@pytest.mark.parametrize("key", ["before", "after", "cool_down", "longest", "above", "over", "longer"])
def test_span_is_within_a_century(key):
    """Whatever passes here can be waited for, and counted in nanoseconds."""
    place = {"above": "latency = 'log:a'", "over": "rate = 'log:a'\nbelow = 1", "longer": "silence = 'log:a'"}.get(key)
    text = GOOD + ("" if place is None else f"[[trigger]]\n{place}\n") + f"{key} = "
    read(f"{text}'36525d'".encode(), "box.toml")
    for wrong in ("1e300", "1" + "0" * 20, "1e10", "inf", "nan", "-1", "'1e300'", "'-1s'", "'nan'", "'36526d'"):
        with pytest.raises(penstock.Invalid, match=rf"{key} is .*: it must be (0 or )?more .*100 years"):
            read((text + wrong).encode(), "box.toml")


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(penstock.NotFound, match="no configuration"):
        load(tmp_path / "nope.toml")


@pytest.mark.parametrize("read_file", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("make", "kind"), [(os.mkfifo, "a FIFO"), (os.mkdir, "a folder"), (None, "a device")])
def test_only_a_regular_file_is_a_configuration(tmp_path, read_file, make, kind):
    """A FIFO or a device would keep the program waiting."""
    path = Path("/dev/zero")
    if make is not None:
        path = tmp_path / "it.toml"
        make(path)
        path.chmod(0o600)
    with pytest.raises(penstock.Invalid, match=f"is (no file|{kind}: name a regular file)"):
        read_file(path)


def test_endless_file_is_no_configuration(tmp_path):
    with open(tmp_path / "it.toml", "wb") as file:
        file.truncate(user_files.MOST + 1)
    with pytest.raises(penstock.Invalid, match="it is no configuration"):
        load(tmp_path / "it.toml")


def test_longest_covers_after_unless_it_is_given():
    assert read(GOOD.encode(), "box.toml").seconds("longest") == 300
    assert read((GOOD + 'after = "10m"').encode(), "box.toml").seconds("longest") == 600
    assert read((GOOD + 'after = "10m"\nlongest = "600s"').encode(), "box.toml").seconds("longest") == 600


@pytest.mark.parametrize(
    ("text", "message", "said"),
    [
        ("n > 3", {"n": None}, "nothing > a whole number: these cannot be compared"),
        ("n > 3", {"n": "x"}, "a text > a whole number: these cannot be compared"),
        ("n + 1 > 3", {"n": "x"}, "a text + a whole number: these cannot be calculated with"),
        ("n % 2 > 3", {"n": [1]}, "an array % a whole number: these cannot be calculated with"),
        ("n % 2 > 3", {"n": "%999999999d"}, "a text % a whole number: these cannot be calculated with"),
        ("n * m > 3", {"n": [1], "m": 1 << 60}, "an array * a whole number: these cannot be calculated with"),
        ("n * m > 3", {"n": 1 << 60, "m": "x"}, "a whole number * a text: these cannot be calculated with"),
        ("abs(n) > 1", {"n": {}}, "a table is no number"),
        ("n[0] > 1", {"n": None}, "nothing has no parts"),
        ("n['a'] > 1", {"n": [1]}, "the parts of an array have numbers, and a text was given"),
        ("n['a'] > 1", {"n": {}}, "a table has no part 'a'"),
        ("n[7] > 1", {"n": []}, "an array has not so many parts"),
        ("3 in n", {"n": 3}, "a whole number has no parts"),
        ("len(n) > 3", {"n": 3}, "a whole number has no parts"),
        ("max(n) > 3", {"n": 3}, "a whole number has no parts"),
        ("n > 3", {"n": np.arange(3)}, "an array has no truth value: compare one of its parts"),
    ],
)
def test_condition_that_fails_is_told_in_plain_words(text, message, said):
    with pytest.raises((TypeError, ValueError, LookupError)) as raised:
        Condition(text)(message)
    assert toml_words.explain_error(raised.value).startswith(said)


words = st.sampled_from([*Config.__struct_fields__, *Trigger.__struct_fields__, "nope"])
values = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.text(max_size=12),
    st.sampled_from(["log:a", "ring:a", "pipe:a", "robot/*", "1s", "30s", "0s", "5ms", "20GB", "any", "a > 3", "a.b"]),
    st.lists(st.sampled_from(["log:a", "*", "", "nope:x"]), max_size=3),
)


def as_toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(letter):08X}" for letter in value if not 0xD800 <= ord(letter) < 0xE000) + '"'
    return repr(value)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(words, values, max_size=8),
    st.lists(st.dictionaries(words, values, max_size=4), max_size=3),
    st.booleans(),
)
def test_any_configuration_is_read_or_refused(top, triggers, sound):
    base = {"archive": "a", "channels": ["robot/*"]} if sound else {}
    lines = [f"{key} = {as_toml(value)}" for key, value in (base | top).items() if key != "trigger"]
    for one in triggers:
        lines += ["[[trigger]]", *(f"{key} = {as_toml(value)}" for key, value in one.items())]
    found, said = None, ""
    try:
        found = read("\n".join(lines).encode(), "f.toml")
    except penstock.Invalid as error:
        said = str(error)
    assert isinstance(found, Config) != bool(said)
    assert "\n" not in said
    assert "NoneType" not in said
    assert "Expected `" not in said


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda text: text.encode(errors="replace"))))
def test_any_bytes_are_refused_in_one_line(raw):
    with pytest.raises(penstock.Invalid) as raised:
        read(raw, "f.toml")
    assert "\n" not in str(raised.value)


class Pose(msgspec.Struct):
    x: float
    parts: dict[str, int]


@dataclasses.dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    ("text", "message", "fits"),
    [
        ("n > 3", {"n": 4}, True),
        ("n > 3 and not parked", {"n": 4, "parked": True}, False),
        ("gyro[2] < -1", {"gyro": [0, 0, -2]}, True),
        ("a.b.c == 'x'", {"a": {"b": {"c": "x"}}}, True),
        ("abs(x) > 2", Pose(-3.0, {}), True),
        ("parts.left >= 2", Pose(0.0, {"left": 2}), True),
        ("x in (1, 2)", Point(2), True),
        ("v > 1", np.array((2.0,), dtype=[("v", "f8")])[()], True),
        ("message == b'stop'", b"stop", True),
        ("'oom' in message", {"message": "oom here"}, True),
        ("'oom' in message.message", {"message": {"message": "oom"}}, True),
        ("'oom' in message", {"oom": 1}, True),
        ("len(message) > 3", b"abc", False),
        ("state is None", {"state": None}, True),
        ("1 < n <= 3", {"n": 3}, True),
    ],
)
def test_condition_sees_a_messages_fields(text, message, fits):
    assert Condition(text)(message) is fits


def test_condition_on_a_field_that_is_not_there():
    with pytest.raises(MissingField):
        Condition("nope > 3")({"n": 1})
    with pytest.raises(MissingField):
        Condition("n.real")({"n": 1})
    with pytest.raises(MissingField):
        Condition("x.y")(types.SimpleNamespace(x=1))


@pytest.mark.parametrize(
    "text",
    [
        "", "3 > 2", "__import__('os')", "a.__class__", "(lambda: a)()", "[x for x in a]", "open('f')", "a := 3", "a ** 99",
        "f'{a}'", "'x' * a", "len(a=1)", "a if b else c", "print(a)", "_a > 1", "a\nb", "a;b", "abs", "await a", "yield a", "{a: 1}",
    ],
)  # fmt: skip
def test_condition_refuses_all_else(text):
    with pytest.raises(penstock.Invalid):
        Condition(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abn.[]()'\"<>=!+-*/%,: 0123456789notandorilmx_", max_size=40))
def test_any_condition_is_read_or_refused(text):
    try:
        condition = Condition(text)
    except penstock.Invalid:
        return
    with contextlib.suppress(
        MissingField, TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, OverflowError
    ):
        condition({"a": 1, "b": "x", "n": [1, 2]})


@pytest.mark.parametrize(
    "archive", ["x" * 256, "a/" + "x" * 300 + "/b", "a\\u0000", "a/" * 3000, "/dev/null", "/dev/null/a"]
)
def test_an_archive_that_cannot_be_is_told_at_once(archive):
    with pytest.raises(penstock.Invalid, match=r"box.toml: archive(:| is) .*(too long|NUL|no folder)"):
        read(f'archive = "{archive}"\nchannels = ["*"]'.encode(), "box.toml")


def test_an_archive_that_cannot_be_written_is_told_at_once(disk):
    """Not when the trigger fires: then it is too late."""
    text = f'archive = "{disk}/new/archive"\nchannels = ["robot/*"]\n'.encode()
    read(text, "box.toml")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(penstock.Invalid, match=rf"archive: {disk} cannot be written: mount it writable, or name"):
        read(text, "box.toml")


RATE, LATENCY = {"rate": "log:a"}, {"latency": "log:a", "above": 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"channels": []}, "channels is empty"),
        ({"channels": ["zmq+tcp://a:1"]}, "it is not in shared memory"),
        ({"channels": "robot/*"}, "channels is a text: it must be an array"),
        ({"archive": 5}, "archive is a whole number: it must be a text"),
        ({"before": 0}, "before is 0"),
        ({"before": None}, "before is nothing"),
        ({"drop_after": -1}, "drop_after is out of its range"),
        ({"drop_after": np.nan}, "drop_after is out of its range"),
        ({"pixels": "zstd"}, "pixels is a text: it must be true or false"),
        ({"signal": 5}, "signal is a whole number"),
        ({"longest": "1s", "after": "10s"}, "no snapshot may take less than after"),
        ({"trigger": "x"}, "trigger is a text: it must be an array"),
        ({"trigger": ["x"]}, "trigger 1 is a text: it must be a table"),
        ({"trigger": None}, "trigger is nothing"),
        ({"trigger": [Trigger()]}, "trigger 1: it has none of"),
        ({"trigger": [Trigger(name=None, death="a")]}, "trigger 1, key name is nothing"),
        ({"trigger": [Trigger(**RATE)]}, "rate needs above or below"),
        ({"trigger": [Trigger(**RATE, above=1, quantile=0.5)]}, "quantile has no effect with rate"),
        ({"trigger": [Trigger(**RATE, above=1, when="a")]}, "when has no effect with rate"),
        ({"trigger": [Trigger(**RATE, below=np.nan)]}, "below is nan"),
        ({"trigger": [Trigger(message="log:a")]}, "message needs when"),
        ({"trigger": [Trigger(message="log:a", when="a", over=1)]}, "over has no effect with message"),
        ({"trigger": [Trigger(silence="log:a")]}, "silence needs longer"),
        ({"trigger": [Trigger(call="a", death="b")]}, "it has death and call"),
        ({"trigger": [Trigger(**LATENCY, quantile=2)]}, "key quantile is out of its range"),
    ],
)
def test_configuration_of_a_program_is_checked(tmp_path, given, said):
    """As that of a file, before anything is watched."""
    with pytest.raises(penstock.Invalid, match=r"^config: ") as raised:
        BlackBox(Config(**{"archive": f"{tmp_path}/new", "channels": ["a/*"], **given}))
    assert said in str(raised.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("config", [None, 5, {"archive": "a"}, Config])
def test_only_a_config_is_one(config):
    with pytest.raises(penstock.Invalid, match=r"^config is .*it must be a Config"):
        BlackBox(config)


def test_functions_of_a_box_are_checked(tmp_path):
    config = Config(archive=str(tmp_path), channels=["a/*"], signal=False)
    for name in ("on_firing", "on_snapshot"):
        with pytest.raises(penstock.Invalid, match=rf"^{name} is 5: it must be a function"):
            BlackBox(config, **{name: 5})
    with BlackBox(config) as box:
        assert box.fire("it")


@pytest.mark.parametrize("path", [None, 5, 1.5, "a\0b", []])
@pytest.mark.parametrize("reader", [load, server._certificate, npz_records])
def test_only_a_path_is_one(reader, path):
    """A number would be the descriptor of a file of the program."""
    with pytest.raises(penstock.Invalid):
        reader(path)


def test_only_bytes_are_read_as_a_configuration():
    with pytest.raises(penstock.Invalid, match=r"^box.toml: None is not the bytes"):
        read(None, "box.toml")
    with pytest.raises(penstock.Invalid, match="a trigger has none of"):
        Trigger().watch
