"""Fixtures of the data tests: real files, and a cache that is empty and theirs alone."""

from pathlib import Path

import pytest

from tangentlab.data import DATA_DIR_VARIABLE, cache_dir
from tests.data.shared_files import cifar10, mnist, shared_data

__all__ = ["cifar10", "mnist", "shared_data"]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or fills the user's cache, or is led elsewhere by the user's environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    folder = cache_dir()
    assert folder.is_relative_to(tmp_path)
    return folder
