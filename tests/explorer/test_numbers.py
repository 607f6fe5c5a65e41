"""What is computed, against plain references in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangentlab
from tangentlab import TangentError, analysis, linalg, ntk
from tangentlab.explorer._labels import make_labels
from tangentlab.explorer._leave_one_out import leave_one_out
from tangentlab.explorer._packing import shorts, triangle
from tangentlab.explorer._shown import as_bytes, make_sheet, make_shown


def kernel_of(count: int, rank: int, seed: int) -> torch.Tensor:
    features = torch.randn(count, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return features @ features.T


@settings(max_examples=20, deadline=None)
@given(st.integers(4, 20), st.integers(2, 30), st.integers(0, 99), st.booleans())
def test_leaving_out_is_fitting_again(count: int, rank: int, seed: int, classes: bool) -> None:
    """Predictions, variances and the terms of each prediction, by a regression without the sample."""
    kernel, ridge = kernel_of(count, rank, seed), 0.3
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=generator) if classes else torch.randn(count, 2, generator=generator)
    labels = make_labels(y, None, count)
    fit = leave_one_out(linalg.eigh(kernel), labels, kernel.diagonal(), ridge)
    terms = fit.terms(slice(0, count), kernel)
    for i in range(count):
        rest = [j for j in range(count) if j != i]
        regression = linalg.regress(kernel[rest][:, rest], labels.targets[rest], ridge=ridge, method="cholesky")
        expected = kernel[i, rest] @ regression.coefficients + labels.prior
        torch.testing.assert_close(fit.predictions[i], expected, rtol=1e-8, atol=1e-8)
        output = int(fit.output[i])
        torch.testing.assert_close(
            terms[i, rest], kernel[i, rest] * regression.coefficients[:, output], rtol=1e-7, atol=1e-8
        )
        inverse = torch.linalg.inv(kernel[rest][:, rest] + ridge * torch.eye(count - 1, dtype=torch.float64))
        variance = kernel[i, i] - kernel[i, rest] @ inverse @ kernel[rest, i]
        assert float(fit.uncertainty[i]) == pytest.approx(float((variance / kernel[i, i]).clamp(0, 1).sqrt()), abs=1e-6)


def test_leading_pairs_give_the_regression_of_their_kernel() -> None:
    kernel = kernel_of(30, 40, 1)
    leading = linalg.eigh(kernel, 6)
    smaller = (leading.vectors * leading.values) @ leading.vectors.T
    labels = make_labels(torch.arange(30) % 3, None, 30)
    few = leave_one_out(linalg.Spectrum(leading.values, leading.vectors, leading.residuals, 30, torch.float64, "block"),
                        labels, kernel.diagonal(), 0.5)  # fmt: skip
    assert not few.exact
    every = leave_one_out(linalg.eigh(smaller), labels, kernel.diagonal(), 0.5)
    torch.testing.assert_close(few.predictions, every.predictions, rtol=1e-8, atol=1e-8)
    some = slice(5, 9)
    torch.testing.assert_close(few.terms(some, None), every.terms(some, smaller[some]), rtol=1e-7, atol=1e-8)


def test_states_have_the_kernels_and_measures_of_the_library(found: Any, trained: Any, digits: Any) -> None:
    network, _ = trained
    inputs = digits.train.inputs().double()
    assert [state.name for state in found.states] == ["start", "trained"]
    kernel = ntk(network, inputs, readout="pntk")
    state = found.states[1]
    torch.testing.assert_close(state.kernel, kernel, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(state.spectrum.values, torch.linalg.eigvalsh(kernel).flip(0), rtol=1e-8, atol=1e-9)
    y = torch.nn.functional.one_hot(digits.train.labels, 10).double()[:, :1] - 0.1
    own = tangentlab.explore(kernel, labels=y, progress=False).states[0]
    concentration = analysis.energy_concentration(own.spectrum, y, 7)
    assert float(own.functions.energy[:7].sum().sqrt()) == pytest.approx(float(concentration))
    assert sum(layer.share for layer in state.layers) == pytest.approx(1)
    assert {layer.name for layer in state.layers} == {"1", "3"}
    part = ntk(network, inputs, readout="pntk", per_layer=True)["3"]
    values = next(layer.values for layer in state.layers if layer.name == "3")
    torch.testing.assert_close(values, torch.linalg.eigvalsh(part).flip(0)[:50].clamp(min=0), rtol=1e-7, atol=1e-9)
    change = found.changes[1]
    first = found.states[0]
    assert change.distance == pytest.approx(analysis.kernel_distance(first.kernel, kernel))
    assert change.overlap == pytest.approx(analysis.rotation(first.kernel, kernel, 20).overlap)
    torch.testing.assert_close(
        change.overlaps, (first.spectrum.vectors[:, :20].T @ state.spectrum.vectors[:, :20]).square()
    )
    twin = torch.nn.Sequential(*network)
    with torch.no_grad():
        torch.testing.assert_close(state.outputs.values, twin(inputs), rtol=1e-10, atol=1e-12)
    nads = analysis.anisotropy_directions(network, input_shape=tuple(inputs.shape[1:]), k=8)
    torch.testing.assert_close(state.nads.alignments, nads.alignments)
    assert found.states[0].fit.accuracy(found.labels) > 0.3


def test_the_linearization_is_that_at_the_first_checkpoint(found: Any, trained: Any, digits: Any) -> None:
    network, start = trained
    inputs = digits.train.inputs().double()
    before = {name: value.double() for name, value in start.items()}
    after = dict(network.named_parameters())
    tangents = {name: after[name].detach() - value for name, value in before.items()}
    value, change = torch.func.jvp(lambda p: torch.func.functional_call(network, p, (inputs,)), (before,), (tangents,))
    torch.testing.assert_close(found.states[1].linear, (value + change).detach(), rtol=1e-8, atol=1e-9)


def test_sign_of_an_eigenfunction_tells_two_classes_apart() -> None:
    """Two blocks: the second eigenfunction separates them, and its sign says so with accuracy 1."""
    classes = torch.arange(20) // 10
    together = (classes[:, None] == classes).double()
    kernel = together + 0.5 + 1e-3 * torch.eye(20, dtype=torch.float64)
    state = tangentlab.explore(kernel, labels=classes, classes=["left", "right"], progress=False).states[0]
    assert float(state.functions.accuracy[1]) == 1.0
    assert sorted(state.functions.sides[1].tolist()) == [-1, 1]
    assert float(state.functions.accuracy[0]) == pytest.approx(0.5)  # constant: half of the samples
    assert set(state.clusters[:10].tolist()) in ({*range(10)}, {*range(10, 20)})
    assert all(int(classes[i]) == int(classes[state.near[0][i, 0]]) for i in range(20))


@pytest.mark.parametrize("shape", [(5, 8, 8), (5, 1, 7, 9), (5, 3, 40, 20), (5, 4, 6, 6), (5, 2, 6, 6), (5, 6, 6, 3)])
def test_images_of_any_shape(shape: tuple[int, ...]) -> None:
    images = torch.randn(shape)
    shown = make_shown(images, None, None, None, 5)
    assert shown.kind == "image"
    sheet = make_sheet(shown.pixels)
    assert sheet.width > 0
    assert sheet.mime.startswith("image/")


def test_a_normalization_is_undone() -> None:
    pixels = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    pixels[0, :, 0, 0], pixels[0, :, 0, 1] = 0, 255
    normalized = (pixels.float() / 255 - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / 0.2
    assert bool((as_bytes(normalized).permute(0, 3, 1, 2).int() - pixels.int()).abs().max() <= 1)


def test_texts_tokens_and_rows() -> None:
    kernel = kernel_of(4, 5, 0)
    texts = ["one", "two " * 200, "", "<b>four</b>"]
    assert tangentlab.explore(kernel, texts, progress=False).shown.kind == "text"
    tokens = {"input_ids": torch.tensor([[1, 2, 0], [3, 4, 5], [6, 0, 0], [7, 8, 0]])}
    tokens["attention_mask"] = (tokens["input_ids"] > 0).long()
    assert tangentlab.explore(kernel, tokens, progress=False).shown.texts[0] == "1 2"
    decoded = tangentlab.explore(kernel, tokens, decode=lambda row: "+".join(map(str, row)), progress=False)
    assert decoded.shown.texts[1] == "3+4+5"
    rows = tangentlab.explore(kernel, torch.randn(4, 6), progress=False)
    assert rows.shown.kind == "row"
    assert rows.near_inputs is not None
    assert tangentlab.explore(kernel, progress=False).shown.kind == "row"
    full = kernel_of(8, 9, 1).view(4, 2, 4, 2)
    summed = tangentlab.explore(full, progress=False).states[0].kernel
    torch.testing.assert_close(summed, full[:, 0, :, 0] + full[:, 1, :, 1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_packing_rounds_to_its_precision(numbers: list[float]) -> None:
    import numpy as np

    values = torch.tensor(numbers, dtype=torch.float64)
    packed = shorts(values)
    back = torch.from_numpy(np.frombuffer(packed.data, "<i2").astype(float)) * packed.scale
    assert float((back - values).abs().max()) <= 1.6e-5 * float(values.abs().max()) + 1e-300


def test_a_triangle_has_all_pairs() -> None:
    import numpy as np

    cosines = torch.rand(7, 7, dtype=torch.float64)
    packed = triangle((cosines + cosines.T) / 2, True)
    back = packed.offset + packed.scale * np.frombuffer(packed.data, "<u2").astype(float)
    rows, columns = torch.triu_indices(7, 7, 1)
    assert np.allclose(back, ((cosines + cosines.T) / 2)[rows, columns], atol=1e-5)


REFUSED: dict[str, Any] = {
    "nothing": lambda k: tangentlab.explore("kernel"),
    "not square": lambda k: tangentlab.explore(k[:2]),
    "no samples": lambda k: tangentlab.explore(torch.nn.Linear(2, 2)),
    "two samples": lambda k: tangentlab.explore(torch.nn.Linear(2, 2), torch.randn(2, 2)),
    "labels of others": lambda k: tangentlab.explore(k, labels=[0, 1]),
    "negative labels": lambda k: tangentlab.explore(k, labels=[0, 1, -1, 0]),
    "too few names": lambda k: tangentlab.explore(k, labels=[0, 1, 2, 0], classes=["a"]),
    "NaN": lambda k: tangentlab.explore(k, labels=[0.0, 1.0, float("nan"), 0.0]),
    "samples of others": lambda k: tangentlab.explore(k, torch.randn(5, 3)),
    "texts of others": lambda k: tangentlab.explore(k, torch.randn(4, 3), show=["a"]),
    "ridge": lambda k: tangentlab.explore(k, labels=[0, 1, 0, 1], ridge=-1.0),
    "k": lambda k: tangentlab.explore(k, k=1),
    "embedding": lambda k: tangentlab.explore(k, embedding="umap"),
    "options of a network": lambda k: tangentlab.explore(k, readout="pntk"),
    "zero": lambda k: tangentlab.explore(0 * k),
    "checkpoint of another network": lambda k: tangentlab.explore(
        torch.nn.Linear(2, 2), torch.randn(4, 2), checkpoints={"start": {"weight": torch.zeros(3, 3)}}
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_say_what_to_do(kind: str) -> None:
    with pytest.raises(TangentError) as caught:
        REFUSED[kind](kernel_of(4, 5, 0))
    assert caught.value.remedy
