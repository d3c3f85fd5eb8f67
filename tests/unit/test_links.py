"""Links of the repository's Markdown lead somewhere, and the check finds those that do not."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("links", ROOT / "tools" / "links.py")
links = sys.modules["links"] = importlib.util.module_from_spec(spec)  # dataclasses look for it there
spec.loader.exec_module(links)


def test_every_link_of_the_sources_leads_somewhere():
    pages = links.sources(ROOT)
    assert len(pages) > 40
    assert [f"{link.page}:{link.line}: {link.target}: {why}" for link, why in links.broken(pages, ROOT)] == []


GOOD = """
# The *first* `word`, and more

## The same
## The same

[own](#the-first-word-and-more) [again](#the-same-1) [other](sub/other.md#here-it-is) [file](sub/other.md "title")
[site](https://example.org/a?b=c#d) [mail](mailto:a@example.org) ![picture](sub/p.svg) <https://example.org>

| a |
|---|
| [in a table](sub/other.md) |

`[in code](nowhere.md)`

```
[in a block](nowhere.md)
```
"""


@pytest.fixture
def folder(tmp_path):
    """A small checkout whose links are right."""
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    (tmp_path / "docs" / "page.md").write_text(GOOD)
    (tmp_path / "docs" / "sub" / "other.md").write_text("# Here it is\n")
    (tmp_path / "docs" / "sub" / "p.svg").write_text("<svg/>")
    return tmp_path


def test_good_links_are_good(folder):
    pages = links.sources(folder)
    assert len(pages) == 2
    assert list(links.broken(pages, folder)) == []
    assert len(links.links_of(pages[0])) == 9


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[a](nowhere.md)", "there is no such file"),
        ("![a](sub/q.svg)", "there is no such file"),
        ("<img src='sub/q.svg'>", "there is no such file"),
        ("| a |\n|---|\n| [x](q.md) |", "there is no such file"),
        ("[a](#no-such-heading)", "page.md has no anchor no-such-heading"),
        ("[a](sub/other.md#here)", "other.md has no anchor here"),
        ("[a](/docs/page.md)", "it leaves this folder"),
        ("[a](../../../etc/passwd)", "it leaves this folder"),
        ("[a](http:///path)", "the host is ''"),
        ("[a](https://example/path)", "the host is 'example'"),
        ("[a](htps://example.org)", "the scheme is 'htps'"),
        ("[a](https://exam_ple.org)", "the host is 'exam_ple.org'"),
    ],
)
def test_a_bad_link_is_found(folder, text, why):
    page = folder / "docs" / "bad.md"
    page.write_text(f"# Bad\n\n{text}\n")
    ((link, found),) = links.broken([page], folder)
    assert found.replace("bad.md", "page.md") == why
    assert link.line >= 1


def test_built_pages_are_checked(folder):
    page = folder / "a.html"
    page.write_text('<h1 id="top">A</h1><a href="#top">x</a><a href="b.html#part">y</a><img src="p.png">')
    (folder / "b.html").write_text('<a name="part"></a>')
    found = [(link.target, why) for link, why in links.broken([page], folder)]
    assert found == [("p.png", "there is no such file")]
    (folder / "c.html").write_text('<a href="b.html#other">y</a><script src="https://example.org/x.js"></script>')
    ((link, why),) = links.broken([folder / "c.html"], folder)
    assert (link.target, why) == ("b.html#other", "b.html has no anchor other")
