"""``tangentlab attribute`` and its page."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from tangentlab import TangentError, models, report
from tangentlab.attribution import Attribution
from tests.test_cli import run

OPTIONS = ["attribute", "--model", "mlp", "--data", "digits", "--n-train", "60", "--n-test", "8", "-q"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("weights")
    files = []
    for seed in range(2):
        network = models.build("mlp", input_shape=(1, 8, 8), outputs=10, seed=seed)
        torch.save(network.state_dict(), folder / f"{seed}.pt")
        files += ["--checkpoint", str(folder / f"{seed}.pt")]
    return files


def test_scores_table_and_page(weights: list[str], tmp_path: Path) -> None:
    done = run(*OPTIONS, *weights, "--method", "trak", "-k", "64", "--show", "1,5", "--out", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["checkpoints"], facts["training_samples"], facts["test_samples"]) == (2, 60, 8)
    assert {row["test"] for row in facts["top"]} == {1, 5}
    result = Attribution.load(tmp_path)
    assert result.scores.shape == (8, 60)
    page = (tmp_path / "attribution.html").read_text()
    assert page.count("<article") == 2
    assert page.count("<img") == 2 * (1 + 16)
    assert "<script" not in page
    assert "default-src 'none'" in page
    best = int(result.top(1, 1).indices[0])
    assert f"no. {best}<" in page
    assert run(*OPTIONS, *weights, "-k", "64", "--out", str(tmp_path)).returncode == 0  # resumes
    other = run(*OPTIONS, *weights, "-k", "32", "--out", str(tmp_path))
    assert other.returncode == 1
    assert "something else" in other.stderr


def test_own_files_with_texts(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", random.normal(size=(20, 1, 4, 4)).astype("float32"))
    np.save(tmp_path / "y.npy", random.integers(0, 3, 20))
    torch.save(models.build("mlp", input_shape=(1, 4, 4), outputs=3, seed=0).state_dict(), tmp_path / "w.pt")
    lines = [f"text <{n}>" for n in range(20)]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    files = ["--data", "x.npy", "--targets", "y.npy", "--n-train", "15", "--checkpoint", "w.pt", "--texts", "texts.txt"]
    command = ["attribute", "--model", "mlp", "-o", "outputs=3", *files, "--method", "exact", "--out", "out", "-q"]
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "attribution.html").read_text()
    assert "text &lt;15&gt;" in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "magic"], "no method"),
        (["--method", "exact", "-k", "3"], "-k was given with --method exact"),
        (["--ridge", "much"], "ridge"),
        (["--show", "99"], "numbered 0 to 7"),
        (["--texts", "absent.txt"], "absent.txt"),
        (["--targets", "absent.npy"], "--labels"),
        (["--method", "gradient", "--rate", "0.1"], "2 checkpoints and 1 rates"),
    ],
)
def test_refusals(weights: list[str], options: list[str], said: str) -> None:
    done = run(*OPTIONS, *weights, *options)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert said in re.sub(r"\s+", " ", done.stderr)


def test_a_checkpoint_is_needed() -> None:
    done: subprocess.CompletedProcess[str] = run(*OPTIONS)
    assert done.returncode == 1
    assert "--checkpoint is missing" in done.stderr


def test_the_page_shows_what_is_no_image_by_number(tmp_path: Path) -> None:
    result = Attribution(torch.tensor([[0.5, -1.0, 2.0]]), {"name": "exact", "ridge": "loo"})
    path = report.attribution(result, torch.zeros(3, 7), torch.zeros(1, 7), tmp_path / "page.html", k=1)
    page = path.read_text()
    assert "no. 2<" in page
    assert "no. 1<" in page
    assert "<img" not in page
    with pytest.raises(TangentError, match="no test sample"):
        report.attribution(result, torch.zeros(3, 7), torch.zeros(1, 7), tmp_path / "page.html", tests=[4])
