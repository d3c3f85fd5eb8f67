"""Sessions of a `udp:` channel in a query: the images of this machine's receivers, and what recorders and the pipeline have of them."""

import time

import pytest
from ports import free_port

import penstock
import penstock.tables
from penstock.channels.storage.looking import looks_at
from penstock.channels.uri.opener import parse

pytest.importorskip("duckdb")


@pytest.fixture
def uri():
    return f"udp://127.0.0.1:{free_port()}/7"


def send(publications, subscription, first, end):
    """Each message by each publication; they are received."""
    for number in range(first, end):
        for who, publication in publications.items():
            publication.send({"who": who, "i": number}, timeout=60)
    for _ in range((end - first) * len(publications)):
        assert subscription.recv(timeout=60) is not None


def ask(lake, uri):
    return [tuple(row.values()) for row in lake.sql(f"select who, i from '{uri}' order by all").to_pylist()]


def every(names, end):
    return [(who, number) for who in names for number in range(end)]


def test_each_message_of_each_session_is_there_once(archive, tmp_path, uri):
    """In memory, then recorded by two recorders in part, then in the tables in part."""
    tables = tmp_path / "tables"
    lake = penstock.lake(tables, archive)
    with (
        penstock.subscribe(uri) as sub,
        penstock.publish(uri, codec="json") as a,
        penstock.publish(uri, codec="json") as b,
    ):
        both = {"a": a, "b": b}
        send(both, sub, 0, 10)
        assert lake.tables() == {uri: ("memory",)}
        assert ask(lake, uri) == every("ab", 10)
        assert len({one.epoch for one in looks_at(parse(uri))}) == 2
        for end in (20, 30):
            with archive.record(uri), archive.record(uri):
                send(both, sub, end - 10, end)
            assert ask(lake, uri) == every("ab", end)
            penstock.tables.run(archive.path, tables)
            assert ask(lake, uri) == every("ab", end)
        send(both, sub, 30, 40)
        assert ask(lake, uri) == every("ab", 40)
        kept = lake.sql(
            f"select recording is null as live, count(*) as n, count(distinct epoch) as e from '{uri}' group by all"
        )
        assert sorted(map(tuple, (row.values() for row in kept.to_pylist()))) == [(False, 40, 2), (True, 40, 2)]
        assert lake.cut(uri).missing == []
    assert ask(lake, uri) == [(who, number) for who in "ab" for number in range(10, 30)]  # as far as recorded


def test_a_session_that_ends_and_another_are_two(archive, uri):
    lake = penstock.lake(archive=archive)
    with penstock.subscribe(uri) as sub, archive.record(uri):
        for who in "ab":
            with penstock.publish(uri, codec="json") as publication:
                send({who: publication}, sub, 0, 10)
                assert ask(lake, uri)[-10:] == every(who, 10)
        assert ask(lake, uri) == every("ab", 10)
    assert ask(lake, uri) == every("ab", 10)


def test_a_query_does_not_join_the_session(uri):
    with penstock.subscribe(uri) as sub, penstock.publish(uri, codec="json") as publication:
        send({"a": publication}, sub, 0, 10)
        before = penstock.inspect(uri)
        assert ask(penstock.lake(), uri) == every("a", 10)
        after = penstock.inspect(uri)
        assert [one.pid for one in after.members] == [one.pid for one in before.members]
        publication.send({"who": "a", "i": 10}, timeout=60)
        while len(ask(penstock.lake(), uri)) < 11:  # before anybody reads it
            time.sleep(0.01)
        assert sub.recv(timeout=60) == {"who": "a", "i": 10}


def test_an_endpoint_without_sessions_is_no_stream(uri):
    with penstock.subscribe(uri), pytest.raises(penstock.NotFound, match="there is no stream udp:"):
        penstock.lake().sql(f"select * from '{uri}'")
