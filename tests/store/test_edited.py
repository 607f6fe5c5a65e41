"""A zarr.json that somebody edited, and folders that are not what they seem: a refusal, soon, or the same kernel."""

import copy
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tangentlab import TangentError, store
from tangentlab.store import StoredKernel, pack
from tests.store.problems import make

SOON = 10
"""Seconds in which everything must have been said."""


@contextmanager
def soon() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise AssertionError(f"still busy after {SOON} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SOON)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("store") / "kernel.zarr").path


@pytest.fixture(scope="module")
def whole(made: Path) -> torch.Tensor:
    return StoredKernel(made).to_tensor()


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "kernel.zarr"))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    content = json.loads((path / "zarr.json").read_text())
    change(content)
    (path / "zarr.json").write_text(json.dumps(content))


def both(size: int, tile: int | None = None) -> Callable[[Any], None]:
    """A shape, and a manifest that agrees with it."""

    def change(content: Any) -> None:
        manifest = content["attributes"]["tangentlab"]
        content["shape"] = [size, size]
        manifest["samples"][-1]["stop"] = size
        if tile is not None:
            manifest["tile"] = tile
            content["chunk_grid"]["configuration"]["chunk_shape"] = [tile, tile]

    return change


def read_everything(path: Path) -> torch.Tensor:
    """Every way into a store."""
    kernel = StoredKernel(path)
    repr(kernel)
    list(kernel.missing)
    kernel.verify()
    kernel.diagonal()
    kernel @ torch.ones(len(kernel))
    return kernel.to_tensor()


@pytest.mark.parametrize(
    "change",
    [
        both(10**12),
        both(10**18),
        both(10**30),
        both(10**6),
        both(10**12, 10**9),
        both(10**7, 10**7),
        both(10**30, 10**30),
        both(54),
        both(1000),
        both(53, 11),
        both(53, 10**6),
        lambda c: c.update(shape=[10**12, 10**12]),
        lambda c: c.update(shape=[53]),
        lambda c: c.update(shape=[]),
        lambda c: c.update(shape=[-53, 53]),
        lambda c: c.update(shape=[53.0, 53.5]),
        lambda c: c.update(data_type="float64"),
        lambda c: c.update(data_type="int32"),
        lambda c: c.update(data_type="uint32"),
        lambda c: c.update(fill_value=0.0),
        lambda c: c.update(chunk_key_encoding={"name": "default", "configuration": {"separator": "."}}),
        lambda c: c.update(chunk_key_encoding={"name": "v2", "configuration": {"separator": "/"}}),
        lambda c: c.update(chunk_key_encoding={"name": "v2"}),
        lambda c: c.update(codecs=c["codecs"][:1]),
        lambda c: c.update(codecs=[{"name": "bytes", "configuration": {"endian": "big"}}, c["codecs"][1]]),
        lambda c: c.update(codecs=[{"name": "transpose", "configuration": {"order": [1, 0]}}, *c["codecs"]]),
        lambda c: c.update(codecs=[*c["codecs"], {"name": "gzip", "configuration": {"level": 1}}]),
        lambda c: c["attributes"]["tangentlab"].update(dtype="float64"),
        lambda c: c["attributes"]["tangentlab"].update(dtype="float16"),
        lambda c: c["attributes"]["tangentlab"].update(dtype=["float32"]),
        lambda c: c["attributes"]["tangentlab"].update(tile=10.0),
        lambda c: c["attributes"]["tangentlab"].update(tile=True),
        lambda c: c["attributes"]["tangentlab"].update(batch="ten"),
        lambda c: c["attributes"]["tangentlab"].update(readouts=1.0),
        lambda c: c["attributes"]["tangentlab"].update(samples=[{"stop": 53.0, "sha256": "0"}]),
        lambda c: c["attributes"]["tangentlab"].update(
            samples=[{"stop": -3, "sha256": ""}, {"stop": 53, "sha256": ""}]
        ),
        lambda c: c["attributes"]["tangentlab"].update(
            samples=[{"stop": 60, "sha256": ""}, {"stop": 53, "sha256": ""}]
        ),
        lambda c: c["attributes"]["tangentlab"].update(provenance=[1]),
        lambda c: c["attributes"]["tangentlab"].update(versions=7),
        lambda c: c["attributes"]["tangentlab"].update(identity=7),
        lambda c: c["attributes"]["tangentlab"]["identity"].pop("behavior"),
        lambda c: c["attributes"]["tangentlab"]["identity"]["behavior"].update(samples=[10**9]),
        lambda c: c["attributes"]["tangentlab"]["identity"]["behavior"].update(precision="none"),
        lambda c: c["attributes"]["tangentlab"]["identity"]["behavior"].update(kernel=[[1.0]]),
        lambda c: c["attributes"].update(tangentlab=None),
        lambda c: c["attributes"].update(tangentlab=[]),
        lambda c: c.update(attributes=[]),
    ],
)
def test_an_edited_store_is_refused_soon(change: Callable[[Any], Any], path: Path) -> None:
    edit(path, change)
    with soon(), pytest.raises(TangentError):
        read_everything(path)
    with soon(), pytest.raises(TangentError):
        make(path)


def test_values_that_claim_to_be_of_another_kind(path: Path, whole: torch.Tensor) -> None:
    """Numbers of the same size and checksum would be read as others."""
    edit(path, lambda c: (c.update(data_type="int32"), c["attributes"]["tangentlab"].update(dtype="int32")))
    with pytest.raises(TangentError):
        read_everything(path)


def places(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a JSON document."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [where, *(place for key, part in inner for place in places(part, (*where, key)))]


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from(["", "float64", "float32", "NaN", "big", "v2", ".", "/", "\0", "c" * 5000]),
    st.lists(st.integers(-3, 10**13), max_size=3),
    st.dictionaries(st.sampled_from(["name", "configuration", "stop"]), st.integers(), max_size=2),
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_one_change_is_refused_or_changes_nothing(
    data: Any, made: Path, whole: torch.Tensor, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("edited") / "kernel.zarr"
    path.mkdir()
    (path / "c").symlink_to(made / "c")
    content = json.loads((made / "zarr.json").read_text())
    where = data.draw(st.sampled_from([place for place in places(content) if place]))
    parent = content
    for key in where[:-1]:
        parent = parent[key]
    if data.draw(st.booleans()):
        del parent[where[-1]]
    else:
        parent[where[-1]] = copy.deepcopy(data.draw(ODD))
    (path / "zarr.json").write_text(json.dumps(content))
    try:
        with soon():
            found = read_everything(path)
    except TangentError:
        return
    assert torch.equal(found, whole)


def test_an_edited_packed_store(made: Path, tmp_path: Path) -> None:
    import zipfile

    packed = pack(made, tmp_path / "k.zip")
    changes: list[Callable[[Any], Any]] = [
        both(10**12),
        lambda c: c.update(chunk_key_encoding={"name": "default", "configuration": {"separator": "."}}),
        lambda c: c.update(data_type="float64"),
        lambda c: c.update(codecs=c["codecs"][:1] + c["codecs"][2:]),
    ]
    for number, change in enumerate(changes):
        edited = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(packed) as source, zipfile.ZipFile(edited, "w") as target:
            for name in source.namelist():
                body = source.read(name)
                if name == "zarr.json":
                    content = json.loads(body)
                    change(content)
                    body = json.dumps(content).encode()
                target.writestr(name, body)
        with soon(), pytest.raises(TangentError):
            read_everything(edited)
        with soon(), pytest.raises(TangentError):
            store.copy(edited, tmp_path / f"{number}.zarr")


def test_a_tile_that_vanishes_is_no_nan(path: Path) -> None:
    kernel = StoredKernel(path)
    assert kernel.complete
    (path / "c" / "1" / "2").unlink()
    for read in (kernel.to_tensor, lambda: kernel[15], lambda: kernel @ torch.ones(53)):
        with pytest.raises(TangentError, match="1/2"):
            read()


def test_a_nan_with_a_right_checksum_is_not_handed_out(path: Path) -> None:
    import zarr

    zarr.open(path, mode="r+")[12, 25] = float("nan")
    kernel = StoredKernel(path)
    assert kernel.verify().damaged == [(1, 2)]
    for read in (kernel.to_tensor, lambda: kernel[15], lambda: kernel @ torch.ones(53)):
        with pytest.raises(TangentError, match="1/2"):
            read()


def test_links(made: Path, whole: torch.Tensor, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "to empty").symlink_to(tmp_path / "empty")
    (tmp_path / "to nothing").symlink_to(Path("later") / "k.zarr")
    (tmp_path / "to a store").symlink_to(made)
    (tmp_path / "twice").symlink_to(tmp_path / "to empty")
    for name in ("to empty", "to nothing", "to a store", "twice"):
        assert torch.equal(make(tmp_path / name).to_tensor(), whole)
        assert (tmp_path / name).is_symlink()
    assert StoredKernel(tmp_path / "empty").complete
    assert StoredKernel(tmp_path / "later" / "k.zarr").complete
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "to a file").symlink_to(tmp_path / "file")
    for name in ("a", "to a file", os.path.join("file", "k.zarr")):
        with pytest.raises(TangentError):
            make(tmp_path / name)
        with pytest.raises(TangentError):
            StoredKernel(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
