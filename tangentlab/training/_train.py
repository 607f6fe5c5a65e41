"""The training loop, one for networks and linearized models."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._progress import progress_bar
from tangentlab.training._callback import CallbackLike
from tangentlab.training._memory_format import MemoryFormat, check_format
from tangentlab.training._result import TrainingResult
from tangentlab.training._run import Run
from tangentlab.training._run_checkpoints import RunCheckpoints
from tangentlab.training._samples import IndexedSamples, splits
from tangentlab.training._spec import TrainingSpec


def train(
    model: nn.Module,
    data: Any,
    spec: TrainingSpec,
    *,
    test: Any = None,
    folder: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = True,
    watch: Tensor | None = None,
    callbacks: Sequence[CallbackLike] = (),
    memory_format: MemoryFormat = "contiguous",
    progress: bool | None = None,
    title: str | None = None,
) -> TrainingResult:
    """Train a network or a linearized model, in place.

    The same spec gives a network and its linearization the same minibatches. On one machine and with one number of
    threads, equal arguments give equal results bit for bit, whether or not the run was interrupted and resumed.

    Cost: a forward and a backward pass per sample and epoch, and a forward pass per training and test sample at each
    evaluation. Memory: besides the passes, P numbers each for weights, gradients and start, and those of the optimizer.

    Args:
        model: Any module that maps a batch of inputs to one tensor of outputs. Parameters that do not require
            gradients stay as they are. Networks are trained in training mode and evaluated in evaluation mode.
        data: Training samples: a pair of tensors (inputs, targets), a :class:`tangentlab.data.Examples`, a
            map-style torch ``Dataset`` of pairs; or an object with the two attributes ``train`` and ``test``, such
            as :class:`tangentlab.data.ImageData`. Floating-point inputs are converted to the model's type. Random
            transforms of a ``Dataset`` must draw from PyTorch's generator, which a checkpoint restores.
        spec: The run.
        test: Test samples, in the same forms.
        folder: Folder for checkpoints. If it contains checkpoints of the same run, the run resumes from the
            last; if of another, it is refused with the differences named.
        checkpoint_every: Updates between checkpoints. By default they are written at the ends of epochs, at most one in
            ten seconds. One is always written at the end of the run.
        resume: False discards the folder's checkpoints and starts over.
        watch: Inputs on which the outputs are recorded along the way.
        callbacks: Called at their epochs.
        memory_format: That of convolutions, ``"contiguous"`` or ``"channels_last"``, which is often faster on
            processors and affects only rounding. ``"fastest"`` measures both on the first minibatch, if the run has at
            least 1,000 updates. The result names the one in use, and a resumed run keeps it.
        progress: Whether to show a progress bar; None for "if standard error is a terminal".
        title: Title of the progress bar.

    Returns:
        The result, with the history and everything recorded.

    Raises:
        DivergenceError: If the loss, the gradient or the weights stop being finite. The last good checkpoint stays.
        TangentError: For data, outputs and losses that do not fit each other, and for a folder of another run.

    Examples:
        >>> import torch
        >>> from tangentlab import training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> result = training.train(network, (x, y), spec)
        >>> len(result.history)
        3

    See also:
        :func:`tangentlab.training.compare`, :func:`tangentlab.training.evaluate`, :func:`tangentlab.linearize`.
    """
    check_format(memory_format)
    data, test = splits(data, test)
    run = Run(model, IndexedSamples(data), None if test is None else IndexedSamples(test), spec, watch, callbacks)
    with ExitStack() as stack:
        devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
        stack.enter_context(torch.random.fork_rng(devices))
        stack.callback(run.restore_modes)
        if folder is not None:
            run.checkpoints = stack.enter_context(RunCheckpoints(folder, checkpoint_every))
            run.resume(discard=not resume)
        run.lay_out(memory_format)
        if run.resumed_at is None:
            torch.manual_seed(spec.seed)
            run.measure(0)
        else:
            run.catch_up()
        name = title or f"training {type(model).__name__}"
        tick = stack.enter_context(progress_bar(name, run.total, progress))
        tick(run.step)
        run.go(tick)
    return run.result()
