"""Damaged and hostile files: each is refused, and the message names it."""

import gzip
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tangentlab import TangentError, data
from tangentlab.data import _cifar
from tangentlab.data._archive import extract
from tangentlab.data._unpickle import read_pickled_arrays
from tests.data import writers

RECORDS = 20


@pytest.fixture
def small_batches(monkeypatch):
    """CIFAR-10's format with 20 records per file instead of 10,000."""
    monkeypatch.setattr(_cifar, "RECORDS", RECORDS)
    return writers.small_cifar(RECORDS)


def refused(source: str, folder: Path, *fragments: str) -> None:
    with pytest.raises(TangentError) as refusal:
        data.load(source, folder, download=False)
    for fragment in fragments:
        assert fragment in str(refusal.value)


IMAGES = "train-images-idx3-ubyte"
WHOLE = writers.small_mnist()


@pytest.mark.parametrize(
    ("name", "damage", "fragment"),
    [
        (IMAGES, lambda raw: raw[:-1], "bytes of content where its header (30, 28, 28) announces"),
        (IMAGES, lambda raw: raw + b"\0", "bytes of content where its header (30, 28, 28) announces"),
        (IMAGES, lambda raw: raw[:10], "ends within its header"),
        (IMAGES, lambda raw: b"", "but with nothing"),
        (IMAGES, lambda raw: b"PK\3\4" + raw[4:], "does not begin with 00 00 08 03 but with 50 4b 03 04"),
        (IMAGES, lambda raw: WHOLE["train-labels-idx1-ubyte"], "does not begin with 00 00 08 03"),
        (IMAGES, lambda raw: raw[:4] + b"\xff" * 12 + raw[16:], "announces 79,228,162,4"),
        ("train-labels-idx1-ubyte", lambda raw: writers.idx(np.arange(29) % 10), "has 29 labels for 30 images"),
        ("t10k-labels-idx1-ubyte", lambda raw: raw[:-1] + b"\x0a", "has the label 10"),
    ],
)
@pytest.mark.parametrize("compressed", [True, False])
def test_damaged_idx_files(tmp_path, name, damage, fragment, compressed):
    writers.write_mnist(tmp_path / "MNIST/raw", WHOLE | {name: damage(WHOLE[name])}, compressed=compressed)
    refused("mnist", tmp_path, f"MNIST/raw/{name}", fragment)


@pytest.mark.parametrize(
    ("damage", "fragment"),
    [
        (lambda raw: raw[: len(raw) // 2], "is truncated: its gzip stream has no end"),
        (lambda raw: raw[:-8] + b"\0" * 8, "is damaged"),
        (lambda raw: raw[:200] + b"\xff" * 50 + raw[250:], "is damaged"),
    ],
)
def test_damaged_compression(tmp_path, damage, fragment):
    writers.write_mnist(tmp_path / "MNIST/raw", WHOLE)
    path = tmp_path / "MNIST/raw" / f"{IMAGES}.gz"
    path.write_bytes(damage(path.read_bytes()))
    refused("mnist", tmp_path, str(path), fragment)


def test_fashion_mnist_is_not_taken_for_mnist(tmp_path, monkeypatch):
    """Both have the same file names; the content tells them apart."""
    from tangentlab.data import _mnist
    from tests.data.test_download import publication

    writers.write_mnist(tmp_path, WHOLE)
    monkeypatch.setattr(_mnist, "FASHION_MNIST", publication("fashion_mnist", WHOLE, ()))
    refused("mnist", tmp_path, "is a file of Fashion-MNIST, not of MNIST")


@pytest.mark.parametrize(
    ("damage", "fragment"),
    [
        (lambda raw: raw[:-1], f"has {RECORDS * 3073 - 1:,} bytes where {RECORDS * 3073:,} are expected"),
        (lambda raw: raw + raw[:3073], f"has {(RECORDS + 1) * 3073:,} bytes"),
        (lambda raw: raw[:3073] + b"\x0b" + raw[3074:], "has the label 11"),
        (lambda raw: b"", "has 0 bytes"),
    ],
)
def test_damaged_binary_batches(tmp_path, small_batches, damage, fragment):
    folder = tmp_path / "cifar-10-batches-bin"
    writers.write_binary(folder, small_batches)
    path = folder / "data_batch_3.bin"
    path.write_bytes(damage(path.read_bytes()))
    refused("cifar10", tmp_path, str(path), fragment)


def test_binary_batches_with_other_class_names(tmp_path, small_batches):
    writers.write_binary(tmp_path / "cifar-10-batches-bin", small_batches)
    (tmp_path / "cifar-10-batches-bin" / "batches.meta.txt").write_text("dog\ncat\n")
    refused("cifar10", tmp_path, "batches.meta.txt lists the classes dog, cat")


PIXELS = np.zeros((RECORDS, 3072), np.uint8)
LABELS = np.zeros(RECORDS, np.int64)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (pickle.dumps(writers.batch_dictionary(LABELS, PIXELS))[:500], "cannot be unpickled"),
        (b"not a pickle", "cannot be unpickled"),
        (b"", "cannot be unpickled: EOFError"),
        (pickle.dumps([1, 2]), "holds a list where a dictionary is expected"),
        (pickle.dumps({"labels": []}), "has data of NoneType"),
        (pickle.dumps({"data": PIXELS[:, :10], "labels": []}), "has data of uint8 (20, 10)"),
        (pickle.dumps({"data": PIXELS.astype(float), "labels": []}), "has data of float64 (20, 3072)"),
        (pickle.dumps({"data": PIXELS, "labels": [0] * 5}), "does not have a list of 20 integer labels"),
        (pickle.dumps({"data": PIXELS, "labels": ["cat"] * RECORDS}), "does not have a list of 20 integer labels"),
        (pickle.dumps({"data": PIXELS, "labels": [-1] * RECORDS}), "has the label -1"),
    ],
)
def test_damaged_python_batches(tmp_path, small_batches, content, fragment):
    folder = tmp_path / "cifar-10-batches-py"
    writers.write_python(folder, small_batches)
    (folder / "data_batch_2").write_bytes(content)
    refused("cifar10", tmp_path, str(folder / "data_batch_2"), fragment)


class Hostile:
    """Pickles to a call of any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_hostile_pickles_run_nothing(tmp_path, small_batches, protocol):
    witness = tmp_path / "ran"
    hostile = Hostile(os.system, f"touch {witness}")
    folder = tmp_path / "cifar-10-batches-py"
    writers.write_python(folder, small_batches)
    (folder / "data_batch_1").write_bytes(pickle.dumps({"data": hostile, "labels": []}, protocol))
    refused("cifar10", tmp_path, str(folder / "data_batch_1"), "asks to import", "system", "A pickle can run any")
    assert not witness.exists()
    pickle.loads((folder / "data_batch_1").read_bytes())
    assert witness.exists()  # the trap is real: plain pickle falls into it


@pytest.mark.parametrize(
    "function",
    [eval, exec, getattr, __import__, open, np.load, np.fromfile, os.remove, pickle.loads, np.lib.format.open_memmap],
)
def test_no_other_global_is_reached(tmp_path, function):
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(Hostile(function, "x")))
    with pytest.raises(TangentError, match="asks to import"):
        read_pickled_arrays(path)


def test_a_dotted_name_does_not_climb_from_an_allowed_module(tmp_path):
    path = tmp_path / "batch"
    # Protocol 4's STACK_GLOBAL with the name "ndarray.__class__", which plain pickle would resolve.
    path.write_bytes(b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.")
    with pytest.raises(TangentError, match=r"asks to import numpy\.ndarray\.__class__"):
        read_pickled_arrays(path)


def tar_with(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if member.isfile():
                member.size = 4
            tar.addfile(member, io.BytesIO(b"evil") if member.isfile() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    ("hostile", "fragment"),
    [
        (member("../evil"), "leaves the folder"),
        (member("a/../../evil"), "leaves the folder"),
        (member("..\\evil"), "leaves the folder"),
        (member("/tmp/evil"), "an absolute name"),
        (member("C:\\evil"), "an absolute name"),
        (member("link", tarfile.SYMTYPE, "/etc"), "a link or a device"),
        (member("link", tarfile.LNKTYPE, "../evil"), "a link or a device"),
        (member("device", tarfile.CHRTYPE), "a link or a device"),
        (member("pipe", tarfile.FIFOTYPE), "a link or a device"),
    ],
)
def test_archives_cannot_reach_outside(tmp_path, empty_cache, hostile, fragment):
    inside = tmp_path / "inside"
    inside.mkdir()
    tar_with(inside / "cifar-10-binary.tar.gz", member("cifar-10-batches-bin/data_batch_1.bin"), hostile)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    refused("cifar10", inside, "cifar-10-binary.tar.gz", repr(hostile.name), fragment, "Nothing was unpacked")
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_archive_with_too_much_in_it(tmp_path):
    archive = tar_with(tmp_path / "a.tar.gz", member("a"), member("b"))
    with pytest.raises(TangentError, match="would unpack to more than 7 bytes"):
        extract(archive, tmp_path / "out", most_bytes=7)
    assert not (tmp_path / "out").exists()
    assert (extract(archive, tmp_path / "out", most_bytes=8) / "b").read_bytes() == b"evil"


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[: len(raw) // 2], lambda raw: b"no archive", lambda raw: b"", lambda raw: raw[:-8] + b"\0" * 8],
)
def test_damaged_archives(tmp_path, small_batches, empty_cache, damage):
    writers.write_binary(tmp_path / "made" / "cifar-10-batches-bin", small_batches)
    path = tmp_path / "cifar-10-binary.tar.gz"
    writers.write_archive(path, tmp_path / "made" / "cifar-10-batches-bin")
    path.write_bytes(damage(path.read_bytes()))
    refused("cifar10", tmp_path, str(path), "is not a whole archive")
    assert not list((empty_cache / "unpacked").glob("*"))


def test_an_archive_without_the_batches(tmp_path):
    tar_with(tmp_path / "cifar-10-binary.tar.gz", member("readme.html"))
    refused("cifar10", tmp_path, "does not hold cifar-10-batches-bin/data_batch_1.bin")


def test_a_file_that_is_missing_is_named(tmp_path, small_batches):
    writers.write_mnist(tmp_path / "MNIST/raw", {name: WHOLE[name] for name in list(WHOLE)[:3]})
    refused("mnist", tmp_path, "MNIST/raw lacks t10k-labels-idx1-ubyte.gz")
    writers.write_binary(tmp_path / "cifar-10-batches-bin", small_batches)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    refused("cifar10", tmp_path, "cifar-10-batches-bin lacks test_batch.bin")


def test_compression_is_seen_from_the_content_not_the_name(tmp_path):
    files = {name: gzip.compress(content) for name, content in WHOLE.items()}
    writers.write_mnist(tmp_path, files, compressed=False)
    assert len(data.load("mnist", tmp_path, download=False).train) == 30
