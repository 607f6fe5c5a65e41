"""A few small results to make pages of."""

from pathlib import Path

import pytest
import torch

from tangentlab.experiments import reproduce
from tangentlab.report import build

NAMES = ("ortiz2021/fig9", "ortiz2021/table1", "samarin2022/fig7", "mohamadi2022/theorem1")
SMALLER = {"ortiz2021/table1": {"models": "mlp", "epochs": 12}, "samarin2022/fig7": {"samples": 12}}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, bars, lines and a table of many rows."""
    folder = tmp_path_factory.mktemp("report") / "runs"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in NAMES:
            reproduce(name, "tiny", out=folder, overrides=SMALLER.get(name), progress=False)
    finally:
        torch.set_num_threads(threads)
    return folder


@pytest.fixture(scope="session")
def page(runs: Path) -> Path:
    """The page of those results."""
    return build(runs, runs.parent / "page.html")
