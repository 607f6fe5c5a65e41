"""The real MNIST and CIFAR-10: counts, shapes, ranges, balance, checksums, statistics."""

import hashlib
import subprocess
import sys

import pytest
import torch

from tests.data.shared_files import REPOSITORY

pytestmark = pytest.mark.shared


def test_mnist_has_its_published_counts(mnist):
    assert mnist.train.images.shape == (60_000, 1, 28, 28)
    assert mnist.test.images.shape == (10_000, 1, 28, 28)
    for split in (mnist.train, mnist.test):
        assert split.images.dtype == torch.uint8
        assert (int(split.images.min()), int(split.images.max())) == (0, 255)
        assert split.labels.dtype == torch.int64
    # The class counts that are known of MNIST.
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert torch.bincount(mnist.train.labels).tolist() == train
    assert torch.bincount(mnist.test.labels).tolist() == test


def test_mnist_is_the_original_by_its_published_md5_sums(mnist, shared_data):
    published = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
    read = {file.path.rsplit("/", 1)[1].removesuffix(".gz"): file.md5 for file in mnist.provenance.files}
    assert read == published
    assert mnist.provenance.original is True
    # Not only recorded: the bytes that were read hash to it, header included.
    header = bytes.fromhex("00000801 0000ea60")
    content = header + mnist.train.labels.to(torch.uint8).numpy().tobytes()
    assert hashlib.md5(content).hexdigest() == published["train-labels-idx1-ubyte"]


def test_mnist_statistics_are_the_familiar_ones(mnist):
    assert mnist.normalization.mean == pytest.approx((0.1307,), abs=5e-5)
    assert mnist.normalization.std == pytest.approx((0.3081,), abs=5e-5)


def test_padding_to_32_keeps_the_digit_in_the_middle_and_the_statistics(mnist):
    padded = mnist.subset(100, 50).pad_to(32)
    assert padded.input_shape == (1, 32, 32)
    assert torch.equal(padded.train.images[..., 2:30, 2:30], mnist.subset(100, 50).train.images)
    assert int(padded.train.images.long().sum()) == int(mnist.subset(100, 50).train.images.long().sum())
    assert padded.normalization == mnist.normalization


def test_cifar10_has_its_published_counts(cifar10):
    assert cifar10.train.images.shape == (50_000, 3, 32, 32)
    assert cifar10.test.images.shape == (10_000, 3, 32, 32)
    assert torch.bincount(cifar10.train.labels).tolist() == [5_000] * 10
    assert torch.bincount(cifar10.test.labels).tolist() == [1_000] * 10
    assert cifar10.classes[0] == "airplane"
    assert cifar10.classes[9] == "truck"
    for split in (cifar10.train, cifar10.test):
        assert split.images.dtype == torch.uint8
        assert (int(split.images.min()), int(split.images.max())) == (0, 255)


def test_cifar10_statistics_to_three_digits(cifar10):
    # The original's are 0.4914, 0.4822, 0.4465 and 0.2470, 0.2435, 0.2616. The JPEG copy in ../shared has smoother
    # pixels: its README states 0.245 for 0.247.
    assert [round(value, 3) for value in cifar10.normalization.mean] == [0.491, 0.482, 0.447]
    assert cifar10.normalization.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=5e-4)
    assert [round(value, 3) for value in cifar10.normalization.std] == [0.245, 0.243, 0.261]


def test_cifar10_says_that_these_files_are_not_the_publishers(cifar10):
    assert cifar10.provenance.original is False
    assert len(cifar10.provenance.files) == 6
    assert "not the publisher's" in cifar10.describe()


def test_normalised_training_inputs_have_mean_zero_and_variance_one(cifar10):
    total, squares, count = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
    for inputs, _ in cifar10.train.batches(5_000):
        total += inputs.sum((0, 2, 3), dtype=torch.float64)
        squares += inputs.square_().sum((0, 2, 3), dtype=torch.float64)
        count += inputs[:, 0].numel()
    assert (total / count).abs().max() < 1e-5
    assert (squares / count - 1).abs().max() < 1e-5


def test_pixels_are_read_in_the_publishers_order(cifar10, shared_data):
    """The first record of a batch, by hand: a label, then the red, green and blue planes row by row."""
    record = (shared_data / "cifar-10-batches-bin" / "data_batch_2.bin").read_bytes()[:3073]
    image, label = cifar10.train.images[10_000], cifar10.train.labels[10_000]
    assert record[0] == int(label)
    assert record[1 + 32 * 3 + 5] == int(image[0, 3, 5])
    assert record[1 + 1024 + 32 * 7] == int(image[1, 7, 0])
    assert record[1 + 2048 + 1023] == int(image[2, 31, 31])


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_subsets_of_the_real_files_are_balanced_as_the_whole(name, request):
    whole = request.getfixturevalue(name)
    part = whole.subset(1_000, 500, seed=3)
    expected = torch.bincount(whole.train.labels) * 1_000 / len(whole.train)
    assert (torch.bincount(part.train.labels) - expected).abs().max() < 1
    assert (len(part.train), len(part.test)) == (1_000, 500)


def test_loading_cifar10_takes_under_250_megabytes(shared_data):
    """Measured in a fresh process. The times are in ``python -m benchmarks.data_loading``."""
    program = (
        f"from benchmarks.data_loading import measure_loading\nprint(measure_loading({str(shared_data)!r}).megabytes)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert 180 < float(run.stdout) < 250  # at least the pixels themselves, or the measurement is wrong
