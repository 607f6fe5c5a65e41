"""Every layout and format that is accepted gives the same images."""

import pickle

import numpy as np
import pytest
import torch

from tangentlab import TangentError, data
from tangentlab.data import DATA_DIR_VARIABLE, _cifar
from tests.data.writers import (
    python2_dumps,
    small_cifar,
    small_mnist,
    write_archive,
    write_binary,
    write_mnist,
    write_python,
)


@pytest.fixture
def batches(monkeypatch):
    monkeypatch.setattr(_cifar, "RECORDS", 20)
    return small_cifar(20)


def check_cifar(loaded: data.ImageData, batches) -> None:
    labels = np.concatenate([batches[f"data_batch_{i}"][0] for i in range(1, 6)])
    pixels = np.concatenate([batches[f"data_batch_{i}"][1] for i in range(1, 6)])
    assert np.array_equal(loaded.train.labels.numpy(), labels)
    assert np.array_equal(loaded.train.images.numpy().reshape(100, 3072), pixels)
    assert np.array_equal(loaded.test.images.numpy().reshape(20, 3072), batches["test_batch"][1])
    assert loaded.train.images.shape == (100, 3, 32, 32)


@pytest.mark.parametrize("below", ["MNIST/raw", "MNIST", "mnist", "."])
@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dotted", [True, False])
def test_mnist_is_found_in_every_layout(tmp_path, below, compressed, dotted):
    write_mnist(tmp_path / below, small_mnist(), compressed=compressed, dotted=dotted)
    loaded = data.load("mnist", tmp_path, download=False)
    expected = np.random.default_rng(0).integers(0, 256, (30, 28, 28))
    assert np.array_equal(loaded.train.images[:, 0].numpy(), expected)
    assert loaded.test.labels.tolist() == [i % 10 for i in range(20)]
    assert loaded.provenance.original is False


@pytest.mark.parametrize("below", ["FashionMNIST/raw", "fashion-mnist", "datasets/fashion-mnist", "."])
def test_fashion_mnist_is_found(tmp_path, below):
    write_mnist(tmp_path / below, small_mnist(1))
    loaded = data.load("Fashion-MNIST", tmp_path, download=False)
    assert loaded.classes[9] == "ankle boot"
    assert len(loaded.train) == 30


@pytest.mark.parametrize("below", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10", "."])
def test_cifar10_binary(tmp_path, batches, below):
    write_binary(tmp_path / below, batches)
    check_cifar(data.load("cifar10", tmp_path, download=False), batches)


@pytest.mark.parametrize(
    "dumps",
    [
        python2_dumps,
        *(lambda value, p=p: pickle.dumps(value, protocol=p) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
        lambda value: pickle.dumps(value, protocol=2).replace(b"numpy._core", b"numpy.core"),
    ],
)
def test_cifar10_python_however_it_was_pickled(tmp_path, batches, dumps):
    write_python(tmp_path / "cifar-10-batches-py", batches, dumps)
    check_cifar(data.load("cifar10", tmp_path, download=False), batches)


def test_the_python_pickles_of_these_tests_are_of_both_numpys(batches):
    content = python2_dumps({"data": batches["test_batch"][1]})
    assert b"numpy.core.multiarray" in content
    assert b"_codecs" not in content  # Python 2 wrote byte strings as such


@pytest.mark.parametrize("form", ["binary", "python"])
def test_cifar10_archives_are_unpacked_into_the_cache_once(tmp_path, batches, empty_cache, form):
    folder = tmp_path / "made" / ("cifar-10-batches-bin" if form == "binary" else "cifar-10-batches-py")
    (write_binary if form == "binary" else write_python)(folder, batches)
    given = tmp_path / "given"
    write_archive(given / f"cifar-10-{form}.tar.gz", folder)
    check_cifar(data.load("cifar10", given, download=False), batches)
    assert [path.name for path in given.iterdir()] == [f"cifar-10-{form}.tar.gz"]  # the user's folder is left alone
    (unpacked,) = (empty_cache / "unpacked").iterdir()
    stamp = unpacked.stat().st_mtime_ns
    check_cifar(data.load("cifar10", given, download=False), batches)
    assert unpacked.stat().st_mtime_ns == stamp


def test_the_environment_variable_and_the_argument(tmp_path, monkeypatch):
    write_mnist(tmp_path / "one", small_mnist(train=11))
    write_mnist(tmp_path / "two", small_mnist(train=12))
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "one"))
    assert len(data.load("mnist", download=False).train) == 11
    assert len(data.load("mnist", tmp_path / "two", download=False).train) == 12


def test_folders_that_are_not_there(tmp_path, monkeypatch):
    with pytest.raises(TangentError, match="nowhere is not a folder"):
        data.load("mnist", tmp_path / "nowhere")
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(TangentError, match=f"named by the environment variable {DATA_DIR_VARIABLE}"):
        data.load("cifar10")


def test_original_means_the_published_sums(tmp_path, batches, monkeypatch):
    write_binary(tmp_path, batches)
    loaded = data.load("cifar10", tmp_path, download=False)
    assert loaded.provenance.original is False
    published = dict(zip([f"data_batch_{i}.bin" for i in range(1, 6)], loaded.provenance.files, strict=False))
    as_published = tuple((name, file.md5) for name, file in published.items())
    form = _cifar.CIFAR10_BINARY
    replaced = type(form)(
        form.folder, form.archive, as_published, (("test_batch.bin", loaded.provenance.files[5].md5),)
    )
    monkeypatch.setattr(_cifar, "CIFAR10_BINARY", replaced)
    monkeypatch.setattr(_cifar, "_FORMS", (replaced,))
    again = data.load("cifar10", tmp_path, download=False)
    assert again.provenance.original is True
    assert "bit for bit" in again.describe()


def test_digits_need_nothing():
    digits = data.load()
    assert digits.name == "digits"
    assert (len(digits.train), len(digits.test)) == (1_437, 360)
    assert digits.input_shape == (1, 8, 8)
    assert (int(digits.train.images.min()), int(digits.train.images.max())) == (0, 255)
    assert (torch.bincount(digits.test.labels) - 36).abs().max() <= 1
    from sklearn.datasets import load_digits

    everything = torch.from_numpy(load_digits().images).flatten(1) / 16
    ours = torch.cat([digits.train.images, digits.test.images]).flatten(1) / 255
    assert torch.cdist(ours.double(), everything).min(1).values.max() < 0.02  # each is one of them, to rounding


@pytest.mark.parametrize(
    ("name", "hint"), [("cifar", "'cifar10'"), ("minst", "'mnist'"), ("imagenet", "The names are digits")]
)
def test_unknown_names_get_a_suggestion(name, hint):
    with pytest.raises(TangentError, match=f"There is no data set {name!r}") as refusal:
        data.load(name)
    assert hint in str(refusal.value)


def test_options_that_would_be_ignored_are_refused():
    with pytest.raises(TangentError, match="resize given with digits"):
        data.load("digits", resize=32)
    with pytest.raises(TangentError, match=r"test_fraction=1\.5"):
        data.load("digits", test_fraction=1.5)


def test_the_list_of_names_is_what_load_takes():
    names = [source.name for source in data.available()]
    assert names == ["digits", "mnist", "fashion_mnist", "cifar10", "snakes", "folder"]
    assert all(source.summary for source in data.available())
