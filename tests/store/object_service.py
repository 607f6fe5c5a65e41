"""An S3 service on loopback that can be slow, busy, forgetful or read only: moto's, behind faults of our choice.

Run as a program, it prints its port and serves until it is ended.
"""

import io
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

BUCKET = "bucket"
_CONTROL = "/-/faults"


class Faults:
    """A service in front of another one.

    Settings: ``delay``, the largest delay of a request in seconds; ``busy``, the probability that a request is answered
    by 503 and not executed; ``lost``, that it is executed and answered by 503 all the same; ``rate``, the number of
    requests per second above which they are answered by 503; ``cut``, the number of lists that break off; ``writes``,
    the number of requests that may still change something, after which they are refused by 403.
    """

    def __init__(self, service: Callable[..., Iterable[bytes]]) -> None:
        self.service, self.random = service, random.Random(0)
        self.settings: dict[str, Any] = {}
        self.second, self.requests = 0, 0

    def __call__(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        if environ["PATH_INFO"] == _CONTROL:
            self.settings = json.loads(body)
            respond("200 OK", [("Content-Length", "0")])
            return [b""]
        settings = self.settings
        time.sleep(self.random.uniform(0, settings.get("delay", 0)))
        if self.random.random() < settings.get("busy", 0) or self._throttled(settings.get("rate")):
            return _refuse(respond, "503 Slow Down", "SlowDown")
        if settings.get("writes") is not None and environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            if settings["writes"] <= 0:
                return _refuse(respond, "403 Forbidden", "AccessDenied")
            settings["writes"] -= 1
        if self.random.random() < settings.get("lost", 0):
            list(self.service(environ, lambda *_: None))
            return _refuse(respond, "503 Slow Down", "SlowDown")
        answer = self.service(environ, respond)
        if settings.get("cut") and "list-type" in environ.get("QUERY_STRING", ""):
            settings["cut"] -= 1
            return [b"".join(answer)[:-40]]  # less than the header says, and then the end of the connection
        return answer

    def _throttled(self, rate: int | None) -> bool:
        """Count a request; return whether this second had its share of them."""
        second = int(time.monotonic())
        self.second, self.requests = second, self.requests + 1 if second == self.second else 1
        return rate is not None and self.requests > rate


def _refuse(respond: Callable[..., Any], status: str, code: str) -> list[bytes]:
    body = f"<Error><Code>{code}</Code></Error>".encode()
    respond(status, [("Content-Length", str(len(body)))])
    return [body]


class Service:
    """The running service, as tests see it."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "verysecret",
            "AWS_REGION": "us-east-1",
        }
        self._request("PUT", f"/{BUCKET}")

    def faults(self, **settings: Any) -> None:
        """Set the faults from now on; none if there are no arguments."""
        self._request("POST", _CONTROL, json.dumps(settings).encode())

    def _request(self, method: str, path: str, body: bytes | None = None) -> None:
        urllib.request.urlopen(urllib.request.Request(self.endpoint + path, body, method=method), timeout=60).close()


@contextmanager
def running() -> Iterator[Service]:
    """Start the service in a process of its own; skip, saying why, where it is not installed."""
    for name in ("obstore", "moto", "flask"):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install obstore 'moto[server]'")
    command = [sys.executable, "-m", "tests.store.object_service"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield Service(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Serve on a free port."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        """One connection for many requests, and no log."""

        protocol_version = "HTTP/1.1"

        def log(self, *_: Any) -> None:
            """Say nothing."""

    os.environ.setdefault("MOTO_S3_CUSTOM_ENDPOINTS", "")
    service = Faults(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, service, threaded=True, request_handler=Handler)  # type: ignore[arg-type]
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
