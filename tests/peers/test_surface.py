"""Every public name of the libraries that `penstock.compat` stands in for: it is here, with the same parameters in the same places.

The tables are facts of commaai/msgq (commit 0e266c1 of August 2026) and pysyncq 0.0.1. Where the originals are installed, they are
held against the tables, too, as far as compiled code tells.
"""

import importlib
import inspect

import pytest

# name → parameters, with their defaults where they have one. "=" stands for a property, "" for no parameters.
MSGQ = {
    "Context": "",
    "Context.term": "",
    "Poller": "",
    "Poller.registerSocket": "socket",
    "Poller.poll": "timeout",
    "SubSocket": "",
    "SubSocket.connect": "context, endpoint, address=b'127.0.0.1', conflate=False, segment_size=0",
    "SubSocket.setTimeout": "timeout",
    "SubSocket.receive": "non_blocking=False",
    "PubSocket": "",
    "PubSocket.connect": "context, endpoint, segment_size=0",
    "PubSocket.send": "data",
    "PubSocket.all_readers_updated": "",
    "PubSocket.wait_for_readers": "timeout=1.0, interval=0.001",
    "SocketEventHandle": "endpoint, identifier, override",
    "SocketEventHandle.enabled": "=",
    "SocketEventHandle.recv_called_event": "=",
    "SocketEventHandle.recv_ready_event": "=",
    "toggle_fake_events": "enabled",
    "set_fake_prefix": "prefix",
    "get_fake_prefix": "",
    "delete_fake_prefix": "",
    "wait_for_one_event": "events, timeout=-1",
    "fake_event_handle": "endpoint, identifier=None, override=True, enable=False",
    "pub_sock": "endpoint, segment_size=0",
    "sub_sock": "endpoint, poller=None, addr='127.0.0.1', conflate=False, timeout=None, segment_size=0",
    "drain_sock_raw": "sock, wait_for_one=False",
    "NO_TRAVERSAL_LIMIT": "constant",
    "context": "constant",
    "IpcError": "exception",
    "MultiplePublishersError": "exception",
}
EVENT = {  # reached through handles only
    "Event.set": "",
    "Event.clear": "",
    "Event.wait": "timeout=-1",
    "Event.peek": "",
    "Event.fd": "=",
}
VISION = {
    "get_endpoint_name": "name, stream",
    "VisionBuf": "opaque",
    **{
        f"VisionBuf.{name}": "=" for name in ("data", "width", "height", "stride", "uv_offset", "idx", "fd", "frame_id")
    },
    "VisionIpcServer": "name",
    "VisionIpcServer.create_buffers": "tp, num_buffers, width, height",
    "VisionIpcServer.create_buffers_with_sizes": "tp, num_buffers, width, height, size, stride, uv_offset",
    "VisionIpcServer.send": "tp, data, frame_id=0, timestamp_sof=0, timestamp_eof=0",
    "VisionIpcServer.start_listener": "",
    "VisionIpcClient": "name, stream, conflate",
    "VisionIpcClient.connect": "blocking",
    "VisionIpcClient.is_connected": "",
    "VisionIpcClient.recv": "timeout_ms=100",
    "VisionIpcClient.available_streams": "name, block",
    **{
        f"VisionIpcClient.{name}": "="
        for name in (
            [
                "width",
                "height",
                "stride",
                "uv_offset",
                "buffer_len",
                "num_buffers",
                "frame_id",
                "timestamp_sof",
                "timestamp_eof",
                "valid",
            ]
        )
    },
}
PYSYNCQ = {
    "PySyncQ": "name=None, create=True, size=4096, start=None",
    "PySyncQ.open": "sender=None, filtself=True",
    "PySyncQ.close": "",
    "PySyncQ.append": "msgtype='', msg='', block=False, timer=0.5",
    "PySyncQ.pop": "block=False, timer=0.5, decode=True",
    "PySyncQ.__call__": "*args, **kargs",
    "PySyncQ.__iter__": "",
}
# ours, theirs, the table, names of theirs that are left out, each for a reason that the porting page gives
PEERS = {
    "msgq": ("penstock.compat.msgq", "msgq", MSGQ, {"ipc_pyx", "visionipc", "List", "Optional", "Union"}),
    "msgq's events": ("penstock.compat.msgq_events", "msgq.ipc_pyx", EVENT, {"Event.ptr"}),
    "visionipc": ("penstock.compat.visionipc", "msgq.visionipc", VISION, {"visionipc_pyx"}),
    "pysyncq": ("penstock.compat.pysyncq", "pysyncq.pysyncq", PYSYNCQ, {"hdr", "mp", "sm", "time"}),
}


def found(module, name):
    where = module
    for part in name.split("."):
        where = inspect.getattr_static(where, part) if isinstance(where, type) else getattr(where, part, None)
        assert where is not None, f"{module.__name__} has no {name}"
    return where.__func__ if isinstance(where, staticmethod) else where


def parameters(called):
    """(name, default as text or None) of each, but for self."""
    given = list(inspect.signature(called).parameters.values())
    kept = [p for p in given if p.name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]
    return [(p.name, None if p.default is p.empty else repr(p.default)) for p in kept]


def differs(module, name, wanted):
    """The difference of a name, or nothing."""
    thing = found(module, name)
    if wanted in ("constant", "opaque"):
        return None
    if wanted == "exception":
        return None if issubclass(thing, Exception) else "no exception"
    if wanted == "=":
        return None if isinstance(thing, property) else f"no property: {thing!r}"
    if wanted.startswith("*"):
        return None if callable(thing) else "cannot be called"
    asked = [(part.split("=")[0], part.partition("=")[2] or None) for part in wanted.split(", ") if part]
    ours = parameters(thing)
    for place, (parameter, default) in enumerate(asked):
        if place >= len(ours) or ours[place][0] != parameter:
            return f"parameter {place} is {ours[place][0] if place < len(ours) else 'missing'}, not {parameter}"
        if default is not None and ours[place][1] != default:
            return f"{parameter} is {ours[place][1]} by default, not {default}"
    more = [parameter for parameter, default in ours[len(asked) :] if default is None]
    return f"{more} have to be given" if more else None


@pytest.mark.parametrize("peer", PEERS)
def test_every_name_is_here_with_its_parameters(peer, tally):
    ours, _, table, _ = PEERS[peer]
    module = importlib.import_module(ours)
    different = {name: why for name, wanted in table.items() if (why := differs(module, name, wanted))}
    assert not different
    tally("names held against other libraries' surfaces", len(table))


@pytest.mark.parametrize("peer", PEERS)
def test_the_table_has_every_name_of_the_original(peer):
    """Where the original is installed. Compiled classes tell their names, not their parameters."""
    _, theirs, table, left_out = PEERS[peer]
    try:
        module = importlib.import_module(theirs)
    except ImportError:
        pytest.skip(f"{theirs} is not installed")
    if theirs == "msgq" and not hasattr(module, "pub_sock"):
        pytest.skip("the installed msgq is another library of that name")
    classes = [name for name in table if "." not in name and isinstance(getattr(module, name, None), type)]
    if peer == "msgq's events":
        names, classes = set(), ["Event"]
    else:
        names = {name for name in dir(module) if not name.startswith("_")} - left_out
    for owner in classes:
        names |= {f"{owner}.{name}" for name in dir(getattr(module, owner)) if not name.startswith("_")}
    builtin = {f"{owner}.{name}" for owner in ("IpcError", "MultiplePublishersError") for name in dir(Exception)}
    assert sorted(names - set(table) - left_out - builtin) == []


def test_differences_between_channels():
    """The comparison itself: a missing name, another order, another default, a parameter too many."""
    from penstock.compat import msgq

    with pytest.raises((AssertionError, AttributeError)):
        differs(msgq, "PubSocket.flush", "")
    assert differs(msgq, "PubSocket.send", "=")
    assert differs(msgq, "drain_sock_raw", "wait_for_one, sock")
    assert differs(msgq, "drain_sock_raw", "sock, wait_for_one=True")
    assert differs(msgq, "drain_sock_raw", "sock, wait_for_one=False, more=1")
    assert differs(msgq, "Poller.poll", "")
    assert not differs(msgq, "SocketEventHandle", "endpoint, identifier, override")
