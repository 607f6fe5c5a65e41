"""The result: tables, pictures, saving, resuming; features larger than memory."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from benchmarks import memory
from tangentlab import TangentError, attribution
from tangentlab.attribution import Attribution, Gradient, Trak, _trak, attribute
from tangentlab.attribution._features import FeaturesOnDisk
from tangentlab.attribution._trak import trak_scores
from tests.attribution.problem import network, samples

X, Y = samples(30, 0)
X_TEST, Y_TEST = samples(4, 1)


@pytest.fixture
def result() -> Attribution:
    scores = torch.tensor([[0.5, -1.0, 2.0, 0.0], [1.0, 1.5, -0.5, 0.25]])
    return Attribution(scores, {"name": "trak"}, 2, torch.tensor([0, 1, 1, 0]), torch.tensor([1, 0]))


def test_top(result: Attribution) -> None:
    assert result.top(0, 2).indices.tolist() == [2, 0]
    assert result.top(0, 2, harmful=True).indices.tolist() == [1, 3]
    assert result.top(-1, 9).scores.tolist() == [1.5, 1.0, 0.25, -0.5]
    assert result.top(np.int64(1), np.int64(1)).indices.tolist() == [1]  # type: ignore[arg-type]
    for test, k in ((2, 1), (-3, 1), (0, 0), (True, 1), (0, 1.5)):
        with pytest.raises(TangentError):
            result.top(test, k)  # type: ignore[arg-type]


def test_table(result: Attribution) -> None:
    table = result.to_pandas()
    assert len(table) == 8
    assert table[table["test"] == 0]["train"].tolist() == [2, 0, 3, 1]
    for k in (0, -1, 1.5):
        with pytest.raises(TangentError, match="k="):
            result.to_pandas(k)  # type: ignore[arg-type]
    few = result.to_pandas(1)
    assert few["rank"].tolist() == [0, -1, 0, -1]
    assert few["train"].tolist() == [2, 1, 1, 2]
    assert few["train_target"].tolist() == [1, 1, 1, 1]
    assert few["test_target"].tolist() == [1, 1, 0, 0]
    assert "trak" in result._repr_html_()
    assert "2 checkpoints" in repr(result)


def test_pictures(result: Attribution) -> None:
    images = torch.rand(4, 1, 6, 6), torch.rand(2, 1, 6, 6)
    figure = result.picture(0, *images, k=2)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles[:3] == ["test 1", "1  +2", "0  +0.5"]
    texts = [f"training text {n} costs $5 and $6" for n in range(4)], ["a test text", "another"]
    written = [text.get_text() for text in result.picture(1, *texts, k=1, names=["bad", "good"]).axes[0].texts]
    assert written == [
        "test bad", "another", "helps  +1.5  good", "training text 1 costs $5 and $6",
        "harms  -0.5  good", "training text 2 costs $5 and $6",
    ]  # fmt: skip
    figure.canvas.draw()
    for data, said in (
        ((images[0][:3], images[1]), "samples to show are 3, and the scores are of 4"),
        ((torch.rand(4, 7), torch.rand(2, 7)), "not that of an image"),
        ((None, images[1]), "NoneType"),
        ((texts[0], images[1]), "train_data holds texts"),
    ):
        with pytest.raises(TangentError, match=said):
            result.picture(0, *data)
    plt.close("all")


class Items(Dataset):  # type: ignore[type-arg]
    """Images as data sets have them: in pairs with labels, or in dictionaries."""

    def __init__(self, count: int, named: bool) -> None:
        self.count, self.named = count, named

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> object:
        image = Image.new("RGB", (6, 6), (index, 0, 0))
        return {"image": image, "label": 1} if self.named else (image, 1)


def test_pictures_of_images_and_texts_in_all_forms(result: Attribution) -> None:
    for named in (False, True):
        figure = result.picture(0, Items(4, named), Items(2, named), k=1, names=["only one"])
        assert [ax.get_title() for ax in figure.axes][:2] == ["test 1", "1  +2"]
    texts = ["a", "b", "c", "d"], ["e", "f"]
    for form in (tuple, np.array, pd.Series, lambda part: pd.Series(part, index=list("wxyz"[: len(part)]))):
        written = [text.get_text() for text in result.picture(1, *map(form, texts), k=1).axes[0].texts]
        assert written == ["test 0", "f", "helps  +1.5  1", "b", "harms  -0.5  1", "c"]
    plt.close("all")


def test_saving(result: Attribution, tmp_path: Path) -> None:
    result.save(tmp_path)
    found = Attribution.load(tmp_path)
    assert torch.equal(found.scores, result.scores)
    assert found.method == result.method
    assert torch.equal(found.train_targets, result.train_targets)  # type: ignore[arg-type]
    path = tmp_path / "scores.npz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TangentError, match="Rerun"):
        Attribution.load(tmp_path)
    with pytest.raises(TangentError, match="Choose another folder"):
        Attribution.load(tmp_path / "absent")
    other = Attribution(result.scores[:1], result.method)
    with pytest.raises(TangentError, match="tests differ"):
        other.save(tmp_path)
    result.save(tmp_path)  # repairs what was damaged
    with pytest.raises(TangentError, match="holds other scores"):
        Attribution(-result.scores, result.method, 2).save(tmp_path)
    assert torch.equal(Attribution.load(tmp_path).scores, result.scores)


def close(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether scores from features in single precision are the same up to rounding."""
    return bool((one - two).abs().max() <= 1e-4 * two.abs().max())


def attributed(out: Path | None, method: attribution.Method, models: object = None) -> Attribution:
    models = [network(0), network(1)] if models is None else models
    return attribute(models, X, X_TEST, method, targets=Y, test_targets=Y_TEST, out=out)  # type: ignore[arg-type]


def test_a_rerun_computes_the_checkpoints_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = attributed(None, Trak(k=16))
    compute = Trak.part
    monkeypatch.setattr(Trak, "part", lambda *args: compute(*args) if args[3] == 0 else _stop())
    with pytest.raises(KeyboardInterrupt):
        attributed(tmp_path, Trak(k=16))
    calls: list[int] = []
    monkeypatch.setattr(Trak, "part", lambda *args: (calls.append(args[3]), compute(*args))[1])
    assert torch.equal(attributed(tmp_path, Trak(k=16)).scores, expected.scores)
    assert calls == [1]
    assert torch.equal(Attribution.load(tmp_path).scores, expected.scores)
    (tmp_path / "checkpoint-000.npz").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="computed again"):
        assert torch.equal(attributed(tmp_path, Trak(k=16)).scores, expected.scores)
    assert calls == [1, 0]
    for method, models in ((Trak(k=8), None), (Trak(k=16), [network(0), network(2)])):
        with pytest.raises(TangentError, match="of something else"):
            attributed(tmp_path, method, models)


def _stop() -> None:
    raise KeyboardInterrupt


def test_features_on_disk_are_those_in_memory_and_serve_other_tests(tmp_path: Path) -> None:
    expected = attributed(None, Trak(k=16))
    found = attributed(None, Trak(k=16, features=tmp_path))
    assert torch.equal(found.scores, expected.scores)
    files = sorted(tmp_path.glob("features-*/rows-*.npz"))
    assert len(files) == 2
    before = [file.stat().st_mtime_ns for file in files]
    models = [network(0), network(1)]
    more = attribute(models, X, X_TEST[:2], Trak(k=16, features=tmp_path), targets=Y, test_targets=Y_TEST[:2])
    assert close(more.scores, expected.scores[:2])
    assert before == [file.stat().st_mtime_ns for file in files]
    files[0].write_bytes(files[0].read_bytes()[:-30])
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    unfinished = files[0].with_name(f"{socket.gethostname()}~{dead.pid}~0.partial")
    unfinished.touch()
    with pytest.warns(UserWarning, match="computed again"):
        assert torch.equal(attributed(None, Trak(k=16, features=tmp_path)).scores, expected.scores)
    assert not unfinished.exists()
    with pytest.raises(TangentError, match="network differs"):
        attributed(None, Trak(k=16, features=tmp_path), [network(5)])


class Plain(Dataset):  # type: ignore[type-arg]
    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[index], self.y[index]


@pytest.mark.parametrize("make", [TensorDataset, Plain])
def test_one_changed_sample_label_or_layer_is_another_attribution(make: Any, tmp_path: Path) -> None:
    tests, model = make(X_TEST, Y_TEST), network(0)
    changed_x, changed_y = X.clone(), Y.clone()
    changed_x[7] += 1
    changed_y[7] = (changed_y[7] + 1) % 3
    other = nn.Sequential(model[0], nn.ReLU(), model[2])  # the same weights
    for method in ("gradient", Trak(k=16, features=tmp_path / "features")):
        out = tmp_path / str(getattr(method, "name", method))
        attribute(model, make(X, Y), tests, method, out=out)
        attribute(model, make(X, Y), tests, method, out=out)
        for train, network_ in ((make(changed_x, Y), model), (make(X, changed_y), model), (make(X, Y), other)):
            for place in (out, None)[: 1 if method == "gradient" else 2]:  # without out, the features are compared
                with pytest.raises(TangentError, match=r"of something else: (train|networks?) differ"):
                    attribute(network_, train, tests, method, out=place)


def test_the_default_k_counts_the_chosen_parameters() -> None:
    options = {"targets": Y, "test_targets": Y_TEST}
    whole = attribute(network(), X, X_TEST, Trak(k=13), parameters=["2"], **options)  # 27 parameters
    assert torch.equal(attribute(network(), X, X_TEST, parameters=["2"], **options).scores, whole.scores)
    frozen = network()
    frozen[0].requires_grad_(False)
    assert torch.equal(attribute(frozen, X, X_TEST, **options).scores, whole.scores)


def test_features_that_do_not_fit_into_memory_need_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = attributed(None, Trak(k=16))
    monkeypatch.setattr(_trak, "room", lambda budget: 4000.0)
    monkeypatch.setattr(_trak, "_BLOCK_BYTES", 7 * 4 * 16)
    with pytest.raises(TangentError, match="quarter of the memory budget"):
        attributed(None, Trak(k=16))
    assert close(attributed(tmp_path, Trak(k=16)).scores, expected.scores)
    assert len(list(tmp_path.glob("features-000/rows-*.npz"))) == 5


def test_blocks_stream_within_a_fraction_of_the_features(tmp_path: Path) -> None:
    count, k, tests = 120_000, 128, 8  # 59 MiB of features in blocks of 1 MiB
    features = FeaturesOnDisk(tmp_path, count, k, 2048, {})
    random = torch.Generator().manual_seed(0)
    for rows in features.blocks:
        features[rows] = torch.randn(len(rows), k, generator=random)
    test = torch.randn(tests, k, generator=random)
    trak_scores(features, test, 1e-3)  # makes the libraries' own workspaces
    before = memory.start_watch()
    scores = trak_scores(features, test, 1e-3)
    grown = memory.peak() - before
    assert grown < 16 * 2**20
    whole = torch.cat([features[rows] for rows in features.blocks]).double()
    gram = whole.T @ whole
    gram.diagonal().add_(1e-3 * gram.diagonal().mean())
    expected = torch.linalg.solve(gram, test.double().T).T @ whole.T
    assert (scores - expected).abs().max() < 1e-5 * expected.abs().max()


def test_matplotlib_is_not_imported_with_the_package() -> None:
    code = "import sys, tangentlab.attribution; assert not any(m.startswith('matplotlib') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rates_are_checked() -> None:
    with pytest.raises(TangentError, match="2 checkpoints and 1 rates"):
        attributed(None, Gradient(rates=(0.1,)))
