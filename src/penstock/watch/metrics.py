"""Counters of channels for Prometheus: a collector for a program's own registry, and a server on this machine's loopback.

Observes channels from outside, as `penstock.list_channels` does; opens none. Needs `prometheus-client`: `pip install 'penstock[metrics]'`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from penstock.channels.latency import Latency
from penstock.channels.network import NetworkReceiver, NetworkSession
from penstock.channels.status import ChannelMember, ChannelStatus
from penstock.channels.storage import files
from penstock.channels.storage.discovery import list_channels
from penstock.front.counters import counters
from penstock.util.extras import explain_missing
from penstock.util.loopback import BACKLOG, LOOPBACK, Connections, is_local, unusable
from penstock.util.version import __version__

with explain_missing("penstock.watch.metrics"):
    from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        InfoMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector


log = logging.getLogger("penstock")


@dataclass(frozen=True)
class _Measure:
    """One family. value: from a status or a member; None leaves the sample out."""

    name: str
    help: str
    value: Callable[[Any], float | None]
    counts: bool = True

    def family(self, labels: list[str]) -> Metric:
        """A new family without samples."""
        made = CounterMetricFamily if self.counts else GaugeMetricFamily
        return made(self.name, self.help, labels=labels)


CHANNEL = (
    _Measure("penstock_channel_sent_messages", "Messages sent.", lambda s: s.totals.messages_sent),
    _Measure("penstock_channel_sent_bytes", "Bytes of messages sent.", lambda s: s.totals.bytes_sent),
    _Measure(
        "penstock_channel_received_messages", "Messages received, by each reader.", lambda s: s.totals.messages_received
    ),
    _Measure("penstock_channel_received_bytes", "Bytes received, by each reader.", lambda s: s.totals.bytes_received),
    _Measure("penstock_channel_refused_sends", "Sends that found no room.", lambda s: s.totals.back_pressure),
    _Measure("penstock_channel_lost_messages", "Messages that readers lost.", lambda s: s.totals.messages_lost),
    _Measure("penstock_channel_lost_bytes", "Bytes of the stream that readers lost.", lambda s: s.totals.bytes_lost),
    _Measure("penstock_channel_repaired_claims", "Claims of dead writers.", lambda s: s.totals.repaired),
    _Measure("penstock_channel_dropped_readers", "Readers dropped for being slow.", lambda s: s.totals.dropped),
    _Measure("penstock_channel_dead_members", "Members that died without closing.", lambda s: s.totals.reaped),
    _Measure("penstock_channel_restarts", "Publications that took over.", lambda s: s.totals.restarts),
    _Measure("penstock_channel_conflated_messages", "Messages skipped on purpose.", lambda s: s.totals.conflated),
    _Measure("penstock_channel_lag_bytes", "Bytes by which the slowest reader is behind.", lambda s: s.lag, False),
    _Measure("penstock_channel_writers", "Members that write.", lambda s: s.writers, False),
    _Measure("penstock_channel_readers", "Members that read.", lambda s: s.readers, False),
    _Measure("penstock_channel_members_limit", "Members that fit.", lambda s: s.max_members, False),
    _Measure("penstock_channel_capacity_bytes", "Bytes of room for messages.", lambda s: s.capacity, False),
    _Measure("penstock_channel_memory_bytes", "Bytes of shared memory.", lambda s: s.size, False),
    _Measure(
        "penstock_channel_created_timestamp_seconds",
        "When the channel was made.",
        lambda s: s.created_ns / 1e9,
        False,
    ),
)


def _detail(name: str, help: str, *details: str) -> _Measure:
    return _Measure(f"penstock_network_{name}", help, lambda s: sum(s.details[one] for one in details))


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e9


NETWORK = (
    _detail("sent_datagrams", "Datagrams sent.", "datagrams_sent"),
    _detail("sent_bytes", "Bytes of datagrams sent.", "bytes_sent"),
    _detail("received_datagrams", "Datagrams received.", "datagrams_received"),
    _detail("received_bytes", "Bytes of datagrams received.", "bytes_received"),
    _detail("sent_naks", "Requests for what is missing, sent.", "naks_sent"),
    _detail("received_naks", "Requests for what is missing, received.", "naks_received"),
    _detail("retransmitted_datagrams", "Datagrams sent again.", "retransmitted"),
    _detail("retransmitted_bytes", "Bytes sent again.", "retransmitted_bytes"),
    _detail("duplicate_datagrams", "Datagrams that arrived twice, or too late.", "duplicates"),
    _detail("losses", "Gaps that were given up.", "losses"),
    _detail("refused_datagrams", "Datagrams refused.", "malformed", "rejected", "unauthenticated", "replayed"),
    _detail("refused_sessions", "Tries to receive a session for which there was no room.", "sessions_refused"),
    _detail("closed_sessions", "Sessions that their senders closed.", "sessions_closed"),
    _detail("lost_sessions", "Sessions whose senders fell silent.", "sessions_lost"),
    _detail("failed_sends", "Datagrams that the system refused to send.", "send_failed"),
    _detail("takeovers", "Changes of the process that has the socket.", "takeovers"),
    _Measure(
        "penstock_network_round_trip_seconds",
        "The longest to a session or a receiver.",
        lambda s: _seconds(s.network.round_trip_ns),
        False,
    ),
    _Measure(
        "penstock_network_stuck_peers",
        "Sessions and receivers that datagrams of full length do not reach.",
        lambda s: sum(one.problem is not None for one in s.network.peers),
        False,
    ),
)
MEMBER = (
    _Measure("penstock_member_messages", "Messages that this member sent or received.", lambda m: m.messages),
    _Measure("penstock_member_bytes", "Bytes that this member sent or received.", lambda m: m.bytes),
    _Measure("penstock_member_refused_sends", "Sends of this member that found no room.", lambda m: m.back_pressure),
    _Measure("penstock_member_lost_bytes", "Bytes of the stream that this member lost.", lambda m: m.bytes_lost),
)
SESSION = (
    _Measure("penstock_session_open", "1 until the session is closed or lost.", lambda s: s.state == "open", False),
    _Measure("penstock_session_received_datagrams", "Datagrams of this session.", lambda s: s.datagrams_received),
    _Measure("penstock_session_sent_naks", "Requests for what is missing.", lambda s: s.naks_sent),
    _Measure("penstock_session_repaired_bytes", "Bytes that arrived after a request.", lambda s: s.bytes_repaired),
    _Measure("penstock_session_lost_bytes", "Bytes of gaps that were given up.", lambda s: s.bytes_lost),
    _Measure("penstock_session_window_bytes", "Bytes that its sender may be ahead.", lambda s: s.window, False),
    _Measure("penstock_session_silence_seconds", "Since its last datagram.", lambda s: s.silent_ns / 1e9, False),
    _Measure(
        "penstock_session_round_trip_seconds", "To its sender and back.", lambda s: _seconds(s.round_trip_ns), False
    ),
    _Measure(
        "penstock_session_clock_offset_seconds",
        "By how much its sender's clock is ahead of this machine's.",
        lambda s: _seconds(s.clock_offset_ns),
        False,
    ),
    _Measure(
        "penstock_session_clock_error_seconds",
        "By how much that offset is off at most.",
        lambda s: _seconds(s.clock_error_ns),
        False,
    ),
)
RECEIVER = (
    _Measure("penstock_receiver_received_naks", "Its requests for what is missing.", lambda r: r.naks_received),
    _Measure("penstock_receiver_readers", "Its subscriptions.", lambda r: r.readers, False),
    _Measure("penstock_receiver_window_bytes", "Bytes that the publication may be ahead.", lambda r: r.window, False),
    _Measure("penstock_receiver_lag_bytes", "Bytes by which it is behind.", lambda r: r.lag, False),
    _Measure("penstock_receiver_silence_seconds", "Since it was heard.", lambda r: r.silent_ns / 1e9, False),
    _Measure("penstock_receiver_round_trip_seconds", "As it measured it.", lambda r: _seconds(r.round_trip_ns), False),
)
LATENCY = (
    "latency_seconds",
    "Seconds from send to receive. Waiting readers' messages are measured; of others one in 61, which counts for all of them.",
)
FREE_BYTES = "penstock_shared_memory_free_bytes"
COUNTER = "penstock_counter", "Counters of the programs' own: penstock.counter."
OF_SESSION = ["channel", "kind", "session", "source"]
OF_RECEIVER = ["channel", "kind", "session", "address", "receiver"]
OF_CHANNEL, OF_MEMBER = ["channel", "kind"], ["channel", "kind", "role", "pid", "slot", "name"]


class PenstockCollector(Collector):
    """All channels of this user, sampled at each request to the registry.

    members: a series for each member too, with its pid, and for each session and receiver of a network: more series, and new ones with every process. A channel's name is a label, so
    give channels names that do not change with every start.

    >>> from prometheus_client import CollectorRegistry
    >>> registry = CollectorRegistry()
    >>> registry.register(PenstockCollector())
    """

    def __init__(self, *, members: bool = False) -> None:
        self._members = members

    def describe(self) -> Iterable[Metric]:
        """The families, without reading channels: a registry requests them when the collector is registered, and filters by them (`name[]`)."""
        yield InfoMetricFamily("penstock", "")
        yield InfoMetricFamily("penstock_channel", "")
        yield GaugeMetricFamily(FREE_BYTES, "")
        yield CounterMetricFamily(*COUNTER)
        for measure in (*CHANNEL, *NETWORK, *((*MEMBER, *SESSION, *RECEIVER) if self._members else ())):
            yield measure.family([])
        yield _histograms("penstock_channel", [], [])
        if self._members:
            yield _histograms("penstock_member", [], [])

    def collect(self) -> Iterator[Metric]:
        """The samples at this moment."""
        found = list_channels()
        yield InfoMetricFamily("penstock", "The version of the library.", {"version": __version__})
        yield _shared_memory()
        yield _counters()
        about = InfoMetricFamily("penstock_channel", "A channel's codec and state.", labels=OF_CHANNEL)
        for status in found:
            about.add_metric([status.channel, status.kind], {"codec": status.codec or "", "state": status.state})
        yield about
        yield from _families(CHANNEL, OF_CHANNEL, [(_channel_labels(status), status) for status in found])
        networks = [(_channel_labels(status), status) for status in found if status.network is not None]
        yield from _families(NETWORK, OF_CHANNEL, networks)
        yield _histograms(
            "penstock_channel", OF_CHANNEL, [(_channel_labels(status), status.latency) for status in found]
        )
        if self._members:
            rows = [(_member_labels(status, member), member) for status in found for member in status.members]
            yield from _families(MEMBER, OF_MEMBER, rows)
            yield _histograms("penstock_member", OF_MEMBER, [(labels, member.latency) for labels, member in rows])
            yield from _families(SESSION, OF_SESSION, _sessions(found))
            yield from _families(RECEIVER, OF_RECEIVER, _receivers(found))


def _shared_memory() -> Metric:
    family = GaugeMetricFamily(FREE_BYTES, "Free bytes on the file system of the channels.")
    family.add_metric([], files.usage().free)
    return family


def _counters() -> Metric:
    family = CounterMetricFamily(*COUNTER, labels=["name"])
    for name, count in counters().items():
        family.add_metric([name], count)
    return family


def _channel_labels(status: ChannelStatus) -> list[str]:
    return [status.channel, status.kind]


def _member_labels(status: ChannelStatus, member: ChannelMember) -> list[str]:
    return [status.channel, status.kind, member.role, str(member.pid), str(member.slot), member.name or ""]


def _sessions(found: Iterable[ChannelStatus]) -> list[tuple[list[str], NetworkSession]]:
    return [
        ([*_channel_labels(status), str(one.session), one.source], one)
        for status in found
        for one in (status.network.sessions if status.network is not None else ())
    ]


def _receivers(found: Iterable[ChannelStatus]) -> list[tuple[list[str], NetworkReceiver]]:
    return [
        ([*_channel_labels(status), str(one.session), one.address, f"{one.receiver:x}"], one)
        for status in found
        for one in (status.network.receivers if status.network is not None else ())
    ]


def _histograms(prefix: str, labels: list[str], rows: list[tuple[list[str], Latency | None]]) -> Metric:
    family = HistogramMetricFamily(f"{prefix}_{LATENCY[0]}", LATENCY[1], labels=labels)
    for values, latency in rows:
        if latency is not None:
            buckets = [(f"{end / 1e9:.12g}", count) for end, count in latency.cumulative()]
            family.add_metric(values, [*buckets, ("+Inf", latency.messages)], latency.sum_ns / 1e9)
    return family


def _families(measures: Iterable[_Measure], labels: list[str], rows: list[tuple[list[str], Any]]) -> Iterator[Metric]:
    for measure in measures:
        family = measure.family(labels)
        for values, source in rows:
            value = measure.value(source)
            if value is not None:
                family.add_metric(values, value)
        yield family


def _registry(members: bool) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PenstockCollector(members=members))
    return registry


def text(*, members: bool = False) -> str:
    """The counters now, as Prometheus reads them."""
    return str(generate_latest(_registry(members)).decode())


# ---- the server ----

HEAD_BYTES = 16 << 10  # of a request
TURN_SECONDS = 0.002
LOOK_SECONDS = 0.1  # between checks for late clients


class _Request(WSGIRequestHandler):
    """One connection, in its own thread: reads the whole request, makes the answer, sends it."""

    server: _Web
    connection: socket.socket

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            part = self.connection.recv(4096)
            head += part
            if not part or len(head) > HEAD_BYTES:
                return
        self.server.connections.work(self.connection)
        self.rfile, self.wfile = io.BytesIO(head), io.BytesIO()
        super().handle()
        answer = self.wfile.getvalue()
        self.server.connections.wait(self.connection)
        self.connection.sendall(answer)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: a scrape each second is not worth a log line."""


class _Web(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, *arguments: Any) -> None:
        self.connections = Connections()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        while self.connections.at_work():  # on answers: that does not last
            time.sleep(TURN_SECONDS)
        self.connections.add(request, lambda: _end(request))
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.remove(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self.connections.end_late()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request for the metrics failed", exc_info=True)


def _end(connection: socket.socket) -> None:
    """Wakes the connection's thread, which then closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Server:
    """Serves `/metrics` on the loopback interface. A context manager: it serves until the block ends.

    port: 0 takes a free one. Requests that name another host are refused, so that no web page can read the counters.
    """

    def __init__(self, port: int = 0, *, members: bool = False) -> None:
        app = make_wsgi_app(_registry(members))

        def checked(environ: dict[str, Any], respond: Any) -> Any:
            if not is_local(environ.get("HTTP_HOST", "")):
                respond("403 Forbidden", [("Content-Type", "text/plain")])
                return [b"ask for localhost\n"]
            if environ["PATH_INFO"] not in ("/", "/metrics"):
                respond("404 Not Found", [("Content-Type", "text/plain")])
                return [b"there is /metrics\n"]
            return app(environ, respond)

        try:
            self._server = make_server(LOOPBACK, port, checked, server_class=_Web, handler_class=_Request)
        except OSError as error:
            raise unusable(port, error) from error
        self._thread = threading.Thread(target=_serve, args=(self._server,), name="penstock-metrics", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the counters."""
        return f"http://{LOOPBACK}:{self._server.server_port}/metrics"

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.connections.end_all()


def _serve(server: _Web) -> None:
    server.serve_forever(poll_interval=LOOK_SECONDS)


__all__ = ["PenstockCollector", "Server", "text"]
