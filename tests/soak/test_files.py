"""A few hundred damaged files, and that the judge can tell right from wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soak import files
from soak.readers import READERS, Reader
from tangentlab import TangentError


def test_damaged_files_are_read_right_or_refused(tmp_path: Path) -> None:
    rows = files.run(20 * len(READERS), 1234, tmp_path)
    failures = {path.parent.name: path.read_text() for path in tmp_path.glob("files/failures/*/verdict.txt")}
    assert failures == {}
    assert [row.tried for row in rows] == [20] * len(READERS)
    assert all(row.wrong == 0 for row in rows)
    # A damaged checkpoint of a run is put aside for the one before it, so that a run is hardly ever refused.
    assert all(row.refused > 0 for row in rows if row.kind != "training run")
    assert sum(row.accepted for row in rows) > 0


def _reader(read: Any) -> Reader:
    return Reader(
        "a reader", lambda folder: (folder / "x").write_bytes(bytes(range(64))) and None, read, checksums=True
    )  # type: ignore[func-returns-value]


def _content(folder: Path) -> bytes:
    return (folder / "x").read_bytes() if (folder / "x").exists() else b""


def _whole(folder: Path) -> bool:
    return _content(folder) == bytes(range(64))


def _raises(folder: Path) -> Any:
    return [] if _whole(folder) else {}["missing"]


def _wrong(folder: Path) -> Any:
    return np.frombuffer(_content(folder), np.uint8)


def _nan(folder: Path) -> Any:
    return np.array([1.0 if _whole(folder) else np.nan])


def _hangs(folder: Path) -> Any:
    while not _whole(folder):
        pass
    return []


def _dies(folder: Path) -> Any:
    import os

    return [] if _whole(folder) else os._exit(3)


def _fills(folder: Path) -> Any:
    return [] if _whole(folder) else np.ones(400 * 2**20, np.uint8)[:0].tolist()


def _escapes(folder: Path) -> Any:
    if not _whole(folder):
        (folder.parent / "evil").touch()
    return []


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        (_raises, "KeyError"),
        (_wrong, "other numbers"),
        (_nan, "NaN"),
        (_hangs, "takes more than"),
        (_dies, "the process died"),
        (_fills, "bytes of memory"),
        (_escapes, "elsewhere"),
    ],
)
def test_the_judge_sees_it(read: Any, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if read is _hangs:
        monkeypatch.setattr(files, "SECONDS", 0.5)
    (row,) = files.run(2, 0, tmp_path, [_reader(read)])
    assert (row.tried, row.wrong) == (2, 2)
    kept = sorted(tmp_path.glob("files/failures/0-*"))
    assert len(kept) == 2
    for place in kept:
        assert verdict in (place / "verdict.txt").read_text()
        assert not _whole(place / "data")


def test_refusals_are_right_and_runs_go_on(tmp_path: Path) -> None:
    def read(folder: Path) -> Any:
        if not _whole(folder):
            raise TangentError("It is damaged.")
        return []

    (row,) = files.run(3, 0, tmp_path, [_reader(read)])
    assert (row.tried, row.refused, row.wrong) == (3, 3, 0)
    (row,) = files.run(5, 0, tmp_path, [_reader(read)])
    assert (row.tried, row.refused, row.wrong) == (5, 5, 0)


def test_an_input_is_a_function_of_seed_and_index(tmp_path: Path) -> None:
    contents = []
    for place in (tmp_path / "a", tmp_path / "b", tmp_path / "c"):
        place.mkdir()
        (place / "x.npy").write_bytes(bytes(range(200)))
        reader = Reader("a reader", lambda folder: None, lambda folder: None)
        files.spoil(17, 5 if place.name == "c" else 4, [reader], place)
        contents.append(sorted((path.name, path.read_bytes()) for path in place.iterdir()))
    assert contents[0] == contents[1] != contents[2]
