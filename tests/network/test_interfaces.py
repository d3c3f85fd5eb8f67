"""Which interface a multicast group is joined on, and sent from: `interface=`, for IPv4 and IPv6."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys

import pytest
from ports import free_port

import penstock

QUICK = {"term_length": 1 << 16, "linger": 1.0}


@pytest.fixture(params=["224.0.1.77", "[ff01::77]", "[ff02::77]", "[ff0e::77]"])
def group(request):
    """A group's channel."""
    if ":" in request.param and not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    return f"udp://{request.param}:{free_port()}/7"


def test_an_interface_that_is_not_there_is_named(group):
    for verb in (penstock.publish, penstock.subscribe):
        with pytest.raises(penstock.Invalid, match=r"'nowhere0': this machine has no such interface; it has .*lo"):
            verb(group, interface="nowhere0")
        with pytest.raises(penstock.Invalid, match=r"203\.0\.113\.1: this machine has no interface with that address"):
            verb(group, interface="203.0.113.1")
        with pytest.raises(penstock.Invalid, match=r"203\.0\.113\.0/24: this machine has no interface with an address"):
            verb(group, interface="203.0.113.0/24")


def test_a_zone_names_the_interface():
    uri = f"udp://[ff02::77%nowhere0]:{free_port()}/7"
    for verb in (penstock.publish, penstock.subscribe):
        with pytest.raises(penstock.Invalid, match=r"the address ff02::77%nowhere0 names 'nowhere0'"):
            verb(uri)


def _group_channel(host):
    uri = f"udp://{host}:{free_port()}/7"
    try:
        penstock.subscribe(uri).close()
    except OSError as error:
        pytest.skip(f"this kernel has no {host}: {error}")
    penstock.remove(uri)
    return uri


def test_the_first_subscription_decides_the_interface():
    uri = _group_channel("224.0.1.77")
    other = next((name for _, name in socket.if_nameindex() if name != "lo"), None)
    with penstock.subscribe(uri):
        penstock.subscribe(uri, interface="lo").close()  # the same, by its name and by its address
        penstock.subscribe(uri, interface="127.0.0.1").close()
        penstock.subscribe(uri, interface="127.0.0.0/8").close()
        if other is None:
            pytest.skip("this machine has no interface but loopback")
        wanted = rf"exists with interface=lo, not {other}: .* penstock\.remove\('{uri.replace('.', '[.]')}'\)"
        with pytest.raises(penstock.Mismatch, match=wanted):
            penstock.subscribe(uri, interface=other)


@pytest.mark.parametrize("verb", [penstock.publish, penstock.subscribe])
@pytest.mark.parametrize("written", ["udp://127.0.0.1:{}/7", "aeron:udp?endpoint=127.0.0.1:{}|stream-id=7"])
def test_an_address_that_is_no_group_has_no_interface(verb, written):
    with pytest.raises(
        penstock.Invalid, match=r"interface is 'lo': it is for a multicast group, and 127\.0\.0\.1 is none"
    ):
        verb(written.format(free_port()), interface="lo")


def test_an_address_that_is_no_group_has_no_ttl():
    aerons = f"aeron:udp?endpoint=[::1]:{free_port()}|stream-id=7|ttl=4"
    for uri, given in ((f"udp://127.0.0.1:{free_port()}/7", {"ttl": 1}), (aerons, {})):
        with pytest.raises(penstock.Invalid, match=r"ttl is [14]: it is for a multicast group"):
            penstock.publish(uri, **given)


WORLD = """
set -e
ip link set lo up
ip link set lo multicast on
ip -6 route add local ff00::/8 dev lo
ip link add here type veth peer name there
ip link set here up
ip link set there up
ip -6 addr add fd00::1/64 dev here nodad
exec "$@"
"""
TALK = """
import json, socket, sys, time, penstock
said = {}
for number, (host, interface) in enumerate(json.load(sys.stdin)):
    uri = f"udp://[{host}]:{40100 + number}/7"
    group = socket.inet_pton(socket.AF_INET6, host.partition("%")[0]).hex()
    def members():
        words = open("/proc/net/igmp6").read().split()
        return [words[i - 1] for i, word in enumerate(words) if word == group]
    with (
        penstock.subscribe(uri, interface=interface) as sub,
        penstock.publish(uri, interface=interface, linger=1.0, term_length=1 << 16) as pub,
    ):
        pub.wait_for_readers(1, timeout=60)
        for number in range(100):
            pub.send(b"%d" % number, timeout=60)
            assert sub.recv(timeout=60) == b"%d" % number
        said[f"{host} through {interface}"] = members()
    end = time.monotonic() + 60
    while members():
        assert time.monotonic() < end, "it is still a member of the group"
print(json.dumps(said))
"""
HOSTS = ("ff01::77", "ff02::77", "ff05::77", "ff0e::77", "ff02::77%lo")
INTERFACES = {None: "lo", "lo": "lo", "::1": "lo", "here": "here", "fd00::/64": "here"}


def test_an_ipv6_group_through_an_interface():
    """In a network of its own, where loopback knows groups: it joins there and nowhere else, messages come, and it leaves."""
    world = ["unshare", "--net", "--map-root-user", "sh", "-c", WORLD, "sh"]
    try:
        made = subprocess.run([*world, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"no network of its own: {error}")
    if made.returncode != 0:
        pytest.skip(f"no network of its own with IPv6: {made.stderr.strip()}")
    wanted = {  # a zone and another interface contradict each other: below
        (host, given): name for host in HOSTS for given, name in INTERFACES.items() if "%" not in host or name == "lo"
    }
    done = subprocess.run(
        [*world, sys.executable, "-c", TALK], input=json.dumps([*wanted]), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {f"{host} through {given}": [name] for (host, given), name in wanted.items()}


def test_a_zone_and_another_interface_contradict_each_other():
    other = next((name for _, name in socket.if_nameindex() if name != "lo"), None)
    if other is None:
        pytest.skip("this machine has no interface but loopback")
    with pytest.raises(penstock.Invalid, match="names another: leave one of them out"):
        penstock.subscribe(f"udp://[ff02::77%lo]:{free_port()}/7", interface=other)


def test_a_group_without_a_route_says_what_to_do():
    uri = _group_channel("[ff02::77]")
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("ff02::77", 40123, 0, socket.if_nametoindex("lo")))
        except OSError as error:
            assert error.errno == errno.ENETUNREACH  # noqa: PT017
        else:
            pytest.skip("here loopback has a route to IPv6 groups")
    with pytest.raises(
        OSError, match="interface lo has no route to IPv6 groups: run ip -6 route add local ff00::/8 dev"
    ):
        penstock.publish(uri, **QUICK)
