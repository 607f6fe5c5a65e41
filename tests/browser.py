"""A headless Chromium for tests of pages; where there is none, they are skipped and say so."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needed = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@contextmanager
def launched() -> Iterator[Any]:
    """Start the browser."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def wait(tab: Any, expression: str, arg: Any = None, seconds: float = 60) -> None:
    """Until an expression is true. The page allows no eval, which playwright's own waiting needs."""
    end = time.monotonic() + seconds
    while not tab.evaluate(expression, arg):
        assert time.monotonic() < end, expression
        time.sleep(0.03)


class Tab:
    """A page that is open and drawn, and everything it complained about or asked for."""

    def __init__(self, browser: Any, address: str, drawn: str, width: int, scheme: str) -> None:
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.stopped: list[str] = []  # by the page's policy, before anything left the browser
        self.tab.on(
            "requestfailed", lambda failed: self.stopped.append(failed.url) if failed.failure == "csp" else None
        )
        self.tab.goto(address)
        wait(self.tab, drawn)
