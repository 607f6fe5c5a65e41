"""Leases on tiles: an interrupt at any moment leaves none behind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tangentlab.store._bucket import Bucket
from tangentlab.store._leases import SUFFIX, Leases
from tangentlab.store._object_leases import ObjectLeases


def then_interrupted(work: Callable[..., Any]) -> Callable[..., Any]:
    """Do some work, and have Ctrl-C come before anything else happens."""

    def both(*args: Any, **kwargs: Any) -> Any:
        work(*args, **kwargs)
        raise KeyboardInterrupt

    return both


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob(f"*{SUFFIX}"))


def test_an_interrupt_after_a_lease_is_acquired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Leases(tmp_path) as leases:
        assert leases.take("one")
        monkeypatch.setattr(os, "symlink", then_interrupted(os.symlink))
        with pytest.raises(KeyboardInterrupt):
            leases.take("two")
    assert not left(tmp_path)


def test_an_interrupt_before_a_lease_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Leases(tmp_path) as leases:
        assert leases.take("one")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", then_interrupted(lambda *_, **__: None))
            with pytest.raises(KeyboardInterrupt):
                leases.release("one")
    assert not left(tmp_path)


def test_an_interrupt_leaves_the_lease_of_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.symlink("another", tmp_path / f"one{SUFFIX}")
    with Leases(tmp_path) as leases, monkeypatch.context() as patch:
        patch.setattr(Leases, "_drop_if_stale", then_interrupted(lambda *_: None))
        with pytest.raises(KeyboardInterrupt):
            leases.take("one")
    assert left(tmp_path) == [f"one{SUFFIX}"]


def test_an_interrupt_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    bucket = Bucket("memory://leases")
    with ObjectLeases(bucket, "claims") as leases:
        assert leases.take("one")
        monkeypatch.setattr(Bucket, "create", then_interrupted(Bucket.create))
        with pytest.raises(KeyboardInterrupt):
            leases.take("two")
    assert not [name for name in bucket.names("claims") if name.endswith(SUFFIX)]
