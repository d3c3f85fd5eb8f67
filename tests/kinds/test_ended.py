"""Handles and frames that have ended: their errors are the channel's, and nothing is lost in silence."""

import inspect
from unittest import mock

import pytest

import penstock


def test_a_frame_of_a_closed_publication_is_not_lost_in_silence():
    with penstock.publish("frames:w", shape=2) as pub, penstock.subscribe("frames:w", conflate=False) as sub:
        with pub.acquire() as frame:
            frame.commit()  # the end of the block has nothing to do
        with pub.acquire() as frame:
            frame.abort()
        with pytest.raises(penstock.Closed, match=r"^frames:w: "), pub.acquire() as frame:
            frame.array[...] = 7
            pub.close()
        assert len(sub.poll()) == 1


def test_a_released_frame_has_no_array():
    with penstock.publish("frames:w", shape=2) as pub, penstock.subscribe("frames:w") as sub:
        pub.send([1, 2])
        frame = sub.recv(timeout=1)
        frame.release()
        for use in (lambda: frame.array, frame.copy, lambda: memoryview(frame.array)):
            with pytest.raises(penstock.Closed, match=r"^frames:w: this frame was released"):
                use()
        assert not hasattr(frame, "array")
        mock.Mock(spec=frame)
        assert "sequence" in dict(inspect.getmembers(frame))


def test_a_subscription_that_makes_the_channel_waits_for_nobody():
    with pytest.raises(penstock.Invalid, match=r"^frames:w: connect_timeout has no effect with a shape"):
        penstock.subscribe("frames:w", shape=2, connect_timeout=5)
    assert penstock.list_channels() == []


@pytest.mark.parametrize("kind", ["log", "ring", "pipe", "sync"])
def test_a_closed_subscription_polls_nothing_at_all(kind):
    with penstock.publish(f"{kind}:w"), penstock.subscribe(f"{kind}:w") as sub:
        assert sub.poll(0) == []
    with pytest.raises(penstock.Closed):
        sub.poll(0)
