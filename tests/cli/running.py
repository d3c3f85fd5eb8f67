"""Runs a call of the command and judges it: bounded time, one line of error, the right status, JSON that is JSON."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import typer.rich_utils  # noqa: F401  (reads the environment when it is imported: in this process, not in a call's)

from penstock import cli
from penstock.channels.storage import memory

SIGNAL_AFTER = 0.15  # seconds that a call may work before it is asked to end
WORKS_FOR = 1.5  # the same for a process, which takes longer to begin
HANG = 100  # seconds after which a call that was asked to end counts as one that does not
OURS = (
    set("→✓…–µ·") | {chr(c) for c in range(0x2500, 0x2590)} | {chr(c) for c in range(0x2800, 0x2900)}
)  # boxes, blocks, spinners
LINES = {
    "nothing": b"",
    "lines": b"one\ntwo\n\xc3\xa4 [red]:camera:\n",
    "json": b'{"a": 1}\n[NaN]\n',
    "noise": b"\x00\xff\x1b[31m\n" * 3 + b"[" * 3000,
}


@dataclass
class Outcome:
    """The outcome of a call; None for an output that could not be read."""

    status: int
    out: str | None
    err: str | None


class Case:
    """A folder of its own for one call: channels, a working directory with archives and files, an empty home."""

    def __init__(self, templates: Path, channels: Path, call) -> None:
        self.call = call
        self.root = Path(tempfile.mkdtemp(prefix="case-", dir=templates.parent))
        self.cwd, self.home = self.root / "cwd", self.root / "home"
        self.home.mkdir()
        self.cwd.mkdir()
        for name in os.listdir(templates):
            if any(name in argument for argument in call.arguments):
                source = templates / name
                (shutil.copytree if source.is_dir() else shutil.copy)(source, self.cwd / name)
        self.memory = Path(tempfile.mkdtemp(prefix="penstock-test-", dir=channels.parent))
        if call.environment["PENSTOCK_DIR"] == "channels":
            shutil.copytree(channels, self.memory / "channels")
            (self.memory / "channels").chmod(0o700)
            strange_files(self.memory / "channels")
        self.environment = {**call.environment, "PENSTOCK_DIR": self._folder(call.environment["PENSTOCK_DIR"])}
        self.environment |= {"HOME": str(self.home), "TMPDIR": str(self.home)}
        self.environment["MPLCONFIGDIR"] = str(
            self.root.parent / "matplotlib"
        )  # its list of fonts, which it makes where there is none
        self.before = set(os.listdir(self.cwd))

    def _folder(self, kind: str) -> str:
        place = self.memory / kind
        if kind == "open":
            place.mkdir(mode=0o755)
            (place / "notes.txt").write_text("mine")
        elif kind == "foreign":
            place.mkdir(mode=0o700)
            if os.getuid() == 0:
                os.chown(place, 65534, 65534)
        elif kind == "file":
            place.write_text("")
        elif kind == "link":
            place.symlink_to("nowhere")
        return {"relative": "relative", "root": "/"}.get(kind, str(place))

    def untouched(self) -> None:
        """The call made only files that its arguments name."""
        assert os.listdir(self.home) == [], f"{self.call} made {os.listdir(self.home)} at home"
        if not {".", ""} & {argument.partition("=")[2] or argument for argument in self.call.arguments}:
            named = {text.split("/")[0] for a in self.call.arguments for text in (a, a.partition("=")[2])} | {
                "relative"
            }
            strays = set(os.listdir(self.cwd)) - self.before - named
            assert not strays, f"{self.call} made {strays}"
        if (self.memory / "open").exists():
            assert os.listdir(self.memory / "open") == ["notes.txt"]

    def remove(self) -> None:
        """Leaves nothing."""
        for channel in list(memory._places):
            os.close(memory._places.pop(channel).fd)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.memory, ignore_errors=True)


def strange_files(folder: Path) -> None:
    """Files that are no channels, of many kinds."""
    (folder / "strange.log").write_bytes(bytes(9000))
    (folder / "strange.log").chmod(0o644)
    (folder / "foreign.ring").write_bytes(b"")
    (folder / "foreign.ring").chmod(0o600)
    (folder / "folder.log").mkdir()
    (folder / "a b\n[red].log").write_bytes(b"")
    (folder / "dangling.log").symlink_to("nowhere")
    os.mkfifo(folder / "fifo.log", 0o600)
    with open(os.fsencode(folder) + b"/\xff.log", "wb"):
        pass


def here(
    *arguments: object, folder: Path, stdin: str | bytes = "nothing", stdout: str = "file", encoding: str = "utf-8"
) -> Outcome:
    """A call in this process and with its environment, that is not asked to end."""
    words = [str(word) for word in arguments]
    call = SimpleNamespace(arguments=words, stdin=stdin, stdout=stdout, stderr="file", encoding=encoding, signal="INT")
    return in_process(SimpleNamespace(call=call, cwd=folder, environment={}), HANG)


def run_here(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of the command, for a hundredth of its CPU time: a call in this process, with pipes' content as text."""
    done = here(*arguments, folder=Path.cwd(), stdin=stdin.encode())
    return subprocess.CompletedProcess(arguments, done.status, done.out, done.err)


class _End:
    """One of standard input, output and error, and what was written to it."""

    def __init__(self, kind: str | bytes, number: int, call) -> None:
        self.kind, self.number, self.reader, self.keep = kind, number, None, []
        self.written = bytearray()
        self.file = None
        if number == 0:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
            self.file.write(kind if isinstance(kind, bytes) else LINES.get(kind, b""))
            self.file.seek(0)
            self.fd = self.file.fileno()
        elif kind == "file":
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
            self.fd = self.file.fileno()
        elif kind == "terminal":
            self.master, self.fd = os.openpty()
            self.keep = [self.fd]
            self.reader = threading.Thread(target=self._read, daemon=True)
            self.reader.start()
        elif kind == "closed pipe":
            read, self.fd = os.pipe()
            os.close(read)
            self.keep = [self.fd]
        else:
            self.fd = os.open("/dev/full" if kind == "full" else os.devnull, os.O_RDWR)
            self.keep = [self.fd]

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while part := os.read(self.master, 65536):
                self.written += part
        os.close(self.master)

    def finish(self) -> str | None:
        """The bytes written, once all writers have ended; None where that cannot be known."""
        for fd in self.keep:
            os.close(fd)
        if self.reader is not None:
            self.reader.join(HANG)
            return self.written.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
        if self.file is None:
            return None
        if self.number > 0:
            self.file.seek(0)
            self.written += self.file.read()
        self.file.close()
        return self.written.decode("utf-8", "backslashreplace")


def _restore_environment(variables: dict[str, str]) -> None:
    """Changes only what has changed: other threads, as of delta-rs, read the environment at any time, and crash if the C library moves it."""
    for name in [name for name in os.environ if name not in variables]:
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def in_process(case: Case, patience: float = SIGNAL_AFTER) -> Outcome:
    """The call in this process, over real file descriptors; it is asked to end after `patience` seconds."""
    call = case.call
    ends = [_End(kind, number, call) for number, kind in enumerate((call.stdin, call.stdout, call.stderr))]
    saved = [os.dup(number) for number in range(3)]
    streams, place, variables = (sys.stdin, sys.stdout, sys.stderr), os.getcwd(), dict(os.environ)
    os.environ.update(case.environment)
    os.chdir(case.cwd)
    for end in ends:
        os.dup2(end.fd, end.number)
    made = [None if end.kind == "closed" else _stream(end.number, call.encoding) for end in ends]
    sys.stdin, sys.stdout, sys.stderr = made
    try:
        with _asked_to_end(getattr(signal, f"SIG{call.signal}"), patience):
            status = cli.run(call.arguments)
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        os.chdir(place)
        _restore_environment(variables)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream, number in zip(made, range(3), strict=True):
            if stream is not None and number > 0 and ends[number].kind in ("full", "closed pipe"):
                os.dup2(nothing, number)  # as the process's end does
            if stream is not None:
                stream.close()
        os.close(nothing)
        for number, fd in enumerate(saved):
            os.dup2(fd, number)
            os.close(fd)
        texts = [end.finish() for end in ends]
    return Outcome(status, *texts[1:])


def _stream(number: int, encoding: str) -> io.TextIOWrapper:
    raw = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding=encoding, errors="strict", line_buffering=os.isatty(number))


@contextlib.contextmanager
def _asked_to_end(number: signal.Signals, patience: float):
    """Sends this process a signal once the call works for a while; and again where it does not end."""
    left = [number, number]

    def ask(_: int, frame) -> None:
        mine = frame is not None and "hypothesis" in frame.f_code.co_filename  # it hooks into garbage collection
        if left and not mine and signal.getsignal(signal.SIGTERM) is not ignore:
            signal.setitimer(signal.ITIMER_REAL, HANG)
            signal.raise_signal(left.pop())

    def ignore(*_: object) -> None:
        return

    before = [(which, signal.signal(which, ignore)) for which in (signal.SIGTERM, signal.SIGHUP)]
    before += [(signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))]
    before += [(signal.SIGALRM, signal.signal(signal.SIGALRM, ask))]
    signal.setitimer(signal.ITIMER_REAL, patience, SIGNAL_AFTER)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for which, handler in before:
            signal.signal(which, handler)


def as_process(case: Case) -> Outcome:
    """The call as a shell makes it: `python -m penstock`."""
    call = case.call
    ends = [_End(kind, number, call) for number, kind in enumerate((call.stdin, call.stdout, call.stderr))]
    closed = [end.number for end in ends if end.kind == "closed"]

    def close() -> None:
        for number in closed:
            os.close(number)
        for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(which, signal.SIG_DFL)

    environment = {**os.environ, "PYTHONIOENCODING": call.encoding, **case.environment}
    command = [sys.executable, "-m", "penstock", *call.arguments]
    child = subprocess.Popen(
        [os.fsencode(word) for word in command],
        cwd=case.cwd,
        env={name: os.fsencode(text) for name, text in environment.items()},
        stdin=ends[0].fd,
        stdout=ends[1].fd,
        stderr=ends[2].fd,
        preexec_fn=close,
        start_new_session=True,
    )
    _until_it_ends(child, getattr(signal, f"SIG{call.signal}"))
    texts = [end.finish() for end in ends]
    return Outcome(child.returncode, *texts[1:])


def _until_it_ends(child: subprocess.Popen, number: signal.Signals) -> None:
    """Waits; asks the child to end once it listens to signals and has worked for a while."""
    patience = SIGNAL_AFTER
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            return
        if patience == HANG:
            child.kill()
            child.wait()
            raise AssertionError(f"{child.args} did not end after {number.name}")
        try:
            caught = int(re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{child.pid}/status").read_text())[1], 16)
        except (OSError, TypeError):
            continue
        if caught >> (signal.SIGTERM - 1) & 1:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(WORKS_FOR)
                return
            child.send_signal(number)
            patience = HANG


def judge(case: Case, outcome: Outcome) -> None:
    """The command's promises."""
    call, said = case.call, f"{case.call}\n{outcome}"
    asked = 128 + getattr(signal, f"SIG{call.signal}")
    ending = 128 - asked  # the signal came as the interpreter ended: the command's error, if any, was said before
    assert outcome.status in (0, 1, 2, asked, ending), said
    talks = "-v" in call.arguments or "--verbose" in call.arguments
    findings = call.command in ("verify", "doctor") and outcome.status == 1
    if outcome.err is not None:
        lines = [line for line in plain(outcome.err).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("penstock: ")]
        assert talks or "Traceback" not in outcome.err, said
        assert "fault of Penstock's own" not in outcome.err, said
        late = outcome.status == ending and len(errors) <= 1
        assert len(errors) == (outcome.status in (1, 2)) or (findings and not errors) or late, said
        assert not errors or lines[-1] == errors[0], said
    for text in (outcome.out, outcome.err):
        if text is not None:
            _as_it_was_given(call, text, said)
    if outcome.out and "--json" in call.arguments and not {"--help", "--version"} & set(call.arguments):
        for line in outcome.out.splitlines():
            json.loads(line, parse_constant=_no_number)
    named = any(not argument.startswith("-") for argument in call.arguments[1:])  # or an option's value
    whole = (
        call.arguments[:1] == ["ls"]
        and not named
        and call.environment["PENSTOCK_DIR"] == "channels"
        and outcome.status in (0, 1)
    )
    if (
        whole
        and outcome.out is not None
        and "--help" not in call.arguments
        and not call.environment.get("PENSTOCK_FAKE")
    ):  # which hides what is shared
        assert "log:x" in outcome.out, said  # whatever lies beside it
    case.untouched()


def plain(text: str) -> str:
    """Text without what moves a terminal's cursor or colours it."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")


def _as_it_was_given(call, text: str, said: str) -> None:
    """No markup was read out of an argument, no emoji put in, and no control character got out."""
    given = " ".join(call.arguments) + LINES.get(call.stdin, b"").decode("utf-8", "replace")
    for tag in ("[red]", "[/b]", "[bold]", "[link=file:///x]"):
        assert "QZ" not in text or f"Q{tag}Z" not in given, said
    for letter in set(text):
        known = ord(letter) < 0x2190 or letter in OURS or letter in given or letter == "\ufffd"
        assert known or call.command in ("sub", "replay"), f"{letter!r} was never given: {said}"
    if call.command not in ("sub", "replay") and "terminal" not in (call.stdout, call.stderr):
        assert "\x1b" not in text or "FORCE_COLOR" in call.environment or "Usage:" in text, said


def _no_number(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")
