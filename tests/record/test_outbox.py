"""The outbox: batches that lie in files go out once each, whenever the publishing process dies; a subscriber counts them."""

import itertools
import os
import threading

import pytest
from dying import moments

import penstock
from penstock.record.write import outbox
from penstock.record.write.outbox import Outbox


def bodies(path):
    """A file has a number per line."""
    with open(path, "rb") as file:
        yield from file.read().splitlines()


@pytest.fixture
def box(tmp_path):
    """`box(channel, **options)` opens the outbox; `box.stage(batch, count)` makes the files of a batch, and says which and what."""

    def opened(channel, **options):
        return Outbox(tmp_path / "box", channel, **options)

    attempt = itertools.count()

    def stage(batch, count, files=2, text=b"%d.%d"):
        (tmp_path / "box").mkdir(exist_ok=True)
        lines = [text % (batch, number) for number in range(count)]
        names = [f"{batch}-{number}-{next(attempt)}" for number in range(files)]
        for number, name in enumerate(names):
            part = lines[number * count // files : (number + 1) * count // files]
            (tmp_path / "box" / name).write_bytes(b"\n".join(part))
        return names, lines

    opened.stage, opened.folder = stage, tmp_path / "box"
    return opened


def heard(sub):
    """The messages that are there."""
    found = []
    while (message := sub.try_recv()) is not None:
        found.append(bytes(getattr(message, "body", message)))
    return found


@pytest.mark.parametrize("kind", ["log", "ring", "sync", "pipe"])
def test_each_batch_goes_out_once_and_in_order(box, kind):
    channel, sent = f"{kind}:out", []
    with penstock.subscribe(channel) as sub:
        for batch in range(4):
            names, lines = box.stage(batch, 50)
            sent += lines
            assert box(channel).put(batch, names, bodies)
            assert not box(channel).put(batch, names, bodies)
        found = heard(sub)
    assert found == sent if kind != "pipe" else sorted(found) == sorted(sent)
    assert box(channel).done() == 3
    assert sorted(os.listdir(box.folder)) == [".lock", "state.json"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["log", "ring", "sync"])
def test_a_kill_at_any_moment_doubles_nothing(box, kind, monkeypatch, tally):
    """Each batch is published by a child that dies at the next moment, and then again, as Spark repeats a batch."""
    channel, sent, number, deaths = f"{kind}:out", [], 0, 0

    def work():
        box(channel).put(number, names, bodies)

    monkeypatch.setattr(outbox, "PIECE_BYTES", 40)  # several pieces, each with a note of its own
    names, lines = box.stage(0, 12)
    with penstock.subscribe(channel) as sub, penstock.subscribe(channel) as other:
        for _ in moments(work, [(outbox, "send_encoded")], step=3):  # before and after calls, in turn
            deaths += 1
            retried, _ = box.stage(number, 12, files=1, text=b"other order %d.%d")  # of tasks that ran again
            Outbox(box.folder, channel).put(number, retried, bodies)
            found = heard(sub)
            if found != lines:  # it died before it had noted the batch: then it is the retried one, whole
                assert found == [b"other order " + line for line in lines]
            sent += found
            number += 1
            names, lines = box.stage(number, 12)
        sent += lines
        assert heard(sub) == lines
        assert heard(other) == sent
    assert deaths > 20
    tally("kills of a program that publishes batches", deaths)


def test_others_publish_meanwhile(box):
    with penstock.subscribe("log:out") as sub, penstock.publish("log:out") as busy:
        names, lines = box.stage(0, 20)
        count = itertools.count()
        for _ in moments(lambda: box("log:out").put(0, names, bodies), [(outbox, "send_encoded")], step=17):
            busy.send(b"busy %d" % next(count))
        found = heard(sub)
        assert [one for one in found if not one.startswith(b"busy")] == lines
        assert len(found) - len(lines) == next(count)


def die_half_way(box, channel, names):
    """A child that dies after some messages."""
    left = iter(moments(lambda: box(channel).put(0, names, bodies), [(outbox, "send_encoded")], step=40))
    next(left)
    next(left)


@pytest.mark.parametrize(("policy", "least", "most"), [("resend", 100, 199), ("skip", 1, 100), ("fail", 0, 0)])
def test_a_past_that_is_gone_is_told(box, policy, least, most):
    """The channel was removed and made again: nobody knows how far the dead process came."""
    names, lines = box.stage(0, 100)
    with penstock.subscribe("log:out") as sub:
        die_half_way(box, "log:out", names)
        found = heard(sub)
    assert 0 < len(found) < 100
    penstock.remove("log:out")
    with penstock.subscribe("log:out") as sub:
        again = box("log:out", when_unknown=policy)
        if policy == "fail":
            with pytest.raises(
                penstock.NotFound, match=r"log:out: .* messages 0 to 99 of batch 0, .* resend .* or skip"
            ):
                again.put(0, names, bodies)
        else:
            assert again.put(0, names, bodies)
            found += heard(sub)
            assert least <= len(found) <= most
            assert policy == "skip" or set(found) == set(lines)
            assert again.done() == 0


def test_history_that_others_have_written_over_is_told(box):
    names, _ = box.stage(0, 100)
    with penstock.publish("log:out", term_length=1 << 16) as busy:
        die_half_way(box, "log:out", names)
        for _ in range(100):
            busy.send(bytes(10_000))
        with pytest.raises(penstock.NotFound, match="no longer has its past"):
            box("log:out").put(0, names, bodies)


def test_a_batch_that_was_begun_is_finished_before_the_next(box):
    names, lines = box.stage(0, 100)
    with penstock.subscribe("log:out") as sub:
        die_half_way(box, "log:out", names)
        more, later = box.stage(1, 10)
        assert box("log:out").put(1, more, bodies)
        assert heard(sub) == lines + later
        assert not box("log:out").put(0, names, bodies)


def test_no_room_is_an_error_and_the_rest_follows(box):
    names, lines = box.stage(0, 2000, text=b"%d.%d" + bytes(200).replace(b"\0", b"."))
    with penstock.subscribe("log:out") as sub:
        with penstock.publish("log:out", term_length=1 << 16), pytest.raises(penstock.TimedOut):
            box("log:out", timeout=0.01).put(0, names, bodies)
        found = []
        reading = threading.Thread(target=lambda: found.extend(itertools.islice(sub, len(lines))))
        reading.start()
        assert box("log:out").put(0, names, bodies)
        reading.join()
    assert found == lines


def test_wrong_use_is_an_error(box, tmp_path):
    for channel in ("frames:x", "zmq+tcp://h:1", "udp://h:1/1"):
        with pytest.raises(penstock.Unsupported, match="shared memory"):
            box(channel)
    with pytest.raises(penstock.Invalid, match="when_unknown is 'maybe'"):
        box("log:out", when_unknown="maybe")
    names, _ = box.stage(0, 4)
    box("log:out").put(0, names, bodies)
    with pytest.raises(penstock.Invalid, match="is about log:out, not log:other"):
        box("log:other").put(1, names, bodies)
    path = box.folder / outbox.STATE
    path.write_text(path.read_text().replace('"done": 0', '"done": 7'))
    with pytest.raises(penstock.Corrupt, match="its checksum is wrong"):
        box("log:out").put(1, names, bodies)


def test_a_channels_codec_stays(box):
    names, _ = box.stage(0, 2, files=1, text=b"[%d, %d]")
    with penstock.subscribe("log:out") as sub:
        box("log:out", codec="json").put(0, names, bodies)
        assert sub.poll() == [[0, 0], [0, 1]]
    with pytest.raises(penstock.Mismatch):
        box("log:out", codec="msgpack").put(1, box.stage(1, 1)[0], bodies)
