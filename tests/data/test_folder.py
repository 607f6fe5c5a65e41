"""Images in one folder per class, the snakes among them."""

import numpy as np
import pytest
import torch
from PIL import Image

from tangentlab import TangentError, data
from tangentlab.data import OTHER_SNAKE_SYNSETS, SNAKE_SYNSETS


def picture(path, size=(10, 8), color=(255, 0, 0), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).convert(mode).save(path)


@pytest.fixture
def folder(tmp_path):
    """Two classes of five images each, without a split."""
    for index in range(5):
        picture(tmp_path / "cats" / f"{index}.png", color=(250, 10 * index, 0))
        picture(tmp_path / "dogs" / f"{index}.png", color=(0, 10 * index, 250))
    return tmp_path


def test_a_folder_is_split_at_random_stratified_and_seeded(folder):
    loaded = data.load("folder", folder, test_fraction=0.4)
    assert loaded.classes == ("cats", "dogs")
    assert torch.bincount(loaded.train.labels).tolist() == [3, 3]
    assert torch.bincount(loaded.test.labels).tolist() == [2, 2]
    assert loaded.train.images.shape == (6, 3, 8, 10)
    for split in (loaded.train, loaded.test):
        red = split.images[:, 0, 0, 0]
        assert torch.equal(red > 100, split.labels == 0)
    again = data.load("folder", folder, test_fraction=0.4)
    assert torch.equal(again.train.images, loaded.train.images)
    greens = torch.cat([loaded.train.images, loaded.test.images])[:, 1, 0, 0].sort().values
    assert greens.tolist() == [0, 0, 10, 10, 20, 20, 30, 30, 40, 40]


@pytest.mark.parametrize("second", ["val", "test"])
def test_a_split_that_is_there_is_kept(tmp_path, second):
    for name, count in (("train", 3), (second, 2)):
        for label, color in (("a", (10, 20, 30)), ("b", (200, 100, 50))):
            for index in range(count):
                picture(tmp_path / name / label / f"{index}.jpg", color=color)
    loaded = data.load("folder", tmp_path)
    assert (len(loaded.train), len(loaded.test)) == (6, 4)
    assert loaded.train.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_resize_scales_the_shorter_side_and_crop_cuts_the_middle(tmp_path):
    # A horizontal ramp, 40 x 20: resized to 20 x 10, the middle 6 x 6 are columns 7 to 12 and rows 2 to 7.
    ramp = np.broadcast_to((np.arange(40) * 6).astype(np.uint8), (20, 40))
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.stack([ramp, ramp.T.repeat(2, 0)[:20].repeat(2, 1)[:, :40], ramp], 2)).save(tmp_path / name)
    resized = data.load("folder", tmp_path, resize=10)
    assert resized.input_shape == (3, 10, 20)
    cropped = data.load("folder", tmp_path, resize=10, crop=6)
    assert cropped.input_shape == (3, 6, 6)
    assert torch.equal(cropped.train.images, resized.train.images[:, :, 2:8, 7:13])
    middle = cropped.train.images[0, 0, 3].float()
    expected = (torch.arange(7, 13) * 2 + 0.5) * 6  # each new pixel is the mean of about two old ones
    assert (middle - expected).abs().max() <= 2
    assert data.load("folder", tmp_path, crop=20).input_shape == (3, 20, 20)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "CMYK"])
def test_every_kind_of_picture_becomes_three_channels(folder, mode):
    picture(folder / "cats" / ("odd.tif" if mode == "CMYK" else "odd.png"), color=(255, 255, 255), mode=mode)
    loaded = data.load("folder", folder)
    everything = torch.cat([loaded.train.images, loaded.test.images])
    assert everything.shape == (11, 3, 8, 10)
    assert any(int(image.min()) >= 250 for image in everything)


def test_the_snakes_take_their_ten_synsets_in_order_at_224_pixels(tmp_path):
    for index, synset in enumerate([*SNAKE_SYNSETS, "n01770393"]):  # and a scorpion, which is left out
        for number in range(2):
            picture(tmp_path / "train" / synset / f"{synset}_{number}.JPEG", (300, 260), (20 * index, 0, 0))
        picture(tmp_path / "val" / synset / f"{synset}_9.JPEG", (260, 300), (20 * index, 0, 0))
    loaded = data.load("snakes", tmp_path)
    assert loaded.classes == tuple(SNAKE_SYNSETS.values())
    assert loaded.classes[0] == "thunder snake"
    assert loaded.train.images.shape == (20, 3, 224, 224)
    assert loaded.test.labels.tolist() == list(range(10))
    reds = loaded.test.images[:, 0].float().mean((1, 2))
    assert (reds - 20 * torch.arange(10)).abs().max() < 3
    small = data.load("snakes", tmp_path, classes=list(SNAKE_SYNSETS)[3:5], resize=40, crop=32)
    assert small.classes == tuple(list(SNAKE_SYNSETS)[3:5])
    assert small.input_shape == (3, 32, 32)


def test_there_are_seventeen_snakes_in_imagenet():
    assert len(SNAKE_SYNSETS) == 10
    assert len(SNAKE_SYNSETS.keys() | OTHER_SNAKE_SYNSETS.keys()) == 17


def refused(folder, *fragments, **arguments):
    with pytest.raises(TangentError) as refusal:
        data.load("folder", folder, **arguments)
    for fragment in fragments:
        assert fragment in str(refusal.value)


def test_a_missing_class_folder_is_named(folder):
    refused(folder, "has no folder for mice", "cats, dogs", classes=["cats", "mice"])
    with pytest.raises(TangentError, match="has no folder for n01728572, n01728920"):
        data.load("snakes", folder)


def test_a_file_that_is_no_image_is_named(folder):
    (folder / "dogs" / "notes.txt").write_text("a good dog")
    refused(folder, "dogs/notes.txt is not an image")


def test_a_truncated_image_is_named(folder):
    path = folder / "cats" / "1.png"
    path.write_bytes(path.read_bytes()[:-30])
    refused(folder, "cats/1.png cannot be read as an image")


def test_images_of_different_sizes(folder):
    picture(folder / "dogs" / "large.png", (20, 20))
    refused(folder, "large.png has 20 x 20 pixels", "resize=256, crop=224")
    assert data.load("folder", folder, resize=16, crop=12).input_shape == (3, 12, 12)


def test_a_crop_that_is_too_large(folder):
    refused(folder, "too small for a crop of 9 x 9", crop=9)


def test_an_empty_class_folder(folder):
    (folder / "mice").mkdir()
    refused(folder, "mice has no images")


def test_a_folder_without_classes_or_without_a_test_split(tmp_path, folder):
    refused(folder / "cats", "has 0 class folders")
    (folder / "train").mkdir()
    refused(folder, "has 0 class folders")
    picture(folder / "train" / "a" / "1.png")
    picture(folder / "train" / "b" / "1.png")
    refused(folder, "has a folder train but neither val nor test")


def test_what_file_managers_leave_behind_is_passed_over(folder):
    (folder / "cats" / ".DS_Store").write_bytes(b"\0")
    (folder / "cats" / "Thumbs.db").write_bytes(b"\0")
    assert len(data.load("folder", folder).train) == 8


@pytest.mark.parametrize("name", ["folder", "snakes"])
def test_no_folder_given(name):
    with pytest.raises(TangentError, match="needs a folder of images"):
        data.load(name)
