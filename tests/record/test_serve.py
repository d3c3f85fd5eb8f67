"""Archives of another machine: read as they are there, while they grow, are cut and purged, and while their server is away."""

import datetime
import errno
import json
import os
import random
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from people import until
from ports import free_port

import penstock
from penstock.cli import run
from penstock.errors import Invalid, NotFound, SystemFailure, Unsupported
from penstock.record import COLUMNS
from penstock.record.format.remote import RemotePath
from penstock.util.files.storage import where

flight = pytest.importorskip("pyarrow.flight")
ALL = sorted(COLUMNS)
T = 1 << 16
PATIENCE = 60
TOKEN = "0123456789abcdef"


def publish(pub, numbers, size=700):
    for i in numbers:
        pub.send(b"%06d" % i + bytes(i * 7919 % size))


def record(archive, channel="log:a", count=500, **options):
    with penstock.publish(channel, term_length=T) as pub, archive.record(channel, segment_length=T, **options):
        publish(pub, range(count))


@pytest.fixture
def server(archive):
    with archive.serve("127.0.0.1:0") as made:
        yield made


def numbers(messages):
    return [int(message.data[:6]) for message in messages]


def test_a_served_archive_is_read_as_it_is_there(archive, server):
    record(archive)
    record(archive, "log:b", 60)
    there = penstock.Archive(server.uri)
    assert there.id == archive.id
    for here, info in zip(archive.list(), there.list(), strict=True):
        assert (info.channel, info.state, info.messages, info.end_position) == (
            here.channel, here.state, here.messages, here.end_position,
        )  # fmt: skip
        assert archive.read(here.id, columns=ALL).equals(there.read(info.id, columns=ALL))
    assert there.verify() == []
    assert numbers(there.replay("log:a", start=archive.find(1).end_position // 2)) == numbers(
        archive.replay("log:a", start=archive.find(1).end_position // 2)
    )


def test_a_live_recording_is_followed_over_the_server(archive, server):
    there = penstock.Archive(server.uri)
    with penstock.publish("log:a", term_length=T) as pub:
        recorder = archive.record("log:a", segment_length=T)
        publish(pub, range(300))
        pub.wait_for_readers(1, timeout=PATIENCE)
        following = there.follow("log:a", timeout=PATIENCE)
        begun = [next(following) for _ in range(300)]
        assert there.find("log:a").state == "live"
        writer = threading.Thread(target=publish, args=(pub, range(300, 880)))
        writer.start()  # beside the reads: the channel waits for the follower once that has joined it
        begun += [next(following) for _ in range(580)]
        writer.join()
        publish(pub, range(880, 900))
        recorder.stop()
        assert numbers([*begun, *following]) == list(range(900))


def test_a_recording_that_grows_is_sound_at_each_look(archive, server):
    """A look while a recorder writes never sees frames that are shorter than their index says."""
    stop, found = threading.Event(), []
    with penstock.publish("log:a", term_length=T) as pub, archive.record("log:a"):

        def write():
            while not stop.is_set():
                publish(pub, range(50))

        def look():
            found.extend(info for info, _ in there._layouts(None))
            return len({info.end_position for info in found}) > 10

        writer = threading.Thread(target=write)
        writer.start()
        there = penstock.Archive(server.uri)
        try:
            for _ in range(200):
                look()
            until(look, "the recording does not grow")
        finally:
            stop.set()
            writer.join()
    assert {info.state for info in found if info.messages} == {"live"}


def test_damage_there_is_named_here(archive, server):
    record(archive)
    path = sorted(archive.find(1).path.glob("*.seg"))[1]
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    (damage,) = penstock.Archive(server.uri).verify()
    assert str(damage.path).endswith(f"/recordings/00000001/{path.name}")
    assert isinstance(damage.path, RemotePath)


def test_a_purged_recording_is_said_to_be_missing(archive, server):
    record(archive)
    there = penstock.Archive(server.uri)
    assert there.find(1).messages == 500
    archive.purge(1)
    with pytest.raises(NotFound, match="has no recording 1; it has none"):
        there.read(1)


def test_what_writes_is_refused(archive, server):
    record(archive, count=5)
    there = penstock.Archive(server.uri)
    for call in (lambda: there.record("log:a"), there.repair, lambda: there.purge(1), lambda: there.truncate(1, 0)):
        with pytest.raises(Unsupported, match="is on another machine, where recordings can only be read"):
            call()


def test_without_the_token_nothing_is_shown(archive, tmp_path, monkeypatch):
    record(archive, count=5)
    good, bad, short = tmp_path / "good", tmp_path / "bad", tmp_path / "short"
    for path, token in ((good, TOKEN), (bad, TOKEN[::-1]), (short, "abc")):
        path.write_text(token + "\n")
        path.chmod(0o600)
    with archive.serve("127.0.0.1:0", token_file=good) as server:
        for token_file in (None, bad):
            if token_file:
                monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(token_file))
            with pytest.raises(SystemFailure, match=r"wants a(nother)? token") as caught:
                penstock.Archive(server.uri)
            assert caught.value.errno == errno.EACCES
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(flight.connect(server.uri).list_flights())
        monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(good))
        assert len(penstock.Archive(server.uri).list()) == 1
        monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(short))
        with pytest.raises(Invalid, match="has no token: one line of 16"):
            penstock.Archive(server.uri)
        monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(good))
        with pytest.raises(Invalid, match=r"a token goes only over grpc\+tls, or to this machine"):
            penstock.Archive("grpc://192.0.2.1:4860")
    good.chmod(0o644)
    with pytest.raises(Invalid, match="others can read or write the token file"):
        archive.serve("127.0.0.1:0", token_file=good)


def test_an_address_that_others_reach_needs_keys(archive):
    for listen in ("0.0.0.0:0", "[::]:0", "192.0.2.1:4860"):
        with pytest.raises(Invalid, match="can be reached from other machines: give tls and token_file"):
            archive.serve(listen)
    for listen in ("", "127.0.0.1", "127.0.0.1:65536", "host:port", "a b:1", "1:2:3"):
        with pytest.raises(Invalid, match="it must be HOST:PORT"):
            archive.serve(listen)
    with archive.serve("0.0.0.0:0", insecure=True) as server:
        assert penstock.Archive(server.uri.replace("0.0.0.0", "127.0.0.1")).list() == []


def test_an_address_that_is_not_to_be_had_is_named(archive, server):
    with pytest.raises(SystemFailure, match=r"cannot serve at 127.*: Address already in use"):
        archive.serve(server.uri.removeprefix("grpc://"))
    with pytest.raises(SystemFailure, match=r"cannot serve at 192\.0\.2\.1:4860: Cannot assign requested address"):
        archive.serve("192.0.2.1:4860", insecure=True)


def test_tls_names_the_server(archive, tmp_path, monkeypatch):
    if subprocess.run(["openssl", "version"], capture_output=True).returncode:
        pytest.skip("there is no openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    asked = ["openssl", *made.split(), "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(asked, check=True, capture_output=True)
    key.chmod(0o600)
    certificate.chmod(0o600)
    for pair in ((str(key), str(certificate)), (str(key), str(key))):
        with pytest.raises(Invalid, match="are no certificate and its key"):
            archive.serve("127.0.0.1:0", tls=pair)
    record(archive, count=5)
    with archive.serve("127.0.0.1:0", tls=(str(certificate), str(key))) as server:
        uri = server.uri.replace("127.0.0.1", "localhost")
        with pytest.raises(SystemFailure, match=r"its certificate is of nobody .* PENSTOCK_TLS_ROOTS$"):
            penstock.Archive(uri)
        with pytest.raises(SystemFailure, match=r"if it has TLS, write grpc\+tls://localhost:\d+$"):
            penstock.Archive(uri.replace("grpc+tls", "grpc"))
        monkeypatch.setenv("PENSTOCK_TLS_ROOTS", str(certificate))
        assert penstock.Archive(uri).find(1).messages == 5
        with pytest.raises(SystemFailure, match="is not to be had"):  # the certificate is another name's
            penstock.Archive(server.uri)


@pytest.mark.parametrize(("days", "why"), [((-30, -1), "has expired"), ((1, 30), "is not valid yet")])
def test_a_certificate_of_another_time_is_named(archive, tmp_path, monkeypatch, days, why):
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")]),
    )
    begin, end = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=day) for day in days)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, end)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pair = (tmp_path / "cert.pem", tmp_path / "key.pem")
    for path, data in zip(
        pair, (made.sign(key, hashes.SHA256()).public_bytes(pem[0]), key.private_bytes(*pem)), strict=True
    ):
        path.write_bytes(data)
        path.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_TLS_ROOTS", str(pair[0]))
    served = archive.serve("127.0.0.1:0", tls=(str(pair[0]), str(pair[1])))
    with served as server, pytest.raises(SystemFailure, match=f"its certificate {why}"):
        penstock.Archive(server.uri.replace("127.0.0.1", "localhost"))


def test_the_command_names_damage_there(archive, server):
    record(archive, count=20)
    (segment,) = archive.path.glob("recordings/*/*.seg")
    for damaged in (False, True):
        if damaged:
            with segment.open("r+b") as file:
                file.seek(40)
                file.write(b"\xff\xff")
        command = [sys.executable, "-m", "penstock", "verify", server.uri]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (damaged, "")
        assert done.stdout.startswith(f"{server.uri}/recordings/" if damaged else f"{server.uri}: 1 recording")


@pytest.mark.slow
def test_a_client_asks_for_no_other_file(archive, server, tmp_path):
    """Whatever a client sends: it gets files of the archive, or an error."""
    record(archive, count=50)
    (archive.path / "secret").write_text("hidden")
    folder = archive.find(1).path
    (folder / "secret.seg").write_text("hidden")
    (folder / "00000000000000009999.seg").symlink_to(archive.path / "secret")
    os.mkfifo(folder / "00000000000000009999.idx")
    (archive.path / "recordings" / "00000002").symlink_to(tmp_path)
    (tmp_path / "synced").write_text("hidden")
    client = flight.connect(server.uri)

    def ask(action, body):
        first, *found = [result.body.to_pybytes() for result in client.do_action((action, body))]
        return json.loads(first), b"".join(found)

    parts = [
        "recordings",
        "00000001",
        "..",
        "",
        ".",
        "secret",
        "recording.json",
        "\0",
        "secret.seg",
        "a" * 300,
        "%2e%2e",
        "id",
    ]
    chance, answered = random.Random(7), 0
    for _ in range(2000):
        path = "/" * chance.randrange(2) + "/".join(chance.choices(parts, k=chance.randrange(1, 6)))
        asked = {
            "path": path,
            "paths": [path],
            "recordings": [path, path[-8:], 7],
            "known": chance.choice([{}, {"00000001": 5}, {"00000001": ["", None]}]),
            "offset": chance.choice([0, 5, -1, 1 << 70]),
            "length": chance.choice([9, 0, -1, 1 << 40]),
        }
        for action, fields in (
            ("read", ("path", "offset", "length")),
            ("list", ("path",)),
            ("stat", ("paths",)),
            ("live", ("path",)),
            ("look", ("recordings", "known")),
        ):
            error, found = ask(action, json.dumps({field: asked[field] for field in fields}).encode())
            assert b"hidden" not in found
            assert b"secret" not in found or action == "stat"
            answered += not error and action == "read"
    assert answered, "no file was read at all"
    error, _ = ask("live", b'{"path": "/recordings/00000001", "recordings": null, "paths": []}')
    assert error["text"].startswith(
        "live has no recordings, paths; there are: list {path}, stat {paths}, read {path, offset"
    )
    for body in (b"", b"[]", b"{", b"null", b'{"path": 7}', b"[" * 100_000):
        for action in ("read", "list", "stat", "live", "look", "erase"):
            assert ask(action, body)[0]["errno"] in (errno.EINVAL, errno.ENOENT)
    assert len(penstock.Archive(server.uri).list()) == 1


def test_any_flight_client_reads_recordings(archive, server):
    with penstock.publish("log:j", codec="json") as pub, archive.record("log:j"):
        for i in range(100):
            pub.send({"n": i})
    client = flight.connect(server.uri)
    (found,) = client.list_flights()
    assert found.total_records == 100
    assert client.do_get(found.endpoints[0].ticket).read_all().num_rows == 100
    table = client.do_get(
        flight.Ticket(json.dumps({"recording": "log:j", "decode": True, "end": 640}).encode())
    ).read_all()
    assert table.column("n").to_pylist() == [m.data["n"] for m in archive.replay("log:j", end=640)]
    assert client.get_flight_info(flight.FlightDescriptor.for_path("log:j")).total_records == 100
    for ticket, what in (
        (b'{"recording": 7}', "has no recording 7"),
        (b'{"recording": 1, "rows": 3}', "the ticket has rows"),
        (b"{}", "recording"),
        (b"\xff\xfe", "has no recording"),
        (b'{"recording": 1, "columns": ["x"]}', "no columns"),
        (b'{"recording": 1, "start": "x"}', "start"),
    ):
        with pytest.raises((flight.FlightServerError, pa.ArrowException), match=what):
            client.do_get(flight.Ticket(ticket)).read_all()


def test_a_server_that_is_away_is_named(archive):
    record(archive, count=5)
    with archive.serve(f"127.0.0.1:{free_port()}") as server:  # nobody else takes it meanwhile
        there = penstock.Archive(server.uri)
        assert there.find(1).messages == 5
    with pytest.raises(SystemFailure, match=r"grpc://127\.0\.0\.1:\d+ is not to be had"):
        there.list()
    with archive.serve(server.uri.removeprefix("grpc://")):
        assert there.find(1).messages == 5


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("grpc://host", "name a server and its port"),
        ("grpc+tls://host:0", "name a server and its port"),
        ("grpc+tls://me@host:1", "credentials in it"),
        ("grpc+tls://host:1?x=1", "options in it"),
        ("grpcs://host:1", "did you mean"),
    ],
)
def test_a_wrong_uri_is_explained(uri, what):
    with pytest.raises(Invalid, match=what):
        penstock.Archive(uri)


def test_tables_and_exports_are_not_written_there(tmp_path, archive):
    record(archive, count=5)
    from penstock.export import export

    with pytest.raises(Invalid, match="which shows an archive alone, to be read"):
        export(archive.path, "grpc://127.0.0.1:4860", form="parquet")
    with pytest.raises(Invalid, match="which shows an archive alone, to be read"):
        archive.push("grpc://127.0.0.1:4860")


def test_a_forked_child_has_a_client_of_its_own(archive, server):
    record(archive, count=5)
    there = penstock.Archive(server.uri)
    assert there.find(1).messages == 5
    code = f"import penstock; print(penstock.Archive({server.uri!r}).find(1).messages)"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"5\n"
    assert where(server.uri).fs is where(server.uri).fs


def test_many_readers_at_once(archive, server):
    record(archive)
    expected = archive.read(1, columns=ALL)
    wrong = []

    def read():
        if not penstock.Archive(server.uri).read(1, columns=ALL).equals(expected):
            wrong.append(os.getpid())

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("host", ["127.evil.example", "127.0.0.1.example", "localhost.example", "[::2]", "10.0.0.1"])
def test_a_token_goes_in_clear_only_to_the_loopback(host, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(file))
    with pytest.raises(Invalid, match="only over grpc"):
        penstock.Archive(f"grpc://{host}:4860").list()


def test_a_file_without_certificates_is_refused(archive, server, tmp_path, monkeypatch):
    (tmp_path / "empty.pem").write_text("nothing\n")
    monkeypatch.setenv("PENSTOCK_TLS_ROOTS", str(tmp_path / "empty.pem"))
    with pytest.raises(Invalid, match="has no certificate"):
        penstock.Archive(server.uri).list()


def test_flight_clients_hear_in_a_line_what_is_wrong(archive, server):
    record(archive, count=3)
    client = flight.FlightClient(server.uri)
    at = flight.FlightDescriptor.for_path("1")
    assert client.get_schema(at).schema.names[0] == "session"
    for ticket, text in (
        ({"recording": True}, "the recording is True"),
        ({"recording": 1, "decode": "no"}, "decode is 'no'"),
        ({"recording": 9}, "the archive has no recording 9"),
    ):
        with pytest.raises(flight.FlightServerError, match=text) as raised:
            client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()
        assert str(archive.path) not in str(raised.value)
    for hostile, text in (
        (b"[" * 1_000_000, "the ticket has 1,000,000 bytes"),
        (b"[" * 4000, "recursion"),
        (b"9" * 4000, "a number of 4,000 digits"),
        (b"{}", "the ticket has no recording"),
    ):
        with pytest.raises(flight.FlightServerError, match=text) as raised:
            client.do_get(flight.Ticket(hostile)).read_all()
        assert "Traceback" not in str(raised.value)
    with pytest.raises(flight.FlightUnauthorizedError, match="can only be read") as refused:
        client.do_put(at, pa.schema([]))[0].close()
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize(
    ("act", "said"), [("truncate", "was cut back to position"), ("purge", "was purged while it was read")]
)
def test_a_recording_removed_there_while_it_is_read(archive, server, caplog, act, said):
    """As on this machine: no end, and no damage."""
    record(archive, count=20_000)
    there = penstock.Archive(server.uri).replay(1)
    assert int(next(there).data[:6]) == 0
    if act == "truncate":
        archive.truncate(1, archive.find(1).end_position // 4)
    else:
        archive.purge(1)
    with pytest.raises(penstock.NotFound, match=said):
        list(there)
    assert caplog.text == ""


def test_json_of_another_machine_has_texts_for_paths(archive, server, capsys):
    record(archive, count=1)
    assert run(["recordings", server.uri, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["path"] == f"{server.uri}/recordings/00000001"


def test_insecure_that_has_no_effect_is_refused(archive, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    for options, why in (
        ({"listen": "127.0.0.1:0"}, "only this machine reaches 127.0.0.1:0"),
        ({"listen": "0.0.0.0:0", "token_file": token}, "there is a token"),
    ):
        with pytest.raises(Invalid, match=rf"\(--insecure\) has no effect, since {why}: leave it out"):
            archive.serve(insecure=True, **options)
