"""The monitor's requests: the page's files, the newest snapshot, and snapshots as they are taken. Every request needs the token, and none writes.

Needs starlette and uvicorn: `pip install 'penstock[cli]'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from penstock.cli.monitor.snapshots import Snapshots
from penstock.util.extras import explain_missing
from penstock.util.loopback import LOOPBACK, Connections, is_local, listening

with explain_missing("the monitor"):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route
    from uvicorn.protocols.http.h11_impl import H11Protocol

ASSETS = Path(__file__).with_name("assets")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
WAITING = 4  # snapshots that wait for a slow browser; it misses others
END_SECONDS = 2


class _Stream:
    """The events of one browser. The snapshot thread puts snapshots in; the event loop takes them out."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[str | None] = asyncio.Queue()

    def put(self, snapshot: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._put, snapshot)

    def _put(self, snapshot: str | None) -> None:
        if snapshot is None or self._events.qsize() < WAITING:
            self._events.put_nowait(snapshot)

    async def events(self, snapshots: Snapshots, streams: set[_Stream]) -> AsyncIterator[str]:
        streams.add(self)
        try:
            yield f"event: past\ndata: {snapshots.join(self.put)}\n\nevent: look\ndata: {snapshots.latest()}\n\n"
            while (snapshot := await self._events.get()) is not None:
                yield f"event: look\ndata: {snapshot}\n\n"
        finally:
            snapshots.leave(self.put)
            streams.discard(self)


class _Gate:
    """Lets requests through that name this machine and the token. It runs before everything else."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":  # no websockets, and no lifespan
            return
        headers = [value for name, value in scope["headers"] if name == b"host"]
        given = scope["path"].encode().split(b"/")[1] if scope["path"].startswith("/") else b""
        refused = None
        if len(headers) != 1 or not is_local(headers[0].decode("latin-1")):
            refused = "ask for localhost\n"
        elif not hmac.compare_digest(given, self._token):
            refused = "the address lacks its token: copy the whole line that penstock monitor printed\n"
        if refused is not None:
            await PlainTextResponse(refused, 403, HEADERS)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _bound_protocol(connections: Connections, root: str) -> type[H11Protocol]:
    """The protocol of connections that are bounded: uvicorn waits without limit for the rest of a request, and for a slow reader.

    A connection whose request lacks the token may be dropped while it is answered.
    """

    class _Bounded(H11Protocol):
        """Names the waiting process and the one that it waits for."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connections.add(self, transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.remove(self)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self.flow.write_paused:
                self._work()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            connections.wait(self)

        def pause_writing(self) -> None:
            super().pause_writing()
            connections.wait(self)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._work()

        def _work(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete and self.scope["path"].startswith(root):
                connections.work(self)

    return _Bounded


class _Web(uvicorn.Server):
    """uvicorn's server, which checks ten times per second for late clients."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    async def on_tick(self, counter: int) -> bool:
        self._connections.end_late()
        return await super().on_tick(counter)


def _asset(path: Path) -> Callable[[Request], Response]:
    content, kind = path.read_bytes(), TYPES[path.suffix]

    def answer(request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return answer


class Server:
    """Serves the page on the loopback. A context manager: it samples and serves until the block ends.

    port: 0 takes a free one. `SystemFailure` if it is taken. The token is new for each server and is the first part of every path.
    """

    def __init__(self, snapshots: Snapshots, port: int = 0) -> None:
        self._snapshots, self._token = snapshots, secrets.token_urlsafe(24)
        self._socket = listening(port)
        self._streams: set[_Stream] = set()
        files = {path.name: _asset(path) for path in sorted(ASSETS.iterdir()) if path.suffix in TYPES}
        root = f"/{self._token}"
        routes = [
            Route(f"{root}/", files.pop("index.html"), methods=["GET"]),
            Route(f"{root}/events", self._events, methods=["GET"]),
            Route(f"{root}/look.json", self._look, methods=["GET"]),
            *(Route(f"{root}/{name}", answer, methods=["GET"]) for name, answer in files.items()),
        ]
        connections = Connections()
        config = uvicorn.Config(
            _Gate(Starlette(routes=routes), self._token),
            lifespan="off",
            ws="none",
            http=_bound_protocol(connections, f"{root}/"),
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=END_SECONDS,
        )
        self._server = _Web(config, connections)
        self._thread = threading.Thread(target=self._serve, name="penstock-monitor-web", daemon=True)

    @property
    def url(self) -> str:
        """The URL of the page, with the token."""
        return f"http://{LOOPBACK}:{self._socket.getsockname()[1]}/{self._token}/"

    def __enter__(self) -> Server:
        self._snapshots.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._snapshots.stop()
        self._server.should_exit = True
        for stream in list(self._streams):
            stream.put(None)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    async def _events(self, request: Request) -> Response:
        stream = _Stream()
        if self._server.should_exit:
            stream.put(None)
        events = stream.events(self._snapshots, self._streams)
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)

    def _look(self, request: Request) -> Response:
        return Response(self._snapshots.latest(), media_type="application/json", headers=HEADERS)
