"""The kernel watched while a network trains, in any of three training loops."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._files import make_folder, write_bytes, write_text
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_torch
from tangentlab.finetune._probe import Probe
from tangentlab.kernels.internal import ReadoutLike


class KernelRecorder:
    r"""A callback that records how the kernel moves on a fixed probe set.

    One object for three training loops. It imports neither library::

        recorder = KernelRecorder(x[:100], y[:100], folder="runs/kernel")
        training.train(network, data, spec, callbacks=[recorder])       # result.values["kernel"][epoch]
        transformers.Trainer(model, args, ..., callbacks=[recorder])    # then recorder.attach(trainer), for its loggers
        lightning.Trainer(callbacks=[recorder])                         # logged by the module's log_dict

    With K_0 the kernel at the start, K_t the present one, Y the targets and N samples, a row has

    - ``distance_to_start``, ``distance_to_last``: cosine distances of kernels, 1 - <K_0, K_t> / (|K_0| |K_t|).
    - ``alignment``: tr(Y^T K Y) / N^2 (ortiz2021); ``alignment_normalized``: <K, Y Y^T> / (|K| |Y Y^T|);
      ``alignment_centered``: the same of centered kernels (CKA). See :func:`tangentlab.analysis.alignments`.
    - ``energy_concentration``: the share of Y on the first k eigenvectors, |Phi_k Y| / |Y|.
    - ``effective_rank``: of the Jacobian, see :func:`tangentlab.linalg.effective_rank`.
    - ``largest_eigenvalue``: of K. Divided by N, it is the sharpness of the Gauss-Newton matrix of half the squared
      loss; gradient descent is at the edge of stability where that reaches 2 / learning rate.
    - ``linearization_error``: :math:`\|f_t - f_0 - J_0 (\theta_t - \theta_0)\| / \|f_t - f_0\|` on the probe set.

    Cost of a row, for N samples: the kernel, about 2 training steps on them; the linearization error, about 1.5 steps
    and a copy of the weights; N^3.

    Args:
        inputs: The N probe samples: a tensor, a tuple, or a dict of tensors for models of the transformers library.
        targets: Their targets: (N,) class numbers, or (N, ...) floating-point numbers.
        every: How often, in units of ``unit``; the start and, in tangentlab's loop, the end are always recorded.
        unit: ``"epoch"`` or ``"step"`` (optimizer steps, in the loops of other libraries).
        k: Number of eigenvectors of the energy concentration.
        readout: One number per sample that is differentiated, as for :func:`tangentlab.ntk`.
        output: Takes the tensor of outputs from what the model returns; ``.logits`` is found.
        network: Takes the network from the model that the loop trains, for example ``lambda module: module.backbone``.
        linearization: Whether to record the linearization error, which keeps a copy of the weights.
        folder: Where to write ``kernel.csv`` and the start, so that a run that is resumed is compared with its own
            start; None to write nothing.
        name: Prefix of the names in loggers, and the name in ``result.values``.
        options: For :func:`tangentlab.ntk`: ``parameters``, ``dtype``, ``memory_budget`` and so on.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune, training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> recorder = finetune.KernelRecorder(x, y, k=5)
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> result = training.train(network, (x, y), spec, callbacks=[recorder])
        >>> len(recorder.to_pandas())
        3

    See also:
        :func:`tangentlab.finetune.kernel_regime`, :func:`tangentlab.analysis.alignments`.
    """

    def __init__(
        self,
        inputs: Any,
        targets: Tensor,
        *,
        every: int = 1,
        unit: Literal["epoch", "step"] = "epoch",
        k: int = 10,
        readout: ReadoutLike = "pntk",
        output: Callable[[Any], Tensor] | None = None,
        network: Callable[[nn.Module], nn.Module] | None = None,
        linearization: bool = True,
        folder: str | os.PathLike[str] | None = None,
        name: str = "kernel",
        **options: Any,
    ) -> None:
        if every < 1 or unit not in ("epoch", "step"):
            raise TangentError(f"every={every}, unit={unit!r}.", remedy="Pass every=1 or more, and 'epoch' or 'step'.")
        if readout in ("full", "per_class"):
            raise TangentError(
                f"The readout {readout!r} has several numbers per sample.",
                why="Targets are aligned with one (N, N) kernel.",
                remedy="Use 'pntk', 'trace' or one output.",
            )
        self.probe = Probe(inputs, targets, k, readout, output, linearization, options)
        self.every, self.unit, self.name = every, unit, name
        self.rows: list[dict[str, float]] = []
        self._network = network or (lambda model: model)
        self._folder = None if folder is None else make_folder(folder)
        self._log: Callable[[dict[str, float]], None] | None = None

    def record(self, model: nn.Module, step: int, epoch: float) -> dict[str, float]:
        """Measure the model now, keep the row, and return it.

        Args:
            model: The model that the loop trains.
            step: Updates made.
            epoch: Epochs done.
        """
        if self.probe.start is None and step > 0:
            self._resume(step)
        self.rows = [row for row in self.rows if row["step"] < step]
        row = {"step": step, "epoch": float(epoch), **self.probe.measure(self._network(model))}
        self.rows.append(row)
        if self._folder is not None:
            write_text(self._folder / "kernel.csv", self.to_pandas().to_csv(index=False))
            state = {"rows": self.rows, **self.probe.state()}
            write_bytes(self._folder / "kernel.pt", lambda file: torch.save(state, file))
        return row

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per record."""
        return pd.DataFrame(self.rows)

    def _resume(self, step: int) -> None:
        path = None if self._folder is None else Path(self._folder) / "kernel.pt"
        if path is None or not path.exists():
            warnings.warn(
                f"The kernel is recorded from step {step} on; its distances are to the kernel of that step. A recorder "
                "with folder= finds the start of the run that is resumed.",
                stacklevel=4,
            )
            return
        try:
            state = load_torch(path)
            self.rows = [dict(row) for row in state["rows"]]
            self.probe.load(state)
        except (Unreadable, KeyError, TypeError) as error:
            raise TangentError(f"{path} {error}.", remedy="Remove it, or restore it from a copy.") from error

    def _named(self, row: dict[str, float]) -> dict[str, float]:
        return {f"{self.name}/{key}": value for key, value in row.items() if key not in ("step", "epoch")}

    # tangentlab's own loop: a Callback has a name, a function and due()

    def due(self, epoch: int, epochs: int) -> bool:
        """Return whether a row is due after ``epoch`` of ``epochs`` epochs."""
        if self.unit != "epoch":
            raise TangentError(
                "The loop of tangentlab calls back after epochs.", remedy="Pass unit='epoch' to the KernelRecorder."
            )
        return epoch % self.every == 0 or epoch == epochs

    def function(self, model: nn.Module, epoch: int) -> dict[str, float]:
        """Record after an epoch of tangentlab's loop; the number of steps is not known there and counts epochs."""
        return self.record(model, epoch, epoch)

    # transformers.Trainer

    def attach(self, trainer: Any) -> "KernelRecorder":
        """Add the recorder to a ``transformers.Trainer``, and log to its loggers (TensorBoard, wandb, MLflow)."""
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        self._log = trainer.log
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Record the start."""
        if state.global_step == 0:
            self._in_trainer(state, model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Record after an optimizer step."""
        if self.unit == "step" and state.global_step % self.every == 0:
            self._in_trainer(state, model)

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Record after an epoch."""
        if self.unit == "epoch" and round(state.epoch or 0) % self.every == 0:
            self._in_trainer(state, model)

    def _in_trainer(self, state: Any, model: Any) -> None:
        if state.is_world_process_zero:
            row = self.record(model, state.global_step, state.epoch or 0.0)
            if self._log is not None:
                self._log(self._named(row))
            else:
                state.log_history.append({**self._named(row), "step": state.global_step, "epoch": state.epoch})

    # Lightning

    @property
    def state_key(self) -> str:
        """The name of the recorder in checkpoints of Lightning."""
        return f"KernelRecorder.{self.name}"

    @property
    def _legacy_state_key(self) -> type:
        """The key under which old versions of Lightning would have stored it."""
        return type(self)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the start, for checkpoints of Lightning."""
        return {"rows": self.rows, **self.probe.state()} if self.probe.start is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        if state:
            self.rows = list(state["rows"])
            self.probe.load(state)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Record the start."""
        if trainer.global_step == 0:
            self._in_lightning(trainer, module, 0)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Record after an optimizer step."""
        new = not self.rows or self.rows[-1]["step"] != trainer.global_step
        if self.unit == "step" and trainer.global_step % self.every == 0 and new:
            self._in_lightning(trainer, module, trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Record after an epoch."""
        if self.unit == "epoch" and (trainer.current_epoch + 1) % self.every == 0:
            self._in_lightning(trainer, module, trainer.current_epoch + 1)

    def _in_lightning(self, trainer: Any, module: Any, epoch: int) -> None:
        if trainer.is_global_zero:
            row = self.record(module, trainer.global_step, epoch)
            for logger in trainer.loggers:
                logger.log_metrics(self._named(row), step=trainer.global_step)

    def __getattr__(self, name: str) -> Any:
        # Both libraries call all hooks of their callbacks; those not defined here do nothing.
        if name.startswith("on_") or name in ("setup", "teardown"):
            return _nothing
        raise AttributeError(f"KernelRecorder has no attribute {name!r}")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""
