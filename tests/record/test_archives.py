"""Archives when not all is well: two recorders, missing segments, foreign files, few descriptors, odd rights. An error or right rows."""

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict

import pytest
from damage import Before, check

import penstock
from penstock.record import plan
from penstock.record.format.folder import RecordingFolder, _sum
from penstock.record.write import writer as writer_module
from penstock.util.files.durable import write_atomically

T = 1 << 16


@pytest.fixture
def pub():
    with penstock.publish("log:a", term_length=T) as publication:
        yield publication


def record(archive, pub, count, **options):
    with archive.record(pub.channel if hasattr(pub, "channel") else "log:a", **options):
        for i in range(count):
            pub.send(b"%06d" % i + bytes(100))


def bodies(archive, recording="log:a", **options):
    return [int(m.data[:6]) for m in archive.replay(recording, **options)]


def copy_of(archive, tmp_path, name):
    return penstock.Archive(shutil.copytree(archive.path, tmp_path / name))


# ---- two recorders ----


@pytest.mark.slow
def test_extending_beside_a_live_recorder_is_refused_first(archive, pub, tally):
    """A supervisor that restarts with `extend` while the old recorder still runs must not harm it."""
    tries = 40
    with archive.record("log:a", sync_interval=0.01, segment_length=T) as recorder:
        stop, sent = threading.Event(), []

        def write():
            while not stop.is_set():
                number = len(sent) % 1_000_000  # a fast machine sends more than six digits say
                pub.send(b"%06d" % number + bytes(100))
                sent.append(None)

        writer = threading.Thread(target=write)
        writer.start()
        for _ in range(tries):
            with pytest.raises(penstock.Busy, match="recorded"):
                archive.record("log:a", extend=True)
        stop.set()
        writer.join()
        members = [m.role for m in penstock.inspect("log:a").members]
    assert members.count("subscription") == 1, "a refused recorder leaves no subscription for which writers would wait"
    assert recorder.error is None
    assert archive.verify() == []
    assert bodies(archive) == [i % 1_000_000 for i in range(len(sent))]
    tally("extensions beside a live recorder", tries)


def test_a_track_that_cannot_begin_gives_everything_back(archive, pub, monkeypatch):
    record(archive, pub, 10)
    before = os.listdir("/proc/self/fd")

    def fails(*_):
        raise OSError(28, "No space left on device")

    for extend in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(writer_module.RecordingWriter, "_new_segment", fails)
            with pytest.raises(penstock.SystemFailure, match="No space left"):
                archive.record("log:a", extend=extend)
        assert not [m for m in penstock.inspect("log:a").members if m.role == "subscription"]
        assert len(os.listdir("/proc/self/fd")) == len(before)
    record(archive, pub, 10, extend=True)


def test_a_recorder_threads_error_is_reported_and_frees_writers(archive, pub, monkeypatch):
    for error in (MemoryError("no memory"), RuntimeError("odd"), penstock.Corrupt("bytes"), OSError(5, "I/O error")):
        with monkeypatch.context() as patch:

            def fails(self, error=error):
                raise error

            patch.setattr(writer_module.RecordingWriter, "turn", fails)
            recorder = archive.record("log:a")
            assert recorder.join(30)
        assert isinstance(recorder.error, penstock.SystemFailure if type(error) is OSError else type(error))
        with pytest.raises(type(recorder.error)):
            recorder.stop()
        assert not [m for m in penstock.inspect("log:a").members if m.role == "subscription"]
        assert archive.list()[-1].state == "crashed"


# ---- missing parts ----

HARMS = {
    "both files of a segment": lambda s: (s.data.unlink(), s.index.unlink()),
    "a segment's index": lambda s: s.index.unlink(),
    "a segment's data": lambda s: s.data.unlink(),
    "seal and last entry": lambda s: os.truncate(s.index, s.index.stat().st_size - 128),
    "all entries": lambda s: os.truncate(s.index, 64),
    "the whole index": lambda s: os.truncate(s.index, 0),
    "an index of another segment": lambda s: shutil.copy(s.index, s.index.with_name(f"{s.base + 32:020d}.idx")),
}


@pytest.fixture
def whole(archive, pub):
    record(archive, pub, 3000, segment_length=T)
    assert archive.find("log:a").segments >= 5
    return archive


@pytest.mark.parametrize("which", ["first", "second", "middle", "last but one", "last"])
@pytest.mark.parametrize("harm", HARMS)
def test_a_reader_never_gets_part_of_a_recording_in_silence(whole, harm, which, caplog, tmp_path, tally):
    segments = whole.folders()[0].segments()
    number = {"first": 0, "second": 1, "middle": len(segments) // 2, "last but one": -2, "last": -1}[which]
    if harm == "an index of another segment" and which == "last":
        pytest.skip("what follows the end cannot be told from a recorder's next segment before it is read")
    before = Before.of(copy_of(whole, tmp_path, "before"))
    end = whole.find(1).end_position
    HARMS[harm](segments[number])
    missing = check(before, whole, 1)
    got = bodies(whole)
    assert len(got) == 3000 - missing
    assert missing < 1500, "one segment, and not what follows it"
    if harm != "a segment's data":  # the list and the plan look into indexes only; the reading told
        (info,) = whole.list()
        assert info.state == "damaged"
        assert "00000001" in info.damage
        assert sum(one.messages for one in plan(whole)) == len(got)
        assert "is damaged" in caplog.text
    assert whole.verify(1)
    whole.repair()
    assert whole.verify() == []
    assert bodies(whole) == got
    assert check(before, whole, 1) == missing
    assert whole.find(1).end_position == end
    tally("recordings with missing parts, read", 1)


def test_a_lost_seal_alone_harms_no_reader_but_is_found(whole):
    last = whole.folders()[0].segments()[-1]
    os.truncate(last.index, last.index.stat().st_size - 64)
    assert bodies(whole) == list(range(3000))
    assert ["seal" in damage.what for damage in whole.verify(1)] == [True]
    whole.repair()
    assert whole.verify() == []


def test_verify_names_what_is_gone(whole, tmp_path):
    for number in (12345, 0, -1, 1 << 70):
        for look in (whole.verify, whole.repair, whole.find, whole.purge):
            with pytest.raises(penstock.NotFound, match="it has 1"):
                look(number)
    gone = copy_of(whole, tmp_path, "gone")
    shutil.rmtree(gone.path / "recordings" / "00000001")
    for found in (gone.verify(), gone.verify(1)):
        assert "no folder" in found[0].what
    gone.repair()
    with pytest.raises(penstock.NotFound):
        gone.verify(1)
    empty = copy_of(whole, tmp_path, "empty")
    for segment in empty.folders()[0].segments():
        segment.data.unlink()
        segment.index.unlink()
    for found in (empty.verify(), empty.verify(1)):
        assert "durable up to" in found[0].what
    unmarked = copy_of(whole, tmp_path, "unmarked")
    (unmarked.path / "recordings/00000001/synced").unlink()
    assert "missing" in unmarked.verify(1)[0].what
    assert bodies(unmarked) == list(range(3000))
    unmarked.repair()
    assert unmarked.find(1).synced_position == whole.find(1).synced_position


def test_each_byte_of_the_mark_counts(whole):
    path = whole.folders()[0].path / "synced"
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert [d.path for d in whole.verify(1)] == [path]
        assert bodies(whole) == list(range(3000))
    path.write_bytes(content[:-1])
    assert whole.verify(1)
    whole.repair()
    assert whole.verify() == []
    assert path.read_bytes() == content


def test_a_recording_without_a_mark_is_one_of_an_older_recorder(whole):
    """Format 1 had no file `synced`: the catalog may know."""
    folder = whole.folders()[0]
    about = folder.describe()
    (folder.path / "synced").unlink()
    content = {key: value for key, value in asdict(about).items() if key != "format"}
    for name in ("recording.json", "recording.copy"):
        write_atomically(folder.path / name, json.dumps({**content, "crc32c": _sum(content)}, indent=1) + "\n")
    assert whole.verify() == []
    info = whole.find(1)
    assert (info.synced_position, info.state) == (info.end_position, "closed")
    assert whole.repair() == []
    assert bodies(whole) == list(range(3000))


# ---- stray entries ----


@pytest.fixture
def three(archive):
    for name in ("log:a", "log:b", "log:c"):
        with penstock.publish(name, term_length=T) as pub, archive.record(name):
            for i in range(20):
                pub.send(b"%06d" % i)
        penstock.remove(name)
    return archive


def _flipped(archive):
    path = archive.path / "recordings/00000001/recording.json"
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    path.write_bytes(raw)


STRANGERS = {
    "a flipped byte in a description": _flipped,
    "no description": lambda a: (a.path / "recordings/00000001/recording.json").unlink(),
    "a description that is a folder": lambda a: (
        (a.path / "recordings/00000001/recording.json").unlink(),
        (a.path / "recordings/00000001/recording.json").mkdir(),
    ),
    "an empty folder": lambda a: (a.path / "recordings/00000777").mkdir(),
    "a file called 777": lambda a: (a.path / "recordings/777").write_bytes(b""),
    "a file with a recording's name": lambda a: (a.path / "recordings/00000777").write_bytes(b"x"),
    "a link to a recording": lambda a: (a.path / "recordings/00000777").symlink_to(a.path / "recordings/00000001"),
    "a digit that is none": lambda a: (a.path / "recordings/²²²²²²²²").mkdir(),
    "a text": lambda a: (a.path / "recordings/read me").write_text("x"),
    "a garbage index": lambda a: next((a.path / "recordings/00000001").glob("*.idx")).write_bytes(b"x" * 50),
    "an index that is a folder": lambda a: (a.path / "recordings/00000001" / f"{5:020d}.idx").mkdir(),
    "a recording under another number": lambda a: (a.path / "recordings/00000001").rename(
        a.path / "recordings/00000009"
    ),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_one_strange_thing_hides_no_other_recording(three, what, caplog, tally):
    STRANGERS[what](three)
    assert {"log:b", "log:c"} <= {info.channel for info in three.list()}
    assert three.find("log:c").channel == "log:c"
    assert bodies(three, "log:c") == list(range(20))
    assert {"log:b", "log:c"} <= {planned.channel for planned in plan(three)}
    assert three.verify(), "it is named"
    with penstock.publish("log:d", term_length=T) as pub, three.record("log:d"):
        pub.send(b"000000")
    assert bodies(three, "log:d") == [0]
    three.repair()
    assert three.verify() == []
    assert {"log:b", "log:c", "log:d"} <= {info.channel for info in three.list()}
    assert not [info for info in three.list() if info.state == "damaged"]
    tally("strange things in archives", 1)


def test_a_strange_thing_may_go_while_a_repair_looks_at_it(three, monkeypatch):
    strange = [three.path / "recordings" / name for name in "xyz"]
    for path in strange:
        path.write_bytes(b"x")
    listed = type(three._files).stray_entries

    def goes(folder):
        found = listed(folder)
        strange[0].unlink(missing_ok=True)
        return found

    monkeypatch.setattr(type(three._files), "stray_entries", goes)
    moved = [repair.path.name for repair in three.repair() if repair.path.parent.name == "damaged"]
    assert moved == ["y", "z"]
    assert not any(path.exists() for path in strange)


def test_a_recording_that_was_renamed_gets_its_number_back(three):
    (three.path / "recordings/00000001").rename(three.path / "recordings/00000009")
    three.repair()
    assert [info.id for info in three.list()] == [1, 2, 3]
    assert bodies(three, 1) == list(range(20))


def test_repair_again_and_again_of_the_same_number(archive, pub):
    for _ in range(4):
        shutil.rmtree(archive.path / "damaged", ignore_errors=True)
        (archive.path / "damaged" / "00000001").mkdir(parents=True)
        record(archive, pub, 1)
        number = archive.list()[-1].id
        for name in ("recording.json", "recording.copy"):
            (archive.path / "recordings" / f"{number:08d}" / name).write_text("{}")
        archive.repair()
        assert archive.list() == []
        record(archive, pub, 1)
        first = archive.list()[-1].id
        os.rename(archive.path / "recordings" / f"{first:08d}", archive.path / "recordings" / "00000001")
        for name in ("recording.json", "recording.copy"):
            (archive.path / "recordings/00000001" / name).write_text("{}")
        archive.repair()  # its name in `damaged` is taken
        assert archive.verify() == []


def test_a_number_is_never_given_twice(archive, pub):
    """A reader that still has a number must not find another recording under it."""
    given = []
    for _ in range(4):
        record(archive, pub, 1)
        given.append(archive.find("log:a").id)
        archive.purge("log:a")
    assert given == [1, 2, 3, 4]
    record(archive, pub, 1)
    (archive.path / "recordings/00000005/recording.json").write_text("{}")
    archive.repair()
    record(archive, pub, 1)
    assert archive.find("log:a").id == 6


def test_listing_beside_recording_and_purging_never_fails(archive, pub, tally):
    rounds = 30
    done, failed = threading.Event(), []

    def look():
        other, count = penstock.Archive(archive.path), 0
        while not done.is_set():
            try:
                for info in other.list():
                    assert info.state != "damaged", info.damage
                count += 1
                if count % 20 == 0:
                    assert other.verify() == []
            except BaseException as error:
                failed.append(error)
                return

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(rounds):
        record(archive, pub, 5)
        archive.purge("log:a")
    done.set()
    thread.join()
    if failed:
        raise failed[0]
    tally("recordings made and purged beside list and verify", rounds)


# ---- limits and rights ----

FEW = """
import os, resource, sys
import penstock
archive = penstock.Archive(sys.argv[1])
pub = penstock.publish("log:few", term_length=1 << 16)
def once():
    archive.record("log:few").stop()
once()
fds = lambda: len(os.listdir("/proc/self/fd"))
full, before = resource.getrlimit(resource.RLIMIT_NOFILE), fds()
for spare in range(24):
    resource.setrlimit(resource.RLIMIT_NOFILE, (before - 1 + spare, full[1]))
    try:
        once()
    except penstock.PenstockError:
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, full)
    assert fds() == before, (spare, fds(), before)
    assert not [m for m in pub.statistics().members if m.role == "subscription"], spare
once()
assert archive.verify() == [], archive.verify()
"""


def test_few_descriptors_give_errors_and_leak_nothing(tmp_path, tally):
    done = subprocess.run([sys.executable, "-c", FEW, tmp_path / "a"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 24
    tally("limits on descriptors", 24)


def test_an_archive_is_its_owners_alone_whatever_the_umask(tmp_path, pub):
    before = os.umask(0)
    try:
        archive = penstock.Archive(tmp_path / "new" / "archive")
        for umask in (0, 0o077, 0o277):
            os.umask(umask)
            record(archive, pub, 400, segment_length=T)
        os.umask(0)
        os.truncate(archive.folders()[0].segments()[-1].index, 100)
        archive.repair()
        modes = {path: path.stat().st_mode & 0o777 for path in [archive.path, *archive.path.rglob("*")]}
    finally:
        os.umask(before)
    wrong = {str(p): oct(mode) for p, mode in modes.items() if mode != (0o700 if p.is_dir() else 0o600)}
    assert not wrong


def test_repair_on_a_full_disk_fails_and_loses_nothing(tmp_path, pub):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        archive = penstock.Archive(place / "archive")
        record(archive, pub, 2000)
        segment = archive.folders()[0].segments()[-1]
        with open(segment.data, "r+b") as file:
            file.seek(segment.data.stat().st_size // 2)
            file.write(b"\xff")
        filler = place / "filler"
        with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        with pytest.raises(penstock.SystemFailure, match="No space left"):
            archive.repair()
        filler.unlink()
        archive.repair()
        assert archive.verify() == []
        left = bodies(archive)
        assert len(left) > 100
        missing = 2000 - len(left)
        first = left.index(next(n for number, n in enumerate(left) if n != number))
        assert left == [*range(first), *range(first + missing, 2000)], "one block"
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_forked_child_keeps_no_lock(archive, pub):
    recorder = archive.record("log:a")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    recorder.stop()
    folder = RecordingFolder(archive.folders()[0].path)
    assert not folder.is_live()
    folder.unlock(folder.lock())
    os.write(write, b"!")
    os.waitpid(child, 0)


# ---- following ----


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("how", ["stopped", "died"])
def test_following_ends_with_the_recorder(archive, pub, gone, how, caplog):
    recorder = archive.record("log:a")
    got, begun = [], threading.Event()

    def follow():
        for message in archive.follow("log:a"):
            got.append(int(message.data[:6]))
            begun.set()

    for i in range(50):
        pub.send(b"%06d" % i)
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert begun.wait(30)
    for i in range(50, 100):
        pub.send(b"%06d" % i)
    if how == "stopped":
        recorder.stop()
    else:
        while recorder.progress()[0].messages < 100:
            threading.Event().wait(0.001)
        recorder._writers[0].turn = lambda: 1 / 0
        assert recorder.join(30)
    if gone:
        penstock.remove("log:a")
    thread.join(12)
    assert not thread.is_alive(), "it ends, whether the channel is there or not"
    assert got == list(range(100))
    assert ("its recorder died" in caplog.text) == (how == "died")
    assert [int(m.data[:6]) for m in archive.follow("log:a")] == list(range(100)), "and of a closed one at once"


def test_following_a_recording_that_ends_inside_a_message_ends(archive, pub):
    """A recorder may stop between the fragments of a message: that one is not given out, and nobody waits for it."""
    writer = archive._opener.open("log:a", "newest", False, 1 << 17, None)  # a turn takes no more than a segment
    pub.send(b"000000")
    large = threading.Thread(target=pub.send, args=(bytes(300_000),))  # more than fits: it waits for the recorder
    large.start()
    while writer.moved < 1000:
        writer.turn()
    writer.finish()
    large.join(30)
    info = archive.find("log:a")
    assert info.end_position < pub.position
    assert [int(m.data[:6]) for m in archive.follow("log:a")] == [0]


def test_an_archive_needs_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for create in (True, False):
        with pytest.raises(penstock.Invalid, match="an archive's path is empty"):
            penstock.Archive("", create=create)
    assert list(tmp_path.iterdir()) == []
    assert penstock.Archive(".").path == tmp_path
