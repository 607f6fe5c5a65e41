"""Random shifts: every pixel stays inside, offsets are uniform and seeded."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tangentlab import TangentError, data, models, tasks
from tangentlab.tasks._shifts import _ink, _place


def made_of(images: torch.Tensor) -> data.ImageData:
    examples = data.Examples(images, torch.arange(len(images)) % 2, data.Normalization((0.0,), (1.0,)))
    return data.ImageData("made up", examples, examples, ("a", "b"), data.Provenance("made up"))


def sparse(n: int, height: int, width: int, seed: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, 1, height, width), dtype=torch.uint8, generator=source)
    return images * (torch.rand(images.shape, generator=source) < 0.1)


def raw(examples: data.Examples) -> torch.Tensor:
    """The shifted images before normalization."""
    return examples.transform(examples.images, torch.arange(len(examples)))


@settings(max_examples=80, deadline=None)
@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    most=st.integers(0, 5),
    room=st.none() | st.integers(0, 6),
    seed=st.integers(0, 99),
)
def test_no_pixel_is_lost_and_none_moves_too_far(height, width, most, room, seed):
    images = sparse(12, height, width, seed)
    canvas = None if room is None else max(height, width) + room
    task = tasks.shifted(made_of(images), most, canvas=canvas, seed=seed)
    shifts = task.train.transform
    moved = raw(task.train)
    side = (height + 2 * most, width + 2 * most) if canvas is None else (canvas, canvas)
    assert moved.shape == (12, 1, *side)
    assert shifts.offsets.abs().max() <= most
    assert torch.equal(moved.flatten(1).sort(1).values[:, -height * width :], images.flatten(1).sort(1).values)
    # And against the plainest way there is: pixel by pixel.
    home = [(side[0] - height) // 2, (side[1] - width) // 2]
    for image, offset, result in zip(images, shifts.offsets, moved, strict=True):
        for row, column in torch.nonzero(image[0]).tolist():
            place = row + home[0] + int(offset[0]), column + home[1] + int(offset[1])
            assert result[0, place[0], place[1]] == image[0, row, column]


def test_offsets_are_uniform_over_all_that_are_allowed():
    images = torch.full((20_000, 1, 2, 2), 255, dtype=torch.uint8)
    offsets = tasks.shifted(made_of(images), 3).train.transform.offsets
    for axis in (0, 1):
        counts = torch.bincount(offsets[:, axis] + 3, minlength=7)
        assert (counts - 20_000 / 7).abs().max() < 5 * (20_000 / 7) ** 0.5
    pairs = torch.bincount((offsets[:, 0] + 3) * 7 + offsets[:, 1] + 3, minlength=49)
    assert (pairs - 20_000 / 49).abs().max() < 5 * (20_000 / 49) ** 0.5  # down and right are independent


def test_a_canvas_limits_only_the_images_that_would_leave_it():
    images = torch.zeros(2_000, 1, 5, 5, dtype=torch.uint8)
    images[::2, :, 2, 2] = 9  # a dot in the middle may go anywhere
    images[1::2, :, 0, 4] = 9  # a dot in the top right corner may not go up or right on a canvas of this size
    offsets = tasks.shifted(made_of(images), 2, canvas=5).train.transform.offsets
    assert offsets[::2].amin(0).tolist() == [-2, -2]
    assert offsets[::2].amax(0).tolist() == [2, 2]
    assert offsets[1::2].amin(0).tolist() == [0, -2]
    assert offsets[1::2].amax(0).tolist() == [2, 0]


def test_fixed_shifts_stay_and_shifts_per_epoch_change(digits):
    fixed = tasks.shifted(digits, 2, seed=4)
    assert torch.equal(raw(fixed.train.at_epoch(0)), raw(fixed.train.at_epoch(7)))
    moving = tasks.shifted(digits, 2, seed=4, per_epoch=True)
    assert not torch.equal(raw(moving.train.at_epoch(0)), raw(moving.train.at_epoch(1)))
    assert torch.equal(raw(moving.train.at_epoch(1)), raw(moving.train.at_epoch(1)))
    assert torch.equal(raw(moving.test.at_epoch(0)), raw(moving.test.at_epoch(1)))
    assert not torch.equal(raw(fixed.train), raw(tasks.shifted(digits, 2, seed=5).train))


def test_batches_take_the_epoch_along(digits):
    moving = tasks.shifted(digits.subset(64), 2, per_epoch=True).train
    for epoch in (0, 3):
        batches = torch.cat([inputs for inputs, _ in moving.batches(10, epoch=epoch)])
        assert torch.equal(batches, moving.at_epoch(epoch).inputs())


def test_single_examples_subsets_and_loaders_see_the_same_shift(digits):
    task = tasks.shifted(digits, 3, canvas=12)
    assert task.input_shape == (1, 12, 12)
    inputs = task.train.inputs()
    assert torch.equal(task.train[17][0], inputs[17])
    rows = torch.tensor([40, 3, 1000])
    assert torch.equal(task.train.select(rows).inputs(), inputs[rows])
    loaded = torch.cat([batch for batch, _ in DataLoader(task.train, batch_size=100)])
    assert torch.equal(loaded, inputs)


def test_black_around_the_image_is_normalised_like_black_within(digits):
    task = tasks.shifted(digits, 3)
    black = (0 - digits.normalization.mean[0]) / digits.normalization.std[0]
    assert task.train.inputs([0]).min().item() == pytest.approx(black)


def test_shifting_twice_padding_after_and_too_small_a_canvas_are_refused(digits):
    task = tasks.shifted(digits, 2)
    with pytest.raises(TangentError, match="already shifted"):
        tasks.shifted(task, 2)
    with pytest.raises(TangentError, match="already shifted and cannot be padded"):
        task.pad_to(32)
    with pytest.raises(TangentError, match="is shifted, split by split"):
        task.both()
    with pytest.raises(TangentError, match="stay on the CPU"):
        task.train.to("cpu")
    with pytest.raises(TangentError, match="A canvas of 7 x 7 does not hold images of 8 x 8"):
        tasks.shifted(digits, 2, canvas=7)
    for wrong in (-1, 2.5, True):
        with pytest.raises(TangentError, match="is not a number of pixels"):
            tasks.shifted(digits, wrong)


def test_images_without_ink_do_no_harm():
    images = torch.zeros(5, 1, 4, 4, dtype=torch.uint8)
    assert raw(tasks.shifted(made_of(images), 2, canvas=6).train).sum() == 0
    first, last = _ink(images, 2)
    assert first.tolist() == last.tolist() == [2] * 5


def test_placing_cuts_what_would_fall_off():
    image = torch.arange(1, 5, dtype=torch.uint8).view(1, 1, 2, 2)
    placed = _place(image, torch.tensor([[-1, 1]]), (2, 2))
    assert placed[0, 0].tolist() == [[0, 3], [0, 0]]


@pytest.mark.shared
def test_shifted_mnist_keeps_every_pixel_of_every_digit(mnist):
    """samarin2022's task, on all 70,000 digits; and the larger canvas, where no digit is held back."""
    both = (mnist.train, mnist.test)
    for canvas, side, splits in ((tasks.SHIFTED_MNIST_CANVAS, 35, both), (None, 42, both[1:])):
        task = tasks.shifted(mnist, 7, canvas=canvas)
        for before in splits:
            after = task.train if before is mnist.train else task.test
            positions = (after.transform.high - after.transform.low + 1).double().mean()
            assert positions == pytest.approx(15.0 if canvas is None else 14.65, abs=0.02)
            assert after.transform.offsets.amin(0).tolist() == [-7, -7]
            assert after.transform.offsets.amax(0).tolist() == [7, 7]
            for rows in torch.arange(len(before)).split(10_000):
                moved = after.transform(before.images[rows], rows)
                assert moved.shape == (len(rows), 1, side, side)
                ink = before.images[rows].flatten(1)
                # Nothing is lost: as many pixels that are not black, and the same sum of intensities.
                assert torch.equal((moved != 0).flatten(1).sum(1), (ink != 0).sum(1))
                assert torch.equal(moved.flatten(1).sum(1, dtype=torch.int64), ink.sum(1, dtype=torch.int64))


@pytest.mark.shared
def test_the_canvas_of_shifted_mnist_fits_the_papers_lenet(mnist):
    task = tasks.one_vs_rest(tasks.shifted(mnist.subset(20, 10), 7, canvas=tasks.SHIFTED_MNIST_CANVAS), 0)
    network = models.build("lenet", input_shape=task.input_shape)
    assert sum(parameter.numel() for parameter in network.parameters()) == 61_706
    inputs, targets = task.train.batch([0, 1])
    assert network(inputs).shape == (2, 10)
    assert targets.shape == (2, 1)
