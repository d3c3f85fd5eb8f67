"""Addresses: a host with several answers from the one that was asked."""

import pytest
from ports import free_port

import penstock

PATIENCE = 60
SEALED = [False, True]


@pytest.fixture
def key(tmp_path, request):
    """Options with a key, or none."""
    if not request.param:
        return {}
    import subprocess
    import sys

    path = tmp_path / "key"
    subprocess.run([sys.executable, "-m", "penstock.cli", "key", "new", path], check=True, capture_output=True)
    return {"key_file": path}


def exchange(pub, sub):
    pub.wait_for_readers(1, timeout=PATIENCE)
    for number in range(3000):
        pub.send(number, timeout=PATIENCE)
        if number % 100 == 99:
            assert [sub.recv(timeout=PATIENCE) for _ in range(100)] == list(range(number - 99, number + 1))


@pytest.mark.parametrize("key", SEALED, indirect=True)
@pytest.mark.parametrize("asked", ["127.0.0.1", "127.0.0.5"])
def test_a_subscription_answers_from_the_address_that_is_asked(asked, key):
    port = free_port()
    with (
        penstock.subscribe(f"udp://0.0.0.0:{port}/7", **key) as sub,
        penstock.publish(f"udp://{asked}:{port}/7", codec="json", **key) as pub,
    ):
        exchange(pub, sub)
        assert sub.sessions[0].source.startswith("127.0.0.")


@pytest.mark.parametrize("key", SEALED, indirect=True)
def test_a_control_address_answers_from_the_address_that_is_asked(key):
    """Receivers ask at one of its addresses; data comes from there, in runs too."""
    control = free_port()
    with (
        penstock.publish(f"udp://127.0.0.1:{free_port()}/7", codec="json", control=f"0.0.0.0:{control}", **key) as pub,
        penstock.subscribe(f"udp://127.0.0.1:{free_port()}/7", control=f"127.0.0.5:{control}", **key) as sub,
        penstock.subscribe(f"udp://127.0.0.1:{free_port()}/7", control=f"127.0.0.1:{control}", **key) as other,
    ):
        pub.wait_for_readers(2, timeout=PATIENCE)
        for number in range(500):
            pub.send(number, timeout=PATIENCE)
        for one, address in ((sub, "127.0.0.5"), (other, "127.0.0.1")):
            assert [one.recv(timeout=PATIENCE) for _ in range(500)] == list(range(500))
            assert [each.source for each in one.sessions] == [f"{address}:{control}"]


def test_both_families_answer_from_the_address_that_is_asked():
    port = free_port()
    with (
        penstock.subscribe(f"udp://[::]:{port}/7") as sub,
        penstock.publish(f"udp://[::1]:{port}/7", codec="json") as pub,
    ):
        exchange(pub, sub)
