"""CIFAR2, one against the rest, one-hot targets, random labels."""

import pytest
import torch
from torch.utils.data import DataLoader

from tangentlab import TangentError, data, tasks


def small(classes: int = 10, n: int = 200, name: str = "cifar10") -> data.ImageData:
    images = torch.randint(0, 256, (n, 3, 4, 4), dtype=torch.uint8)
    examples = data.Examples(images, torch.arange(n) % classes, data.Normalization.of(images))
    names = tuple(f"class {i}" for i in range(classes))
    return data.ImageData(name, examples, examples.select(range(n // 2)), names, data.Provenance("made up"))


def test_cifar2_sets_the_first_five_classes_against_the_rest():
    task = tasks.cifar2(small())
    assert task.name == "cifar2"
    for split in (task.train, task.test):
        assert split.targets.shape == (len(split), 1)
        assert split.targets.dtype == torch.float32
        assert torch.equal(split.targets[:, 0] == 1, split.labels <= 4)
        assert torch.equal(split.targets[:, 0] == -1, split.labels >= 5)
    assert torch.equal(tasks.cifar2(small(), values=(0, 1)).train.targets[:, 0] == 0, small().train.labels >= 5)


def test_cifar2_needs_ten_classes():
    with pytest.raises(TangentError, match="'cifar10' has 4 classes"):
        tasks.cifar2(small(4))
    assert tasks.cifar2(small(name="digits")).name == "digits: first five classes against the rest"


@pytest.mark.parametrize("positive", [0, 7])
def test_one_class_against_the_rest(digits, positive):
    task = tasks.one_vs_rest(digits, positive)
    assert torch.equal(task.train.targets[:, 0] == 1, digits.train.labels == positive)
    assert torch.equal(task.test.targets[:, 0] == -1, digits.test.labels != positive)
    assert torch.equal(task.train.labels, digits.train.labels)
    assert task.train.images is digits.train.images  # nothing is copied
    by_name = tasks.one_vs_rest(digits, str(positive), values=(0, 1))
    column = tasks.one_hot(digits).train.targets[:, positive : positive + 1]
    assert torch.equal(by_name.train.targets, column)


@pytest.mark.parametrize("wrong", [10, -1, "cat", 1.5])
def test_classes_that_are_not_there(digits, wrong):
    with pytest.raises(TangentError, match="has no class"):
        tasks.one_vs_rest(digits, wrong)


def test_both_sides_need_a_class(digits):
    with pytest.raises(TangentError, match="10 of 10 classes are on the positive side"):
        tasks.binary(digits, range(10))
    with pytest.raises(TangentError, match="0 of 10 classes"):
        tasks.binary(digits, [])


def test_one_hot_targets(digits):
    task = tasks.one_hot(digits)
    assert task.test.targets.shape == (360, 10)
    assert task.test.targets.dtype == torch.float32
    assert torch.equal(task.test.targets.argmax(1), digits.test.labels)
    assert torch.equal(task.test.targets.sum(1), torch.ones(360))


def test_random_labels_are_uniform_seeded_and_independent_of_the_classes(digits):
    task = tasks.random_labels(digits, seed=1)
    assert torch.equal(task.train.labels, tasks.random_labels(digits, seed=1).train.labels)
    assert not torch.equal(task.train.labels, tasks.random_labels(digits, seed=2).train.labels)
    counts = torch.bincount(task.train.labels, minlength=10)
    assert (counts - 143.7).abs().max() < 5 * 143.7**0.5
    agreement = (task.train.labels == digits.train.labels).double().mean()
    assert abs(agreement - 0.1) < 0.04
    assert torch.equal(task.train.targets, task.train.labels)
    assert not torch.equal(task.train.labels[:360], task.test.labels)  # the splits draw separately


def test_a_fraction_of_random_labels(digits):
    task = tasks.random_labels(digits, fraction=0.5)
    changed = (task.train.labels != digits.train.labels).double().mean()
    assert abs(changed - 0.45) < 0.04  # a tenth of the half comes out as it was
    same = tasks.random_labels(digits, fraction=0.0)
    assert torch.equal(same.train.labels, digits.train.labels)


def test_random_signs_are_a_task_after_a_task(digits):
    task = tasks.binary(tasks.random_labels(digits, classes=2), positive=[1])
    assert set(task.train.targets.flatten().tolist()) == {-1.0, 1.0}
    assert abs(task.train.targets.mean()) < 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": 1}, "classes=1 leaves nothing to draw"),
        ({"fraction": 1.2}, r"fraction=1\.2 is not between 0 and 1"),
        ({"classes": 2, "fraction": 0.5}, "the labels that stay need 10 classes"),
    ],
)
def test_random_labels_that_make_no_sense(digits, arguments, message):
    with pytest.raises(TangentError, match=message):
        tasks.random_labels(digits, **arguments)


def test_tasks_go_through_a_data_loader(digits):
    task = tasks.one_hot(digits.subset(50))
    inputs, targets = next(iter(DataLoader(task.train, batch_size=16)))
    assert inputs.shape == (16, 1, 8, 8)
    assert targets.shape == (16, 10)
