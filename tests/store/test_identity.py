"""A store belongs to one network, one data set and one readout; what computes something else is refused."""

import json
import subprocess
import sys
import textwrap
import time
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from tangentlab import TangentError
from tangentlab.engines import Executor, Shard, process_pool
from tangentlab.store import StoredKernel, append, compute, repair
from tests.store import variants
from tests.store.problems import images, make, network


def refused(path: Path, model: nn.Module, x: Any, **options: Any) -> str:
    """The refusal of another description; nothing in the store has changed."""
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(TangentError, match="holds another kernel") as refusal:
        compute(model, x, path, **options)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    return str(refusal.value.what)


@pytest.mark.parametrize("name", variants.OTHER)
def test_another_network_with_the_same_weights_is_refused(name: str, tmp_path: Path) -> None:
    one, two = (make() for make in variants.OTHER[name])
    x, path = images(9), tmp_path / "kernel.zarr"
    compute(one, x, path, tile=4, engine=Shard(0, 2))
    refused(path, two, x)
    assert compute(variants.OTHER[name][0](), x, path).complete
    refused(path, two, x)
    with pytest.raises(TangentError, match="holds another kernel"):
        append(two, images(12), path)
    with pytest.raises(TangentError, match="holds another kernel"):
        repair(two, x, path)


@pytest.mark.parametrize("name", variants.SAME)
def test_the_same_network_is_recognized(name: str, tmp_path: Path) -> None:
    one, two = (make() for make in variants.SAME[name])
    x, path = images(9), tmp_path / "kernel.zarr"
    compute(one, x, path, tile=4, engine=Shard(0, 2))
    assert compute(two, x, path).complete
    assert compute(one, x, path).complete
    assert compute(one, x, path, memory_budget="2GiB").complete


def test_another_global(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = variants.outputs(variants.Block(function=variants.scaled)), images(9)
    compute(model, x, tmp_path / "k")
    monkeypatch.setattr(variants, "SCALE", 3.0)
    refused(tmp_path / "k", model, x)
    monkeypatch.undo()
    monkeypatch.setattr(variants, "scaled", torch.tanh)  # nobody looks it up by that name
    assert compute(model, x, tmp_path / "k").complete


class Take:
    def __init__(self, *which: int) -> None:
        self.which = which

    def __call__(self, result: Tensor) -> Tensor:
        return result[:, self.which]


OUTPUTS: list[tuple[Any, Any]] = [
    (lambda r: r[:, :2], lambda r: r[:, 1:]),
    (lambda r: r, lambda r: 2 * r),
    (lambda r: r, lambda r: r.where(r < 50, 2 * r)),
    (None, lambda r: r.exp()),
    (Take(0, 1), Take(0, 2)),
    (partial(torch.mul, other=1), partial(torch.mul, other=3)),
    (itemgetter(slice(None)), itemgetter((slice(None), slice(0, 2)))),
    (torch.sin, torch.cos),
]


@pytest.mark.parametrize("number", range(len(OUTPUTS)))
def test_another_output_is_refused(number: int, tmp_path: Path) -> None:
    one, two = OUTPUTS[number]
    model, x, path = network(), images(9), tmp_path / "kernel.zarr"
    compute(model, x, path, output=one)
    refused(path, model, x, output=two)
    assert compute(model, x, path, output=one).complete


class Transformed(Dataset[Any]):
    def __init__(self, x: Tensor, by: Any) -> None:
        self.x, self.by = x, by

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.by(self.x[index])


class Several(nn.Module):
    """Takes several inputs, and arguments that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, a: Tensor, b: Any = None, c: Any = None, table: Any = None, power: int = 1) -> Tensor:
        for more in (b, c):
            if isinstance(more, (tuple, list)):
                a = a + sum((i + 1) * part for i, part in enumerate(more))
            elif more is not None:
                a = a + 3 * more
        if table is not None:
            a = a + float(table[len(table) // 2])
        return self.layer(a) ** power


def several() -> nn.Module:
    torch.manual_seed(0)
    return Several().eval()


def changed(x: Tensor, index: tuple[int, ...], by: float = 1e-3) -> Tensor:
    x = x.clone()
    x[index] += by
    return x


A, B, C = (torch.randn(9, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
TABLE = np.linspace(0, 1, 5000)
INPUTS: dict[str, tuple[Any, Any]] = {
    "one number of one sample": (A, changed(A, (5, 3))),
    "sign of a zero": (changed(A, (5, 3), -A[5, 3]), -changed(-A, (5, 3), A[5, 3])),
    "order": (A, A[[0, 2, 1, 3, 4, 5, 6, 7, 8]]),
    "order of the inputs": ((A, B), (B, A)),
    "grouping of the inputs": ((A, (B, C)), (A, B, C)),
    "grouping of the inputs, left": ((A, (B,), C), (A, (B, C), None)),
    "order of inner inputs": ({"a": A, "b": (B, C)}, {"a": A, "b": (C, B)}),
    "name of an input": ({"a": A, "b": B}, {"a": A, "c": B}),
    "number beside tensors": ({"a": A, "power": 1}, {"a": A, "power": 2}),
    "array beside tensors": ({"a": A, "table": TABLE}, {"a": A, "table": np.where(np.arange(5000) == 2500, 9, TABLE)}),
    "transformation": (Transformed(A, lambda x: x), Transformed(A, lambda x: x.flip(0))),
}


@pytest.mark.parametrize("name", INPUTS)
def test_other_samples_are_refused(name: str, tmp_path: Path) -> None:
    one, two = INPUTS[name]
    compute(several(), one, tmp_path / "k")
    assert "samples:" in refused(tmp_path / "k", several(), two)
    assert compute(several(), one, tmp_path / "k").complete


def test_another_input_or_precision_is_refused(tmp_path: Path) -> None:
    pairs = TensorDataset(A, B, C)
    compute(several(), pairs, tmp_path / "k", input=lambda item: item[0])
    assert "samples:" in refused(tmp_path / "k", several(), pairs, input=lambda item: item[1])
    assert compute(several(), pairs, tmp_path / "k", input=itemgetter(0)).complete  # the same samples
    numbers = torch.arange(9).reshape(9, 1) % 4

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 3)

        def forward(self, index: Tensor) -> Tensor:
            return self.table(index.long())[:, 0]

    compute(Table(), numbers, tmp_path / "t")
    table = Table()
    table.load_state_dict(table.state_dict())
    compute(table, numbers, tmp_path / "u")
    assert "samples:" in refused(tmp_path / "u", table, numbers.int())
    assert "samples:" in refused(tmp_path / "u", table, numbers.float())


def test_samples_that_change_from_one_reading_to_the_next(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    with pytest.raises(TangentError, match="change from one read"):
        compute(several(), Transformed(A, lambda x: x + 1e-5 * numbers.normal()), tmp_path / "k")
    with pytest.raises(TangentError, match="when a third joins"):  # so large that the engine sees it first
        compute(several(), Transformed(A, lambda x: x + numbers.normal()), tmp_path / "k")
    with pytest.raises(TangentError, match="random numbers"):
        compute(several(), Transformed(A, lambda x: x + torch.randn(8)), tmp_path / "k")
    assert not (tmp_path / "k").exists()


def test_rounding_of_another_machine_is_no_difference(tmp_path: Path) -> None:
    path = make(tmp_path / "k").path
    content = json.loads((path / "zarr.json").read_text())
    behavior = content["attributes"]["tangentlab"]["identity"]["behavior"]
    assert behavior["precision"] == "double"
    original = json.dumps(content)
    for factor, accepted in ((1 + 1e-9, True), (1 + 1e-4, False)):
        content = json.loads(original)
        behavior = content["attributes"]["tangentlab"]["identity"]["behavior"]
        behavior["kernel"] = [[factor * value for value in row] for row in behavior["kernel"]]
        behavior["values"] = [factor * value for value in behavior["values"]]
        (path / "zarr.json").write_text(json.dumps(content))
        if accepted:
            assert make(path).complete
        else:
            assert "kernel of a few samples" in refused(path, network(), images())


def test_a_model_that_has_no_copy_in_double_precision(tmp_path: Path) -> None:
    """It is compared in its own precision, and the manifest says so."""

    class Single(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.layer, self.state = nn.Linear(64, 3), {"by": by}

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.flatten(1).float() * self.state["by"])

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("there is one of it")

    class Half(Single):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).bfloat16().to(x)

    for kind, precision in ((Single, "single"), (Half, "half")):
        path = tmp_path / precision
        compute(variants.outputs(kind(1.0)), images(9), path)
        assert StoredKernel(path).manifest.identity.behavior.precision == precision  # type: ignore[union-attr]
        assert compute(variants.outputs(kind(1.0)), images(9), path).complete
        refused(path, variants.outputs(kind(1.5)), images(9))


def test_a_copy_that_loses_precision_inside_is_compared_with_less(tmp_path: Path) -> None:
    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.flatten(1).float().to(x.dtype))

    for dtype in (None, torch.float64):
        kernel = compute(variants.outputs(Inside()), images(9), tmp_path / str(dtype), dtype=dtype)
        assert kernel.manifest.identity.behavior.precision == "single"  # type: ignore[union-attr]


def test_little_memory_is_no_obstacle(tmp_path: Path) -> None:
    kernel = make(tmp_path / "k", memory_budget="700KiB")
    assert make(kernel.path, memory_budget="1GiB").complete
    again = make(tmp_path / "again", memory_budget="1GiB")
    assert make(again.path, memory_budget="700KiB").complete
    refused(again.path, network(seed=1), images(), memory_budget="700KiB", tile=10)


def test_outputs_that_cancel(tmp_path: Path) -> None:
    """Readouts of zero have no scale of their own: their rounding is no difference."""

    class Difference(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = network(), network()

        def forward(self, x: Tensor) -> Tensor:
            return self.one(x) - self.two(x) + 1e-18 * x.mean((1, 2, 3))[:, None]

    path = compute(Difference().eval(), images(9), tmp_path / "k").path
    content = json.loads((path / "zarr.json").read_text())
    content["attributes"]["tangentlab"]["identity"]["behavior"]["values"] = [1e-16, -1e-16, 1e-17]
    (path / "zarr.json").write_text(json.dumps(content))
    assert compute(Difference().eval(), images(9), path).complete


def test_a_store_of_an_earlier_version(tmp_path: Path) -> None:
    """It can be read, and is not added to: it does not say what its network computes."""
    path = make(tmp_path / "k", engine=Shard(0, 2)).path
    content = json.loads((path / "zarr.json").read_text())
    manifest = content["attributes"]["tangentlab"]
    manifest["format"] = 1
    del manifest["identity"]
    (path / "zarr.json").write_text(json.dumps(content))
    assert 0 < StoredKernel(path).progress < 1
    for attempt in (make, partial(repair, network(), images()), partial(append, network(), images(60))):
        with pytest.raises(TangentError, match="does not say what its network computes") as refusal:
            attempt(path)
        assert "another folder" in refusal.value.remedy
    assert StoredKernel(path).manifest.identity is None


def test_another_python_is_told(tmp_path: Path) -> None:
    """Bytecode of two versions of Python cannot be compared; everything else still is."""
    path = make(tmp_path / "k").path
    content = json.loads((path / "zarr.json").read_text())
    identity = content["attributes"]["tangentlab"]["identity"]
    identity["python"], identity["code"] = "cpython-39", {"other": "0123"}
    (path / "zarr.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="cpython-39"):
        assert make(path).complete
    with pytest.warns(UserWarning, match="cpython-39"), pytest.raises(TangentError, match="holds another kernel"):
        compute(variants.mlp(nn.ReLU()), images(), path)


SCRIPT = """
    import sys, torch
    from torch import nn
    from tangentlab import TangentError, store

    def act(x):
        return x.{act}()

    class Net(nn.Module):
        names = {{"b", "a", "c"}}

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.one, self.act = nn.Linear(6, 3), act
            self.kinds = {{"x", "y", "z"}}

        def forward(self, x):
            return self.act(self.one(x)) * len(self.kinds | self.names)

    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(1))
    try:
        store.compute(Net().eval(), x, sys.argv[1], tile=4, output=lambda r: r + 1)
    except TangentError as error:
        print(error)
        sys.exit(3)
"""


def test_processes_agree(tmp_path: Path) -> None:
    """Two processes with other seeds for hashing recognize a store; a third whose script was edited does not."""
    found = []
    for number, act in enumerate(["tanh", "tanh", "sin"]):
        script = tmp_path / f"script{number}.py"
        script.write_text(textwrap.dedent(SCRIPT.format(act=act)))
        command = [sys.executable, str(script), str(tmp_path / "k")]
        found.append(subprocess.run(command, capture_output=True, text=True, env=_environment(number), check=False))
    assert [done.returncode for done in found] == [0, 0, 3], [done.stderr for done in found]
    assert "holds another kernel" in found[2].stdout


def _environment(seed: int) -> dict[str, str]:
    import os

    return os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}


def tamper(path: Path) -> None:
    """Change what the store says its network computes, as if a worker had an older file of the model."""
    content = json.loads((path / "zarr.json").read_text())
    identity = content["attributes"]["tangentlab"]["identity"]
    identity["structure"] = identity["structure"].replace("Tanh", "ReLU")
    (path / "zarr.json").write_text(json.dumps(content))


def test_every_worker_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose model is another one than that of the process that sent it refuses too."""
    from tangentlab.store import _compute

    run = _compute.run_tasks

    def tampered(places: Any, request: Any, place: Any, *rest: Any) -> None:
        tamper(place.where)
        run(places, request, place, *rest)

    monkeypatch.setattr(_compute, "run_tasks", tampered)
    with process_pool(1) as pool, pytest.raises(TangentError, match="holds another kernel"):
        make(tmp_path / "k", engine=Executor(pool, 1))
    assert not list((tmp_path / "k").glob("c/*/*"))


def test_a_store_that_is_replaced_gets_no_tile_of_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removes the folder and begins another kernel there while a process still works on the old one."""
    from tangentlab.store import _worker

    path, contract, count = tmp_path / "k", _worker.contract, []

    def replacing(*arguments: Any) -> None:
        count.append(1)
        if len(count) == 4:
            monkeypatch.setattr(_worker, "contract", contract)
            while len(list(path.glob("c/*/*"))) < 3:  # the tiles before are on their way
                time.sleep(0.01)
            path.rename(tmp_path / "removed")
            compute(network(seed=1), images(), path, tile=10, engine=Shard(0, 9))
        contract(*arguments)

    monkeypatch.setattr(_worker, "contract", replacing)
    with pytest.raises(TangentError, match="has been replaced"):
        make(path)
    monkeypatch.undo()
    assert not StoredKernel(path).complete
    whole = compute(network(seed=1), images(), path).to_tensor()
    assert torch.equal(whole, compute(network(seed=1), images(), tmp_path / "other", tile=10).to_tensor())
