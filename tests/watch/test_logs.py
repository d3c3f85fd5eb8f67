"""Python's log records as messages: none blocks the program, and none is lost in silence."""

import logging
import os
import subprocess
import sys
import threading
import time

import pytest

import penstock
from penstock.front.logs import LogLine


@pytest.fixture
def logger():
    made = logging.getLogger("robot.arm")
    made.setLevel(logging.DEBUG)
    made.propagate = False
    yield made
    for handler in list(made.handlers):
        made.removeHandler(handler)
        handler.close()


def add(logger, channel="log:logs", **options):
    handler = penstock.LogHandler(channel, **options)
    logger.addHandler(handler)
    return handler


def lines(channel="log:logs"):
    with penstock.subscribe(channel, start="earliest") as sub:
        return sub.poll(10_000)


@pytest.mark.parametrize("channel", ["log:logs", "ring:logs", "pipe:logs", "sync:logs"])
def test_a_record_arrives_with_all_that_it_says(logger, channel):
    with penstock.subscribe(channel, codec=LogLine) as sub:
        add(logger, channel)
        try:
            raise ValueError("odd")
        except ValueError:
            logger.exception("arm %d", 7)
        line = sub.recv(60)
    assert (line.level, line.severity, line.logger, line.message) == ("ERROR", 40, "robot.arm", "arm 7")
    assert line.exception.endswith("ValueError: odd")
    assert (line.process, line.thread, line.dropped) == (os.getpid(), threading.current_thread().name, 0)
    assert line.file == __file__
    assert line.function == "test_a_record_arrives_with_all_that_it_says"


def test_a_full_channel_drops_and_counts(logger):
    handler = add(logger, "log:full", capacity=1 << 16)
    with penstock.subscribe("log:full") as sub:
        for number in range(2000):
            logger.info("%d", number)
        dropped = handler.dropped
        assert dropped > 0
        got = sub.poll(5000)
        logger.info("after")
        got += sub.poll()
    assert [line["message"] for line in got[:-1]] == [str(number) for number in range(2000 - dropped)]
    assert got[-1]["message"] == "after"
    assert got[-1]["dropped"] == dropped == handler.dropped


def test_texts_too_long_are_cut_and_say_so(logger):
    handler = add(logger, "log:small", capacity=1 << 16)
    logger.info("\x00" * 300_000)
    logger.info("é" * 300_000)
    assert handler.dropped == 0
    for line in lines("log:small"):
        assert line["message"].endswith("letters more)")
        assert len(line["message"]) > 100


def test_a_formatter_makes_the_message(logger):
    add(logger).setFormatter(logging.Formatter("[%(levelname)s] %(message)s"))
    logger.warning("low")
    assert [line["message"] for line in lines()] == ["[WARNING] low"]


def test_levels_and_filters_count_as_everywhere(logger):
    handler = add(logger, level="WARNING")
    handler.addFilter(lambda record: "secret" not in record.getMessage())
    logger.info("quiet")
    logger.error("secret")
    logger.error("heard")
    assert [line["message"] for line in lines()] == ["heard"]


def test_threads_and_forked_children_log(logger):
    handler = add(logger, max_members=16)
    threads = [threading.Thread(target=lambda: [logger.info("t") for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    pids = []
    for _ in range(3):
        if (pid := os.fork()) == 0:
            for _ in range(100):
                logger.info("c")
            os._exit(handler.dropped)
        pids.append(pid)
    for thread in threads:
        thread.join()
    dropped = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    got = lines()
    assert sum(line["message"] == "t" for line in got) + handler.dropped == 800
    assert {line["process"] for line in got if line["message"] == "c"} == set(pids)
    assert sum(line["message"] == "c" for line in got) + sum(dropped) == 300


def test_only_the_first_record_without_room_waits(logger, monkeypatch):
    handler = add(logger)
    waited = []

    class Full:
        def offer(self, line):
            return None

        def send(self, line, timeout):
            waited.append(line.message)
            raise penstock.TimedOut("full")

    with monkeypatch.context() as patched:
        patched.setattr(handler, "_publication", Full())
        for number in range(3):
            logger.info("%d", number)
    assert (waited, handler.dropped) == (["0"], 3)
    logger.info("there is room")
    assert [(line["message"], line["dropped"]) for line in lines()] == [("there is room", 3)]


def test_a_forked_child_counts_what_it_dropped_itself(logger):
    """What its parent dropped is told by the parent."""
    handler = add(logger)
    handler.dropped, handler._untold = 3, 3
    if (pid := os.fork()) == 0:
        logger.info("child")
        os._exit(handler.dropped)
    assert os.waitpid(pid, 0)[1] == 0
    logger.info("parent")
    assert [(line["message"], line["dropped"]) for line in lines()] == [("child", 0), ("parent", 3)]


def test_the_library_logs_through_it_without_end():
    root = logging.getLogger("penstock")
    handler = add(root, "log:own")
    try:
        with penstock.publish("log:other"):
            root.warning("said once")
        assert [line["message"] for line in lines("log:own") if line["severity"] >= 30] == ["said once"]
    finally:
        root.removeHandler(handler)
        handler.close()


def test_a_wrong_record_is_reported_as_logging_does(logger, capfd):
    handler = add(logger)
    handler.handle(logger.makeRecord("robot", logging.INFO, __file__, 1, "%d", ("no number",), None))
    assert "no number" in capfd.readouterr().err
    assert handler.dropped == 1


def test_a_handler_that_cannot_be_made_leaves_nothing(logger):
    for channel, error in ((7, penstock.Invalid), ("logs", penstock.Invalid), ("frames:x", penstock.PenstockError)):
        with pytest.raises(error):
            penstock.LogHandler(channel)
    logging.shutdown()


def sub(*arguments):
    command = [sys.executable, "-m", "penstock", "sub", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_sub_prints_the_lines(logger):
    add(logger)
    logger.warning("battery\x1b[31m at %d %%", 9)
    shown = sub("log:logs", "--logs", "--start", "earliest", "-n", "1")
    assert shown.returncode == 0
    text = shown.stdout
    assert time.strptime(text[:8], "%H:%M:%S")
    assert "WARNING  robot.arm: battery\\x1b[31m at 9 %  (test_logs.py:" in text
    assert f"process {os.getpid()})" in text
    assert sub("log:*", "--logs", "--start", "earliest", "-n", "1").stdout == text


def test_other_messages_are_no_log_lines():
    with penstock.publish("log:other", codec="json") as pub:
        pub.send({"a": 1})
        shown = sub("log:other", "--logs", "--start", "earliest", "-n", "1")
    assert shown.returncode == 1
    assert "no log lines" in shown.stderr
    assert shown.stderr.count("\n") == 1
    for other in ("--hz", "--json"):
        assert "has no effect with --logs" in sub("log:other", "--logs", other).stderr


def test_a_text_that_is_no_unicode_arrives(logger):
    """Names of files may have bytes that are not UTF-8: Python shows them as lone surrogates."""
    handler = add(logger)
    handler.handle(
        logger.makeRecord("robot", logging.INFO, "", 1, "cannot read %s", (os.fsdecode(b"caf\xe9.txt"),), None)
    )
    (line,) = lines()
    assert (line["message"], handler.dropped) == ("cannot read caf\\udce9.txt", 0)


def test_a_record_of_its_own_formatter_is_counted(logger):
    class Chatty(logging.Formatter):
        def format(self, record):
            logger.info("inner")
            return super().format(record)

    handler = add(logger)
    handler.setFormatter(Chatty())
    logger.warning("outer")
    assert [line["message"] for line in lines()] == ["outer"]
    assert handler.dropped == 1


def test_a_record_after_the_end_is_counted_and_nothing_is_said(logger, capfd):
    """At the end of the interpreter handles close one after the other, and some of them log."""
    handler = add(logger)
    handler.close()
    logger.warning("late")
    assert handler.dropped == 1
    assert capfd.readouterr() == ("", "")


def test_a_closed_handle_in_a_record_is_reported(logger, capfd):
    """The handler is open: what fails is the record's own text."""
    handler = add(logger)
    with penstock.publish("log:other") as closed:
        pass

    class Odd:
        def __str__(self):
            return str(closed.send(b"x"))

    handler.handle(logging.makeLogRecord({"msg": "%s", "args": (Odd(),)}))
    assert "the handle is closed" in capfd.readouterr().err
