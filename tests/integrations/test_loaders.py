"""Text classifiers with loaders that pad each batch to its longest text, against the same texts padded all at once."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader

import tangentlab
from tangentlab import TangentError, store
from tangentlab.kernels.internal import Samples

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[docs]'")

VOCABULARY, PAD = 30, 1
LENGTHS = (5, 3, 7, 7, 2, 6, 4)
DECODER = {"vocab_size": VOCABULARY, "num_labels": 3, "pad_token_id": PAD, "bos_token_id": 0, "eos_token_id": 2}
ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, max_position_embeddings=16, num_labels=3, pad_token_id=PAD, **ENCODER
    )
    return transformers.BertForSequenceClassification(config)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(n_positions=16, n_embd=16, n_layer=2, n_head=2, **DECODER)
    return transformers.GPT2ForSequenceClassification(config)


def llama() -> nn.Module:
    config = transformers.LlamaConfig(max_position_embeddings=16, num_key_value_heads=1, **ENCODER, **DECODER)
    return transformers.LlamaForSequenceClassification(config)


MODELS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "bert": (bert, "right"),
    "gpt2": (gpt2, "right"),
    "llama": (llama, "left"),
}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name][0]().double().eval()


def tokenizer_of(side: str = "right", pad: int = PAD) -> Any:
    from tokenizers import Tokenizer, models

    names = {("[PAD]" if i == pad else f"word{i}"): i for i in range(VOCABULARY)}
    words = Tokenizer(models.WordLevel(names, unk_token="word0"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", padding_side=side)


def texts(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> list[dict[str, Any]]:
    """Items as a Hugging Face data set gives them: lists of numbers and a label."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]
    return [{"input_ids": row, "attention_mask": [1] * len(row), "label": i % 3} for i, row in enumerate(rows)]


def padded(items: list[dict[str, Any]], side: str, pad: int = PAD) -> dict[str, Tensor]:
    """All texts at one length, by hand."""
    longest = max(len(item["input_ids"]) for item in items)

    def row(values: list[int], fill: int) -> Tensor:
        more = [fill] * (longest - len(values))
        return torch.tensor(more + values if side == "left" else values + more)

    fills = {"input_ids": pad, "attention_mask": 0}
    return {key: torch.stack([row(item[key], fill) for item in items]) for key, fill in fills.items()}


def by_hand(items: list[dict[str, Any]], side: str) -> dict[str, Tensor]:
    """A collate function as people write it."""
    return padded(items, side) | {"labels": torch.tensor([item["label"] for item in items])}


def loaders(items: list[dict[str, Any]], side: str, batch_size: int = 2) -> dict[str, DataLoader[Any]]:
    return {
        "collator": DataLoader(
            items, batch_size=batch_size, collate_fn=transformers.DataCollatorWithPadding(tokenizer_of(side))
        ),
        "by hand": DataLoader(items, batch_size=batch_size, collate_fn=partial(by_hand, side=side)),
    }


def logits(result: Any) -> Tensor:
    return result.logits


def error(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("kind", ["collator", "by hand"])
@pytest.mark.parametrize("name", MODELS)
def test_kernel_of_the_globally_padded_data(name: str, kind: str, tmp_path: Path) -> None:
    model, side, items = build(name), MODELS[name][1], texts()
    x = padded(items, side)
    loader = loaders(items, side)[kind]
    for readout in ("full", "pntk"):
        options: dict[str, Any] = {"output": logits, "readout": readout}
        expected = tangentlab.reference.ntk(model, x, **options)
        assert error(tangentlab.ntk(model, loader, **options), expected) < 1e-10
        assert error(tangentlab.reference.ntk(model, loader, **options), expected) < 1e-10
        flat = expected.reshape(len(items) * (3 if readout == "full" else 1), -1)
        v = torch.randn(len(flat), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        assert error(tangentlab.NTKOperator(model, loader, **options) @ v, flat @ v) < 1e-10
        kernel = store.compute(model, loader, tmp_path / f"{readout}.zarr", tile=3, progress=False, **options)
        assert error(torch.as_tensor(kernel[:]), flat) < 1e-10
    of_loader, of_tensors = (tangentlab.sketch(model, data, 64, output=logits, seed=3) for data in (loader, x))
    assert error(of_loader.features, of_tensors.features) < 1e-10
    diagonal = tangentlab.ntk(model, loader, output=logits, diagonal=True)
    assert error(diagonal, tangentlab.ntk(model, x, output=logits, diagonal=True)) < 1e-10


@pytest.mark.parametrize("readout", ["full", "pntk"])
@pytest.mark.parametrize("name", MODELS)
def test_two_loaders_with_other_longest_texts(name: str, readout: str) -> None:
    model, side = build(name), MODELS[name][1]
    short, long = texts((2, 4, 3), seed=1), texts((9, 5, 3, 8, 11), seed=2)
    x1, x2 = padded(short, side), padded(long, side)
    one, two = (loaders(items, side)["collator"] for items in (short, long))
    options: dict[str, Any] = {"output": logits, "readout": readout}
    expected = tangentlab.reference.ntk(model, x1, x2, **options)
    assert error(tangentlab.ntk(model, one, two, **options), expected) < 1e-10
    assert error(tangentlab.ntk(model, two, one, **options), tangentlab.reference.ntk(model, x2, x1, **options)) < 1e-10
    flat = expected.reshape(3 * (3 if readout == "full" else 1), -1)
    operator = tangentlab.NTKOperator(model, one, two, **options)
    eye = torch.eye(flat.shape[1], dtype=torch.float64)
    assert error(operator @ eye, flat) < 1e-10
    assert error(operator.rmatmul(torch.eye(len(flat), dtype=torch.float64)), flat.T) < 1e-10


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lengths=st.lists(st.integers(1, 8), min_size=3, max_size=6).map(tuple),
    batch_size=st.integers(1, 4),
    kind=st.sampled_from(["collator", "by hand"]),
)
def test_any_lengths_and_batch_sizes(name: str, lengths: tuple[int, ...], batch_size: int, kind: str) -> None:
    """The batches that the loader reads are, bit for bit, the texts padded all at once, and so is the kernel."""
    model, side, items = build(name), MODELS[name][1], texts(lengths)
    if side == "left":
        kind = "collator"  # where no batch has padding, only a tokenizer can tell the side
    x, loader = padded(items, side), loaders(items, side, batch_size)[kind]
    samples = Samples(loader, device=torch.device("cpu"), model=model)
    assert samples.source.keys() == x.keys()
    assert all(torch.equal(samples.source[key], x[key]) for key in x)
    assert torch.equal(samples.targets, torch.tensor([item["label"] for item in items]))
    kernel = tangentlab.ntk(model, loader, output=logits, readout="pntk", progress=False)
    assert error(kernel, tangentlab.ntk(model, x, output=logits, readout="pntk", progress=False)) < 1e-10


def test_the_value_of_padding_is_the_batches_own_then_the_models_then_the_tokenizers() -> None:
    items, device = texts((3, 3, 5, 5)), torch.device("cpu")  # batches of two: none has padding of its own
    bare = DataLoader(items, batch_size=2, collate_fn=partial(by_hand, side="right"))
    model = build("gpt2")
    model.config.pad_token_id = 2
    assert Samples(bare, device=device, model=model).source["input_ids"][0].tolist()[3:] == [2, 2]
    plain = nn.Linear(2, 2)
    collated = DataLoader(items, batch_size=2, collate_fn=transformers.DataCollatorWithPadding(tokenizer_of("left", 7)))
    for owner in (plain, None):
        found = Samples(collated, device=device, model=owner).source
        assert found["input_ids"][0].tolist()[:2] == [7, 7]
        assert found["attention_mask"][0].tolist() == [0, 0, 1, 1, 1]
        assert Samples(bare, device=device, model=owner).source["input_ids"][0].tolist()[3:] == [0, 0]
    seen = DataLoader(texts((3, 2, 5, 5)), batch_size=2, collate_fn=partial(by_hand, side="right"))
    assert Samples(seen, device=device, model=model).source["input_ids"][0].tolist()[3:] == [PAD, PAD]


def test_a_tokenizer_is_found_in_a_function_that_people_write() -> None:
    tokenizer = tokenizer_of("left", 7)

    class Collator:
        def __init__(self) -> None:
            self.words = tokenizer

        def __call__(self, items: list[dict[str, Any]]) -> Any:
            return self.words.pad(items, return_tensors="pt")

        def method(self, items: list[dict[str, Any]]) -> Any:
            return self(items)

    def closure(items: list[dict[str, Any]]) -> Any:
        return tokenizer.pad(items, return_tensors="pt")

    def with_argument(items: list[dict[str, Any]], words: Any) -> Any:
        return words.pad(items, return_tensors="pt")

    for collate in (Collator(), Collator().method, closure, partial(with_argument, words=tokenizer)):
        loader = DataLoader(texts((3, 3, 5, 5)), batch_size=2, collate_fn=collate)
        found = Samples(loader, device=torch.device("cpu"), model=nn.Linear(2, 2)).source
        assert found["input_ids"][0].tolist()[:2] == [7, 7]


def test_other_parts_of_a_batch_are_padded_as_they_should_be() -> None:
    model = build("bert")

    def collate(items: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch = padded(items, "right")
        types = torch.arange(batch["input_ids"].shape[1]).expand_as(batch["input_ids"]) % 2
        positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
        return batch | {"token_type_ids": types * batch["attention_mask"], "position_ids": positions}

    items = texts()
    x = collate(items)
    loader = DataLoader(items, batch_size=3, collate_fn=collate)
    expected = tangentlab.reference.ntk(model, x, output=logits)
    assert error(tangentlab.ntk(model, loader, output=logits), expected) < 1e-10


def test_embedded_texts() -> None:
    model = build("bert")
    table = model.bert.embeddings.word_embeddings.weight.detach().clone()

    def collate(items: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch = padded(items, "right")
        vectors = table[batch["input_ids"]] * batch["attention_mask"][..., None]
        return {"inputs_embeds": vectors, "attention_mask": batch["attention_mask"]}

    items = texts()
    expected = tangentlab.reference.ntk(model, collate(items), output=logits)
    loader = DataLoader(items, batch_size=3, collate_fn=collate)
    assert error(tangentlab.ntk(model, loader, output=logits), expected) < 1e-10


def test_labels_of_every_token() -> None:
    """The targets that a collator for token classification pads with -100 have one length as well."""
    config = transformers.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=16, num_labels=2, **ENCODER)
    torch.manual_seed(0)
    model = transformers.BertForTokenClassification(config).double().eval()
    items = [
        {"input_ids": item["input_ids"], "attention_mask": item["attention_mask"], "labels": item["attention_mask"]}
        for item in texts()
    ]
    collate = transformers.DataCollatorForTokenClassification(tokenizer_of())
    loader = DataLoader(items, batch_size=2, collate_fn=collate)
    x = padded(items, "right")
    samples = Samples(loader, device=torch.device("cpu"), model=model)
    assert torch.equal(samples.targets, torch.where(x["attention_mask"] == 1, 1, -100))
    kernel = tangentlab.ntk(model, loader, output=lambda result: result.logits[:, 0])
    expected = tangentlab.reference.ntk(model, x, output=lambda result: result.logits[:, 0])
    assert error(kernel, expected) < 1e-10


def test_labels_are_not_passed_on() -> None:
    """A label outside of the classes would make the model fail; one inside would make it compute a loss."""
    model, items = build("bert"), texts((5, 5, 5))
    for item in items:
        item["label"] += 100
    x = padded(items, "right")
    expected = tangentlab.reference.ntk(model, x, output=logits)
    collate = transformers.DataCollatorWithPadding(tokenizer_of())
    assert (
        error(tangentlab.ntk(model, DataLoader(items, batch_size=2, collate_fn=collate), output=logits), expected)
        < 1e-10
    )
    whole = collate(items)
    assert "labels" in whole
    assert error(tangentlab.ntk(model, dict(whole), output=logits), expected) < 1e-10
    assert error(tangentlab.ntk(model, items_as_tensors(items), output=logits), expected) < 1e-10
    assert error(tangentlab.ntk(model, Items(items), output=logits), expected) < 1e-10
    with pytest.raises(TangentError, match="model fails"):
        tangentlab.ntk(model, DataLoader(items, batch_size=2, collate_fn=collate), input=dict, output=logits)


class Items(torch.utils.data.Dataset[Any]):
    def __init__(self, items: list[dict[str, Any]]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def items_as_tensors(items: list[dict[str, Any]]) -> Items:
    return Items([{key: torch.tensor(value) for key, value in item.items()} for item in items])


def test_a_wrapper_that_passes_everything_on() -> None:
    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = build("gpt2")

        def forward(self, **batch: Tensor) -> Tensor:
            return self.inner(**batch).logits

    model, items = Logits().eval(), texts((3, 3, 5, 5))
    loader = loaders(items, "right")["by hand"]
    expected = tangentlab.reference.ntk(model, padded(items, "right"))
    assert error(tangentlab.ntk(model, loader), expected) < 1e-10


def test_more_samples_for_a_store(tmp_path: Path) -> None:
    """The same longest text goes on; a longer one makes other samples of those that are stored, and is refused."""
    model, items = build("bert"), texts((7, 3, 5, 2, 7, 4))
    more, longer = items + texts((6, 7), seed=5), items + texts((6, 9), seed=5)
    options: dict[str, Any] = {"output": logits, "tile": 3, "progress": False}

    def loader(data: list[dict[str, Any]]) -> DataLoader[Any]:
        return loaders(data, "right")["collator"]

    store.compute(model, loader(items), tmp_path / "k.zarr", **options)
    with pytest.raises(TangentError, match="samples"):
        store.append(model, loader(longer), tmp_path / "k.zarr", **options)
    kernel = store.append(model, loader(more), tmp_path / "k.zarr", **options)
    expected = tangentlab.ntk(model, padded(more, "right"), output=logits, readout="pntk")
    assert error(torch.as_tensor(kernel[:]), expected) < 1e-10


def test_encoder_and_decoder_are_padded_by_their_own_masks() -> None:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, pad_token_id=0,
        decoder_start_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.T5Model(config).double().eval()
    items = [
        {"source": source["input_ids"], "target": target["input_ids"]}
        for source, target in zip(texts(LENGTHS), texts(tuple(reversed(LENGTHS)), seed=4), strict=True)
    ]

    def collate(chosen: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch = {}
        for prefix, part in (("", "source"), ("decoder_", "target")):
            rows = [{"input_ids": item[part], "attention_mask": [1] * len(item[part])} for item in chosen]
            batch |= {prefix + key: value for key, value in padded(rows, "right", 0).items()}
        return batch

    def first(result: Any) -> Tensor:
        return result.last_hidden_state[:, 0, :3]

    expected = tangentlab.reference.ntk(model, collate(items), output=first)
    loader = DataLoader(items, batch_size=2, collate_fn=collate)
    assert error(tangentlab.ntk(model, loader, output=first), expected) < 1e-10


def test_labels_that_a_decoder_reads_are_not_dropped() -> None:
    """BART makes the tokens of its decoder from the labels, and from its inputs where there are none."""
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=16, pad_token_id=PAD,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BartForConditionalGeneration(config).double().eval()
    x = padded(texts(), "right")
    labels = torch.randint(3, VOCABULARY, (len(LENGTHS), 4), generator=torch.Generator().manual_seed(1))

    def first(result: Any) -> Tensor:
        return result.logits[:, 1, :2]

    options: dict[str, Any] = {"output": first, "readout": "pntk", "parameters": "model.encoder"}
    expected, without = (tangentlab.reference.ntk(model, v, **options) for v in (x | {"labels": labels}, x))
    assert error(without, expected) > 1e-3
    rows = [{key: value[i] for key, value in (x | {"labels": labels}).items()} for i in range(len(LENGTHS))]
    loader = DataLoader(rows, batch_size=3)
    with pytest.raises(TangentError, match="labels"):
        tangentlab.ntk(model, loader, **options)
    assert error(tangentlab.ntk(model, loader, input=dict, **options), expected) < 1e-10
    assert error(tangentlab.ntk(model, x | {"labels": labels}, **options), expected) < 1e-10


@pytest.mark.parametrize("kind", ["collator", "by hand"])
def test_padding_that_counts_is_refused(kind: str) -> None:
    """GPT-2 numbers positions from the padded end: a text's outputs would depend on the others in its batch."""
    model, items = build("gpt2"), texts()
    with pytest.raises(tangentlab.TangentError, match=r"change by .* with more padding"):
        tangentlab.ntk(model, loaders(items, "left")[kind], output=logits, readout="pntk")
    x = padded(items, "left")  # at one length it is a network like any other
    assert tangentlab.ntk(model, x, output=logits, readout="pntk").shape == (len(items), len(items))

    def numbered(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        batch = padded(rows, "left")
        return batch | {"position_ids": (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)}

    kernel = tangentlab.ntk(model, DataLoader(items, 2, collate_fn=numbered), output=logits, readout="pntk")
    alone = [numbered([item]) for item in items]
    rows = [tangentlab.ntk(model, one, alone[0], output=logits, readout="pntk") for one in alone[:3]]
    assert error(kernel[:3, :1], torch.cat(rows)) < 1e-10


def test_outputs_at_every_position_are_not_compared() -> None:
    from tangentlab.kernels._padding import shortest

    assert shortest([{"a": torch.ones(2, 3)}, {"a": torch.ones(1, 3)}]) is None
    number, inputs = shortest([(torch.ones(2, 5), 1), (torch.zeros(2, 3), 1)]) or (None, None)
    assert number == 2
    assert torch.equal(inputs[0], torch.zeros(1, 3))
