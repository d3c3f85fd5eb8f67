"""A key is replaced while messages flow: programs of two machines begin again one by one, with two keys meanwhile, and nothing is lost."""

import contextlib

import pytest
from network.machines import machines

from penstock.kinds.udp import keys

SENDER = """
import sys, select, penstock
folder, key, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
to = "udp://10.231.8.2:4861/1"
archive = penstock.Archive(folder)
with (
    penstock.publish(to, codec="json", key_file=key) as pub,
    archive.record(to, sent=True, start="earliest", sync_interval=0.01) as recorder,
    archive.serve("0.0.0.0:4860", insecure=True),
):
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        try:
            pub.send({"n": number}, timeout=0.2)
            number += 1
        except penstock.TimedOut:
            pass
    pub.close()
    recorder.stop()
    print(number, flush=True)
    sys.stdin.readline()
    sys.stdin.readline()
"""
RECEIVER = """
import sys, penstock
with penstock.subscribe(
    "udp://0.0.0.0:4861/1", start="earliest", archive="grpc://10.231.8.1:4860", codec="json", key_file=sys.argv[1]
) as sub:
    expected = 0
    while True:
        number = sub.recv(timeout=180)["n"]
        assert number == expected, (number, expected)
        assert sub.lost == 0
        expected += 1
        if expected % 10 == 0:
            print(expected, flush=True)
"""


@pytest.mark.slow
def test_a_key_is_replaced_while_messages_flow(tmp_path):
    old, new = (keys.create(tmp_path / name).read_text() for name in ("old", "new"))
    files = {}
    for name, content in {"old": old, "both": old + new, "swapped": new + old, "new": new}.items():
        files[name] = str(tmp_path / f"{name}.key")
        keys.create(files[name])
        (tmp_path / f"{name}.key").write_text(content)
    with machines(tmp_path, "10.231.8.1", "10.231.8.2") as (here, there), contextlib.ExitStack() as stack:
        programs, running = {}, {}

        def start(who, key, number=0):
            arguments = (SENDER, str(tmp_path / "archive"), files[key], str(number))
            running[who] = contextlib.ExitStack()
            stack.callback(running[who].close)
            made = here.run(*arguments) if who == "sender" else there.run(RECEIVER, files[key])
            programs[who] = running[who].enter_context(made)
            if who == "sender":
                assert programs[who].stdout.readline() == "ready\n"

        def reach(who, count):
            while (at := int(programs[who].stdout.readline())) < count:
                pass
            return at

        start("sender", "old")
        for who in ("first", "second"):
            start(who, "old")
        at = max(reach(who, 20) for who in ("first", "second"))
        for who, key in [
            *(("first", "both"), ("second", "both"), ("sender", "swapped")),
            *(("first", "new"), ("second", "new"), ("sender", "new")),
        ]:
            number = 0
            if who == "sender":
                programs[who].stdin.write("end\n")
                programs[who].stdin.flush()
                at = number = int(programs[who].stdout.readline())
                for receiver in ("first", "second"):
                    reach(receiver, number // 10 * 10)
            running[who].close()
            start(who, key, number)
            at = max(reach(receiver, at + 20) for receiver in ("first", "second"))
