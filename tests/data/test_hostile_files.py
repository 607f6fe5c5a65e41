"""Files made to harm: far larger unpacked than packed, names that clash, keys and labels that are none."""

import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zlib

import numpy as np
import pytest

from tangentlab import TangentError
from tangentlab.data._archive import extract
from tangentlab.data._unpickle import read_pickled_arrays
from tests.data.test_bad_files import (
    LABELS,
    PIXELS,
    RECORDS,
    WHOLE,
    member,
    refused,
    small_batches,
    tar_with,
)
from tests.data.writers import batch_dictionary, write_mnist, write_python

__all__ = ["small_batches"]
BIG = 300 * 2**20


def bomb(size: int, start: bytes = b"") -> bytes:
    """A gzip stream of so many zeros, made in pieces."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(start)] + [packer.compress(bytes(2**20)) for _ in range(size // 2**20)] + [packer.flush()]
    return b"".join(parts)


def peak(code: str, *arguments: object) -> int:
    """Bytes at the peak of a process that runs some code and is refused, above those of one that runs nothing."""
    program = (
        "import resource, sys\nfrom pathlib import Path\nimport tangentlab.data as data\n"
        "from tangentlab import TangentError\nfrom tangentlab._cli._files import load_samples\nimport torch\n"
        "torch.ones(1)\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try:\n    {code}\nexcept TangentError as error:\n    print(error, file=sys.stderr)\n"
        "else:\n    raise SystemExit('accepted')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=100
    )
    return int(done.stdout) * 1024


@pytest.mark.parametrize("honest", [True, False])
def test_an_idx_file_that_unpacks_to_a_thousand_times_its_size(tmp_path, honest):
    """300 kB became 300 MiB. Whether its header announces that or not, memory stays small."""
    count = BIG // 784 if honest else 30
    write_mnist(tmp_path / "MNIST/raw", WHOLE)
    path = tmp_path / "MNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(bomb(BIG, struct.pack(">HBB3I", 0, 8, 3, count, 28, 28)))
    assert path.stat().st_size < 400_000
    refused("mnist", tmp_path, str(path), "more than")
    assert peak("data.load('mnist', sys.argv[1], download=False)", tmp_path) < 150 * 2**20


def test_an_uncompressed_file_with_an_absurd_length(tmp_path):
    write_mnist(tmp_path / "MNIST/raw", WHOLE, compressed=False)
    with (tmp_path / "MNIST/raw/train-images-idx3-ubyte").open("r+b") as file:
        file.truncate(2**40)
    refused("mnist", tmp_path, "train-images-idx3-ubyte", "has more than 23,536 bytes")


def test_an_archive_that_unpacks_to_a_thousand_times_its_size(tmp_path):
    info = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    info.size = BIG
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(bomb(BIG, info.tobuf()))
    refused("cifar10", tmp_path, "cifar-10-binary.tar.gz", "Nothing was unpacked")
    # Behind the end of the archive, where no member announces it.
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(bomb(BIG))
    refused("cifar10", tmp_path, "cifar-10-binary.tar.gz")
    assert peak("data.load('cifar10', sys.argv[1], download=False)", tmp_path) < 150 * 2**20


def test_a_sparse_member_is_refused(tmp_path):
    """GNU's sparse files announce zeros that are not in the archive."""
    info = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    info.type = tarfile.GNUTYPE_SPARSE
    raw = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    raw[483:495] = b"%011o\0" % (2**29)  # the size when unpacked
    raw[148:156] = b"%06o\0 " % (256 + sum(raw[:148]) + sum(raw[156:512]))
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(bytes(raw) + bytes(1024)))
    refused("cifar10", tmp_path, "cifar-10-binary.tar.gz", "Nothing was unpacked")


@pytest.mark.parametrize(
    "names",
    [
        ("a", "a"),
        ("a", "./a"),
        ("a/b", "a/B"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("a/b/c", "a/b"),
        ("x" * 300,),
        ("/".join("d" * 100 for _ in range(60)),),
        ("a\nb",),
        ("a\x1b[31m",),
        ("",),
        (".",),
        ("\udcff\udcfe",),
    ],
)
def test_names_that_clash_or_cannot_be(tmp_path, names):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"evil"))
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(TangentError) as caught:
        extract(tmp_path / "a.tar.gz", tmp_path / "out", most_bytes=1000)
    assert "Nothing was unpacked" in str(caught.value)
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable() or "\x1b" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_folders_named_twice_are_allowed(tmp_path):
    archive = tar_with(
        tmp_path / "a.tar.gz", member("a", tarfile.DIRTYPE), member("a/", tarfile.DIRTYPE), member("a/b")
    )
    assert (extract(archive, tmp_path / "out", most_bytes=8) / "a/b").read_bytes() == b"evil"


def test_an_archive_of_too_many_members(tmp_path):
    archive = tar_with(tmp_path / "a.tar.gz", *(member(f"f{i}") for i in range(20_000)))
    with pytest.raises(TangentError, match="members"):
        extract(archive, tmp_path / "out", most_bytes=10**6)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ({b"\xff\xfe": 1, b"data": PIXELS, b"labels": [0] * RECORDS}, "not UTF-8"),
        ({b"data": PIXELS, "data": PIXELS, b"labels": [0] * RECORDS}, "twice"),
        ({(1, (2,)): 1, b"data": PIXELS, b"labels": [0] * RECORDS}, "tuple"),
        ({b"data": PIXELS, b"labels": [10**30] * RECORDS}, "label"),
        ({b"data": PIXELS, b"labels": [10] * RECORDS}, "has the label 10"),
        ({b"data": PIXELS, b"labels": [True] * RECORDS}, "integer labels"),
        ({b"data": PIXELS, b"labels": [float("nan")] * RECORDS}, "integer labels"),
    ],
)
def test_keys_and_labels_that_are_none(tmp_path, small_batches, content, fragment):
    folder = tmp_path / "cifar-10-batches-py"
    write_python(folder, small_batches)
    (folder / "data_batch_2").write_bytes(pickle.dumps(content, 2))
    refused("cifar10", tmp_path, str(folder / "data_batch_2"), fragment)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_gives_the_array(tmp_path, protocol):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (RECORDS, 3072)).astype(np.uint8)
    (tmp_path / "batch").write_bytes(pickle.dumps(batch_dictionary(LABELS, pixels), protocol))
    np.testing.assert_array_equal(read_pickled_arrays(tmp_path / "batch")["data"], pixels)
    (tmp_path / "batch").write_bytes(pickle.dumps(batch_dictionary(LABELS, np.asfortranarray(pixels)), protocol))
    np.testing.assert_array_equal(read_pickled_arrays(tmp_path / "batch")["data"], pixels)


GREEDY = (
    b"\x80\x02}r\xff\xff\xff\x7fs.",  # LONG_BINPUT: a memo of 2^31 entries, which C's unpickler would allocate
    b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # BINBYTES8 of 2^63 bytes
    b"\x80\x04\x96\xff\xff\xff\xff\xff\x00\x00\x00.",  # BYTEARRAY8
    b"\x8b\xff\xff\xff\x7f.",  # LONG4
    b"(" * 100_000 + b".",
    b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    b"cnumpy\nndarray\n(I1000000000000\ntR.",  # numpy.ndarray(10^12)
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I99999999999\ntS'b'\ntR.",
    b"cnumpy\ndtype\n(S'V2000000000'\ntR.",
    b"c_codecs\nencode\n(S'x'\nS'zlib'\ntR.",
)


@pytest.mark.parametrize("content", GREEDY)
def test_pickles_that_ask_for_too_much(tmp_path, content):
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(TangentError):
        read_pickled_arrays(tmp_path / "batch")


@pytest.mark.parametrize(
    "content",
    [
        GREEDY[0],  # 32 GiB for the memo of C's unpickler
        b"\x80\x05\x96\x00\x00\x00\x80\x00\x00\x00\x00.",  # BYTEARRAY8: 2 GiB, filled with zeros
    ],
)
def test_no_pickle_gets_much_memory(tmp_path, content):
    (tmp_path / "batch").write_bytes(content)
    code = "__import__('tangentlab.data._unpickle').data._unpickle.read_pickled_arrays(Path(sys.argv[1]))"
    assert peak(code, tmp_path / "batch") < 50 * 2**20


def test_a_stride_trick_in_a_pickled_array(tmp_path):
    """The bytes must be exactly those of the shape: nothing is read beyond them."""
    whole = pickle.dumps({b"data": np.zeros((4, 4), np.uint8)}, 2)
    at = whole.index(b"K\x04K\x04\x86")
    (tmp_path / "batch").write_bytes(whole[: at + 1] + b"\x7f" + whole[at + 2 :])
    with pytest.raises(TangentError, match="16 bytes"):
        read_pickled_arrays(tmp_path / "batch")


@pytest.mark.parametrize("shape", [(30, 0, 28), (30, 28, 0), (30, 56, 14), (0, 28, 28)])
def test_idx_images_of_another_shape(tmp_path, shape):
    from tests.data.writers import idx

    images = np.zeros(shape, np.uint8)
    labels = idx(np.arange(len(images)) % 10)
    files = WHOLE | {"train-images-idx3-ubyte": idx(images), "train-labels-idx1-ubyte": labels}
    write_mnist(tmp_path / "MNIST/raw", files)
    refused("mnist", tmp_path, "train-images-idx3-ubyte")


# Image folders


@pytest.fixture
def images(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(tmp_path / f"images/{name}/{i}.png")
    return tmp_path / "images"


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG whose header announces a size; its data may be short."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(12_000, 12_000), (2**31 - 1, 1), (0, 0), (100_000, 1_000)])
def test_images_of_absurd_size(images, size):
    path = images / "cat" / "1.png"
    path.write_bytes(png(*size))
    refused("folder", images, str(path))


def test_a_thin_image_that_resizing_would_blow_up(images):
    from PIL import Image

    from tangentlab import data

    path = images / "cat" / "1.png"
    Image.new("RGB", (60_000, 1)).save(path)
    with pytest.raises(TangentError, match=r"1\.png"):
        data.load("folder", images, resize=256, crop=224, download=False)
    assert peak("data.load('folder', sys.argv[1], resize=256, crop=224, download=False)", images) < 150 * 2**20


def test_formats_that_run_programs_are_not_opened(images):
    """Pillow hands EPS to Ghostscript."""
    path = images / "cat" / "1.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    refused("folder", images, str(path), "is not an image")


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff\xe0", b"BM" + bytes(60), b"II*\0" + bytes(99)]
)
def test_images_that_end_early(images, content):
    path = images / "cat" / "1.png"
    path.write_bytes(content)
    refused("folder", images, str(path))


def test_a_pipe_among_images_is_no_image(images):
    from tangentlab import data

    os.mkfifo(images / "cat" / "pipe.png")
    assert len(data.load("folder", images, download=False).train) > 0
