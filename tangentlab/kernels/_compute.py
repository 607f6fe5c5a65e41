"""The public face of the kernel engine: :func:`ntk` and :func:`explain`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker, progress_bar
from tangentlab.kernels._contract import contract
from tangentlab.kernels._engine import Engine, Side
from tangentlab.kernels._factorize import Factorizer, Factors
from tangentlab.kernels._inputs import all_finite
from tangentlab.kernels._network import ParametersLike
from tangentlab.kernels._readout import ReadoutLike


def ntk(
    model: nn.Module,
    x1: Any,
    x2: Any = None,
    *,
    readout: ReadoutLike = "full",
    parameters: ParametersLike = None,
    per_layer: bool = False,
    diagonal: bool = False,
    output: Callable[[Any], Tensor] | None = None,
    input: Callable[[Any], Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    memory_budget: int | float | str | None = None,
    progress: bool | None = None,
    check: bool = True,
) -> Any:
    r"""The empirical neural tangent kernel of a network at its current weights, exactly.

    .. math:: K_{nr,ms} = \langle \partial (Q^T f)_r(x_n) / \partial\theta,\; \partial (Q^T f)_s(x_m) / \partial\theta
        \rangle

    with the readout Q in R^(O x R). Nothing is divided by anything else than what the readout says.

    Args:
        model: Any module in which samples do not influence each other (evaluation mode). It is not changed.
        x1: N1 samples: a tensor, a tuple (``model(*x)``), a dict (``model(**x)``), a ``Dataset`` or a
            ``DataLoader``; the first axis counts samples.
        x2: N2 samples, or None for ``x1`` again (then one triangle is computed).
        readout: ``"full"``: (N1, O, N2, O). ``"pntk"``, the pseudo-NTK of sum of logits / sqrt(O): (N1, N2). An int
            k, one logit: (N1, N2). An (O, R) tensor: (N1, R, N2, R). ``"trace"``, the sum over o of the full kernel
            at (o, o): (N1, N2). ``"per_class"``, one kernel an output: (O, N1, N2).
        parameters: Which parameters count; None for all that require gradients. Names, prefixes, patterns,
            parameters, or a function of name and parameter.
        per_layer: Give a dict from layer to its contribution; they sum to the kernel.
        diagonal: Only x_n with itself: (N, O, O) for ``"full"``, (N, R, R) for a matrix, (N,) for scalar readouts and
            the trace, (O, N) for ``"per_class"``.
        output: Takes the tensor of outputs from what the model returns; axes after the first are flattened to O.
        input: Takes the model's input from an item of a Dataset or a batch of a DataLoader. By default an item of two
            parts is an input and its target, which is dropped; it is refused where the model takes a second input
            that the second part could be.
        dtype: Precision to compute in; None for the model's.
        device: Where to compute; None for the model's device. Data is moved there batch by batch.
        batch_size: Samples a forward pass; None for automatic.
        memory_budget: Bytes ("4GiB") for the result and everything on the way to it; None for 60 % of what is free.
        progress: A progress bar; None for "on a terminal".
        check: Compare the kernel of a few samples with plain automatic differentiation before returning.

    Returns:
        The kernel on the device, or a dict of kernels.

    Raises:
        TangentError: Whatever would make the kernel wrong, with the remedy.

    Cost: a forward and R backward passes a sample without parameter gradients, and for each pair of samples, summed
    over layers, the cheaper of 2 R^2 P (gradients written out) and the compact form of the layer's rule, for instance
    2 (d_in + R^2 d_out) for a dense layer. See ``docs/rules.md``.
    """
    if diagonal and x2 is not None and x2 is not x1:
        raise TangentError(
            "diagonal=True with two sets of samples.", "the diagonal pairs x1 with itself.", "leave x2 out."
        )
    engine = Engine(
        model,
        x1,
        None if diagonal else x2,
        kind="diagonal" if diagonal else "gram",
        readout=readout,
        parameters=parameters,
        output=output,
        input=input,
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        memory_budget=memory_budget,
        by_layer=per_layer,
    )
    compute = _diagonal if diagonal else _kernel
    total = engine.work.rows * (1 if diagonal else engine.work.columns)
    with progress_bar("NTK", total, progress) as tick:
        kernels = engine.run(lambda: compute(engine, tick, check))
    if not all(all_finite(kernel) for kernel in kernels.values()):
        raise TangentError(
            "the kernel holds NaN or infinite values.",
            "a gradient is not finite (a square root at zero, say), or too large for the precision.",
            "compute in dtype=torch.float64, or look for the sample with diagonal=True on parts of the data.",
        )
    return kernels if per_layer else kernels[""]


def _layers(engine: Engine) -> list[str]:
    return list(dict.fromkeys(g.layer for g in engine.left.groups)) if engine.by_layer else [""]


def _kernel(engine: Engine, tick: Ticker, check: bool) -> dict[str, Tensor]:
    """The kernel, by blocks of rows and columns whose factors fit into the budget."""
    n1, n2 = engine.work.rows, engine.work.columns
    readout, network, names = engine.network.readout, engine.network, _layers(engine)
    options: dict[str, Any] = {"dtype": network.dtype, "device": network.device}
    shape = readout.shape(n1, n2)
    size = torch.Size(shape).numel() * torch.empty((), dtype=network.dtype).element_size()
    budget = engine.budget(size * len(names))
    resident = budget.resident
    outs = {name: torch.empty(shape, **options) for name in names}
    left, right = (engine.factorizer(side, budget) for side in (engine.left, engine.right))
    everything = n1 if engine.symmetric else n1 + n2
    if everything <= resident:
        rows, columns = n1, n2
    else:  # hold many rows, stream a few columns: the fewer row blocks, the fewer recomputations
        columns = max(1, min(resident // 8, budget.batch)) if resident >= 8 else 1
        rows = max(1, resident - columns)
    for i in range(0, n1, rows):
        row_range = range(i, min(i + rows, n1))
        one = left(engine.left.samples, row_range)
        if check and i == 0 and engine.symmetric:
            engine.verify(one, row_range, one, row_range)
        if engine.symmetric:
            _fill(outs, one, one, row_range, row_range, readout.reduction, True, tick)
        first = row_range.stop if engine.symmetric else 0
        for j in range(first, n2, columns):
            column_range = range(j, min(j + columns, n2))
            two = right(engine.right.samples, column_range)
            if check and i == 0 and j == 0 and not engine.symmetric:
                engine.verify(one, row_range, two, column_range)
            _fill(outs, one, two, row_range, column_range, readout.reduction, False, tick)
            if engine.symmetric:
                _mirror(outs, row_range, column_range, readout.reduction)
                tick(len(row_range) * len(column_range))
            del two
        del one
    return outs


def _fill(
    outs: dict[str, Tensor],
    one: Factors,
    two: Factors,
    rows: range,
    columns: range,
    reduction: str,
    symmetric: bool,
    tick: Ticker,
) -> None:
    """Contract two sets of factors into their block of each result."""
    lefts = one.layers() if len(outs) > 1 or "" not in outs else {"": one}
    rights = lefts if one is two else (two.layers() if lefts.keys() != {""} else {"": two})
    for name, out in outs.items():
        left, right = lefts[name], rights[name]
        if reduction == "per_class":
            targets = [
                (left.select(r), right.select(r), out[r, rows.start : rows.stop, columns.start : columns.stop])
                for r in range(left.readouts)
            ]
        else:
            if reduction == "trace":
                left, right = left.merged(), right.merged()
            matrix = out.view(out.shape[0] * left.readouts, -1)
            height, width = left.readouts, right.readouts
            part = matrix[rows.start * height : rows.stop * height, columns.start * width : columns.stop * width]
            targets = [(left, right, part)]
        for one_, two_, target in targets:
            contract(one_, two_, target, symmetric, partial(_share, tick, 1 / (len(outs) * len(targets))))


def _share(tick: Ticker, share: float, steps: float = 1, note: str | None = None) -> None:
    tick(steps * share, note)


def _mirror(outs: dict[str, Tensor], rows: range, columns: range, reduction: str) -> None:
    """Copy a block of the upper triangle to the lower one."""
    one, two = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    for out in outs.values():
        if reduction == "none":
            out[two, :, one, :] = out[one, :, two, :].permute(2, 3, 0, 1)
        elif reduction == "per_class":
            out[:, two, one] = out[:, one, two].mT
        else:
            out[two, one] = out[one, two].T


def _diagonal(engine: Engine, tick: Ticker, check: bool) -> dict[str, Tensor]:
    """Only the blocks of samples with themselves, batch by batch: no factor outlives its batch."""
    readout = engine.network.readout
    size = torch.empty((), dtype=engine.network.dtype).element_size()
    budget = engine.budget(engine.work.rows * readout.size**2 * size * len(_layers(engine)))
    assert budget.resident  # refuses where not even a batch fits
    factorizer, side = engine.factorizer(engine.left, budget), engine.left
    parts: dict[str, list[Tensor]] = {name: [] for name in _layers(engine)}
    for start in range(0, len(side.samples), factorizer.batch_size):
        rows = range(start, min(start + factorizer.batch_size, len(side.samples)))
        factors = factorizer(side.samples, rows)
        if check and start == 0:
            engine.verify(factors, rows, factors, rows)
        for name, own in (factors.layers() if engine.by_layer else {"": factors}).items():
            parts[name].append(_reduced(own.diagonal(), readout.reduction))
        tick(len(rows))
    axis = 1 if readout.reduction == "per_class" else 0
    return {name: torch.cat(blocks, axis) for name, blocks in parts.items()}


def _reduced(blocks: Tensor, reduction: str) -> Tensor:
    """Blocks (n, R, R) as the readout's reduction wants them."""
    if reduction == "squeeze":
        return blocks[:, 0, 0]
    inner = blocks.diagonal(dim1=1, dim2=2)
    if reduction == "trace":
        return inner.sum(1)
    return inner.T if reduction == "per_class" else blocks


def explain(model: nn.Module, x: Any, **options: Any) -> pd.DataFrame:
    """How the kernel of a network would be computed: one row a group of parameters.

    Args:
        model: The module.
        x: Samples.
        options: As for :func:`ntk`.

    Returns:
        Columns ``layer``, ``parameters``, ``operation`` (or why the fallback is taken), ``form`` ("compact":
        factors; "gradient": written out from a rule; "fallback": plain automatic differentiation, one sample at a
        time) and ``floats``, the numbers kept of a sample.
    """
    shown = {name: value for name, value in options.items() if name not in ("per_layer", "check", "progress")}
    engine = Engine(model, x, kind="gram", **shown)
    side = engine.left
    return pd.DataFrame([_row(engine, side, index) for index in range(len(side.groups))])


def _row(engine: Engine, side: Side, index: int) -> dict[str, Any]:
    group = side.groups[index]
    alone = Side(side.samples, side.findings, [group])
    size = torch.empty((), dtype=engine.network.dtype).element_size()
    return {
        "layer": group.layer,
        "parameters": ", ".join(group.parameters),
        "operation": group.operation,
        "form": group.form,
        "floats": engine.sample_bytes(alone) // size,
    }


def compute_factors(model: nn.Module, x: Any, readout: ReadoutLike = "full", **options: Any) -> Factors:
    """The factors of all samples, for benchmarks and tests."""
    engine = Engine(model, x, kind="gram", readout=readout, **options)
    factorizer: Factorizer = engine.factorizer(engine.left, engine.budget(0))
    return factorizer(engine.left.samples, range(len(engine.left.samples)))
