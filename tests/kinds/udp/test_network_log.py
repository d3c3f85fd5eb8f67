"""The network log's state machines, without sockets: captured bytes, single promises, and some lives in the simulator."""

import re
import subprocess

import pytest

from evidence.build import build


@pytest.fixture(scope="module")
def programs():
    """The folder of the native tests, built here."""
    return (
        build(
            "plain",
            ("net_check", "net_extensions", "net_sim", "udp_check", "udp_streams", "udp_takeover", "seal_check"),
        )
        / "tests"
    )


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_captured_bytes_and_single_promises(programs):
    assert int(re.search(r"(\d+) promises", run(programs / "net_check"))[1]) >= 13
    assert int(re.search(r"(\d+) promises", run(programs / "net_extensions"))[1]) >= 4


@pytest.mark.slow
def test_lives_over_a_bad_link_count_every_loss(programs):
    said = run(programs / "net_sim", "--seed", 1, "--lives", 400)
    assert said.startswith("400 lives"), said
    assert int(re.search(r"(\d+) datagrams", said)[1]) > 10_000


def test_messages_arrive_whatever_the_system_calls_do(programs):
    said = run(programs / "udp_check")
    assert int(re.search(r"while (\d+) system calls failed", said)[1]) > 100


def test_streams_of_one_port_share_a_socket(programs):
    assert run(programs / "udp_streams") == "several streams share a port\n"


@pytest.mark.slow
def test_a_killed_socket_owner_is_replaced_without_loss(programs):
    said = run(programs / "udp_takeover", "--seed", 1, "--messages", 300_000, "--every-ms", 100)
    assert int(re.search(r"(\d+) owners killed", said)[1]) > 0, said


def test_a_seal_lets_each_authentic_datagram_in_once(programs):
    assert run(programs / "seal_check", "--seed", 1) == "ok\n"
