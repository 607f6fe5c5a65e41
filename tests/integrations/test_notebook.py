"""In a notebook: results show themselves as HTML, and long computations show a bar."""

import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tangentlab import NTKOperator, analysis, linalg, linearize, linearized, ntk, store, training

CELL = """
import torch, tangentlab
from tangentlab._progress import progress_bar
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
with progress_bar("Counting", 3) as tick:
    for _ in range(3):
        tick()
tangentlab.NTKOperator(model, torch.randn(6, 5))
"""


def test_results_as_html(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    x = torch.randn(16, 4)
    spec = training.TrainingSpec(epochs=1, batch_size=8, optimizer=training.SGD(0.01), loss=training.Squared())
    comparison = training.compare(network, (x, x[:, :1]), spec, progress=False)
    assert "linearized at the start" in comparison._repr_html_()
    assert "train_loss" in comparison.runs["network"]._repr_html_()
    assert "(16, 16)" in NTKOperator(network, x)._repr_html_()
    lin = linearize(network)
    with torch.no_grad():
        next(iter(lin.parameters())).add_(0.1)
    assert "worst sample" in linearized.linearization_error(lin, x)._repr_html_()
    full, pseudo = ntk(network, x), ntk(network, x, readout="pntk")
    assert "off_diagonal" in analysis.agreement(full, pseudo)._repr_html_()
    assert "16 of 16" in linalg.eigh(pseudo)._repr_html_()
    assert "residual" in linalg.regress(pseudo, x[:, 0])._repr_html_()
    assert "GCV" in linalg.ridge_path(pseudo, x[:, 0])._repr_html_()
    assert "complete" in store.compute(network, x, tmp_path / "kernel.zarr")._repr_html_()


def test_real_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell in a real Jupyter kernel: the bar is a widget, not a warning, and the operator is HTML."""
    for package in ("ipykernel", "ipywidgets", "nbclient"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[dev]'")
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    spec = tmp_path / "kernels" / "here"
    spec.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (spec / "kernel.json").write_text(f'{{"argv": {command}, "display_name": "here", "language": "python"}}')
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    NotebookClient(notebook, kernel_name="here", timeout=120).execute()
    outputs = notebook.cells[0].outputs
    assert any(
        "text/html" in output.get("data", {}) and "NTKOperator" in output.data["text/html"] for output in outputs
    )
    assert any("application/vnd.jupyter.widget-view+json" in output.get("data", {}) for output in outputs)
    assert not any("Warning" in output.get("text", "") for output in outputs)
