"""Fixtures of the task tests."""

import pytest

from tangentlab import data
from tests.data.shared_files import mnist, shared_data

__all__ = ["mnist", "shared_data"]


@pytest.fixture(scope="session")
def digits() -> data.ImageData:
    """The embedded digits."""
    return data.load("digits")
