"""The yardstick of effective ranks: a matrix of independent entries."""

import pandas as pd
import pytest
import torch

from tangentlab import linalg
from tangentlab.experiments import Verdict, get, spec_of
from tangentlab.experiments._verdicts import settle
from tangentlab.experiments.samarin2022._ranks import claims_ranks
from tangentlab.experiments.samarin2022._singular_values import unstructured_rank


@pytest.mark.parametrize(("rows", "columns"), [(300, 3000), (300, 450), (300, 300), (450, 300)])
def test_a_matrix_of_independent_entries(rows: int, columns: int) -> None:
    drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert linalg.effective_rank(torch.linalg.svdvals(drawn)) == pytest.approx(
        unstructured_rank(rows, columns), rel=0.01
    )


def test_claims_of_ranks() -> None:
    spec = spec_of(get("samarin2022/fig6"), "small")
    common = {"data": "mnist", "seed": 0, "rows": 6000, "kernel_rank": 50.0}
    columns = [61_706, 244_362, 1_518_090, 6_060_170]
    ranks = [2700.0, 3300.0, 3600.0, 3800.0]
    table = pd.DataFrame(
        [
            {**common, "width": width, "parameters": p, "effective_rank": rank}
            for width, p, rank in zip((1, 2, 5, 10), columns, ranks, strict=True)
        ]
    )
    table = pd.concat([table, table.assign(seed=1)])
    low, grows = settle(claims_ranks(table, spec))
    shares = [rank / unstructured_rank(6000, p) for rank, p in zip(ranks, columns, strict=True)]
    assert (low.verdict, low.value) == (Verdict.HOLDS, pytest.approx(sum(shares) / 4))
    assert "0.63 of the rows" in low.statistic
    assert grows.verdict == Verdict.HOLDS
    over = [1.01 + 0.01 * i for i in range(4)] * 2
    full = table.assign(
        effective_rank=[
            factor * unstructured_rank(6000, p) for factor, p in zip(over, table["parameters"], strict=True)
        ]
    )
    assert settle(claims_ranks(full, spec))[0].verdict == Verdict.FAILS
