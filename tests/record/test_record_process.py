"""A recorder in a process of its own: its end, its parent's end, whatever else was forked, and how each side learns of it."""

import contextlib
import os
import select
import signal
import subprocess
import sys

import pytest

import penstock

T = 1 << 16


@pytest.fixture
def pub():
    with penstock.publish("log:p", term_length=T) as publication:
        yield publication


def forked():
    """A child that inherits everything, and lives until its write end is closed: pid, that end."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    return pid, write


def ended(pid, timeout=15):
    """Waits for a process's end; False is a hang."""
    with contextlib.suppress(ProcessLookupError):
        return bool(select.select([os.pidfd_open(pid)], [], [], timeout)[0])
    return True


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_stop_does_not_wait_for_whoever_was_forked_meanwhile(archive, pub):
    recorder = archive.record("log:p", process=True)
    child, end = forked()
    try:
        pub.send(b"1")
        assert recorder.progress()[0].channel == "log:p"
        assert recorder.stop()[0].messages == 1
        assert recorder.error is None
    finally:
        os.close(end)
        os.waitpid(child, 0)
    assert recorder.stop() == recorder.progress()
    assert archive.find("log:p").state == "closed"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_leaves_its_parents_recorder_alone(archive, pub):
    with archive.record("log:p", process=True) as recorder:
        pid = os.fork()
        if pid == 0:
            said = 0
            for ask in (recorder.progress, recorder.stop):
                try:
                    ask()
                except penstock.Invalid:
                    said += 1
            recorder.__exit__(None, None, None)
            os._exit(said + (recorder.error is not None))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
        pub.send(b"1")
        assert recorder.error is None
    assert archive.find("log:p").messages == 1


PARENT = """
import os, sys, signal
import penstock
archive = penstock.Archive(sys.argv[1])
pub = penstock.publish("log:p", term_length=1 << 16)
recorder = archive.record("log:p", process=True)
read, write = os.pipe()
if os.fork() == 0:
    os.close(write)
    os.set_inheritable(read, True)
    signal.alarm(100)
    sys.stdin.read()
    os._exit(0)
for i in range(100):
    pub.send(b"%d" % i)
print(recorder.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_recorder_ends_with_its_parent_despite_a_child(archive, how):
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PARENT, archive.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    recorder = int(parent.stdout.readline())
    parent.send_signal(how)
    parent.wait()
    assert ended(recorder), "it lives on, as long as a forked child of its parent does"
    assert archive.find("log:p").state == "closed"
    assert archive.find("log:p").messages == 100
    _, said = parent.communicate("")  # the child ends, too
    assert "Traceback" not in said


def test_the_parent_learns_at_once_that_its_recorder_was_killed(archive, pub):
    recorder = archive.record("log:p", process=True)
    pub.send(b"1")
    recorder.progress()
    os.kill(recorder.pid, signal.SIGKILL)
    assert ended(recorder.pid)
    assert isinstance(recorder.error, penstock.SystemFailure)
    assert "signal 9" in str(recorder.error)
    for ask in (recorder.progress, recorder.stop, recorder.stop):
        with pytest.raises(penstock.SystemFailure, match="signal 9"):
            ask()
    assert recorder.recordings == {"log:p": 1}
    assert archive.find("log:p").state == "crashed"


def test_the_parent_learns_of_an_error_inside(archive, pub):
    recorder = archive.record("log:p", process=True)
    pub.send(b"1")
    os.kill(recorder.pid, signal.SIGTERM)
    assert ended(recorder.pid)
    assert "SIGTERM" in str(recorder.error)
    for ask in (recorder.progress, recorder.stop, recorder.stop):
        with pytest.raises(penstock.SystemFailure, match="SIGTERM"):
            ask()
    info = archive.find("log:p")
    assert (info.state, info.messages) == ("closed", 1)


def test_a_full_disk_in_the_process_is_an_error_here(tmp_path, pub):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        recorder = penstock.Archive(place / "a").record("log:p", process=True, sync_interval=0.01)
        for _ in range(3000):
            pub.send(bytes(1000), timeout=60)
        assert ended(recorder.pid)
        assert isinstance(recorder.error, penstock.SystemFailure)
        with pytest.raises(penstock.SystemFailure, match="No space left"):
            recorder.stop()
    finally:
        subprocess.run(["umount", "-l", place], check=True)


# ---- what the child imports ----

GO = """
import penstock
archive = penstock.Archive("a")
with penstock.publish("log:p") as pub, archive.record("log:p", process=True) as recorder:
    pub.send(b"1")
print(archive.find("log:p").state, archive.find("log:p").messages)
"""


def run_beside(tmp_path, **environment):
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "go.py").write_text(GO)
    here = tmp_path / "here"
    here.mkdir(exist_ok=True)
    command = [sys.executable, tmp_path / "program" / "go.py"]
    return subprocess.run(
        command, cwd=here, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


def test_the_child_imports_what_its_parent_would(tmp_path):
    """Files in the working directory that have a standard module's name are no modules of a program that lies elsewhere."""
    (tmp_path / "here").mkdir()
    for name in ("json", "signal", "queue", "logging", "penstock"):
        (tmp_path / "here" / f"{name}.py").write_text("raise SystemExit(3)\n")
    done = run_beside(tmp_path)
    assert done.stdout == "closed 1\n", done.stderr


def test_output_of_the_child_is_no_answer(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('good morning')\n")
    done = run_beside(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert done.stdout.endswith("\nclosed 1\n"), done.stderr
    assert done.returncode == 0


def test_no_answer_goes_where_a_closed_standard_stream_was(tmp_path):
    """The lowest free descriptors would be the child's output."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\nos.write(1, b'good morning\\n')\n")
    (tmp_path / "go.py").write_text(GO.replace(".messages)", ".messages, file=__import__('sys').stderr)"))
    shell = f"exec {sys.executable} go.py <&- >&-"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        ["sh", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stderr.endswith("closed 1\n"), done.stderr


# ---- a signal's handler that stops the recorder ----


@pytest.mark.parametrize("call", ["stop", "progress"])
def test_a_handler_may_stop_the_recorder_within_another_call(archive, pub, call):
    recorder = archive.record("log:p", process=True)
    pub.send(b"1")
    seen = []

    def handler(number, frame):
        os.kill(recorder.pid, signal.SIGCONT)
        seen.append(recorder.stop()[0].messages)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        os.kill(recorder.pid, signal.SIGSTOP)  # its answer comes after the signal
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        seen.append(getattr(recorder, call)()[0].messages)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == [1, 1]
    assert recorder.error is None
    assert recorder.stop()[0].messages == 1
    assert archive.find("log:p").state == "closed"
