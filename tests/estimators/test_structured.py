"""Estimators for samples that are not rows of numbers: tokens with masks, several inputs, data sets."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tangentlab import TangentError, reference
from tangentlab.estimators import NTKClassifier, NTKRegressor

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[docs]'")
N, M, TOKENS = 18, 7, 6


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, num_labels=2,
        max_position_embeddings=8,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).double().eval()


def logits(result: Any) -> Tensor:
    return result.logits


def texts(count: int, seed: int = 0) -> tuple[dict[str, Tensor], np.ndarray]:
    """Tokens and masks; the class is whether a text starts with a small number."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 20, (count, TOKENS), generator=generator)
    lengths = torch.randint(2, TOKENS + 1, (count,), generator=generator)
    lengths[0] = TOKENS
    ids[:, 0] = torch.arange(count) % 2 * 9 + 3
    mask = (torch.arange(TOKENS) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, np.array(["low", "high"])[(ids[:, 0] > 9).long().numpy()]


def rows(x: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value[i] for key, value in x.items()} for i in range(len(x["input_ids"]))]


def short_rows(x: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Every text at its own length."""
    return [{key: value[: int(row["attention_mask"].sum())] for key, value in row.items()} for row in rows(x)]


class Items(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Table:
    """A data set that is not PyTorch's, with lists of numbers and several rows at a time."""

    def __init__(self, x: dict[str, Tensor]) -> None:
        self.columns = {key: value.tolist() for key, value in x.items()}

    def __len__(self) -> int:
        return len(self.columns["input_ids"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {key: value[index] for key, value in self.columns.items()}

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]


def expected(model: nn.Module, x: Any, z: Any, y: Tensor, ridge: float, **options: Any) -> np.ndarray:
    """f0 + Theta (Theta + r)^-1 (y - f0) by the reference."""
    take = options.get("output") or (lambda result: result)
    with torch.no_grad():
        f0, f0_test = (take(model(**v) if isinstance(v, dict) else model(*v)) for v in (x, z))
    kernel, cross = (reference.ntk(model, v, x, readout="pntk", **options) for v in (x, z))
    return (f0_test + cross @ torch.linalg.solve(kernel + ridge * torch.eye(len(kernel)).double(), y - f0)).numpy()


FORMS = {
    "dict of tensors": lambda x: x,
    "dict of arrays": lambda x: {key: value.numpy() for key, value in x.items()},
    "dict of lists": lambda x: {key: value.tolist() for key, value in x.items()},
    "list of dicts": rows,
    "list of dicts of other lengths": short_rows,
    "data set": lambda x: Items(rows(x)),
    "table": Table,
    "loader": lambda x: DataLoader(Items(rows(x)), batch_size=5),
}


@pytest.mark.parametrize("form", FORMS)
def test_fit_predict_and_score(form: str) -> None:
    model, (x, y), (z, truth) = bert(), texts(N), texts(M, seed=1)
    found = NTKClassifier(model, output=logits, ridge=0.1).fit(FORMS[form](x), y)
    hot = torch.tensor(y[:, None] == found.classes_).double()
    wanted = expected(model, x, z, hot, 0.1, output=logits)
    decision = found.decision_function(FORMS[form](z))
    np.testing.assert_allclose(decision, wanted[:, 1] - wanted[:, 0], rtol=1e-7, atol=1e-9)
    assert found.score(FORMS[form](z), truth) == np.mean(found.predict(FORMS[form](z)) == truth) > 0.8
    again = pickle.loads(pickle.dumps(found)) if form != "loader" else found
    np.testing.assert_allclose(again.decision_function(FORMS[form](z)), decision)
    # What was fitted is kept: the user's tensors may change.
    held = found.X_fit_
    if isinstance(held, dict):
        x["input_ids"].zero_()
        np.testing.assert_allclose(found.decision_function(FORMS[form](z)), decision)


def test_labels_of_the_data_are_targets() -> None:
    model, (x, y), (z, truth) = bert(), texts(N), texts(M, seed=1)
    numbers, test_numbers = (torch.tensor((v == "low").astype(int)) for v in (y, truth))
    data = Items([row | {"label": n} for row, n in zip(rows(x), numbers, strict=True)])
    test = Items([row | {"label": n} for row, n in zip(rows(z), test_numbers, strict=True)])
    by_hand = NTKClassifier(model, output=logits, ridge=0.1).fit(x, numbers.numpy())
    for fitted in (data, DataLoader(data, batch_size=4), x | {"labels": numbers}):
        found = NTKClassifier(model, output=logits, ridge=0.1).fit(fitted)
        np.testing.assert_allclose(found.decision_function(test), by_hand.decision_function(z))
        assert found.score(test) == by_hand.score(z, test_numbers.numpy())
    with pytest.raises(TangentError, match="no targets"):
        NTKClassifier(model, output=logits).fit(x)
    with pytest.raises(TangentError, match="18 samples and y 17"):
        NTKClassifier(model, output=logits).fit(x, y[:-1])


class Pair(nn.Module):
    """Tokens of two kinds, and a number: integers stay integers, other numbers get the precision."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.out = nn.Embedding(7, 4), nn.Embedding(5, 4), nn.Linear(5, 1)
        self.double()

    def forward(self, user: Tensor, item: Tensor, time: Tensor) -> Tensor:
        return self.out(torch.cat([torch.tanh(self.a(user) * self.b(item)), time[:, None]], 1))


def test_tuples_keep_integers() -> None:
    generator = np.random.default_rng(0)

    def draw(count: int) -> tuple[np.ndarray, ...]:
        return generator.integers(0, 7, count), generator.integers(0, 5, count), generator.normal(size=(count,))

    model, (x, z) = Pair(), (draw(12), draw(5))
    y = generator.normal(size=12)
    tensors, tests = (tuple(map(torch.from_numpy, v)) for v in (x, z))
    found = NTKRegressor(model, ridge=0.2).fit(tensors, y)
    wanted = expected(model, tensors, tests, torch.from_numpy(y)[:, None], 0.2)
    np.testing.assert_allclose(found.predict(tests), wanted[:, 0], rtol=1e-7, atol=1e-9)
    assert found.X_fit_[0].dtype == torch.int64
    single = NTKRegressor(model, ridge=0.2, dtype="float32").fit(tensors, y)
    np.testing.assert_allclose(single.predict(tests), wanted[:, 0], rtol=1e-3, atol=1e-4)


def test_tokens_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(4 * TOKENS, 1)).double()
    x, z = texts(N)[0]["input_ids"], texts(M, seed=1)[0]["input_ids"]
    y = x[:, 0].double()
    found = NTKRegressor(model, ridge=0.2).fit(x, y.numpy())
    wanted = expected(model, (x,), (z,), y[:, None], 0.2)
    np.testing.assert_allclose(found.predict(z), wanted[:, 0], rtol=1e-7, atol=1e-9)
    scores = cross_val_score(found, x, y.numpy(), cv=3)
    array = NTKRegressor(model, ridge=0.2).fit(x.numpy().astype(np.uint8), y.numpy())
    np.testing.assert_allclose(array.predict(z.numpy()), wanted[:, 0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(cross_val_score(found, x.numpy(), y.numpy(), cv=3), scores)


def test_integers_that_are_numbers_are_cast() -> None:
    """Also where the network has an embedding for something else."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.place, self.out = nn.Embedding(TOKENS, 3), nn.Linear(TOKENS, 3)

        def forward(self, x: Tensor) -> Tensor:
            return (self.out(x) + self.place.weight.sum(0)).sum(1, keepdim=True)

    x = texts(N)[0]["input_ids"].numpy()
    for model in (Positions(), nn.Linear(TOKENS, 1)):
        model = model.double()
        found, cast = (NTKRegressor(model, ridge=0.2).fit(v, x[:, 0]) for v in (x, x.astype(float)))
        np.testing.assert_array_equal(found.predict(x), cast.predict(x.astype(float)))
        assert found.X_fit_.dtype == float


def test_images_as_a_tensor_and_pairs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)).double()
    x, y = torch.randn(10, 1, 4, 4), torch.arange(10) % 2
    found = NTKClassifier(model, ridge=0.1).fit(x, y.numpy())
    pairs = NTKClassifier(model, ridge=0.1).fit(TensorDataset(x, y))
    np.testing.assert_allclose(pairs.decision_function(x), found.decision_function(x))
    assert pairs.score(TensorDataset(x, y)) == found.score(x, y.numpy())
    flat, rows_of = nn.Linear(4, 2).double(), torch.randn(10, 4)
    pairs = NTKClassifier(flat, ridge=0.1).fit(TensorDataset(rows_of, y))
    found = NTKClassifier(flat, ridge=0.1).fit(rows_of.numpy(), y.numpy())
    for test in (TensorDataset(rows_of), rows_of, rows_of.numpy(), [(row, 0) for row in rows_of]):
        np.testing.assert_allclose(pairs.decision_function(test), found.decision_function(rows_of), rtol=1e-6)
    with pytest.raises(TangentError, match="fitted to rows"):
        found.predict(TensorDataset(rows_of))


def test_in_scikit_learns_tools() -> None:
    model, (x, y) = bert(), texts(N)
    classifier = NTKClassifier(model, output=logits, ridge=0.1)
    whole = cross_val_score(classifier, rows(x), y, cv=3)
    assert whole.mean() > 0.8
    np.testing.assert_array_equal(cross_val_score(classifier, short_rows(x), y, cv=3), whole)
    np.testing.assert_array_equal(cross_val_score(classifier, Items(rows(x)), y, cv=3), whole)
    assert cross_val_predict(classifier, rows(x), y, cv=3).shape == y.shape
    search = GridSearchCV(classifier, {"ridge": [0.1, 1e6]}, cv=3).fit(rows(x), y)
    assert search.best_estimator_.predict(rows(x)).shape == y.shape
    assert clone(classifier).output is logits


def test_refusals() -> None:
    model, (x, y) = bert(), texts(N)
    with pytest.raises(TangentError, match="no network"):
        NTKClassifier().fit(x, y)
    with pytest.raises(TangentError, match="input_shape"):
        NTKClassifier(model, output=logits, input_shape=(6,)).fit(x, y)
    fitted = NTKClassifier(model, output=logits).fit(x, y)
    with pytest.raises(TangentError, match="fitted to"):
        fitted.predict(x["input_ids"].double().numpy())
    with pytest.raises(TangentError, match="fitted to rows"):
        NTKClassifier().fit(np.random.default_rng(0).normal(size=(N, 4)), y).predict(x)
    with pytest.raises(ValueError, match="y"):
        NTKClassifier().fit(np.zeros((N, 4)))
