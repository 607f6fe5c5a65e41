"""NAD data sets D(u): separable along u alone, with the stated noise."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tangentlab import TangentError, models, tasks


def direction(shape=(1, 8, 8), seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000), epsilon=st.floats(0.01, 10), sigma=st.floats(0, 5), scale=st.sampled_from([1e-3, 1, 1e3])
)
def test_the_projection_on_u_is_the_label_times_epsilon(seed, epsilon, sigma, scale):
    u = direction(seed=seed)
    task = tasks.nad(scale * u, n_train=40, n_test=20, epsilon=epsilon, sigma=sigma, seed=seed)
    for split in (task.train, task.test):
        along = split.inputs(dtype=torch.float64).flatten(1) @ (u / u.norm()).flatten().double()
        torch.testing.assert_close(along, epsilon * split.targets[:, 0].double(), atol=1e-5 * (1 + sigma), rtol=1e-5)
        assert torch.equal(2.0 * split.labels - 1, split.targets[:, 0])


def test_the_noise_is_sigma_in_every_direction_but_u():
    u = direction()
    sigma = 1.7
    task = tasks.nad(u, n_train=10_000, n_test=10, sigma=sigma)
    x, y = task.train.inputs(dtype=torch.float64).flatten(1), task.train.targets.double()
    unit = (u / u.norm()).flatten().double()
    noise = x - y * unit
    covariance = noise.T @ noise / len(noise)
    expected = sigma**2 * (torch.eye(64, dtype=torch.float64) - torch.outer(unit, unit))
    assert (covariance - expected).abs().max() < 6 * sigma**2 / 100  # about six standard errors at n = 10,000
    assert noise.mean(0).abs().max() < 6 * sigma / 100
    assert (noise @ unit).abs().max() < 1e-5


def test_the_classes_differ_along_u_alone():
    u = direction()
    task = tasks.nad(u, n_train=10_000, n_test=10)
    x, y = task.train.inputs().flatten(1), task.train.targets[:, 0]
    difference = x[y > 0].mean(0) - x[y < 0].mean(0)
    unit = (u / u.norm()).flatten()
    assert (difference @ unit).item() == pytest.approx(2.0, abs=1e-4)
    assert (difference - 2 * unit).norm() / 8 < 6 * 0.02  # 63 free directions, standard error 0.02 each
    assert abs(y.mean()) < 0.05


def test_defaults_are_the_papers():
    task = tasks.nad(direction((1, 32, 32)))
    assert (len(task.train), len(task.test)) == (10_000, 10_000)
    assert task.input_shape == (1, 32, 32)
    x = task.train.inputs([0, 1, 2])
    assert x.dtype == torch.float32
    assert task.normalization is None
    assert task.train.targets.shape == (10_000, 1)
    assert "epsilon 1, sigma 1" in task.provenance.source


def test_draws_are_seeded_and_the_splits_differ():
    first, second, other = (tasks.nad(direction(), n_train=50, n_test=50, seed=s) for s in (0, 0, 1))
    assert torch.equal(first.train.images, second.train.images)
    assert not torch.equal(first.train.images, other.train.images)
    assert not torch.equal(first.train.images, first.test.images)


def test_a_linear_readout_learns_it_by_least_squares():
    """Separable, and generalizing: the solution is u itself."""
    u = direction()
    task = tasks.nad(u, n_train=2_000, n_test=1_000)
    x, y = task.train.inputs().flatten(1), task.train.targets
    weights = torch.linalg.lstsq(x, y).solution
    test = task.test.inputs().flatten(1) @ weights
    assert torch.equal(test.sign(), task.test.targets)
    assert torch.cosine_similarity(weights[:, 0], u.flatten(), dim=0) > 0.999


def test_the_networks_of_the_paper_take_it():
    task = tasks.nad(direction((1, 32, 32)), n_train=4, n_test=2)
    network = models.build(
        "lenet", variant="ortiz2021", input_shape=task.input_shape, outputs=1, activation="gelu_tanh"
    )
    assert network(task.train.inputs()).shape == task.train.targets.shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"direction": torch.ones(64)}, r"The direction has shape \(64,\)"),
        ({"direction": torch.zeros(1, 8, 8)}, r"The direction has length 0\.0"),
        ({"direction": torch.full((1, 8, 8), torch.inf)}, "The direction has length inf"),
        ({"n_train": 0}, "n_train=0 is too small"),
        ({"epsilon": 0.0}, r"epsilon=0\.0 must be positive"),
        ({"sigma": -1.0}, r"sigma=-1\.0 must not be negative"),
    ],
)
def test_what_makes_no_data_set(arguments, message):
    with pytest.raises(TangentError, match=message):
        tasks.nad(**{"direction": direction(), **arguments})
