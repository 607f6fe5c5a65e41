"""A small server on this machine, for kernels too large for a page: it answers only itself, and only reads."""

import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any

from tangentlab._errors import TangentError
from tangentlab.explorer._answers import Answers
from tangentlab.explorer._exploration import Exploration

_LOOPBACK = "127.0.0.1"
_BLOCK = re.compile(r"/block/(\d{1,9})/(class|clusters|given|function-\d{1,9})/(\d{1,9})/(\d{1,9})/(\d{1,9})")
_SAMPLE = re.compile(r"/sample/(\d{1,9})/(\d{1,9})")
_ARRAY = re.compile(r"/array/([a-z/0-9-]{1,60})")


class Server:
    """Serves an exploration on loopback until it is closed.

    The page loads arrays, eigenfunctions, tiles of the kernel and samples when the reader asks for them. There are no
    paths to files in requests: what is served is what this object holds. Requests with another ``Host`` are refused, so
    that a page of another site that resolves its name to this machine reads nothing; there are no CORS headers, and no
    other method than GET and HEAD.

    Cost: the page is built once, when the server is created. A request for a block reads up to 400 x 400 entries of the
    kernel, one for a sample compares its input with up to all N others.

    Args:
        found: The exploration.
        port: The port; 0 for a free one.
        docs: Address of the documentation site, or None.

    Raises:
        TangentError: The port is taken.
    """

    def __init__(self, found: Exploration, port: int = 0, docs: str | None = None) -> None:
        self.answers = Answers(found, docs)
        server = self

        class Handler(_Handler):
            """Answers by this server."""

            owner = server

        try:
            self._http = ThreadingHTTPServer((_LOOPBACK, port), Handler)
        except (OSError, OverflowError) as error:
            raise TangentError(
                f"Port {port} cannot be used: {getattr(error, 'strerror', None) or error}.",
                remedy="Choose another port, or 0 for a free one.",
            ) from error
        self._http.daemon_threads = True
        self.port = int(self._http.server_address[1])
        self.hosts = {f"{name}:{self.port}" for name in (_LOOPBACK, "localhost")}
        self.lock = Lock()  # a stored kernel is read by one thread at a time
        self._thread: Thread | None = None

    @property
    def address(self) -> str:
        """The address to open in a browser."""
        return f"http://{_LOOPBACK}:{self.port}/"

    def start(self) -> "Server":
        """Start to answer in the background."""
        self._thread = Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        return self

    def serve_forever(self) -> None:
        """Wait for requests and answer them until the process is interrupted."""
        self._http.serve_forever()

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
            self._thread = None
        self._http.server_close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    owner: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tangentlab", ""
    timeout = 60

    def do_GET(self) -> None:
        """Handle a request."""
        self._answer()

    def do_HEAD(self) -> None:
        """Handle a request for everything but the content."""
        self._answer(content=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _answer(self, content: bool = True) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0] not in self.owner.hosts:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"This server answers only this machine.", "text/plain", content)
            return
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._send(HTTPStatus.FORBIDDEN, b"Another page may not read this.", "text/plain", content)
            return
        try:
            found = self._found()
        except TangentError as error:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, str(error).encode(), "text/plain", content)
            return
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, b"There is no such thing.", "text/plain", content)
        else:
            self._send(HTTPStatus.OK, *found, content)

    def _found(self) -> tuple[bytes, str] | None:
        """Return content and media type of what was asked for; None if there is no such thing."""
        path, answers = self.path, self.owner.answers
        if path == "/":
            return answers.page, "text/html; charset=utf-8"
        if match := _ARRAY.fullmatch(path):
            packed = answers.arrays.get(match[1])
            return None if packed is None else (packed.data, "application/octet-stream")
        with self.owner.lock:
            if match := _SAMPLE.fullmatch(path):
                return _typed(answers.sample(int(match[1]), int(match[2])), "application/json")
            if match := _BLOCK.fullmatch(path):
                row, column, count = (int(match[i]) for i in (3, 4, 5))
                return _typed(answers.block(int(match[1]), match[2], row, column, count), "application/octet-stream")
        return None

    def _send(self, status: HTTPStatus, data: bytes, kind: str, content: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (
            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"), ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        if content:
            self.wfile.write(data)


def _typed(data: bytes | None, kind: str) -> tuple[bytes, str] | None:
    return None if data is None else (data, kind)
