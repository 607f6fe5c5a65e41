"""``tangentlab select``: what it prints and writes, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from tangentlab import TangentError, data, models, select, sketch
from tangentlab.cli import app

POOL = ("--model", "mlp", "-o", "hidden=(16,)", "--data", "digits", "--n-train", "80", "-q", "--json")


def facts(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["select", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_rows_are_those_of_the_library(tmp_path: Path) -> None:
    np.save(tmp_path / "labeled.npy", [3, 4])
    found = facts(*POOL, "--method", "lcmd", "-n", "7", "-k", "32", "--labeled", str(tmp_path / "labeled.npy"))
    digits = data.load("digits", n_train=80).train
    network = models.build("mlp", input_shape=digits.input_shape, hidden=(16,), seed=0).eval()
    expected = select.lcmd(sketch(network, digits, 32), 7, labeled=[3, 4])
    assert found["rows"] == expected.indices.tolist()
    assert found["samples"] == 80


@pytest.mark.parametrize("method", ["largest-variance", "max-determinant", "kmeans-plus-plus", "bait"])
def test_files_and_shares(method: str, tmp_path: Path) -> None:
    found = facts(*POOL, "--method", method, "-n", "8", "-k", "16", "--per-class", "--out", str(tmp_path))
    assert pd.read_csv(tmp_path / "selection.csv")["row"].tolist() == found["rows"]
    assert (tmp_path / "selection.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / "record.json").read_text())["method"] == found["method"]


def test_a_stored_kernel_is_taken_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "kernel.zarr")
    network = ("--model", "mlp", "-o", "hidden=(16,)", "--data", "digits", "--n-train", "40")
    made = CliRunner().invoke(app, ["kernel", "compute", *network, "--out", path, "-q"], catch_exceptions=False)
    assert made.exit_code == 0, made.output
    found = facts("--kernel", path, "-n", "5", "--json", "-q", "--out", str(tmp_path / "out"))
    assert len(set(found["rows"])) == 5
    assert (tmp_path / "out" / "selection.png").read_bytes()[:4] == b"\x89PNG"  # their places in the pool
    with pytest.raises(TangentError, match="--per-class"):
        facts("--kernel", path, "--per-class")


def test_files_of_ones_own(tmp_path: Path) -> None:
    torch.save(torch.randn(30, 1, 8, 8), tmp_path / "x.pt")
    found = facts(
        "--model", "mlp", "--data", str(tmp_path / "x.pt"), "-n", "4", "-k", "16", "--per-class", "--json", "-q"
    )
    assert len(found["rows"]) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "best"), "no method"),
        (("--method", "lcmd", "--ridge", "1"), "takes no --ridge"),
        (("-n", "81"), "from 1 to 80"),
        (("--ridge", "-1"), "not a nonnegative number"),
    ],
)
def test_bad_options_are_refused(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(TangentError, match=words):
        facts(*POOL, *arguments)
