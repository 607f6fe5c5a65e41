"""The public function of the kernel engine, :func:`ntk`."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab.kernels._blocks import diagonal_blocks, kernel_blocks
from tangentlab.kernels._inputs import all_finite
from tangentlab.kernels._network import ParametersLike
from tangentlab.kernels._options import Options
from tangentlab.kernels._plan import make_plan, run
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._readout import ReadoutLike
from tangentlab.kernels._update_rules import UpdateRule, preconditioner, reduced, transformed_kernel
from tangentlab.kernels.factors import Factors


def ntk(
    model: nn.Module,
    x1: Any,
    x2: Any = None,
    *,
    readout: ReadoutLike = "full",
    targets: Any = None,
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
    optimizer: UpdateRule = None,
) -> Any:
    r"""Compute the empirical neural tangent kernel of a network at its current weights, exactly.

    .. math:: K_{nr,ms} = \langle \partial (Q^T f)_r(x_n) / \partial\theta,\; \partial (Q^T f)_s(x_m) / \partial\theta
        \rangle

    with the readout Q in R^(O x R). There is no normalization other than the readout's.

    Args:
        model: Any module in which samples do not influence each other (evaluation mode). It is not changed.
        x1: N1 samples: a tensor, a tuple (``model(*x)``), a dict (``model(**x)``), a ``Dataset`` or a
            ``DataLoader``; the first axis counts samples.
        x2: N2 samples, or None for ``x1`` again (then one triangle is computed).
        readout: ``"full"``: (N1, O, N2, O). ``"pntk"``, the pseudo-NTK of sum of logits / sqrt(O): (N1, N2). An int
            k, one logit: (N1, N2). An (O, R) tensor: (N1, R, N2, R). ``"trace"``, the sum over o of the full kernel
            at (o, o): (N1, N2). ``"per_class"``, one kernel per output: (O, N1, N2).
            Functions of a sample's outputs and its target: ``"loss"``, the cross-entropy of class targets (integers) or
            half the squared distance to floating-point targets; ``"margin"``, log p / (1 - p) of the correct class;
            ``"label"``, the logit of the label; ``"next_token"``, the mean log-probability of the tokens that follow,
            for causal language models; or any function of the outputs and the target of one sample. One number:
            (N1, N2); R numbers: (N1, R, N2, R).
        targets: One target per sample for such a function: a tensor or array (N, ...), a list, or a dict of tensors;
            ``(targets1, targets2)`` for two sets of samples. None for those that come with the samples: the second
            part of a ``Dataset``'s items, or ``labels`` in dicts of tokens.
        parameters: Which parameters count; None for all that require gradients. Names, prefixes, patterns,
            parameters, or a function of name and parameter.
        per_layer: Whether to return a dict from each layer to its contribution; these sum to the kernel.
        diagonal: Whether to compute only the blocks of x_n with itself: (N, O, O) for ``"full"``, (N, R, R) for a
            matrix, (N,) for scalar readouts and the trace, (O, N) for ``"per_class"``.
        output: Takes the tensor of outputs from what the model returns; None for the tensor itself, or the ``logits``
            of what models of transformers return. Axes after the first are flattened to O.
        input: Takes the model's input from an item of a Dataset or a batch of a DataLoader. By default an item of two
            parts is an input and its target, which does not reach the model; it is refused where the model takes a
            second input that the second part could be.
        dtype: Precision to compute in; None for the model's.
        device: Where to compute; None for the model's device. Data is moved there batch by batch.
        batch_size: Samples per forward pass; None for automatic.
        memory_budget: Bytes ("4GiB") for the result and all intermediate values; None for 60 % of what is free.
            Where the factors of all samples do not fit, they may be kept on disk meanwhile, in the folder of
            ``tempfile`` (environment variable TMPDIR).
        progress: A progress bar; None for "on a terminal".
        check: Compare the kernel of a few samples with plain automatic differentiation before returning.
        optimizer: The kernel of another optimizer than gradient descent, with all gradients written out.
            ``"signgd"``: <sign(g_n), sign(g_m)>, symmetric. ``"asymmetric_signgd"``: <g_n, sign(g_m)>, the change of
            the output of n by a sign step on m (Malladi et al. 2023, for Adam early in training); solve with
            :func:`tangentlab.linalg.regress_asymmetric`. A torch optimizer with second moments (Adam, AdamW, RMSprop,
            Adagrad) after a step, or a dict of diagonals D by parameter name: <g_n, D g_m>, for Adam
            D = 1 / (sqrt(v) + eps).

    Returns:
        The kernel on the device, or a dict of kernels.

    Raises:
        TangentError: Whatever would make the kernel wrong, with the remedy.

    Cost: a forward and R backward passes per sample without parameter gradients, and for each pair of samples, summed
    over layers, the cheaper of 2 R^2 P (gradients written out) and the compact form of the layer's rule, for instance
    2 (d_in + R^2 d_out) for a dense layer. See ``docs/rules.md``.

    Examples:
        >>> import torch
        >>> from tangentlab import ntk
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> ntk(network, x).shape
        torch.Size([20, 2, 20, 2])
        >>> ntk(network, x, readout="pntk").shape
        torch.Size([20, 20])
        >>> ntk(network, x[:3], x, readout="loss", targets=(y[:3], y)).shape
        torch.Size([3, 20])
        >>> list(ntk(network, x, readout=0, per_layer=True))
        ['0', '2']

    See also:
        :func:`tangentlab.explain`, :class:`tangentlab.NTKOperator`, :func:`tangentlab.sketch`,
        :func:`tangentlab.store.compute`, :func:`tangentlab.reference.ntk`.
    """
    if diagonal and x2 is not None and x2 is not x1:
        raise TangentError(
            "diagonal=True was passed with two sets of samples.", "The diagonal pairs x1 with itself.", "Leave x2 out."
        )
    options = Options(
        readout, parameters, output, input, dtype, device, batch_size, memory_budget, check, progress, targets
    )
    if optimizer is not None and optimizer != "sgd":
        if diagonal or per_layer:
            raise TangentError(
                "optimizer= was passed with diagonal=True or per_layer=True.",
                "Kernels of other optimizers are computed as a whole.",
                "Leave one of them out; parameters= restricts the kernel to a layer.",
            )
        return _of_optimizer(model, x1, x2, options, optimizer)
    kind: Literal["diagonal", "gram"] = "diagonal" if diagonal else "gram"
    problem = Problem.pose(model, x1, None if diagonal else x2, options, kind=kind, by_layer=per_layer)
    plan, compute = make_plan(problem, ahead=not diagonal), diagonal_blocks if diagonal else kernel_blocks
    total = problem.work.rows * (1 if diagonal else problem.work.columns)
    with progress_bar("NTK", total, progress) as tick:
        kernels, _ = run(plan, lambda plan: compute(plan, tick))
    refuse_infinite(kernels)
    return kernels if per_layer else kernels[""]


def _of_optimizer(model: nn.Module, x1: Any, x2: Any, options: Options, optimizer: UpdateRule) -> Tensor:
    """Compute the kernel of another optimizer than gradient descent."""
    if isinstance(optimizer, torch.optim.Optimizer):
        optimizer = preconditioner(optimizer, dict(model.named_parameters()))
    problem = Problem.pose(model, x1, x2, options, kind="gram")
    kernel, _ = run(make_plan(problem), lambda plan: transformed_kernel(plan, optimizer))
    result = reduced(kernel, problem.network.readout.reduction)
    refuse_infinite({"": result})
    return result


def refuse_infinite(kernels: dict[str, Tensor]) -> None:
    """Refuse kernels with NaN or infinite values."""
    if not all(all_finite(kernel) for kernel in kernels.values()):
        raise TangentError(
            "The kernel holds NaN or infinite values.",
            "A gradient is not finite (for instance of a square root at zero), or too large for the precision.",
            "Compute in dtype=torch.float64, or look for the sample with diagonal=True on parts of the data.",
        )


def compute_factors(model: nn.Module, x: Any, readout: ReadoutLike = "full", **options: Any) -> Factors:
    """Compute the factors of all samples, for benchmarks and tests.

    Cost: that of :func:`ntk` without the pairs of samples. All factors are in memory.
    """
    plan = make_plan(Problem.pose(model, x, options=Options(readout, **options), kind="gram"), ahead=True)
    factorizer = plan.factorizer(plan.left, plan.budget(0))
    return factorizer(plan.left.samples, range(len(plan.left.samples)))
