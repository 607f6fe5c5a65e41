"""Visits of the explorer in a browser."""

import time
from typing import Any

import torch

from tests import browser as chromium


class Visit(chromium.Tab):
    """The explorer, open."""

    def __init__(self, browser: Any, address: str, width: int = 1280, scheme: str = "light") -> None:
        super().__init__(browser, address, "document.documentElement.dataset.ready === 'yes'", width, scheme)

    def settle(self, change: str) -> None:
        """Change what is chosen, and wait until the views have followed."""
        self.tab.evaluate(f"tangentlab.choose({change})")
        time.sleep(0.25)


def close(one: Any, two: Any, tolerance: float = 1e-4) -> None:
    """Compare numbers of the page with Python's."""
    torch.testing.assert_close(
        torch.as_tensor(one, dtype=torch.float64), torch.as_tensor(two, dtype=torch.float64), rtol=1e-4, atol=tolerance
    )
