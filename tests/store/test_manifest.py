"""A store is recognized, or refused with what differs."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from torch import Tensor

from tangentlab import TangentError
from tangentlab.store import StoredKernel, append, compute, repair
from tangentlab.store._manifest import _name_of
from tests.store.problems import images, make, network


def first_output(result: Tensor) -> Tensor:
    return result[:, :1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("store") / "kernel.zarr", provenance={"note": "mine"}).path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "kernel.zarr"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": network(seed=1)}, ["weights:"]),
        ({"x": images(seed=2)}, ["samples:"]),
        ({"x": images(54)}, ["number of samples: 53 there, 54 here", "samples:"]),
        ({"x": images(52)}, ["number of samples: 53 there, 52 here"]),
        ({"readout": "trace"}, ["readout: pntk there, trace here"]),
        ({"readout": "full", "tile": 5}, ["readout:", "readouts: 1 there, 3 here", "tile: 10 there, 5 here"]),
        (
            {"parameters": "0"},
            ["parameters that count: 3.weight (60, 144), 3.bias (60,), 5.weight (3, 60) and 1 more there, no other"],
        ),
        ({"dtype": torch.float64}, ["dtype: float32 there, float64 here"]),
        ({"batch_size": 3}, ["batch size: 10 there, 3 here"]),
        ({"output": first_output}, ["output:", "first_output here"]),
    ],
)
def test_another_kernel_is_refused_by_name(change: dict[str, Any], named: list[str], path: Path) -> None:
    before = (path / "zarr.json").read_bytes()
    arguments = {"model": network(), "x": images()} | change
    with pytest.raises(TangentError, match="holds another kernel") as refusal:
        compute(arguments.pop("model"), arguments.pop("x"), path, **arguments)
    for text in named:
        assert text in refusal.value.what
    for text in ("weights:", "dtype:", "tile:", "readout:"):
        assert (text in refusal.value.what) == any(name.startswith(text) for name in named) or text == "weights:"
    assert (path / "zarr.json").read_bytes() == before


def test_the_manifest_says_what_it_is(made: Path) -> None:
    manifest = StoredKernel(made).manifest
    assert manifest.provenance == {"note": "mine"}
    assert manifest.versions["torch"] == torch.__version__
    assert manifest.model.startswith("Sequential, ")
    assert manifest.tile == 10
    assert len(manifest.weights) == len(manifest.samples[0].sha256) == 64


def test_other_versions_are_told(path: Path) -> None:
    content = json.loads((path / "zarr.json").read_text())
    content["attributes"]["tangentlab"]["versions"]["torch"] = "1.0"
    (path / "zarr.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=r"started with PyTorch 1\.0"):
        make(path)


@pytest.mark.parametrize("length", [0, 1, 200, -2])
def test_a_half_written_manifest(length: int, path: Path) -> None:
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text[:length])
    for attempt in (lambda: StoredKernel(path), lambda: make(path)):
        with pytest.raises(TangentError, match="damaged"):
            attempt()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("weights"), "incomplete"),
        (lambda m: m.update(tile=0), "incomplete"),
        (lambda m: m.update(tile="ten"), "incomplete"),
        (lambda m: m.update(samples=[]), "incomplete"),
        (lambda m: m.update(format=99), "format 99"),
        (lambda m: m.update(tile=11), "contradicts"),
        (lambda m: m.update(dtype="int8"), "contradicts"),
    ],
)
def test_a_manifest_that_is_wrong(change: Any, message: str, path: Path) -> None:
    content = json.loads((path / "zarr.json").read_text())
    change(content["attributes"]["tangentlab"])
    (path / "zarr.json").write_text(json.dumps(content))
    with pytest.raises(TangentError, match=message):
        StoredKernel(path)


def test_something_else_is_not_touched(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "group")
    zarr.create_array(tmp_path / "array", shape=(3, 3), dtype="float32")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("more of it")
    for name, message in [
        ("group", "group that tangentlab did not make"),
        ("array", "array that tangentlab did not make"),
        ("folder", "not a stored kernel"),
        ("file", "not a stored kernel"),
    ]:
        before = sorted(tmp_path.rglob("*"))
        for attempt in (lambda name=name: StoredKernel(tmp_path / name), lambda name=name: make(tmp_path / name)):
            with pytest.raises(TangentError, match=message):
                attempt()
        assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(TangentError, match="does not exist"):
        StoredKernel(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert make(tmp_path / "empty").complete


def test_append(path: Path) -> None:
    old = {p: p.stat().st_ino for p in path.glob("c/*/*")}
    before = StoredKernel(path).to_tensor()
    kernel = append(network(), images(87), path)
    fresh = compute(network(), images(87), path.parent / "fresh.zarr", tile=10)
    torch.testing.assert_close(kernel.to_tensor(), fresh.to_tensor(), rtol=1e-5, atol=1e-4)
    assert torch.equal(kernel.to_tensor()[:53, :53], before)
    assert torch.equal(kernel.to_tensor(), kernel.to_tensor().T)
    written = {p for p, inode in old.items() if p.stat().st_ino != inode}
    assert written == {p for p in old if p.name == "5"}  # the column of the panel that was not full
    assert [segment.stop for segment in kernel.manifest.samples] == [53, 87]
    assert compute(network(), images(87), path).complete  # the same samples in one piece are recognized
    kernel = append(network(), images(90), path)
    assert kernel.shape == (90, 90)
    assert torch.equal(kernel.to_tensor()[:53, :53], before)
    assert kernel.verify().good


def test_an_interrupted_append_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tangentlab.store import _worker

    plain, calls = _worker.contract, []

    def interrupted(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 5:
            raise KeyboardInterrupt
        plain(*arguments)

    monkeypatch.setattr(_worker, "contract", interrupted)
    with pytest.raises(KeyboardInterrupt):
        append(network(), images(87), path)
    monkeypatch.undo()
    part = StoredKernel(path)
    assert part.shape == (87, 87)
    assert 0 < part.progress < 1
    with pytest.raises(TangentError, match="not computed yet"):
        part.to_tensor()
    whole = append(network(), images(87), path)
    again = append(network(), images(87), shutil.copytree(make(path.parent / "b").path, path.parent / "c"))
    assert torch.equal(whole.to_tensor(), again.to_tensor())


def test_what_cannot_be_appended(path: Path) -> None:
    other = torch.cat([images(53, seed=5), images(60)[53:]])
    with pytest.raises(TangentError, match="samples:"):
        append(network(), other, path)
    with pytest.raises(TangentError, match="number of samples"):
        append(network(), images(40), path)
    with pytest.raises(TangentError, match="does not exist"):
        append(network(), images(60), path.parent / "nothing.zarr")
    assert StoredKernel(path).shape == (53, 53)


def test_a_flipped_bit_is_found_named_and_only_its_tile_computed_again(path: Path) -> None:
    expected = StoredKernel(path).to_tensor()
    chunk = path / "c" / "1" / "3"
    content = bytearray(chunk.read_bytes())
    content[100] ^= 4
    chunk.write_bytes(content)
    before = {p: p.stat().st_ino for p in path.glob("c/*/*")}
    found = StoredKernel(path).verify()
    assert found.damaged == [(1, 3)]
    assert "tile 1/3 (rows 10 to 19, columns 30 to 39)" in str(found)
    with pytest.raises(TangentError, match="Tile 1/3 is damaged"):
        StoredKernel(path).to_tensor()
    with pytest.raises(TangentError, match="holds another kernel"):
        repair(network(seed=3), images(), path)
    assert chunk.read_bytes() == content
    kernel = repair(network(), images(), path)
    assert torch.equal(kernel.to_tensor(), expected)
    assert {p for p, inode in before.items() if p.stat().st_ino != inode} == {chunk}


@pytest.mark.parametrize("damage", ["truncated", "empty", "nan"])
def test_other_damage(damage: str, path: Path) -> None:
    expected = StoredKernel(path).to_tensor()
    chunk = path / "c" / "0" / "5"
    if damage == "nan":
        zarr.open(path, mode="r+")[0:5, 50:53] = np.nan
    else:
        chunk.write_bytes(chunk.read_bytes()[: 99 if damage == "truncated" else 0])
    assert StoredKernel(path).verify().damaged == [(0, 5)]
    assert torch.equal(repair(network(), images(), path).to_tensor(), expected)


def test_outputs_are_named_alike_in_every_process() -> None:
    from functools import partial
    from operator import attrgetter

    class Take:
        def __call__(self, outputs: Any) -> Any:
            return outputs[0]

    assert _name_of(attrgetter("logits")) == "operator.attrgetter('logits')"
    assert _name_of(partial(max, key=1)) == "partial(builtins.max, (), {'key': 1})"
    assert "0x" not in _name_of(Take())
    assert _name_of(Take()).endswith("Take")
