"""Splits: normalization, batches, data loaders, subsets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tangentlab import TangentError, data
from tangentlab.data import Examples, Normalization


def some(n: int = 23, channels: int = 3, size: int = 4, seed: int = 0) -> Examples:
    source = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, channels, size, size), dtype=torch.uint8, generator=source)
    return Examples(images, torch.arange(n) % 4, Normalization.of(images))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 30), channels=st.integers(1, 4), size=st.integers(1, 6), seed=st.integers(0, 99))
def test_statistics_and_normalisation_are_their_definitions(n, channels, size, seed):
    images = some(n, channels, size, seed).images
    statistics = Normalization.of(images)
    pixels = images.double() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.var((0, 2, 3), unbiased=False).sqrt()
    std = torch.where(std > 0, std, 1.0)
    torch.testing.assert_close(torch.tensor(statistics.mean, dtype=torch.float64), mean)
    torch.testing.assert_close(torch.tensor(statistics.std, dtype=torch.float64), std)
    expected = (pixels - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(statistics(images, torch.float64), expected)
    torch.testing.assert_close(statistics(images), expected.float(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(statistics.inverse(statistics(images, torch.float64)), pixels)


@pytest.mark.parametrize("floating", [True, False])
def test_changing_what_was_read_leaves_the_images_as_they_are(floating):
    examples = some()
    if floating:
        examples = Examples(examples.inputs(), examples.labels)
    before = examples.images.clone()
    examples.inputs().zero_()
    examples.batch([0, 1])[0].zero_()
    assert torch.equal(examples.images, before)


def test_single_examples_batches_and_loaders_agree():
    examples = some()
    inputs = examples.inputs()
    assert inputs.dtype == torch.float32
    for index, (image, label) in enumerate(examples):  # a plain loop, ended by IndexError
        assert torch.equal(image, inputs[index])
        assert label == examples.labels[index]
    assert index == len(examples) - 1
    assert torch.equal(examples[-1][0], inputs[-1])
    loaded = list(DataLoader(examples, batch_size=5))
    assert [len(batch) for batch, _ in loaded] == [5, 5, 5, 5, 3]
    assert torch.equal(torch.cat([batch for batch, _ in loaded]), inputs)
    assert torch.equal(torch.cat([labels for _, labels in loaded]), examples.labels)


def test_loaders_read_whole_batches():
    calls = []

    class Counting(Examples):
        def batch(self, indices):
            calls.append(len(indices))
            return super().batch(indices)

    examples = some()
    list(DataLoader(Counting(examples.images, examples.labels, examples.normalization), batch_size=10))
    assert calls == [10, 10, 3]


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 50), size=st.integers(1, 60), seed=st.integers(0, 5), epoch=st.integers(0, 5), drop=st.booleans()
)
def test_batches_cover_every_example_once(n, size, seed, epoch, drop):
    images = torch.arange(n).view(n, 1, 1, 1).float()
    examples = Examples(images, torch.zeros(n, dtype=torch.int64))
    batches = [inputs.flatten() for inputs, _ in examples.batches(size, seed=seed, epoch=epoch, drop_last=drop)]
    seen = torch.cat(batches).long() if batches else torch.empty(0, dtype=torch.int64)
    assert len(seen) == (n - n % size if drop else n)
    assert len(set(seen.tolist())) == len(seen)
    again = [inputs.flatten() for inputs, _ in examples.batches(size, seed=seed, epoch=epoch, drop_last=drop)]
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))


def test_the_order_changes_with_seed_and_epoch_and_stays_without_seed():
    examples = Examples(torch.arange(100).view(100, 1, 1, 1).float(), torch.zeros(100, dtype=torch.int64))

    def order(**arguments):
        return torch.cat([inputs.flatten() for inputs, _ in examples.batches(32, **arguments)]).tolist()

    assert order() == list(range(100))
    assert len({tuple(order(seed=s, epoch=e)) for s in (0, 1) for e in (0, 1)}) == 4


@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=6), share=st.floats(0, 1), seed=st.integers(0, 9))
def test_subsets_are_stratified_seeded_and_without_repetition(counts, share, seed):
    labels = torch.cat([torch.full((c,), i) for i, c in enumerate(counts)])
    if len(labels) == 0:
        return
    examples = Examples(torch.arange(len(labels)).view(-1, 1, 1, 1).float(), labels)
    n = max(1, round(share * len(labels)))
    part = examples.subset(n, seed)
    rows = part.images.flatten().long()
    assert len(part) == n == len(set(rows.tolist()))
    assert torch.equal(labels[rows], part.labels)
    assert torch.equal(rows, rows.sort().values)
    for label, count in enumerate(counts):
        assert abs(int((part.labels == label).sum()) - n * count / len(labels)) < 1
    assert torch.equal(rows, examples.subset(n, seed).images.flatten().long())


def test_other_seeds_give_other_subsets():
    digits = data.load("digits")
    first, second = (digits.train.subset(100, seed).images for seed in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("n", [0, -1, 24])
def test_subsets_of_impossible_size(n):
    with pytest.raises(TangentError, match=f"A subset of {n} examples was asked for, and there are 23"):
        some().subset(n)


def test_load_takes_subsets_and_padding():
    part = data.load("digits", n_train=100, n_test=50, seed=1, pad_to=12)
    assert (len(part.train), len(part.test)) == (100, 50)
    assert part.input_shape == (1, 12, 12)
    assert part.normalization == data.load("digits").normalization  # of the whole training split


def test_padding_centres_and_refuses_to_cut():
    examples = some(size=5)
    padded = examples.pad_to(8)
    assert torch.equal(padded.images[..., 1:6, 1:6], examples.images)
    assert int(padded.images.long().sum()) == int(examples.images.long().sum())
    with pytest.raises(TangentError, match="Images of 5 x 5 cannot be padded to 4 x 4"):
        examples.pad_to(4)


def test_targets_of_a_task_follow_their_examples():
    examples = some().with_targets(torch.arange(23.0)[:, None])
    assert torch.equal(examples.batch([3, 1])[1], torch.tensor([[3.0], [1.0]]))
    part = examples.select([5, 2])
    assert torch.equal(part.targets, torch.tensor([[5.0], [2.0]]))
    assert torch.equal(part.labels, torch.tensor([1, 2]))
    assert torch.equal(part.to("cpu").targets, part.targets)


def test_both_splits_in_the_order_of_the_gram_matrix():
    digits = data.load("digits", n_train=20, n_test=10)
    both = digits.both()
    assert torch.equal(both.inputs(), torch.cat([digits.train.inputs(), digits.test.inputs()]))
    assert torch.equal(both.labels, torch.cat([digits.train.labels, digits.test.labels]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(3, 4, 4), torch.zeros(3)), r"Images must be \(N, C, H, W\)"),
        ((torch.zeros(0, 1, 4, 4), torch.zeros(0)), r"Images must be \(N, C, H, W\) with N > 0"),
        ((torch.zeros(3, 1, 4, 4), torch.zeros(2)), "There are 3 images and 2 labels"),
        ((torch.zeros(3, 1, 4, 4), torch.zeros(3), None, torch.zeros(4, 1)), "There are 3 images and 4 targets"),
        ((torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.zeros(3)), "uint8 images have no normalization"),
    ],
)
def test_examples_that_do_not_fit_together(arguments, message):
    with pytest.raises(TangentError, match=message):
        Examples(*arguments)


def test_data_print_as_a_line_not_as_pixels():
    digits = data.load("digits")
    assert repr(digits.test) == "Examples(360 of 1 x 8 x 8 uint8, targets int64 ())"
    assert repr(digits.test.with_targets(torch.zeros(360, 10))).endswith("targets float32 (10,))")
    assert repr(digits).startswith("ImageData('digits', train=Examples(1,437 of 1 x 8 x 8 uint8")


def test_describe_says_sizes_statistics_and_source():
    text = data.load("digits").describe()
    for fragment in ("digits: 1,437 training and 360 test images", "1 x 8 x 8", "10 classes", "scikit-learn"):
        assert fragment in text
