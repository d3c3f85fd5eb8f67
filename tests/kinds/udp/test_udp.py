"""`udp:` channels: sessions, codecs, processes that start in any order, fork and die, and what is counted."""

import asyncio
import contextlib
import errno
import json
import logging
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import threading

import pytest
from conformance.subjects import PATIENCE
from ports import free_port

import penstock
from penstock.channels.storage import files

spawn = multiprocessing.get_context("spawn")
SMALL = {"term_length": 1 << 16, "linger": 1.0}


@pytest.fixture
def uri():
    return f"udp://127.0.0.1:{free_port()}/7"


def test_an_aeron_uri_is_the_same_channel(uri):
    aeron = f"aeron:udp?endpoint={uri[6:].partition('/')[0]}|stream-id=7|term-length=64k|mtu=8k"
    with penstock.subscribe(uri) as sub, penstock.publish(aeron, linger=1.0) as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        assert (pub.channel, pub.max_payload) == (aeron, 8192 - 32)
        pub.send(b"x")
        assert sub.recv(timeout=PATIENCE) == b"x"
        assert penstock.inspect(aeron).totals == penstock.inspect(uri).totals
        assert [found.channel for found in penstock.list_channels()] == [uri]
    with pytest.raises(penstock.Invalid, match="says mtu=8192, and the call mtu=4096"):
        penstock.publish(aeron, mtu=4096)


def _echo(uri, back, there):
    with penstock.subscribe(uri) as sub, penstock.publish(back, **SMALL) as pub:
        there.set()
        pub.wait_for_readers(1, timeout=PATIENCE)
        for _ in range(100):
            pub.send(sub.recv(timeout=PATIENCE))


def test_streams_of_one_port_share_its_socket(uri):
    """Two in this process, and a third in another, which receives through this one's socket."""
    base = uri.rpartition("/")[0]
    other, away = f"{base}/8", f"{base}/9"
    with penstock.subscribe(uri) as sub, penstock.subscribe(other) as back:
        there = spawn.Event()
        process = spawn.Process(target=_echo, args=(away, other, there))
        process.start()
        assert there.wait(PATIENCE)
        with penstock.publish(uri, **SMALL) as mine, penstock.publish(away, **SMALL) as pub:
            for one in (mine, pub):
                one.wait_for_readers(1, timeout=PATIENCE)
            for number in range(100):
                mine.send(b"here %d" % number)
                pub.send(b"there %d" % number)
                assert sub.recv(timeout=PATIENCE) == b"here %d" % number
                assert back.recv(timeout=PATIENCE) == b"there %d" % number
                if number == 50:  # its reader is there until it has had all of them
                    assert penstock.inspect(away).details["holder"] == os.getpid()
        process.join()
        assert process.exitcode == 0


def test_a_port_that_another_program_has_is_an_error(uri):
    host, port = uri[6:].partition("/")[0].split(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((host, int(port)))
        with pytest.raises(OSError, match=f"cannot listen at {host}:{port}: Address already in use") as raised:
            penstock.subscribe(uri)
    assert raised.value.errno == errno.EADDRINUSE


def test_messages_of_any_length_in_order(uri):
    """Through fragments, many turns of small terms, and a window that is smaller than one message."""
    lengths = [0, 1, 33, 1376, 1377, 5000, 100_000, 1 << 20]
    with penstock.subscribe(uri) as sub, penstock.publish(uri, **SMALL) as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)

        def send() -> None:
            for number in range(5):
                for length in lengths:
                    pub.send(bytes([number]) * length, timeout=PATIENCE)

        thread = threading.Thread(target=send)
        thread.start()
        for number in range(5):
            for length in lengths:
                assert sub.recv(timeout=PATIENCE) == bytes([number]) * length
        thread.join()
        assert (sub.lost, sub.incomplete) == (0, 0)


def test_every_publication_is_a_session(uri):
    with penstock.subscribe(uri, until_end=True) as sub:
        assert sub.sessions == []
        with penstock.publish(uri, session=5, **SMALL) as one, penstock.publish(uri, codec=None, **SMALL) as other:
            for pub in (one, other):
                pub.wait_for_readers(1, timeout=PATIENCE)
                pub.send(b"from %d" % pub.session)
            got = {}
            for _ in range(2):
                message = sub.recv(timeout=PATIENCE)
                got[sub.last.session] = message
            assert got == {one.session: b"from 5", other.session: b"from %d" % other.session}
            sessions = {found.session: found for found in sub.sessions}
            assert sessions.keys() == got.keys()
            assert {(found.codec, found.state, found.lag) for found in sessions.values()} == {("bytes", "open", 0)}
            one.close()
            other.send(b"last")
        assert list(sub) == [b"last"]


def test_the_first_publication_that_is_heard_says_the_codec(uri):
    with penstock.subscribe(uri) as sub:
        assert sub.codec is None
        assert sub.try_recv() is None
        with penstock.publish(uri, codec="json", **SMALL) as pub:
            pub.send([1, 2])
            assert sub.recv(timeout=PATIENCE) == [1, 2]
            assert sub.codec.kind == "json"
            with penstock.publish(uri, codec="msgpack", **SMALL) as other:
                other.send({"a": 1})
                with pytest.raises(penstock.Mismatch, match=r"sends .*msgpack.* reads .*json.* left out"):
                    sub.recv(timeout=PATIENCE)
                pub.send("on")
                assert sub.recv(timeout=PATIENCE) == "on"


def test_a_subscription_that_named_a_codec_reads_no_other(uri):
    with penstock.subscribe(uri, codec="msgpack") as sub, penstock.publish(uri, codec="json", **SMALL) as pub:
        assert sub.codec.kind == "msgpack"
        pub.send([1])
        with pytest.raises(penstock.Mismatch, match=r"127\.0\.0\.1"):
            sub.recv(timeout=PATIENCE)


def test_messages_wait_for_the_first_receiver(uri):
    with penstock.publish(uri, **SMALL) as pub:
        sent = 0
        while pub.offer(bytes(1000)) is not None:
            sent += 1
        with pytest.raises(penstock.TimedOut, match="no receiver is there"):
            pub.send(bytes(1000), timeout=0.01)
        with penstock.subscribe(uri) as sub:
            assert [len(sub.recv(timeout=PATIENCE)) for _ in range(sent)] == [1000] * sent


def _publish(uri: str, count: int, first: bool) -> None:
    with penstock.publish(uri, codec="json", **SMALL) as pub:
        if first:
            pub.wait_for_readers(1, timeout=PATIENCE)
        for number in range(count):
            pub.send(number, timeout=PATIENCE)


def _subscribe(uri: str, there: object, got: object) -> None:
    with penstock.subscribe(uri, until_end=True) as sub:
        there.set()
        got.put(list(sub))


@pytest.mark.parametrize("first", ["publication", "subscription"])
def test_processes_start_in_any_order(uri, first):
    there, got = spawn.Event(), spawn.SimpleQueue()
    reader = spawn.Process(target=_subscribe, args=(uri, there, got))
    writer = spawn.Process(target=_publish, args=(uri, 3000, first == "publication"))
    processes = [writer, reader] if first == "publication" else [reader, writer]
    processes[0].start()
    if first == "subscription":
        assert there.wait(PATIENCE)
    processes[1].start()
    assert got.get() == list(range(3000))
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0


def _send_ten_and_wait(uri, done):
    pub = penstock.publish(uri, session=77, **SMALL)
    for number in range(10):
        pub.send(b"first %d" % number, timeout=PATIENCE)
    done.set()
    threading.Event().wait()


def test_a_dead_publications_session_number_is_free(uri):
    """The new stream begins at 0, where the old one has been: receivers take it for a session of its own."""
    done = spawn.Event()
    child = spawn.Process(target=_send_ten_and_wait, args=(uri, done))
    with penstock.subscribe(uri) as sub:
        child.start()
        assert [sub.recv(timeout=PATIENCE) for _ in range(10)] == [b"first %d" % number for number in range(10)]
        assert done.wait(PATIENCE)
        with pytest.raises(penstock.Busy, match="session 77 is another publication's; choose another number, or none"):
            penstock.publish(uri, session=77, **SMALL)
        child.kill()
        child.join()
        with penstock.publish(uri, session=77, **SMALL) as pub:
            for number in range(10):
                pub.send(b"second %d" % number, timeout=PATIENCE)
            assert [sub.recv(timeout=PATIENCE) for _ in range(10)] == [b"second %d" % number for number in range(10)]
            assert (sub.last.session, sub.lost) == (77, 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("session", [None, 5])
def test_a_forked_child_sends_in_a_session_of_its_own(uri, session):
    with penstock.subscribe(uri) as sub, penstock.publish(uri, session=session, **SMALL) as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        child = os.fork()
        if child == 0:
            number = 1
            with contextlib.suppress(BaseException):
                pub.send(b"child", timeout=PATIENCE)
                pub.wait_for_readers(1, timeout=PATIENCE)
                pub.close()
                penstock._native.core.udp_finish(PATIENCE)
                number = 0
            os._exit(number)
        pub.send(b"parent")
        got = {sub.recv(timeout=PATIENCE): sub.last.session for _ in range(2)}
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert got.keys() == {b"child", b"parent"}
        assert got[b"parent"] == pub.session != got[b"child"]


def test_a_process_that_ends_sends_what_it_has(uri):
    work = f"import penstock; pub = penstock.publish({uri!r}, codec='json'); [pub.send(n) for n in range(500)]"
    with penstock.subscribe(uri, until_end=True) as sub:
        subprocess.run([sys.executable, "-c", work], check=True, timeout=120)
        assert list(sub) == list(range(500))


def test_a_pickled_publication_is_a_new_session_with_its_options(uri):
    with (
        penstock.subscribe(uri) as sub,
        penstock.publish(uri, session=9, mtu=4096, codec="json", **SMALL) as pub,
        pickle.loads(pickle.dumps(pub)) as again,
    ):
        assert again.session != pub.session == 9
        assert again.max_payload == 4096 - 32
        again.send({"a": 1}, timeout=PATIENCE)
        assert sub.recv(timeout=PATIENCE) == {"a": 1}


def test_subscriptions_of_one_endpoint_share_its_options(uri):
    for given, told in (
        ({"window": 1 << 16}, "window=65536, not 131072"),
        ({"max_members": 2}, "max_members=2, not 64"),
    ):
        with penstock.subscribe(uri, **given):
            with pytest.raises(penstock.Mismatch, match=f"exists with {told}"):
                penstock.subscribe(uri)
            penstock.subscribe(uri, **given).close()
        penstock.remove(uri)


def test_the_network_is_counted(uri):
    with penstock.subscribe(uri) as sub, penstock.publish(uri, **SMALL) as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        for _ in range(50):
            pub.send(bytes(100))
        for _ in range(50):
            sub.recv(timeout=PATIENCE)
        found = pub.statistics().details
        assert found["bytes_sent"] >= 50 * 132
        assert found["bytes_received"] >= 50 * 132
        assert min(found[name] for name in ("datagrams_sent", "datagrams_received", "statuses", "setups")) > 0
        assert (found["malformed"], found["losses"], found["sessions"]) == (0, 0, 1)
        assert penstock.inspect(uri).writers == penstock.inspect(uri).readers == 1


def test_a_publications_counts_are_visible_to_other_processes(uri):
    ask = f"import penstock, json; print(json.dumps(penstock.inspect({uri!r}).details))"

    def others_see():
        return json.loads(subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True).stdout)

    with penstock.publish(uri, **SMALL) as pub:
        while (before := others_see())["setups"] == 0:
            pass
        with penstock.subscribe(uri) as sub:
            pub.wait_for_readers(1, timeout=PATIENCE)
            for _ in range(50):
                pub.send(bytes(100))
            for _ in range(50):
                sub.recv(timeout=PATIENCE)
            own = pub.statistics().details
            while (after := others_see())["bytes_sent"] < own["bytes_sent"]:
                pass
            assert after["datagrams_sent"] > before["datagrams_sent"]
            assert after["sessions"] == 1
        with penstock.publish(uri, **SMALL):  # the counters of two are added
            while others_see()["sessions"] < 1:
                pass
            assert others_see()["setups"] >= after["setups"]
    penstock.remove(uri)
    assert not list(files.folder().glob("*.counts")), "they go with their publication"


def test_a_machine_that_only_sends_lists_its_channel():
    uri = f"udp://127.0.0.1:{free_port()}/-3"
    with penstock.publish(uri, codec="json", **SMALL) as pub:
        (status,) = penstock.list_channels()
        assert (status.channel, status.kind, status.codec, status.writers, status.readers) == (uri, "udp", "json", 1, 0)
        assert status.size > 3 << 16
        assert status.totals == pub.statistics().totals
    penstock.subscribe(uri).close()
    assert penstock.inspect(uri).state == "open"
    penstock.remove(uri)
    assert penstock.list_channels() == []


def test_smaller_buffers_are_told_once(uri, caplog):
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(2):
            penstock.subscribe(uri, window=1 << 29, receive_buffer=1 << 30).close()
            penstock.remove(uri)
    assert len([record for record in caplog.records if "buffer" in record.getMessage()]) == 1


def test_a_small_buffer_of_the_program_is_not_the_systems_fault(uri, caplog):
    with caplog.at_level(logging.WARNING, "penstock"):
        penstock.subscribe(uri, receive_buffer=1 << 16).close()
    [record] = [record.getMessage() for record in caplog.records if "buffer" in record.getMessage()]
    assert record == (
        f"{uri}: a receive buffer of 65536 bytes is too small for the window, which is lowered from 131072 to 16384 bytes. "
        "Give a larger receive_buffer, or ask for a smaller window"
    )


@pytest.mark.parametrize("verb", [penstock.publish, penstock.subscribe])
def test_a_host_that_is_not_there_says_so(uri, verb):
    with pytest.raises(penstock.NotFound, match=r"no host 'nowhere\.invalid'"):
        verb(uri, control="nowhere.invalid:1")
    with pytest.raises(penstock.NotFound, match=r"no host 'nowhere\.invalid'"):
        verb("udp://nowhere.invalid:40001/1")


def test_ipv6():
    uri = f"udp://[::1]:{free_port()}/7"
    with penstock.subscribe(uri) as sub, penstock.publish(uri, **SMALL) as pub:
        pub.send(b"six")
        assert sub.recv(timeout=PATIENCE) == b"six"
        assert sub.channel == uri


def test_a_multicast_group_on_this_machine():
    uri = f"udp://224.0.1.77:{free_port()}/7"
    with penstock.subscribe(uri) as sub, penstock.publish(uri, **SMALL) as pub:
        pub.send(b"to all")
        assert sub.recv(timeout=PATIENCE) == b"to all"


def test_a_wait_says_that_a_group_stays_on_loopback():
    here = "the group is sent on loopback only; for other machines, name an interface"
    with penstock.publish(f"udp://239.255.7.9:{free_port()}/7") as pub:
        with pytest.raises(penstock.TimedOut, match=here):
            pub.wait_for_readers(1, timeout=0)
        with pytest.raises(penstock.TimedOut, match=here):
            asyncio.run(pub.wait_for_readers_async(1, timeout=0))


def test_offer_names_the_property_that_limits_it(uri):
    with penstock.publish(uri) as pub:
        long = bytes(pub.max_payload + 1)
        with pytest.raises(
            penstock.TooLarge, match=rf"offer and claim take up to max_payload, {pub.max_payload} here. Use send.*mtu"
        ):
            pub.offer(long)
        with pytest.raises(penstock.TooLarge, match=rf"claim takes up to {pub.max_payload} bytes here \(max_payload\)"):
            pub.claim(len(long))
        pub.send(long)
