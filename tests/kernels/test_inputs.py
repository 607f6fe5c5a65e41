"""What a user passes as data: batches of different lengths, and labels among the inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tangentlab
from tangentlab import TangentError
from tangentlab.kernels.internal import Samples

CPU = torch.device("cpu")


class Pooled(nn.Module):
    """The mean over the tokens that a mask leaves."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out = nn.Embedding(9, 4), nn.Linear(4, 2)
        self.double().eval()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        weights = mask.to(self.out.weight)[..., None]
        return self.out(torch.tanh((self.table(ids) * weights).sum(1) / weights.sum(1)))


class Conditional(Pooled):
    """A network that takes a label as an input."""

    def forward(self, ids: Tensor, mask: Tensor, label: Tensor) -> Tensor:
        return super().forward(ids, mask) + self.out(self.table(label))


class MaybeConditional(Pooled):
    """The same, for a label that may be left out."""

    def forward(self, ids: Tensor, mask: Tensor, label: Tensor | None = None) -> Tensor:
        found = super().forward(ids, mask)
        return found if label is None else found + self.out(self.table(label))


def batch(*lengths: int, longest: int = 0, side: str = "right", seed: int = 0) -> dict[str, Tensor]:
    size = max(longest, *lengths)
    mask = torch.stack([(torch.arange(size) < length).long() for length in lengths])
    ids = torch.stack([1 + (torch.arange(size) * (i + 2) + seed) % 8 for i in range(len(lengths))]) * mask
    return {"ids": ids, "mask": mask} if side == "right" else {"ids": ids.flip(1), "mask": mask.flip(1)}


def together(batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Batches that were made at one length."""
    return {key: torch.cat([part[key] for part in batches]) for key in batches[0]}


class Batches(DataLoader[Any]):
    """A loader of given batches."""

    def __init__(self, batches: list[Any]) -> None:
        super().__init__(batches, batch_size=None)


SHORT_AND_LONG = [batch(3, 2, seed=1), batch(5, 4, seed=2), batch(1, 1, seed=3)]
AT_ONE_LENGTH = together([batch(3, 2, seed=1, longest=5), batch(5, 4, seed=2), batch(1, 1, seed=3, longest=5)])


def close(found: Tensor, expected: Tensor) -> bool:
    assert found.shape == expected.shape
    return bool((found - expected).norm() <= 1e-10 * expected.norm())


@pytest.mark.parametrize(
    "as_passed",
    [lambda b: b, lambda b: (b["ids"], b["mask"]), lambda b: {k: v.numpy() for k, v in b.items()}],
    ids=["dict", "tuple", "arrays"],
)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.bool, torch.float64])
def test_masks_of_every_type_and_batches_of_every_kind(as_passed: Callable[[Any], Any], kind: torch.dtype) -> None:
    model = Pooled()
    batches = [{"ids": b["ids"], "mask": b["mask"].to(kind)} for b in SHORT_AND_LONG]
    expected = tangentlab.reference.ntk(model, AT_ONE_LENGTH)
    assert close(tangentlab.ntk(model, Batches([as_passed(b) for b in batches]), input=lambda b: b), expected)


def test_a_mask_of_what_is_left_out() -> None:
    """PyTorch's own attention calls what is padding True."""

    class Inverse(Pooled):
        def forward(self, ids: Tensor, key_padding_mask: Tensor) -> Tensor:
            return super().forward(ids, ~key_padding_mask)

    batches = [{"ids": b["ids"], "key_padding_mask": b["mask"] == 0} for b in SHORT_AND_LONG]
    expected = tangentlab.reference.ntk(Pooled(), AT_ONE_LENGTH)
    assert close(tangentlab.ntk(Inverse(), Batches(batches)), expected)


def test_the_side_of_the_padding_is_seen() -> None:
    batches = [batch(3, 3, side="left"), batch(5, 4, side="left")]
    found = Samples(Batches(batches), device=CPU).source
    assert torch.equal(found["mask"][0], torch.tensor([0, 0, 1, 1, 1]))
    assert torch.equal(found["ids"], together([batch(3, 3, side="left", longest=5), batches[1]])["ids"])


def test_several_texts_of_a_sample() -> None:
    """A multiple-choice batch is (samples, choices, tokens)."""
    batches = [{key: value[:, None].repeat(1, 3, 1) for key, value in b.items()} for b in SHORT_AND_LONG]
    found = Samples(Batches(batches), device=CPU).source
    assert all(torch.equal(found[key][:, 1], AT_ONE_LENGTH[key]) for key in found)


def test_two_masks_of_the_same_lengths_are_told_apart_by_their_names() -> None:
    batches = [
        {"decoder_attention_mask": left["mask"], "decoder_ids": left["ids"], "attention_mask": right["mask"]}
        | {"input_ids": right["ids"] + (right["mask"] == 0) * 7}
        for left, right in zip([batch(3, 2, side="left"), batch(5, 4)], [batch(2, 3), batch(4, 5)], strict=True)
    ]
    batches[1] |= {"decoder_attention_mask": torch.ones(2, 5), "decoder_ids": torch.ones(2, 5).long()}
    found = Samples(Batches(batches), device=CPU).source
    assert found["decoder_attention_mask"][0].tolist() == [0, 0, 1, 1, 1]
    assert found["attention_mask"][0].tolist() == [1, 1, 0, 0, 0]
    assert found["input_ids"][0].tolist()[2:] == [7, 7, 7]
    assert found["decoder_ids"][0].tolist()[:2] == [0, 0]


def without_mask(b: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"ids": b["ids"]}


REFUSED: dict[str, tuple[list[Any], str, str]] = {
    "no mask": ([without_mask(b) for b in SHORT_AND_LONG], "different shapes", "attention_mask"),
    "no mask, one tensor": ([b["ids"] for b in SHORT_AND_LONG], "different shapes", "attention_mask"),
    "added mask": ([b | {"mask": (b["mask"] - 1) * 1e9} for b in SHORT_AND_LONG], "different shapes", "0 and 1"),
    "images of other sizes": (
        [{"image": torch.zeros(2, 3, 8, 8)}, {"image": torch.zeros(2, 3, 9, 9)}],
        "different shapes",
        "one",
    ),
    "another axis than the mask's": (
        [b | {"frames": torch.zeros(2, 4 + i)} for i, b in enumerate(SHORT_AND_LONG)],
        "frames",
        "one",
    ),
    "an axis of an image that is as long as the texts": (
        [b | {"image": torch.zeros(2, 3, 4, b["mask"].shape[1])} for b in SHORT_AND_LONG],
        "image",
        "one",
    ),
    "other axes": ([b | {"more": torch.zeros(2, *[1] * i)} for i, b in enumerate(SHORT_AND_LONG)], "more", "one"),
    "a mask of another part": (
        [{"input_ids": b["ids"], "decoder_attention_mask": b["mask"]} for b in SHORT_AND_LONG],
        "input_ids",
        "attention_mask",
    ),
    "both sides": ([batch(3, 2), batch(5, 4, side="left")], "both sides", "one side"),
    "a part that is missing": ([SHORT_AND_LONG[0], without_mask(SHORT_AND_LONG[1])], "different parts", "same"),
    "tuples of other lengths": ([(torch.ones(2, 2),) * 3, (torch.ones(2, 2),) * 4], "different parts", "same"),
    "kinds that change": ([{"x": torch.ones(2, 2)}, torch.ones(2, 2)], "different", "same"),
    "texts beside tokens": (
        [{"ids": torch.ones(2, 3).long(), "text": ["a", "b"]}, {"ids": torch.ones(1, 3).long(), "text": ["c"]}],
        "text",
        "input=",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    batches, what, remedy = REFUSED[name]
    with pytest.raises(TangentError) as caught:
        tangentlab.ntk(Pooled(), Batches(batches), input=lambda b: b)
    assert what in caught.value.what
    assert remedy in caught.value.remedy


class Rows(Dataset[Any]):
    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data["ids"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {key: value[index] for key, value in self.data.items()}


LABELS = torch.tensor([2, 0, 1, 1, 0, 2])


@pytest.mark.parametrize("name", ["labels", "label", "label_ids"])
def test_labels_in_a_dict_are_targets(name: str) -> None:
    model, data = Pooled(), AT_ONE_LENGTH | {name: LABELS}
    expected = tangentlab.reference.ntk(model, AT_ONE_LENGTH)
    for x in (Rows(data), DataLoader(Rows(data), batch_size=4), data):
        assert close(tangentlab.ntk(model, x), expected)
        assert close(tangentlab.reference.ntk(model, x), expected)
        samples = Samples(x, device=CPU, model=model)
        assert torch.equal(samples.targets, LABELS)
        assert set(samples.batch([0, 1]).inputs) == {"ids", "mask"}
    assert name in data


def test_lists_of_numbers_in_the_items_of_a_data_set() -> None:
    """As data sets of tokens give them."""
    data = {key: value.tolist() for key, value in AT_ONE_LENGTH.items()} | {"label": LABELS.tolist()}
    expected = tangentlab.reference.ntk(Pooled(), AT_ONE_LENGTH)
    assert close(tangentlab.ntk(Pooled(), Rows(data)), expected)
    assert torch.equal(Samples(Rows(data), device=CPU, model=Pooled()).targets, LABELS)


def test_labels_that_the_model_needs_are_inputs() -> None:
    model, data = Conditional(), AT_ONE_LENGTH | {"label": LABELS}
    expected = tangentlab.reference.ntk(model, (*AT_ONE_LENGTH.values(), LABELS))
    for x in (Rows(data), DataLoader(Rows(data), batch_size=4), data):
        assert close(tangentlab.ntk(model, x), expected)
        assert Samples(x, device=CPU, model=model).targets is None


def test_labels_that_could_be_either_are_refused() -> None:
    model, data = MaybeConditional(), AT_ONE_LENGTH | {"label": LABELS}
    with_label = tangentlab.reference.ntk(model, (*AT_ONE_LENGTH.values(), LABELS))
    without = tangentlab.reference.ntk(model, AT_ONE_LENGTH)
    assert close(tangentlab.ntk(model, data), with_label)  # a dict is model(**x)
    for x in (Rows(data), DataLoader(Rows(data), batch_size=4)):
        with pytest.raises(TangentError, match="label"):
            tangentlab.ntk(model, x)
        assert close(tangentlab.ntk(model, x, input=dict), with_label)
        assert close(tangentlab.ntk(model, x, input=lambda item: {k: item[k] for k in ("ids", "mask")}), without)


def test_a_store_keeps_what_input_keeps(tmp_path: Any) -> None:
    model, data = MaybeConditional(), AT_ONE_LENGTH | {"label": LABELS}
    expected = tangentlab.reference.ntk(model, (*AT_ONE_LENGTH.values(), LABELS), readout="pntk")
    kernel = tangentlab.store.compute(
        model, DataLoader(Rows(data), batch_size=4), tmp_path / "k.zarr", input=dict, progress=False
    )
    assert close(torch.as_tensor(kernel[:]), expected)


def test_targets_of_pairs_and_of_nothing() -> None:
    x, y = torch.randn(5, 3), torch.arange(5)
    pairs = TensorDataset(x, y)
    for data in (pairs, DataLoader(pairs, batch_size=2)):
        assert torch.equal(Samples(data, device=CPU).targets, y)
    assert Samples(x, device=CPU).targets is None
    assert Samples(TensorDataset(x), device=CPU).targets is None
    names = [(row, name) for row, name in zip(x, "abcde", strict=True)]
    assert Samples(DataLoader(names, batch_size=2), device=CPU).targets == list("abcde")
    for odd in ({"boxes": 1}, "text", torch.tensor(1), 3):  # what the samples' own targets cannot be found in
        assert Samples(Batches([(x, odd), (x, odd)]), device=CPU).targets is None
    boxes = [(row, torch.zeros(i + 1, 4)) for i, row in enumerate(x)]
    loader = DataLoader(boxes, batch_size=2, collate_fn=lambda items: tuple(map(list, zip(*items, strict=True))))
    found = Samples(loader, device=CPU, input=lambda b: torch.stack(b[0]))
    assert found.targets is None  # input= takes the input, and nothing is split off
    assert len(found) == 5


def test_arrays_in_dicts_and_tuples() -> None:
    model, expected = Pooled(), tangentlab.reference.ntk(Pooled(), AT_ONE_LENGTH)
    arrays = {key: value.numpy() for key, value in AT_ONE_LENGTH.items()}
    assert close(tangentlab.ntk(model, arrays), expected)
    assert close(tangentlab.ntk(model, tuple(arrays.values())), expected)
    assert arrays["ids"].dtype == np.int64
