"""Machines whose clocks differ: a relay changes every time that the sender tells, so its clock seems to be an hour behind, or ahead."""

import socket
import struct
import subprocess
import sys
import threading

import pytest
from ports import free_port

import penstock

PATIENCE = 60
HOUR = 3600 * 10**9
DATA, EXTENSION, CLOCK_ANSWER = 1, 0xFFFF, 5


class OtherClock:
    """A relay between a sender and a receiver here. The sender's clock is ahead by so many nanoseconds. Ends with its block."""

    def __init__(self, target, ahead_ns):
        self.target, self.ahead_ns, self.sender, self.ended = ("127.0.0.1", target), ahead_ns, None, False
        self.near, self.far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for one in (self.near, self.far):
            one.bind(("127.0.0.1", 0))
            one.settimeout(0.1)
        self.port = self.near.getsockname()[1]
        self.threads = [threading.Thread(target=self.there), threading.Thread(target=self.back)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        for thread in self.threads:
            thread.join()
        self.near.close()
        self.far.close()

    def there(self):
        while not self.ended:
            try:
                datagram, self.sender = self.near.recvfrom(65536)
            except TimeoutError:
                continue
            self.far.sendto(self.changed(bytearray(datagram)), self.target)

    def back(self):
        while not self.ended:
            try:
                self.near.sendto(self.far.recv(65536), self.sender)
            except TimeoutError:
                continue

    def changed(self, datagram):
        """With the times that another clock would show."""
        at = 0
        while at + 24 <= len(datagram):
            length, _, kind = struct.unpack_from("<iHH", datagram, at)
            if kind == EXTENSION and struct.unpack_from("<H", datagram, at + 20)[0] == CLOCK_ANSWER:
                number, ns = datagram[24:].split()
                text = number + b" %d" % (int(ns) + self.ahead_ns)
                return struct.pack("<i", 24 + len(text)) + datagram[4:22] + struct.pack("<H", len(text)) + text
            if kind != DATA or length <= 0:
                break
            (ns,) = struct.unpack_from("<q", datagram, at + 24)
            struct.pack_into("<q", datagram, at + 24, ns + self.ahead_ns if ns else 0)
            at += length + 31 & ~31
        return datagram


def session(sub):
    (one,) = sub.statistics().network.sessions
    return one


def measured(pub, sub):
    """The session, once its clock has been measured."""
    pub.wait_for_readers(1, timeout=PATIENCE)
    while session(sub).clock_offset_ns is None:
        pub.send(b"x", timeout=PATIENCE)
        sub.recv(timeout=PATIENCE)
    return session(sub)


@pytest.mark.parametrize("ahead_ns", [-HOUR, HOUR])
def test_latencies_are_corrected_by_the_clock_that_was_measured(ahead_ns):
    port = free_port()
    with (
        penstock.subscribe(f"udp://127.0.0.1:{port}/7") as sub,
        OtherClock(port, ahead_ns) as relay,
        penstock.publish(f"udp://127.0.0.1:{relay.port}/7") as pub,
    ):
        one = measured(pub, sub)
        assert one.clock_error_ns is not None
        assert abs(one.clock_offset_ns - ahead_ns) <= one.clock_error_ns
        assert one.clock_correction_ns == one.clock_offset_ns
        before = sub.statistics().latency
        for _ in range(200):
            pub.send(b"x", timeout=PATIENCE)
            sub.recv(timeout=PATIENCE)
        latency = sub.statistics().latency.since(before)
        assert latency.measured
        assert latency.quantile_ns(0.99) < HOUR / 60
        # They are never below 0. A measurement on a busy machine may be off by more than a message takes.
        assert latency.quantile_ns(0.99) > 0 or one.clock_error_ns > 20_000
        shown = subprocess.run(
            [sys.executable, "-m", "penstock.cli", "top", sub.channel, "-m", "-n", "1", "-d", "0.1"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        sign = "+" if ahead_ns > 0 else "−"
        assert f"corrected by {sign}3,600.0 s ± " in shown


def test_one_clock_corrects_nothing():
    uri = f"udp://127.0.0.1:{free_port()}/7"
    with penstock.subscribe(uri) as sub, penstock.publish(uri) as pub:
        one = measured(pub, sub)
        assert abs(one.clock_offset_ns) <= one.clock_error_ns
        assert one.clock_correction_ns == 0
