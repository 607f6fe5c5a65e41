"""``tangentlab attribute`` and its page."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tangentlab import TangentError, models, report
from tangentlab.attribution import Attribution
from tangentlab.cli import app

OPTIONS = ("attribute", "--model", "mlp", "--data", "digits", "--n-train", "60", "--n-test", "8", "-q")


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


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
    out = str(tmp_path / "out")
    facts = json.loads(call(*OPTIONS, *weights, "-k", "64", "--show", "1,5", "--out", out, "--json"))
    assert (facts["checkpoints"], facts["training_samples"], facts["test_samples"]) == (2, 60, 8)
    assert {row["test"] for row in facts["top"]} == {1, 5}
    result = Attribution.load(out)
    assert result.scores.shape == (8, 60)
    page = (tmp_path / "out" / "attribution.html").read_text()
    assert page.count("<article") == 2
    assert page.count("<img") == 2 * (1 + 16)
    assert "<script" not in page
    assert "default-src 'none'" in page
    best = int(result.top(1, 1).indices[0])
    assert f"no. {best}<" in page
    assert "trak" in call(*OPTIONS, *weights, "-k", "64", "--out", out)  # resumes
    with pytest.raises(TangentError, match="something else"):
        call(*OPTIONS, *weights, "-k", "32", "--out", out)


def test_own_files_with_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    np.save("x.npy", random.normal(size=(20, 1, 4, 4)).astype("float32"))
    np.save("y.npy", random.integers(0, 3, 20))
    torch.save(models.build("mlp", input_shape=(1, 4, 4), outputs=3, seed=0).state_dict(), "w.pt")
    Path("texts.txt").write_text("\n".join(f"text <{n}>" for n in range(20)))
    files = ("--data", "x.npy", "--targets", "y.npy", "--n-train", "15", "--checkpoint", "w.pt", "--texts", "texts.txt")
    call("attribute", "--model", "mlp", "-o", "outputs=3", *files, "--method", "exact", "--out", "out", "-q")
    page = Path("out/attribution.html").read_text()
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
    with pytest.raises(TangentError) as error:
        call(*OPTIONS, *weights, *options)
    assert said in str(error.value)


def test_a_checkpoint_is_needed() -> None:
    with pytest.raises(TangentError, match="--checkpoint is missing"):
        call(*OPTIONS)


def test_the_page_shows_what_is_no_image_by_number(tmp_path: Path) -> None:
    result = Attribution(torch.tensor([[0.5, -1.0, 2.0]]), {"name": "exact", "ridge": "loo"})
    path = report.attribution(result, torch.zeros(3, 7), torch.zeros(1, 7), tmp_path / "page.html", k=1)
    page = path.read_text()
    assert "no. 2<" in page
    assert "no. 1<" in page
    assert "<img" not in page
    several = ({"input_ids": torch.zeros(n, 4), "attention_mask": torch.ones(n, 4)} for n in (3, 1))
    assert report.attribution(result, *several, tmp_path / "several.html", k=1).read_text().count("no. 2<") == 1
    with pytest.raises(TangentError, match="no test sample"):
        report.attribution(result, torch.zeros(3, 7), torch.zeros(1, 7), tmp_path / "page.html", tests=[4])
