"""Any torch ``Dataset`` can be loaded."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from tangentlab import TangentError, data


class Pairs(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def pixels(n=12, shape=(3, 5, 6), seed=0):
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def test_uint8_tensors_are_kept_and_normalised():
    train, test = pixels(12), pixels(6, seed=1)
    loaded = data.load((TensorDataset(train, torch.arange(12) % 3), TensorDataset(test, torch.arange(6) % 3)))
    assert torch.equal(loaded.train.images, train)
    assert torch.equal(loaded.test.images, test)
    assert loaded.normalization == data.Normalization.of(train)
    assert loaded.classes == ("0", "1", "2")
    assert loaded.train.labels.dtype == torch.int64


def test_floating_point_images_are_taken_as_they_are():
    images = torch.randn(10, 1, 4, 4)
    loaded = data.load(TensorDataset(images, torch.arange(10) % 2), test_fraction=0.2)
    assert loaded.normalization is None
    assert (len(loaded.train), len(loaded.test)) == (8, 2)
    everything = torch.cat([loaded.train.inputs(), loaded.test.inputs()]).flatten(1)
    assert torch.equal(everything.sort(0).values, images.flatten(1).sort(0).values)


def test_pillow_images_and_arrays_have_their_channels_last():
    image = pixels(1)[0]
    array = image.permute(1, 2, 0).numpy()
    loaded = data.load(Pairs([(Image.fromarray(array), 0), (array, 1), (image, np.int64(1)), (image, torch.tensor(0))]))
    for images in (loaded.train.images, loaded.test.images):
        assert all(torch.equal(one, image) for one in images)


def test_grey_images_without_a_channel_get_one():
    loaded = data.load(Pairs([(pixels(1, (4, 4))[0], label) for label in (0, 1, 0, 1)]), classes=["left", "right"])
    assert loaded.input_shape == (1, 4, 4)
    assert loaded.classes == ("left", "right")


class Stream(IterableDataset):
    def __iter__(self):
        yield from ()


IMAGE = torch.zeros(1, 4, 4)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Stream(), "Stream has no length"),
        (Pairs([IMAGE, IMAGE]), r"Example 0 of Pairs is not a pair \(image, label\)"),
        (Pairs([(IMAGE, 0)]), "Pairs has 1 examples"),
        (Pairs([(IMAGE, 0), (torch.zeros(1, 5, 5), 1)]), "Images have different shapes"),
        (Pairs([(IMAGE, 0), (IMAGE, "cat")]), "The label of example 1 is 'cat'"),
        (Pairs([(IMAGE, 0), (IMAGE, 0.5)]), "The label of example 1 is 0.5"),
        (Pairs([(IMAGE, 0), (IMAGE, -1)]), "The label of example 1 is -1"),
        (Pairs([(IMAGE.long(), 0), (IMAGE.long(), 1)]), r"The image of example 0 is torch.int64"),
        ((Pairs([(IMAGE, 0)] * 2), Pairs([(IMAGE[:, :3], 0)] * 2)), "Give both splits the same transform"),
        (17, "A int is not a data set"),
        ((Pairs([(IMAGE, 0)] * 2), 17), "is not a data set"),
        ((Pairs([(IMAGE, 0)] * 2),) * 3, "is not a data set"),
    ],
)
def test_what_cannot_be_loaded(source, message):
    with pytest.raises(TangentError, match=message):
        data.load(source)


def test_too_few_names():
    with pytest.raises(TangentError, match="There are 1 class names and a label 1"):
        data.load(Pairs([(IMAGE, 0), (IMAGE, 1)] * 3), classes=["only"])


def test_progress_is_shown_when_asked_for(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws no bar where standard error is no terminal
    data.load(Pairs([(IMAGE, 0), (IMAGE, 1)] * 3), progress=True)
    assert "reading Pairs" in capsys.readouterr().err
