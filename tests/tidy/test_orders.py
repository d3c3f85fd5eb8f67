"""Each ordered operation of core and bindings says which pair it belongs to, and the design pages say the same.

`orders.py` describes the comments and finds the operations.
"""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from tidy import orders

from evidence import anchors
from evidence.explained import ELSEWHERE, EXPLAINED
from evidence.model import KILLERS

ROWS = list(orders.rows())

SOURCE = """
struct Slot { Atomic<uint64_t> state, generation; };
Atomic<uint32_t> &bell();
inline void light_fence(Site site) {}
void f(Slot &s, Batch &batch, Array *array) {
    // SYNC 3: pairs with g; forbids reading
    // before the state. SYNC -: a hint
    if (s.state.acquire() == 1) bell().add(2); // SYNC 4: pairs with A::b and g; forbids it
    batch.add(1);
    array->release(array);
    gate.release();
    light_fence();

    // SYNC 5: pairs with g
    slots(i, j).generation.release(1);
    // SYNC 6: pairs with g; forbids it
    int other = 0;
    s.generation.cas(other, 1);
    s.generation.exchange(1); // SYNC -:
}
"""

Pairs = list[tuple[orders.Ordered, orders.Claim]]


@pytest.fixture(scope="module")
def operations() -> list[orders.Ordered]:
    """All ordered operations. They take seconds, which a process that only collects tests has not."""
    return list(orders.ordered(orders.sources()))


@pytest.fixture(scope="module")
def core(operations: list[orders.Ordered]) -> list[orders.Ordered]:
    """Those that the model checker runs: outside the handles, the ends under them, and what people see of a channel."""
    return [
        operation for operation in operations if not operation.file.startswith(("bind/", "ends/", "front/", "status/"))
    ]


@pytest.fixture(scope="module")
def paired(operations: list[orders.Ordered]) -> Pairs:
    """Those with a number, once for each."""
    return [(operation, claim) for operation in operations for claim in operation.claims if claim.number is not None]


def test_operations_and_their_comments_are_found() -> None:
    found = list(orders.ordered({"ring/a.hpp": SOURCE}))
    pairs = ((3, ("g",)), (None, ()), (4, ("A::b", "g")))
    assert [
        (o.line, o.name, o.side, tuple((c.number, c.partners) for c in o.claims), bool(o.wrong)) for o in found
    ] == [
        (8, "state.acquire", "acquire", pairs, False),
        (8, "bell.add", "both", pairs, False),
        (12, "light_fence", "both", (), True),
        (15, "generation.release", "release", (), True),
        (18, "generation.cas", "both", (), True),
        (19, "generation.exchange", "both", (), True),
    ]
    assert found[0].claims[0].text == "reading before the state."


def test_rows_of_tables_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "| 1 | no | table | this |\n\n| SYNC | release | acquire | forbids |\n|---|---|---|---|\n"
        "| 7 | `A::b`, `c`: the word | `d` | x \\| y |\n\n| 8 | `no` | `more` | rows |\n"
    )
    assert list(orders.rows(tmp_path)) == [orders.Row("a", 7, ("A::b", "c"), ("d",), "x \\| y")]


@pytest.mark.slow
def test_every_ordered_operation_has_a_comment(operations: list[orders.Ordered]) -> None:
    assert [f"{operation.where}: {operation.wrong}" for operation in operations if operation.wrong] == []


def test_atomics_of_the_standard_library_are_in_one_file() -> None:
    """All other files use `Atomic`: the checker can run them, and each order has a name."""
    found = {name for name, text in orders.sources().items() if re.search(r"memory_order|std::atomic|\basm\b", text)}
    assert found == {"ground/atomics.hpp"}


def test_partners_hold_an_operation_of_the_same_number(paired: Pairs) -> None:
    carriers = defaultdict(set)
    for operation, claim in paired:
        carriers[claim.number].add(operation.symbol)
    symbols = anchors.index_of(orders.sources())
    wrong = [
        f"{operation.where}: SYNC {claim.number}: {partner} "
        + ("has no operation of that number" if partner in symbols else "is no function")
        for operation, claim in paired
        for partner in claim.partners
        if partner not in carriers[claim.number]
    ]
    assert wrong == []


def test_each_number_has_one_row_in_a_page_of_its_structure(paired: Pairs) -> None:
    folders = defaultdict(set)
    for operation, claim in paired:
        folders[claim.number].add(operation.file.split("/")[0])
    assert sorted(row.number for row in ROWS) == list(range(len(ROWS))), "one row for each number, without a gap"
    assert {number: files for number, files in folders.items() if number >= len(ROWS)} == {}, "numbers without a row"
    wrong = [row.where for row in ROWS if not any(row.page in orders.PAGES_OF.get(f, ()) for f in folders[row.number])]
    assert wrong == [], "rows in a page of another structure, or without an operation"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"SYNC {row.number}")
def test_a_row_says_what_the_comments_say(row: orders.Row, paired: Pairs) -> None:
    release, acquire = set(row.release), set(row.acquire)
    assert all((release, acquire, row.forbids)), f"{row.where}: both sides, and what is forbidden"
    pairs = [(operation, claim) for operation, claim in paired if claim.number == row.number]
    symbols = {operation.symbol for operation, _ in pairs}
    assert release | acquire == symbols, f"{row.where}: the row's functions, and those whose comments have the number"
    for side, names in (("release", release), ("acquire", acquire)):
        able = {operation.symbol for operation, _ in pairs if operation.side in (side, "both")}
        assert names <= able, f"{row.where}: functions on the side `{side}` without such an operation"
    named = {partner for _, claim in pairs for partner in claim.partners}
    assert symbols == named, f"{row.where}: functions that no partner names"
    for operation, claim in pairs:
        other = (acquire if operation.symbol in release else set()) | (
            release if operation.symbol in acquire else set()
        )
        assert set(claim.partners) <= other, (
            f"{operation.where}: SYNC {row.number}: a partner is on the same side in {row.where}"
        )


def test_numbers_in_prose_are_there() -> None:
    known = {row.number for row in ROWS}
    pages = {f"docs/design/{path.name}": path.read_text() for path in orders.PAGES.glob("*.md")}
    reasons = {"evidence/explained.py": (orders.ROOT / "evidence" / "explained.py").read_text()}
    for name, text in {**orders.sources(), **pages, **reasons}.items():
        mentioned = {
            int(number)
            for said in re.findall(r"SYNC (\d+(?:(?:,| and| or| to) \d+)*)", text)
            for number in re.findall(r"\d+", said)
        }
        assert mentioned <= known, f"{name}: numbers that no table has: {sorted(mentioned - known)}"


def explanations() -> dict[tuple[str, int], str]:
    """File and offset of an operation that is explained whole → the reason."""
    symbols = anchors.index_of(orders.sources())
    found = {}
    for function, pattern, half, why in EXPLAINED:
        place = anchors.place(function, pattern, symbols)
        found.update({(place.file, at): why for at in range(place.start + 1, place.end + 1) if half == "*"})
    return found


def test_an_order_without_a_partner_is_explained_and_no_other_is(core: list[orders.Ordered]) -> None:
    why = explanations()
    for operation in core:
        reason = why.get((operation.file, operation.offset))
        alone = any(claim.number is None for claim in operation.claims)
        if alone:
            assert reason, f"{operation.where}: `SYNC -` but no entry in evidence/explained.py"
            assert reason not in ELSEWHERE, f"{operation.where}: `SYNC -` but another suite judges the order"
        else:
            assert reason is None or reason in ELSEWHERE, (
                f"{operation.where}: explained as needless ({reason}) but numbered"
            )


def test_an_order_whose_loss_is_noticed_has_a_number(core: list[orders.Ordered]) -> None:
    killed = {name.rpartition(" [")[0] for name in json.loads(KILLERS.read_text())}
    wrong = [o.where for o in core if f"{o.symbol}: {o.name}" in killed and all(c.number is None for c in o.claims)]
    assert wrong == []
