"""Pages, docstrings, comments and errors are plain English, as far as a machine can tell: subjects that are named, the field's verbs."""

import subprocess
from pathlib import Path

import pytest
from tidy import prose

ROOT = Path(__file__).parents[2]
HERE = ("prose.py", "test_prose.py")


def files():
    done = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.pyi", "*.hpp", "*.cpp"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).exists() and Path(name).name not in HERE]


def faults(texts):
    return [
        f"{text.path}:{text.line}: …{text.words[max(found.start() - 40, 0) : found.end() + 60]}…\n    write: {rule.instead}"
        for text in texts
        for rule in prose.RULES
        for found in rule.pattern.finditer(text.words)
    ]


def test_plain_english():
    found = [fault for path in files() for fault in faults(prose.read(path))]
    assert not found, "\n".join(found)


BAD = [
    "Who waits for room looks for it.",
    "It spins. What is lost is counted.",
    "A word that is written by who goes to sleep.",
    "Whoever finds it repairs it.",
    "Those who wait are woken.",
    "It tends the table.",
    "Lays a pipe to every peer.",
    "The heir begins again.",
    "He looks at the tail.",
    "A writer looks for room busily.",
    "It copies without the interpreter.",
    "The behavior is the same.",
]
GOOD = [
    "What happens when a reader is slow?",
    "It says which peer is there, and who sent the message last.",
    "A waiting writer spins for 50 µs.",
    "The interpreter ends with handles open.",
    "Readers tend to be fast.",
    "The fields are laid out one after the other.",
]


@pytest.mark.parametrize("sentence", BAD)
def test_the_rules_find_bad_sentences(sentence):
    assert faults([prose.Text(Path("page.md"), 1, sentence)])


@pytest.mark.parametrize("sentence", GOOD)
def test_the_rules_leave_good_sentences_alone(sentence):
    assert not faults([prose.Text(Path("page.md"), 1, sentence)])


def test_every_place_of_prose_is_read(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# What it is\n\nWho waits\nsleeps.\n\n| who | what |\n|---|---|\n| a | Who goes is gone. |\n\n```python\nx = 1  # Whoever\n```\n"
    )
    assert [fault.split(":")[1] for fault in faults(prose.read(page))] == ["3", "8", "11"]
    module = tmp_path / "module.py"
    module.write_text(
        '"""Fine.\n\nWho waits sleeps.\n"""\n# It is\n# settled.\nraise ValueError(f"{1}: the heir is gone")\n'
    )
    assert sorted(fault.split(":")[1] for fault in faults(prose.read(module))) == ["3", "5", "7"]
    header = tmp_path / "header.hpp"
    header.write_text(
        '// Fine. Who\n// waits sleeps.\nauto x = "it is laid"\n    " here"; // by who comes\nauto u = "tcp://who";\n'
    )
    assert sorted(fault.split(":")[1] for fault in faults(prose.read(header))) == ["1", "3", "4"]
