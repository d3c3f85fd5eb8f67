"""URIs and options of `udp:` channels, before anything is opened."""

import pickle

import pytest

import penstock
from penstock.channels.uri import channel as channels
from penstock.errors import Invalid, Unsupported
from penstock.kinds.udp import address as udp_address
from penstock.kinds.udp.options import UdpOptions, UdpReaderOptions, merged


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("udp://127.0.0.1:40123/7", "127.0.0.1:40123/7"),
        ("udp://127.0.0.1:040123/-07", "127.0.0.1:40123/-7"),
        ("udp://0.0.0.0:1/2147483647", "0.0.0.0:1/2147483647"),
        ("udp://[::1]:40123/7", "[::1]:40123/7"),
        ("udp://[0:0::1]:40123/7", "[::1]:40123/7"),
        ("udp://[fe80::1%eth0]:40123/7", "[fe80::1%eth0]:40123/7"),
        ("udp://Some-Host.example:40123/7", "some-host.example:40123/7"),
        ("udp://224.0.1.1:40123/7", "224.0.1.1:40123/7"),
        ("aeron:udp?endpoint=127.0.0.1:40123|stream-id=7", "127.0.0.1:40123/7"),
        ("aeron:udp?stream-id=7|mtu=8k|endpoint=127.0.0.1:40123|alias=imu", "127.0.0.1:40123/7"),
    ],
)
def test_one_channel_has_one_name(text, name):
    parsed = channels.parse(text)
    assert parsed.kind.name == "udp"
    assert parsed.name == name
    assert parsed == channels.parse(f"udp://{name}")
    assert pickle.loads(pickle.dumps(parsed)) == parsed
    assert str(pickle.loads(pickle.dumps(parsed))) == str(parsed)
    assert parsed.kind.named(parsed.name) == name  # as the listing of channels reads it


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("udp:127.0.0.1:1/2", "write udp://HOST:PORT/STREAM"),
        ("udp://127.0.0.1:1", "names no stream"),
        ("udp://127.0.0.1/1", "has no port"),
        ("udp://:1/1", "has no host"),
        ("udp://127.0.0.1:0/1", "port 0 does not exist"),
        ("udp://127.0.0.1:65536/1", "port 65536 does not exist"),
        ("udp://127.0.0.1:1/x", "signed 32-bit integer"),
        ("udp://127.0.0.1:1/2147483648", "signed 32-bit integer"),
        ("udp://127.0.0.256:1/1", "neither a host's name nor an address"),
        ("udp://::1:1/1", r"in brackets: \[::1\]:1"),
        ("udp://[::g]:1/1", "not an IPv6 address"),
        ("udp://[::1/1", r"write \[ADDRESS\]:PORT"),
        ("udp://a b:1/1", "neither a host's name nor an address"),
        ("aeron:ipc", "only Aeron's UDP channels"),
        ("aeron:udp?endpoint=127.0.0.1:1", "no stream-id"),
        ("aeron:udp?stream-id=1", "no endpoint"),
        (
            "aeron:udp?endpoint=127.0.0.1:1|stream-id=1|mtuu=1",
            "no parameter 'mtuu' here; did you mean 'mtu'. known are alias",
        ),
        ("aeron:udp?endpoint=127.0.0.1:1|stream-id=1|mtu", "'mtu' is not a parameter"),
        ("aeron:udp?endpoint=127.0.0.1:1|stream-id=1|stream-id=2", "given twice"),
    ],
)
def test_a_wrong_uri_says_what_to_write(wrong, says):
    with pytest.raises(Invalid, match=says):
        channels.parse(wrong)


def test_aerons_parameters_are_options():
    uri = "aeron:udp?endpoint=127.0.0.1:1|stream-id=1|interface=127.0.0.1|so-rcvbuf=4m|eos=true"
    both = {"interface": "127.0.0.1", "receive_buffer": 4 << 20}
    sends = "|mtu=8k|term-length=1m|session-id=-7|linger=500ms|ttl=3|so-sndbuf=2m|fc=tagged,g:99"
    receives = "|rcv-wnd=512k|reliable=false|gtag=99"
    assert udp_address.options(uri + sends, "publish") == both | {
        "mtu": 8192,
        "term_length": 1 << 20,
        "session": -7,
        "linger": 0.5,
        "ttl": 3,
        "flow_control": {"tag": 99},
        "send_buffer": 2 << 20,
    }
    assert udp_address.options(uri + receives, "subscribe") == both | {
        "window": 512 << 10,
        "reliable": False,
        "group_tag": 99,
    }
    with pytest.raises(Unsupported, match="mtu is for publications"):
        udp_address.options(uri + sends, "subscribe")
    with pytest.raises(Unsupported, match="rcv-wnd is for subscriptions"):
        udp_address.options(uri + receives, "publish")


def test_a_start_is_a_position():
    uri = "aeron:udp?endpoint=127.0.0.1:1|stream-id=1|term-length=64k|init-term-id=2147483647|term-id=-2147483647|term-offset=64"
    found = udp_address.options(uri, "publish")
    assert (found["initial_term_id"], found["start_position"]) == (2147483647, 2 * 65536 + 64)
    with pytest.raises(Invalid, match="a start needs"):
        udp_address.options(uri.replace("|term-length=64k", ""), "publish")


@pytest.mark.parametrize(
    ("parameter", "error", "says"),
    [
        ("mtu=8x", Invalid, "number of bytes"),
        ("linger=5h", Invalid, "a duration"),
        ("reliable=no", Invalid, "true or false"),
        ("session-id=x", Invalid, "whole number"),
        ("fc=min,g:1/2", Unsupported, "flow control is"),
        ("cc=cubic", Unsupported, "cc=cubic is not built"),
        ("eos=false", Unsupported, "eos=false is not built"),
        ("tags=1,2", Unsupported, "tags=1,2 is not built"),
        ("nak-delay=200ms", Unsupported, "Aeron's nak-delay is not built: leave it out"),
        ("response-endpoint=127.0.0.1:2", Unsupported, "Aeron's response-endpoint is not built"),
        ("control-mode=manual", Unsupported, "name the destinations in the call"),
        ("control-mode=dynamic", Invalid, "needs control="),
        ("control-mode=response", Invalid, "must be dynamic or manual"),
        ("control=127.0.0.1", Invalid, "has no port"),
    ],
)
def test_a_wrong_value_says_why(parameter, error, says):
    uri = f"aeron:udp?endpoint=127.0.0.1:1|stream-id=1|{parameter}"
    with pytest.raises(error, match=says):
        udp_address.options(uri, "subscribe" if parameter.startswith("reliable") else "publish")


def test_a_call_and_a_uri_may_not_contradict_each_other():
    assert merged({"mtu": 8192}, {"mtu": 8192, "ttl": 1}, "u") == {"mtu": 8192, "ttl": 1}
    with pytest.raises(Invalid, match="u says mtu=8192, and the call mtu=1408"):
        merged({"mtu": 1408}, {"mtu": 8192}, "u")


@pytest.mark.parametrize(
    "wrong",
    [
        {"mtu": 64},
        {"mtu": 1400},
        {"mtu": 65536},
        {"mtu": "1408"},
        {"mtu": 65504, "term_length": 1 << 16},
        {"term_length": 1 << 15},
        {"capacity": 1000},
        {"session": 1 << 31},
        {"linger": -1},
        {"linger": None},
        {"linger": 10**9},
        {"ttl": 256},
        {"flow_control": "fast"},
        {"flow_control": {"tag": "x"}},
        {"flow_control": {"tag": 1, "size": 2}},
        {"interface": "eth 0"},
        {"interface": "10.0.0.0/33"},
        {"send_buffer": 0},
        {"max_members": 1},
    ],
)
def test_a_wrong_option_of_a_publication_is_named(wrong):
    with pytest.raises(Invalid, match=next(iter(wrong))):
        UdpOptions(**wrong)
    with pytest.raises(Invalid, match=next(iter(wrong))):
        penstock.publish("udp://127.0.0.1:40001/1", **wrong)


def test_a_wrong_start_position_is_named():
    with pytest.raises(Invalid, match="start_position"):
        penstock.publish(penstock.testing.channel("udp://127.0.0.1:40001/1", start_position=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 100},
        {"window": 1.5},
        {"reliable": "no"},
        {"group_tag": 1 << 63},
        {"receive_buffer": "2m"},
        {"max_members": 0},
        {"interface": 7},
    ],
)
def test_a_wrong_option_of_a_subscription_is_named(wrong):
    with pytest.raises(Invalid, match=next(iter(wrong))):
        UdpReaderOptions(**wrong)
    with pytest.raises(Invalid, match=next(iter(wrong))):
        penstock.subscribe("udp://127.0.0.1:40001/1", **wrong)
