"""Planted bugs, explained mutants and remembered killers name places of the C++ sources: each is found once."""

import json

import pytest

from evidence import anchors, planted_native
from evidence.bug_list import BUGS, Bug
from evidence.bugs import PROGRAMS
from evidence.explained import EXPLAINED
from evidence.model import HALVES, KILLERS, functions, sources

SOURCE = """
#include "a.hpp" // not { a brace
namespace n {
template <class T> class Box final : public Base<T> {
  public:
    explicit Box(int a) : a_{a}, b_(f(a)) { start(); }
    ~Box() { stop(); }
    bool operator==(const Box &other) const { return a_ == other.a_; }
    struct alignas(64) Part {
        int get() const { return "}" [0]; }
    } part;
    int size = f(1);

  private:
    int a_{0};
};
inline void Box<int>::Part::set(int to) { for (int i = 0; i < to; ++i) { word->at(i).release(i); } }
inline int f(int a) { if (a > 0) return g(a, h(a)); return g(a, 0); }
inline int f(long a) { return word(1, 2).acquire(); }
enum class Kind : int { one = 1 };
inline constexpr int table[] = {1, 2};
} // namespace n
"""


def index() -> dict[str, list[anchors.Function]]:
    return anchors.index_of({"a.hpp": SOURCE})


def test_functions_are_found_by_their_names() -> None:
    assert {symbol: len(found) for symbol, found in index().items() if "set" not in symbol} == {
        "Box::Box": 1,
        "Box::~Box": 1,
        "Box::operator==": 1,
        "Box::Part::get": 1,
        "f": 2,
    }


@pytest.mark.parametrize(
    ("symbol", "pattern", "found"),
    [
        ("Box::Box", "start ( ) ;", "start();"),
        ("Box::Box", "a_{$a}", "a_{a}"),
        ("f", "if ($a) return g($b);", "if (a > 0) return g(a, h(a));"),
        ("f", "g(a, $a(a))", "g(a, h(a))"),
        ("f", "return word($a).acquire", "return word(1, 2).acquire"),
    ],
)
def test_a_pattern_fits_code(symbol: str, pattern: str, found: str) -> None:
    place = anchors.place(symbol, pattern, index())
    assert SOURCE[place.start : place.end] == found


@pytest.mark.parametrize(("symbol", "pattern"), [("f", "g($a)"), ("f", "gone"), ("gone", "g"), ("Box::Box", "stop")])
def test_a_pattern_that_does_not_fit_once_is_refused(symbol: str, pattern: str) -> None:
    with pytest.raises(LookupError, match=symbol):
        anchors.place(symbol, pattern, index())


def test_holes_and_the_whole_can_be_used_again() -> None:
    places = index()
    first, second = anchors.place("f", "if ($a) return", places), anchors.place("Box::~Box", "stop();", places)
    text = anchors.replaced({"a.hpp": SOURCE}, [(first, "if (!($a)) return"), (second, "begin(); $0")])["a.hpp"]
    assert "if (!(a > 0)) return g" in text
    assert "{ begin(); stop(); }" in text
    with pytest.raises(LookupError, match="overlap"):
        anchors.replaced({"a.hpp": SOURCE}, [(first, ""), (anchors.place("f", "a > 0", places), "")])


def test_an_operation_is_named_by_its_function() -> None:
    line = next(number for number, text in enumerate(SOURCE.splitlines(), 1) if "acquire" in text)
    column = SOURCE.splitlines()[line - 1].index("acquire(") + len("acquire(")
    found = anchors.operation_at("a.hpp", line, column, SOURCE, index())
    assert (found.symbol, found.name) == ("f", "word.acquire")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_each_planted_bug_fits_once(bug: Bug) -> None:
    changes = [(anchors.place(function, good, functions()), bad) for function, good, bad in bug.edits]
    changed = anchors.replaced(sources(), changes)
    assert changed
    assert all(text.split() != sources()[name].split() for name, text in changed.items())
    assert set(bug.programs) <= set(PROGRAMS)


def test_planted_bugs_have_names_of_their_own() -> None:
    assert len({bug.what for bug in BUGS}) == len(BUGS)


def test_bugs_of_the_bindings_fit_together() -> None:
    texts = planted_native.sources()
    changed = planted_native.planted_sources(texts)
    for number in range(1, len(planted_native.NATIVE_BUGS) + 1):
        assert sum(text.count(f"planted({number})") for text in changed.values()) == 1


@pytest.mark.parametrize("entry", EXPLAINED, ids=lambda entry: f"{entry[0]} {entry[1]} {entry[2]}")
def test_each_explained_mutant_fits_once(entry: tuple[str, str, str, str]) -> None:
    function, pattern, half, why = entry
    anchors.place(function, pattern, functions())
    assert half == "*" or any(half in halves for halves in HALVES.values())
    assert why


def test_remembered_killers_name_operations_that_are_there() -> None:
    known = {f"{operation.symbol}: {operation.name}" for operation in anchors.operations(functions())}
    assert {name.rpartition(" [")[0] for name in json.loads(KILLERS.read_text())} <= known
