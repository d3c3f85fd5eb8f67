"""Names, types and topics are lists of texts that UTF-8 can say; anything else is refused at once, with the channel."""

import asyncio
import pickle

import numpy as np
import pytest

import penstock

HALF = "\ud800"


def test_waiting_for_one_text_is_refused():
    """Its letters are no names. The error comes at once, also without a timeout."""
    with penstock.join("sync:n", name="camera") as camera, penstock.join("sync:n", name="robot"):
        for wrong in ("robot", b"robot", {b"robot"}, {5}, [None], 5):
            with pytest.raises(penstock.Invalid, match=r"^sync:n: "):
                camera.wait_for(wrong)
            with pytest.raises(penstock.Invalid, match=r"^sync:n: "):
                asyncio.run(camera.wait_for_async(wrong))
        for wrong in ("robot", b"robot", 5):
            with pytest.raises(penstock.Invalid, match=r"^sync:n: "):
                camera.screen(senders=wrong)
            with pytest.raises(penstock.Invalid, match=r"^sync:n: "):
                camera.screen(types=wrong)
        camera.wait_for({"robot", "camera"}, timeout=60)
        camera.wait_for([], timeout=60)


@pytest.mark.parametrize(
    "refused",
    [
        lambda folder: penstock.Archive(folder / HALF),
        lambda folder: penstock.Archive(folder / "a").replicate(folder / HALF),
        lambda folder: penstock.Archive(f"s3://{HALF}/x"),
        lambda folder: penstock.open_dataset(folder / HALF),
        lambda folder: penstock.lake(folder / HALF),
        lambda folder: penstock.publish(f"zmq+tcp://{HALF}:1"),
        lambda folder: penstock.publish(f"zmq+ipc://{folder}/{HALF}"),
        lambda folder: penstock.publish("log:h", codec="json", last=HALF),
    ],
)
def test_half_characters_are_refused_by_every_path(refused, tmp_path):
    with pytest.raises(penstock.Invalid, match="half of a character"):
        refused(tmp_path)


def test_half_characters_are_refused_by_every_name():
    """Names of members and peers, types, topics, and the dealer that a router names."""
    refused = [
        lambda: penstock.join("sync:h", name=HALF),
        lambda: penstock.publish("sync:h", name=HALF),
        lambda: penstock.publish("pipe:h", name=HALF),
        lambda: penstock.subscribe("pipe:h", name=HALF),
        lambda: penstock.join("pipe:h", role="pair", name=HALF),
        lambda: penstock.join("zmq+tcp://127.0.0.1:*", role="router", name=HALF),
        lambda: penstock.subscribe("zmq+tcp://127.0.0.1:5555", topics=HALF),
        lambda: penstock.publish(f"log:{HALF}"),
        lambda: penstock.list_channels(f"lo:{HALF}*"),
    ]
    for call in refused:
        with pytest.raises(penstock.Invalid):
            call()
    with penstock.join("sync:h", name="a") as member:
        for call in (member.send, member.offer, lambda body, type: member.offer_many([body], type=type)):
            for wrong in (HALF, 5, "x" * 70_000):
                with pytest.raises((penstock.Invalid, penstock.TooLarge), match=r"^sync:h: .*type"):
                    call(b"", type=wrong)
        with pytest.raises(penstock.Invalid, match=r"^sync:h: .*half"):
            member.wait_for([HALF])
        with pytest.raises(penstock.Invalid, match=r"^sync:h: .*half"):
            member.screen(senders=[HALF])
    with penstock.publish("zmq+tcp://127.0.0.1:*") as pub:
        for send in (pub.send, pub.offer):
            with pytest.raises(penstock.Invalid, match="a topic"):
                send(b"", topic=HALF)
            with pytest.raises(TypeError, match=r"^zmq.*a topic is text or bytes, not int"):
                send(b"", topic=5)
        with pytest.raises(TypeError, match="a topic is text"):
            pub.wait_for_readers(0, topic=5)
    for uri in ("pipe:r", "zmq+tcp://127.0.0.1:*"):
        with penstock.join(uri, role="router") as router, pytest.raises(penstock.Invalid, match="half"):
            router.send(b"", to=HALF)


def test_the_address_that_was_chosen_is_pickled():
    """A copy of a publication at `:*` is one at the same port: `Busy`, and no other publication."""
    with penstock.publish("zmq+tcp://127.0.0.1:*") as pub:
        data = pickle.dumps(pub)
        with pytest.raises(penstock.Busy):
            pickle.loads(data)
        address = pub.address
    with pickle.loads(data) as again:
        assert again.address == address
    with penstock.join("zmq+tcp://127.0.0.1:*", role="router") as router, pytest.raises(penstock.Busy):
        pickle.loads(pickle.dumps(router))


@pytest.mark.parametrize("kind", [penstock.threads.Pipe, penstock.threads.Mailbox])
def test_not_implemented_cannot_be_put(kind):
    """`take` returns it where there is nothing, so it is refused; nothing is lost."""
    pipe = kind()
    for put in (pipe.put, pipe.put_nowait):
        with pytest.raises(TypeError, match="NotImplemented cannot be put"):
            put(NotImplemented)
    pipe.put(1)
    assert asyncio.run(pipe.get_async()) == 1
    assert pipe.take(timeout=0) is NotImplemented
    pipe.put(2)
    assert pipe.take(timeout=np.float64(0)) == 2
    for wrong in ({"limit": 1}, {"timeout": 0, "more": 1}):
        with pytest.raises(TypeError, match="optional timeout"):
            pipe.take(**wrong)
    with pytest.raises(TypeError, match="optional timeout"):
        pipe.take(1, 2)


def test_addresses_with_a_slash_too_many():
    """The error says what is wrong, and not that the port is."""
    for wrong in ("udp://127.0.0.1:41012/7/", "udp://127.0.0.1:41012/7/8", "udp://127.0.0.1:41012/"):
        with pytest.raises(penstock.Invalid, match="a stream is one whole number at the end"):
            penstock.publish(wrong)


def test_a_read_only_name_is_not_suggested_for_setting():
    """The error says that it can only be read."""
    with (
        penstock.publish("log:s") as pub,
        pytest.raises(AttributeError, match="it has 'channel', which can only be read"),
    ):
        pub.chanel = "log:b"
