"""Packed stores that are damaged or made to harm: each is refused when it is opened or read."""

import io
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from tangentlab import TangentError, store


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("packed")
    torch.manual_seed(0)
    store.compute(nn.Linear(4, 2), torch.randn(5, 4), folder / "k.zarr", tile=2, progress=False)
    return store.pack(folder / "k.zarr", folder / "k.zarr.zip").read_bytes()


def rezipped(content: bytes, change: Callable[[str, bytes], bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", method) as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return out.getvalue()


def refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "k.zarr.zip"
    path.write_bytes(content)
    with pytest.raises(TangentError):
        store.open(path).to_tensor()


def test_every_flipped_byte_is_refused_or_harmless(packed: bytes, tmp_path: Path) -> None:
    whole = tmp_path / "whole.zarr.zip"
    whole.write_bytes(packed)
    expected, refusals = store.open(whole).to_tensor(), 0
    path = tmp_path / "k.zarr.zip"
    for at in range(0, len(packed), 11):
        path.write_bytes(packed[:at] + bytes([packed[at] ^ 0x41]) + packed[at + 1 :])
        try:
            assert torch.equal(store.open(path).to_tensor(), expected)
        except TangentError:
            refusals += 1
    assert refusals > len(packed) // 22


@pytest.mark.parametrize("length", [0, 10, 200, 0.5, 0.9, 0.99])
def test_cut_short(packed: bytes, length: float, tmp_path: Path) -> None:
    refused(packed[: int(length if length > 1 else length * len(packed))], tmp_path)


def test_a_name_that_is_no_tile(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "k.zarr.zip"
    path.write_bytes(packed)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("c/x/y", b"")
    assert store.open(path).complete


def test_a_tile_that_is_there_twice(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "k.zarr.zip"
    path.write_bytes(packed)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("c/0/0", b"other")
    refused(path.read_bytes(), tmp_path)


def test_a_tile_that_unpacks_to_too_much(packed: bytes, tmp_path: Path) -> None:
    """By the zip archive, and by the header of Blosc's own compression."""
    zeros = rezipped(packed, lambda name, old: bytes(300 * 2**20) if name == "c/0/0" else old, zipfile.ZIP_DEFLATED)
    refused(zeros, tmp_path)

    def larger(name: str, old: bytes) -> bytes:
        import google_crc32c

        body = old[:4] + struct.pack("<I", 2**31 - 65) + old[8:-4]
        return body + google_crc32c.value(body).to_bytes(4, "little") if name == "c/0/0" else old

    path = tmp_path / "k.zarr.zip"
    path.write_bytes(rezipped(packed, larger))
    with pytest.raises(TangentError, match="2,147,483,583 bytes"):
        store.open(path).to_tensor()
