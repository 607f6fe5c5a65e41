"""Gram matrices of units of work: in memory or on disk, the same numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tangentlab import ntk
from tangentlab.experiments._context import Context, Settings
from tangentlab.experiments._kernels import gram
from tangentlab.experiments._work import UnitOfWork
from tangentlab.store import StoredKernel


@dataclass(frozen=True)
class Trace(UnitOfWork):
    """A unit that keeps its kernel where ``share`` says, and may be stopped after it."""

    share: float
    fail: bool = False

    def compute(self, context: Context) -> dict[str, Any]:
        network, x = problem()
        kernel = gram(self, context, network, x, "pntk", self.share)
        assert isinstance(kernel, StoredKernel if self.share == 0 else Tensor)
        if self.fail:
            raise KeyboardInterrupt
        whole = kernel.to_tensor() if isinstance(kernel, StoredKernel) else kernel
        return {"kernel": whole}


def problem() -> tuple[torch.nn.Module, Tensor]:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    return network.double(), torch.randn(20, 6, dtype=torch.float64)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_same_numbers_wherever_it_lies(tmp_path: Path, share: float) -> None:
    context = Context(Settings(str(tmp_path)))
    found = context.get(Trace(share))["kernel"]
    torch.testing.assert_close(found, ntk(*problem(), readout="pntk"), rtol=1e-12, atol=1e-12)
    assert not context.cache.scratch(Trace(share)).exists()  # gigabytes are not left behind
    assert context.work_seconds() == context.cache.seconds(Trace(share)) > 0


def test_kernel_on_disk_survives_an_interruption(tmp_path: Path) -> None:
    context = Context(Settings(str(tmp_path)))
    work = Trace(0.0, fail=True)
    with pytest.raises(KeyboardInterrupt):
        context.get(work)
    assert StoredKernel(context.cache.scratch(work) / "kernel.zarr").complete
