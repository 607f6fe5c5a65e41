"""Draws for different purposes, seeds and epochs share nothing."""

import pytest
import torch

from tangentlab import TangentError, data, tasks
from tangentlab._seeds import generator


def first(*entropy) -> int:
    return int(torch.randint(2**62, (1,), generator=generator(*entropy)))


def test_every_combination_is_its_own():
    keys = [
        (purpose, *numbers) for purpose in ("a", "b") for numbers in [(), (0,), (1,), (0, 0), (1, 0), (0, 1), (0, 0, 0)]
    ]
    assert len({first(*key) for key in keys}) == len(keys)
    assert first("a", 1, 2) == first("a", 1, 2)


def test_the_order_of_an_epoch_does_not_pick_the_random_labels():
    digits = data.load("digits")
    task = tasks.random_labels(digits, fraction=0.5, seed=0)
    task = task.train.with_targets((task.train.labels != digits.train.labels).float()[:, None])
    shares = torch.stack([changed.mean() for _, changed in task.batches(200, seed=0, epoch=0, drop_last=True)])
    assert (shares - 0.45).abs().max() < 0.15


def test_the_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    digits = data.load("digits", n_train=50)
    list(tasks.shifted(tasks.random_labels(digits), 2).train.batches(10, seed=1))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("seed", [-1, 0.5])
def test_seeds_that_are_none(seed):
    with pytest.raises(TangentError, match="is not possible"):
        data.load("digits", n_train=10, seed=seed)
