"""The HTTP door through which Prometheus reads a registry: /metrics of a thread that ends with its `with` block."""

import contextlib
import errno
import socket
import threading
import time
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from nfdist.errors import ConfigError
from nfdist.log import warn

SECONDS_OF_A_SCRAPE = 10.0
MOST_SCRAPES = 16  # at one time
_LATE, _LATE_SECONDS = 1.5, 1.0  # of the time between two scrapes, and beside it: whoever is later may be gone


def serve(registry: CollectorRegistry, host: str, port: int) -> "Server":
    """Serve a registry at host:port, or at any free port with a warning when that one is taken; port 0 serves none."""
    if port == 0:
        return Server(None)
    try:
        return Server(_Scrapes(registry, host, port))
    except (OSError, OverflowError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, OverflowError) or getattr(error, "errno", None) == errno.EACCES:
            raise ConfigError(
                f"observe.port {port} cannot be used ({reason}): choose one from 1024 to 65000"
            ) from error
        if getattr(error, "errno", None) != errno.EADDRINUSE:
            raise ConfigError(
                f"observe.host {host!r} is no address of this machine ({reason}): use 127.0.0.1, or 0.0.0.0 for all"
            ) from error
    server = Server(_Scrapes(registry, host, 0))
    warn(f"observe.port {port} is taken: metrics are at http://{server.address}/metrics instead")
    return server


class Server:
    """A thread that answers scrapes until it is closed."""

    def __init__(self, scrapes: "_Scrapes | None") -> None:
        self._scrapes = scrapes
        if scrapes is not None:
            # A daemon, so that a process that dies without closing it still ends.
            self._thread = threading.Thread(target=scrapes.serve_forever, name="nfdist metrics", daemon=True)
            self._thread.start()

    @property
    def address(self) -> str:
        """host:port, or nothing when nothing is served."""
        if self._scrapes is None:
            return ""
        host, port = self._scrapes.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def await_scrape(self, seconds: float) -> bool:
        """Let whoever scrapes regularly see the values of now: wait for one more scrape, at most so long.

        Whether it came. Nobody is waited for who has not come twice, or who is late.
        """
        return self._scrapes is not None and self._scrapes.await_another(seconds)

    def close(self) -> None:
        """Stop answering and wait for the thread to end."""
        if self._scrapes is not None:
            self._scrapes.shutdown()
            self._thread.join()
            self._scrapes.server_close()
            self._scrapes = None

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Request(WSGIRequestHandler):
    """One scrape: it is not logged, and a client that says nothing is dropped."""

    timeout = SECONDS_OF_A_SCRAPE

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Scrapes(ThreadingMixIn, WSGIServer):
    """A thread a request, so that a slow client holds up nobody; for so many of them, and so long, only."""

    daemon_threads = True

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self._open: dict[Any, float] = {}  # the connections, and when each must have ended
        self._guard = threading.Lock()
        self._answered = threading.Condition()
        self._last: tuple[float, ...] = ()  # when the last two scrapes began that were answered
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = found[0]
        super().__init__((str(address[0]), port), _Request)
        self.set_app(make_wsgi_app(registry))

    def await_another(self, seconds: float) -> bool:
        """Wait for a scrape that begins after this moment, where the last two let expect one within so many seconds."""
        now = time.monotonic()
        with self._answered:
            if len(self._last) < 2:
                return False
            before, last = self._last
            expected = last + _LATE * (last - before) + _LATE_SECONDS
            return self._answered.wait_for(lambda: self._last[1] > now, max(0.0, min(seconds, expected - now)))

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is a thread left for a connection; one that is not answered is closed."""
        with self._guard:
            if len(self._open) >= MOST_SCRAPES:
                return False
            self._open[request] = time.monotonic() + SECONDS_OF_A_SCRAPE
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            ends = self._open.pop(request, None)
            super().shutdown_request(request)
        if ends is not None:
            with self._answered:
                self._last = (*self._last, ends - SECONDS_OF_A_SCRAPE)[-2:]
                self._answered.notify_all()

    def service_actions(self) -> None:
        """Twice a second: hang up on those whose time is over, however many bytes they still drip."""
        now = time.monotonic()
        with self._guard:
            for request, ends in self._open.items():
                if now > ends:
                    with contextlib.suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is not worth a traceback in the log of a training run."""
