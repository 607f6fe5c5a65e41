"""Binarised eigenfunctions: signs of eigenvectors, split into training and test rows."""

import numpy as np
import pytest
import torch

import tangentlab
from tangentlab import TangentError, models, tasks


@pytest.fixture(scope="module")
def part(digits):
    return digits.subset(60, 20)


@pytest.fixture(scope="module")
def kernel(part):
    """The kernel that ``ntk`` computes, of a small MLP at initialization over training and test rows."""
    network = models.build("mlp", input_shape=(1, 8, 8), outputs=1, hidden=(32, 32), init="lecun", seed=1).double()
    return tangentlab.ntk(network, part.both().inputs(dtype=torch.float64))


def test_labels_are_the_signs_of_the_eigenvectors_of_the_kernel_that_ntk_computes(part, kernel):
    gram = torch.as_tensor(kernel).reshape(80, 80).numpy()
    for j in (1, 2, 10, 50):
        task = tasks.eigenfunction(part, j, kernel=torch.from_numpy(gram))
        assert task.train.targets.shape == (60, 1)
        assert task.test.targets.shape == (20, 1)
        labels = torch.cat([task.train.targets, task.test.targets])[:, 0].numpy()
        # By numpy, independently: the eigenvector whose eigenvalue is the j-th largest.
        values, vectors = np.linalg.eigh(gram)
        phi = vectors[:, np.argsort(values)[::-1][j - 1]]
        assert np.array_equal(labels, np.sign(phi)) or np.array_equal(labels, -np.sign(phi))
        # And what makes it one: its Rayleigh quotient is the j-th eigenvalue.
        assert phi @ gram @ phi == pytest.approx(np.sort(values)[::-1][j - 1])


def test_the_first_rows_are_the_training_rows_and_images_stay(part):
    vectors = torch.linspace(-1, 1, 80)[:, None]
    task = tasks.eigenfunction(part, 1, eigenvectors=vectors)
    assert task.train.targets.flatten().tolist() == [-1.0] * 40 + [1.0] * 20
    assert task.test.targets.flatten().tolist() == [1.0] * 20
    assert task.train.images is part.train.images
    assert torch.equal(task.train.labels, part.train.labels)


def test_j_counts_from_one_and_zero_counts_as_minus_one(part):
    vectors = np.zeros((80, 3))
    vectors[:, 2] = 1
    assert tasks.eigenfunction(part, 3, eigenvectors=vectors).train.targets.unique().tolist() == [1.0]
    assert tasks.eigenfunction(part, 1, eigenvectors=vectors).train.targets.unique().tolist() == [-1.0]


def test_a_kernel_and_its_eigenvectors_give_the_same_task(part, kernel):
    gram = torch.as_tensor(kernel).reshape(80, 80)
    vectors = torch.linalg.eigh(gram.double()).eigenvectors.flip(1)
    for j in (1, 7):
        by_kernel = tasks.eigenfunction(part, j, kernel=gram)
        by_vectors = tasks.eigenfunction(part, j, eigenvectors=vectors)
        assert torch.equal(by_kernel.train.targets, by_vectors.train.targets)
    assert by_kernel.name == "digits, eigenfunction 7"


@pytest.mark.parametrize(
    ("j", "arguments", "message"),
    [
        (1, {}, "Give either eigenvectors or a kernel"),
        (1, {"kernel": torch.eye(80), "eigenvectors": torch.eye(80)}, "Give either eigenvectors or a kernel"),
        (0, {"eigenvectors": torch.eye(80)}, "There is no eigenfunction 0"),
        (81, {"eigenvectors": torch.eye(80)}, "Give j from 1 to 80"),
        (1.0, {"eigenvectors": torch.eye(80)}, r"There is no eigenfunction 1\.0"),
        (1, {"eigenvectors": torch.eye(79)}, r"do not fit 60 training and 20 test images"),
        (1, {"eigenvectors": torch.full((80, 2), torch.nan)}, "entries that are not finite"),
        (1, {"kernel": torch.eye(60)}, r"A kernel of shape \(60, 60\) does not fit 80 images"),
        (1, {"kernel": torch.eye(80) * torch.nan}, "The kernel holds NaN or infinite values"),
        (1, {"kernel": torch.eye(80) + torch.eye(80).roll(1, 1)}, "differs from its transpose by up to 1"),
    ],
)
def test_what_does_not_fit(part, j, arguments, message):
    with pytest.raises(TangentError, match=message):
        tasks.eigenfunction(part, j, **arguments)
