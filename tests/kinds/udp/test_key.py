"""Keys of `udp:` channels: what an independent decoder reads, what strangers get, old datagrams, exchange of keys, files of keys."""

import base64
import logging
import multiprocessing
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conformance.subjects import PATIENCE
from network.relay import relay
from ports import free_port

import penstock
from penstock.channels.storage import files
from penstock.kinds.udp import keys

cryptography = pytest.importorskip("cryptography", reason="the independent decoder needs the package cryptography")
from cryptography.hazmat.primitives import hashes  # noqa: E402
from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: E402
from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: E402

spawn = multiprocessing.get_context("spawn")
SECRET = b"the payload that nobody may see"
LIMIT = 0.5  # seconds in which nothing must arrive


@pytest.fixture
def uri():
    return f"udp://127.0.0.1:{free_port()}/7"


@pytest.fixture
def key(tmp_path):
    return keys.create(tmp_path / "one.key")


def counted(uri, name):
    return penstock.inspect(uri).details[name]


# ---- an independent decoder, from docs/design/network_key.md alone ----


def derive(secret, salt, purpose):
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=salt, info=purpose).derive(secret)


def opened(secret, datagram, salts):
    """(kind, salt, number, frames) of a sealed datagram. salts: those of publications, which receivers' keys need."""
    magic, version, kind, mark, salt, number = struct.unpack_from("<4sBBH16sQ", datagram)
    assert (magic, version) == (b"PNSK", 1)
    assert mark == struct.unpack("<H", derive(secret, b"", b"penstock udp 1 mark")[:2])[0]
    nonce = bytes(4) + struct.pack("<Q", number)
    if kind in (1, 2):
        found = [derive(secret, salt, b"penstock udp 1 frames")]
    else:
        found = [
            derive(secret, salt + other, b"penstock udp 1 control") for other in ([bytes(16)] if kind == 5 else salts)
        ]
    for one in found:
        try:
            return kind, salt, number, AESGCM(one).decrypt(nonce, datagram[32:], datagram[:32])
        except cryptography.exceptions.InvalidTag:
            pass
    raise AssertionError("no key opens it")


class Wiretap(threading.Thread):
    """Passes datagrams between a publication and a receiver, and keeps them."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inside.bind(("127.0.0.1", 0))
        self.outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.outside.bind(("127.0.0.1", 0))
        self.port, self.target = self.inside.getsockname()[1], ("127.0.0.1", target)
        self.there, self.back, self.source, self.copies = [], [], None, None
        self.start()

    def run(self):
        answers = threading.Thread(target=self._answers, daemon=True)
        answers.start()
        while True:
            datagram, self.source = self.inside.recvfrom(1 << 16)
            self.there.append(datagram)
            if self.copies is not None:
                self.copies.sendto(datagram, self.target)
            self.outside.sendto(datagram, self.target)

    def _answers(self):
        while True:
            datagram, _ = self.outside.recvfrom(1 << 16)
            self.back.append(datagram)
            self.inside.sendto(datagram, self.source)


@pytest.fixture
def tapped(uri, key):
    """A channel whose datagrams are kept: (channel of the receiver, that of the publication, the wiretap)."""
    port = int(uri.split(":")[2].partition("/")[0])
    tap = Wiretap(port)
    return uri, f"udp://127.0.0.1:{tap.port}/7", tap


def test_an_independent_decoder_reads_every_datagram(tapped, key):
    """And only with the key: the payload and the codec occur nowhere on the wire. No number comes twice with one salt."""
    uri, through, tap = tapped
    with penstock.subscribe(uri, key_file=key) as sub, penstock.publish(through, codec="json", key_file=key) as pub:
        for number in range(300):
            pub.send({"text": SECRET.decode(), "number": number})
            assert sub.recv(timeout=PATIENCE)["number"] == number
    secret = base64.b64decode(key.read_text())
    wire = [*tap.there, *tap.back]
    assert not any(SECRET in datagram or b"json" in datagram for datagram in wire)
    salts = {datagram[8:24] for datagram in tap.there}
    assert len(salts) == 1
    found = [opened(secret, datagram, salts) for datagram in wire]
    assert len({(salt, number) for _, salt, number, _ in found}) == len(found)
    payloads = b"".join(frames for kind, _, _, frames in found if kind == 1)
    assert payloads.count(SECRET) >= 300
    assert b"json" in payloads
    assert {kind for kind, *_ in found} >= {1, 2, 3, 4}


def test_known_answers():
    """The vectors of docs/design/network_key.md, by the independent encoder."""
    page = (Path(__file__).parents[3] / "docs/design/network_key.md").read_text()
    secret, salt, other = bytes(range(32)), bytes(range(16)), bytes(range(16, 32))
    for kind, made, number, frames in (
        (1, derive(secret, salt, b"penstock udp 1 frames"), 1, bytes(range(40))),
        (3, derive(secret, other + salt, b"penstock udp 1 control"), 2, bytes(range(36))),
    ):
        mark = derive(secret, b"", b"penstock udp 1 mark")[:2]
        header = b"PNSK" + bytes([1, kind]) + mark + (salt if kind == 1 else other) + struct.pack("<Q", number)
        datagram = header + AESGCM(made).encrypt(bytes(4) + struct.pack("<Q", number), frames, header)
        assert opened(secret, datagram, [salt])[3] == frames
        assert datagram.hex() in page.replace("\n", "")


# ---- strangers ----


@pytest.mark.parametrize(("mine", "theirs"), [("one", "two"), ("one", None), (None, "one")])
def test_with_another_key_or_none_nothing_is_delivered(uri, tmp_path, caplog, mine, theirs):
    """Nor answered. It is counted at both ends, and told once."""
    chosen = {name: keys.create(tmp_path / f"{name}.key") for name in ("one", "two")} | {None: None}
    port = int(uri.split(":")[2].partition("/")[0])
    tap = Wiretap(port)
    with (
        caplog.at_level(logging.WARNING, "penstock"),
        penstock.subscribe(uri, key_file=chosen[mine]) as sub,
        penstock.publish(f"udp://127.0.0.1:{tap.port}/7", key_file=chosen[theirs], linger=0) as pub,
    ):
        pub.send(SECRET)
        with pytest.raises(penstock.TimedOut):
            sub.recv(timeout=LIMIT)
        assert tap.there
        assert tap.back == []
        pub.close()
        while counted(uri, "unauthenticated") < len(tap.there):
            threading.Event().wait(0.01)
    told = [line for line in caplog.messages if "datagrams are refused" in line]
    assert len(told) == 1
    assert ("another key, or not at all" in told[0]) == (mine is not None)
    assert ("there is no key_file here" in told[0]) == (mine is None)


@pytest.fixture
def attacker():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        yield made


def test_old_datagrams_deliver_nothing(tapped, key, attacker):
    """Sent again while the session lives, and all of them, in order, to a receiver that begins anew."""
    uri, through, tap = tapped
    sub = penstock.subscribe(uri, key_file=key)
    pub = penstock.publish(through, key_file=key, linger=0)
    for number in range(20):
        pub.send(b"%d" % number)
        assert sub.recv(timeout=PATIENCE) == b"%d" % number
    recorded = list(tap.there)
    for datagram in recorded:
        attacker.sendto(datagram, tap.target)
        attacker.sendto(datagram, tap.inside.getsockname())
    pub.send(b"last")
    assert sub.recv(timeout=PATIENCE) == b"last"
    assert counted(uri, "replayed") >= len(recorded)
    pub.close()
    sub.close()
    penstock.remove(uri)
    with penstock.subscribe(uri, key_file=key) as sub:
        for _ in range(3):
            for datagram in recorded:
                attacker.sendto(datagram, tap.target)
            with pytest.raises(penstock.TimedOut):
                sub.recv(timeout=0.1)
        assert sub.sessions == []
        attacker.setblocking(False)
        answers = []
        with pytest.raises(BlockingIOError):
            while True:
                answers.append(attacker.recv(1 << 16))
        assert sum(map(len, answers)) <= 3 * sum(map(len, recorded)) / 10, "a challenge now and then, which is shorter"


def test_a_flood_of_strangers_keeps_nobody_out(uri, key):
    stop = threading.Event()
    target = ("127.0.0.1", int(uri.split(":")[2].partition("/")[0]))

    def flood():
        mark = derive(base64.b64decode(key.read_text()), b"", b"penstock udp 1 mark")[:2]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:
            while not stop.is_set():
                for _ in range(20):
                    attacker.sendto(b"PNSK\x01\x01" + mark + os.urandom(500), target)
                stop.wait(0.001)

    with penstock.subscribe(uri, key_file=key) as sub:
        thread = threading.Thread(target=flood)
        thread.start()
        try:
            with penstock.publish(uri, key_file=key) as pub:
                for number in range(200):
                    pub.send(b"%d" % number)
                    assert sub.recv(timeout=PATIENCE) == b"%d" % number
        finally:
            stop.set()
            thread.join()
        assert counted(uri, "unauthenticated") > 0


@pytest.mark.parametrize("begins", [False, True])
def test_copies_that_come_first_from_elsewhere_stop_nothing(uri, key, begins):
    """Of who sees all datagrams, and has no key. A copy takes no number, and its address is challenged in vain."""
    port = int(uri.split(":")[2].partition("/")[0])
    tap = Wiretap(port)
    elsewhere = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # not closed: the wiretap uses it to the end
    tap.copies = elsewhere if begins else None
    with (
        penstock.subscribe(uri, key_file=key) as sub,
        penstock.publish(f"udp://127.0.0.1:{tap.port}/7", key_file=key, linger=0) as pub,
    ):
        pub.wait_for_readers(1, timeout=PATIENCE)
        tap.copies = elsewhere
        for number in range(500):
            pub.send(b"%d" % number)
            assert sub.recv(timeout=PATIENCE) == b"%d" % number
        assert counted(uri, "losses") == 0


# ---- with a key, everything goes on as without ----


def test_lost_doubled_and_late_datagrams_are_repaired(uri, key):
    port = int(uri.split(":")[2].partition("/")[0])
    with (
        relay(port, loss=0.05, double=0.05, hold=0.05, hold_us=500) as between,
        penstock.subscribe(uri, key_file=key) as sub,
        penstock.publish(f"udp://127.0.0.1:{between.port}/7", key_file=key) as pub,
    ):
        thread = threading.Thread(target=lambda: [pub.send(b"%d" % number * 100) for number in range(3000)])
        thread.start()
        for number in range(3000):
            assert sub.recv(timeout=PATIENCE) == b"%d" % number * 100
        thread.join()
        assert sub.lost == 0


def _read(uri, key, there, found):
    with penstock.subscribe(uri, key_file=key) as sub:
        there.set()
        for _ in range(2000):
            found.put(sub.recv(timeout=PATIENCE))


def test_a_killed_owner_of_the_socket_is_replaced(uri, key):
    """The next owner has a salt of its own, and asks the publication to answer for itself again."""
    there, found = spawn.Event(), spawn.Queue()
    owner = spawn.Process(target=_read, args=(uri, key, there, found), daemon=True)
    owner.start()
    assert there.wait(PATIENCE)
    with penstock.subscribe(uri, key_file=key) as sub, penstock.publish(uri, key_file=key) as pub:
        pub.wait_for_readers(2, timeout=PATIENCE)
        for number in range(1000):
            pub.send(b"%d" % number)
            assert sub.recv(timeout=PATIENCE) == b"%d" % number
            if number == 500:
                os.kill(owner.pid, signal.SIGKILL)
                owner.join()
        assert counted(uri, "takeovers") == 1


@pytest.mark.parametrize("way", ["control", "destinations", "multicast"])
def test_each_way_to_several_receivers_has_a_key(uri, key, way):
    port = free_port()
    if way == "multicast":
        places, sends, reads = [f"udp://239.7.7.7:{port}/7"] * 2, {}, {}
        target = places[0]
    else:
        target, places = uri, [uri, f"udp://127.0.0.1:{port}/7"]
        sends = {"control": f"127.0.0.1:{free_port()}"} if way == "control" else {"destinations": [f"127.0.0.1:{port}"]}
        reads = {"control": sends["control"]} if way == "control" else {}
    with (
        penstock.publish(target, key_file=key, flow_control="min", **sends) as pub,
        penstock.subscribe(places[0], key_file=key, **reads) as one,
        penstock.subscribe(places[1], key_file=key, **reads) as two,
    ):
        pub.wait_for_readers(2, timeout=PATIENCE)
        for number in range(200):
            pub.send(b"%d" % number)
            assert (one.recv(timeout=PATIENCE), two.recv(timeout=PATIENCE)) == (b"%d" % number,) * 2


def test_the_key_may_come_from_the_environment(uri, key, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_KEY_FILE", str(key))
    archive = penstock.Archive(tmp_path / "archive")
    with archive.record(uri), penstock.publish(uri, codec="json") as pub:
        for number in range(100):
            pub.send({"number": number})
        while pub.progress()[0] < pub.position:
            time.sleep(0.01)
    assert [message.data["number"] for message in archive.replay(uri)] == list(range(100))


# ---- exchange of keys, and files ----


def test_two_keys_are_valid_while_they_are_exchanged(uri, tmp_path):
    old, new = (keys.create(tmp_path / name).read_text() for name in ("old", "new"))

    def file(*lines):
        path = keys.create(tmp_path / f"{len(list(tmp_path.iterdir()))}.key")
        path.write_text("# the channel's keys\n" + "".join(lines))
        return path

    for mine, theirs in [((old,), (old,)), ((old, new), (old,)), ((old, new), (new, old)), ((new, old), (new,))]:
        with (
            penstock.subscribe(uri, key_file=file(*mine)) as sub,
            penstock.publish(uri, key_file=file(*theirs), linger=0) as pub,
        ):
            pub.send(SECRET)
            assert sub.recv(timeout=PATIENCE) == SECRET
        penstock.remove(uri)  # the closed handle is still there: the next one is not bound to its keys


def test_bad_key_files_are_refused(uri, tmp_path, key, monkeypatch):
    (tmp_path / "empty").touch(0o600)
    (tmp_path / "short").write_text("c2hvcnQ=\n")
    (tmp_path / "none").write_text("no key at all\n")
    (tmp_path / "many").write_text(key.read_text() * 3)
    for name in ("short", "none", "many"):
        (tmp_path / name).chmod(0o600)
    (tmp_path / "open").write_text(key.read_text())
    (tmp_path / "open").chmod(0o640)
    for name, error in {
        "absent": "the key file .*absent is not there: copy it from another machine",
        "empty": "has 0 keys: it must have one, or two while keys are exchanged",
        "many": "has 3 keys",
        "short": "a key is 32 bytes in base64",
        "none": "a key is 32 bytes in base64",
        "open": r"others can read or write the key file .*mode 640.*chmod 600",
        "": "is no file",
        "nul\0": "null",
    }.items():
        for verb in (penstock.publish, penstock.subscribe):
            with pytest.raises(penstock.PenstockError, match=error):
                verb(uri, key_file=tmp_path / name)
    for empty in (lambda: penstock.publish(uri, key_file=""), lambda: keys.create("")):
        with pytest.raises(penstock.Invalid, match=r"is empty|has no name"):
            empty()
    monkeypatch.setenv("PENSTOCK_KEY_FILE", "")
    with pytest.raises(penstock.Invalid, match="PENSTOCK_KEY_FILE is empty"):
        penstock.publish(uri)
    monkeypatch.delenv("PENSTOCK_KEY_FILE")
    with pytest.raises(penstock.Invalid, match="key_file is 7: it must be the path of a file"):
        penstock.publish(uri, key_file=7)
    with pytest.raises(penstock.Invalid, match="with a key it is at most 65440"):
        penstock.publish(uri, key_file=key, mtu=65504)
    assert penstock.list_channels() == []


def _try(uri, key, found):
    try:
        penstock.subscribe(uri, key_file=key).close()
        found.put("")
    except penstock.PenstockError as error:
        found.put(f"{type(error).__name__} {error}")


def _attempt(uri, key):
    """What another process is told that subscribes."""
    found = spawn.Queue()
    child = spawn.Process(target=_try, args=(uri, key, found))
    child.start()
    told = found.get(timeout=PATIENCE)
    child.join()
    return told


@pytest.mark.slow
def test_processes_of_a_machine_have_a_key_in_common(uri, tmp_path, key):
    """Each may be the next owner of the socket. Streams of one port are received by one process, with a key as without."""
    other = keys.create(tmp_path / "other.key")
    both = keys.create(tmp_path / "both.key")
    both.write_text(other.read_text() + key.read_text())
    stream = uri.rpartition("/")[0] + "/8"
    with penstock.subscribe(uri, key_file=key):
        assert "Mismatch" in _attempt(uri, other)
        assert _attempt(stream, key) == ""
        for wrong in (other, None):
            told = _attempt(uri.rpartition("/")[0] + "/9", wrong)
            assert re.match("Mismatch .*receives with another key", told), told
        assert _attempt(uri, both) == ""
        assert _attempt(uri, other) == "", "the exchange is that far"


def test_all_of_a_machine_have_the_same_key(uri, key, tmp_path):
    """They share a socket. The key itself is in no file of a channel."""
    other = keys.create(tmp_path / "other.key")
    with penstock.subscribe(uri, key_file=key):
        with pytest.raises(penstock.Mismatch, match="exists with a key, not without one"):
            penstock.subscribe(uri)
        for again in (uri, uri.rpartition("/")[0] + "/8"):
            with pytest.raises(penstock.Mismatch, match="another key"):
                penstock.subscribe(again, key_file=other)
        secret = base64.b64decode(key.read_text())
        for path in files.folder().iterdir():
            assert secret not in path.read_bytes()


def test_the_command_makes_a_file_that_only_its_owner_reads(tmp_path):
    path = tmp_path / "new.key"
    command = [sys.executable, "-m", "penstock", "key", "new", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, umask=0)
    assert (done.returncode, done.stdout) == (0, "")
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(keys.read(path)[0]) == 32
    before = path.read_bytes()
    again = subprocess.run(command, capture_output=True, text=True)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "is there already" in again.stderr
    assert path.read_bytes() == before


WITHOUT_LIBCRYPTO = """
import sys, penstock
try:
    penstock.publish(sys.argv[1], key_file=sys.argv[2])
except penstock.Unsupported as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="hiding libcrypto needs root")
def test_without_libcrypto_there_is_an_error_and_no_clear_text(uri, key):
    found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    paths = {line.partition("=> ")[2] for line in found.splitlines() if "libcrypto.so" in line}
    if not paths:
        pytest.skip("ldconfig knows no libcrypto")
    hide = "".join(f"mount --bind /dev/null {path} && " for path in sorted({os.path.realpath(path) for path in paths}))
    command = [
        "unshare",
        "-m",
        "sh",
        "-c",
        f'{hide} exec "$@"',
        "sh",
        sys.executable,
        "-c",
        WITHOUT_LIBCRYPTO,
        uri,
        key,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no mount namespace: {done.stderr.strip()}")
    assert "a key needs OpenSSL's libcrypto" in done.stdout, done.stderr
