"""A publication with several receivers over unicast: receivers that ask at its control address, and destinations that it names."""

import re
import socket
import subprocess
import sys
import time

import pytest
from network import frames
from network.relay import relay
from ports import free_port

import penstock

PATIENCE = 120
COUNT = 2_000
WINDOW = 1 << 14


def uri(port, stream=7):
    return f"udp://127.0.0.1:{port}/{stream}"


def numbers(sub, count):
    return [int.from_bytes(sub.recv(timeout=PATIENCE), "little") for _ in range(count)]


@pytest.mark.parametrize("flow_control", ["max", "min", {"tag": 5}])
def test_all_that_ask_at_the_control_address_get_everything(flow_control):
    control = f"127.0.0.1:{free_port()}"
    subs = [penstock.subscribe(uri(free_port()), control=control, until_end=True, group_tag=5) for _ in range(3)]
    with penstock.publish(f"udp://{control}/7", control=control, codec="json", flow_control=flow_control) as pub:
        pub.wait_for_readers(3, timeout=PATIENCE)
        for number in range(COUNT):
            pub.send({"number": number}, timeout=PATIENCE)
    for sub in subs:
        with sub:
            assert list(sub) == [{"number": number} for number in range(COUNT)]
            assert sub.lost == 0
            assert [one.source for one in sub.sessions] in ([], [control])


NUMBERED = """
import sys, threading, penstock
pub = penstock.publish(sys.argv[1], control=sys.argv[2], session=5)
pub.wait_for_readers(1)
for number in range(int(sys.argv[3]), 1 << 60):
    pub.send(number.to_bytes(8, "little"), timeout=120)
    threading.Event().wait(0.001)
"""


def test_a_killed_numbered_publication_restarts_at_its_address():
    """A receiver knows it from the one before, though session, address and positions are the same: nothing is taken for a duplicate."""
    control = f"127.0.0.1:{free_port()}"
    with penstock.subscribe(uri(free_port()), control=control) as sub:
        for begin in (0, 1000, 2000):
            arguments = [f"udp://{control}/7", control, str(begin)]
            with subprocess.Popen([sys.executable, "-c", NUMBERED, *arguments]) as process:
                try:
                    while (first := numbers(sub, 1)[0]) < begin:
                        pass  # of the one before
                    assert [first, *numbers(sub, 99)] == list(range(begin, begin + 100))
                finally:
                    process.kill()
        assert sub.lost == 0
        assert sub.statistics().details["duplicates"] == 0


def test_receivers_in_any_order_lose_nothing_over_bad_links(rng):
    control = free_port()
    with relay(control, rng.randrange(1 << 30), loss=0.05) as between:
        early = penstock.subscribe(uri(free_port()), control=f"127.0.0.1:{between.port}", until_end=True)
        with penstock.publish(uri(control), control=f"127.0.0.1:{control}", flow_control="min", linger=20.0) as pub:
            pub.wait_for_readers(1, timeout=PATIENCE)
            for number in range(COUNT):
                pub.send(number.to_bytes(8, "little"), timeout=PATIENCE)
            late = penstock.subscribe(uri(free_port()), control=f"127.0.0.1:{control}", until_end=True)
            pub.wait_for_readers(2, timeout=PATIENCE)
            for number in range(COUNT, 2 * COUNT):
                pub.send(number.to_bytes(8, "little"), timeout=PATIENCE)
        with early, late:
            assert numbers(early, 2 * COUNT) == list(range(2 * COUNT))
            came = [int.from_bytes(message, "little") for message in late]
            assert came == list(range(2 * COUNT - len(came), 2 * COUNT))
            assert len(came) >= COUNT
            assert (early.lost, late.lost) == (0, 0)


def test_destinations_are_named_added_and_removed():
    first, second, third = free_port(), free_port(), free_port()
    at = [f"127.0.0.1:{port}" for port in (first, second, third)]
    subs = [penstock.subscribe(uri(port), until_end=True) for port in (first, second, third)]
    with penstock.publish(uri(first), destinations=[at[1]], flow_control="min") as pub:
        pub.wait_for_readers(2, timeout=PATIENCE)
        pub.send(b"two")
        assert [sub.recv(timeout=PATIENCE) for sub in subs[:2]] == [b"two", b"two"]
        assert pub.add_destination(at[2])
        assert not pub.add_destination(at[2])
        pub.wait_for_readers(3, timeout=PATIENCE)
        pub.send(b"three")
        assert [sub.recv(timeout=PATIENCE) for sub in subs] == [b"three"] * 3
        assert pub.remove_destination(at[1])
        assert not pub.remove_destination(at[1])
        pub.send(b"two again")
        assert [subs[index].recv(timeout=PATIENCE) for index in (0, 2)] == [b"two again"] * 2
        assert subs[1].try_recv() is None
    for sub in (subs[0], subs[2]):
        assert list(sub) == []
    for sub in subs:
        sub.close()


def test_min_waits_for_the_slowest_of_all():
    ports = free_port(), free_port()
    fast, slow = (penstock.subscribe(uri(port), window=WINDOW) for port in ports)
    with (
        fast,
        slow,
        penstock.publish(
            uri(ports[0]), destinations=[f"127.0.0.1:{ports[1]}"], flow_control="min", term_length=1 << 16
        ) as pub,
    ):
        pub.wait_for_readers(2, timeout=PATIENCE)
        sent, came, full = 0, [], False
        while not (
            full and sent > WINDOW // 1000
        ):  # it may be full for a moment before that: what it sends waits for its turn
            came += fast.poll()
            try:
                pub.send(bytes(1000), timeout=0.05)
            except penstock.TimedOut:
                full = True
            else:
                sent, full = sent + 1, False
        assert len(came) < sent, "what the slow one has no room for is not sent at all"
        read = 0
        while read < sent or len(came) < sent:
            read += len(slow.poll())
            came += fast.poll()
        pub.send(bytes(1000), timeout=PATIENCE)


def test_an_unproved_address_draws_no_more_than_it_sends():
    """A request of 36 bytes draws nothing, two draw a SETUP of 40; and messages are only for receivers."""
    control = free_port()
    with (
        penstock.publish(uri(control), control=f"127.0.0.1:{control}", codec="json") as pub,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        for _ in range(2):
            stranger.sendto(frames.status(0, 0, 0, 0, 0, 1, frames.SEND_SETUP), ("127.0.0.1", control))
        stranger.settimeout(PATIENCE)
        first = stranger.recv(1 << 16)
        drawn, kinds = len(first), {int.from_bytes(first[6:8], "little")}
        stranger.settimeout(0.3)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            try:
                datagram = stranger.recv(1 << 16)
            except TimeoutError:
                continue
            drawn += len(datagram)
            kinds.add(int.from_bytes(datagram[6:8], "little"))
        assert kinds == {frames.SETUP}
        assert drawn == 40
        with penstock.subscribe(uri(free_port()), control=f"127.0.0.1:{control}") as sub:
            pub.wait_for_readers(1, timeout=PATIENCE)
            pub.send("only for receivers")
            assert sub.recv(timeout=PATIENCE) == "only for receivers"
        stranger.settimeout(0.01)
        with pytest.raises(TimeoutError):
            while True:
                assert stranger.recv(1 << 16)[6:8] == frames.SETUP.to_bytes(2, "little")


def test_wrong_arguments_are_refused_with_a_reason():
    at = uri(free_port())
    with pytest.raises(penstock.Invalid, match="exclude each other"):
        penstock.publish(at, control="127.0.0.1:1", destinations=["127.0.0.1:2"])
    with pytest.raises(penstock.Invalid, match="multicast group"):
        penstock.publish(at, destinations=["224.0.1.1:40000"])
    with pytest.raises(penstock.Invalid, match="write HOST:PORT"):
        penstock.subscribe(at, control="nowhere")
    with pytest.raises(penstock.Invalid, match="a list of fewer than 64"):
        penstock.publish(at, destinations=[f"127.0.0.1:{port}" for port in range(1, 65)])
    with penstock.publish(at) as pub, pytest.raises(penstock.Unsupported, match="destinations="):
        pub.add_destination("127.0.0.1:2")
    with (
        penstock.subscribe(at, control="127.0.0.1:3"),
        pytest.raises(penstock.Mismatch, match=r"control=127\.0\.0\.1:3"),
    ):
        penstock.subscribe(at, control="127.0.0.1:4")


def test_aerons_words():
    control = f"127.0.0.1:{free_port()}"
    with (
        penstock.subscribe(f"aeron:udp?endpoint=127.0.0.1:{free_port()}|control={control}|stream-id=7") as sub,
        penstock.publish(f"aeron:udp?control={control}|control-mode=dynamic|stream-id=7") as pub,
    ):
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(b"heard")
        assert sub.recv(timeout=PATIENCE) == b"heard"


def test_a_refused_destination_is_told_with_the_channel():
    uri = f"udp://127.0.0.1:{free_port()}/7"
    with penstock.publish(penstock.Udp(uri[6:], destinations=[f"127.0.0.1:{at}" for at in range(1, 64)])) as pub:
        refused = {
            "127.0.0.1:99": (penstock.Invalid, "a publication has at most 64 destinations"),
            "nocolon": (penstock.Invalid, "a destination 'nocolon' has no port"),
            "239.1.1.1:5": (penstock.Invalid, "a destination 239.1.1.1:5 is a multicast group"),
            "nowhere.invalid:5": (penstock.NotFound, "there is no host 'nowhere.invalid'"),
            "[::1]:5": (penstock.Invalid, "IPv4 and IPv6 do not mix"),
        }
        for address, (error, told) in refused.items():
            with pytest.raises(error) as caught:
                pub.add_destination(address)
            assert str(caught.value).startswith(f"{uri}: ")
            assert told in str(caught.value)
        with pytest.raises(penstock.Invalid, match=f"^{re.escape(uri)}: a destination 'nocolon' has no port"):
            pub.remove_destination("nocolon")
