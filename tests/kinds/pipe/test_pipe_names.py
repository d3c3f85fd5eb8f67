"""A message's sender stays known when it is gone and another peer has its slot."""

import penstock


def test_a_message_keeps_its_senders_name_in_a_reused_slot():
    with penstock.join("pipe:n", role="router") as router:
        for number in range(20):
            with penstock.join("pipe:n", role="dealer", name=f"d{number}") as dealer:
                dealer.send(b"%d" % number)
        with penstock.join("pipe:n", role="dealer", name="last"):
            got = [router.recv(timeout=60) for _ in range(20)]
            assert [(m.sender, m.body) for m in got] == [(f"d{number}", b"%d" % number) for number in range(20)]
            assert router.peers == ["last"]


def test_a_request_keeps_its_senders_name_in_a_reused_slot():
    with penstock.join("pipe:r", role="reply") as replier:
        with penstock.join("pipe:r", role="request", name="first") as asker:
            asker.submit(b"x")
        with penstock.join("pipe:r", role="request", name="second"):
            request = replier.recv(timeout=60)
            assert (request.sender, request.body) == ("first", b"x")
            assert not request.reply(b"to nobody")
