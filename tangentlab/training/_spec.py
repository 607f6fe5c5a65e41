"""A training run as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from tangentlab._errors import TangentError
from tangentlab.training._losses import Loss, SoftmaxCrossEntropy
from tangentlab.training._optimizers import SGD, Optimizer
from tangentlab.training._schedules import Constant, Schedule


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """The settings that determine a run, besides the model and the data.

    Networks and linearized models are trained by the same spec in the same way. The order of the minibatches is a
    function of ``seed``, the epoch and the number of samples, and of nothing else.

    ortiz2021: ``TrainingSpec(epochs=100, batch_size=128, loss=SigmoidCrossEntropy(), optimizer=SGD(0.05,
    momentum=0.9), schedule=LinearDecay(), drop_last=True, thresholds=(0.01,))``.

    Attributes:
        epochs: Passes over the training samples.
        batch_size: Samples in a minibatch; None for all of them, which is gradient descent.
        loss: One of the losses.
        optimizer: :class:`SGD` or :class:`Adam`.
        schedule: One of the schedules.
        seed: Seed of the order of minibatches, and of PyTorch's generator during training (dropout of a network).
        drop_last: Whether to leave out an incomplete last minibatch.
        evaluate_every: Epochs between rows of the history; the first and last epoch always have one.
        evaluate_on: How many training samples the training loss and accuracy are measured on (the first ones);
            None for all, 0 for none.
        evaluation_batch_size: Samples in a batch when evaluating. It affects only rounding.
        thresholds: Training losses whose first attainment is recorded.
        watch_every: Steps between records of the outputs on watched samples; None for the history's epochs.

    Examples:
        >>> from tangentlab import training
        >>> training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1)).epochs
        2

    See also:
        :func:`tangentlab.training.train`, :func:`tangentlab.training.compare`.
    """

    epochs: int
    batch_size: int | None
    loss: Loss = field(default_factory=SoftmaxCrossEntropy)
    optimizer: Optimizer = field(default_factory=lambda: SGD(0.1))
    schedule: Schedule = field(default_factory=Constant)
    seed: int = 0
    drop_last: bool = False
    evaluate_every: int = 1
    evaluate_on: int | None = None
    evaluation_batch_size: int = 512
    thresholds: tuple[float, ...] = ()
    watch_every: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", tuple(float(value) for value in self.thresholds))
        for name in ("epochs", "batch_size", "evaluate_every", "evaluation_batch_size", "watch_every"):
            value = getattr(self, name)
            optional = name in ("batch_size", "watch_every")
            if not (value is None and optional) and (not isinstance(value, int) or value < 1):
                raise TangentError(f"{name}={value!r} is not a positive whole number.", remedy=f"Set {name} to one.")
        if self.evaluate_on is not None and (not isinstance(self.evaluate_on, int) or self.evaluate_on < 0):
            raise TangentError(
                f"evaluate_on={self.evaluate_on!r} is not a number of samples.", remedy="Use None for all."
            )
        if not isinstance(self.seed, int) or self.seed < 0:
            raise TangentError(f"seed={self.seed!r} is not a whole number from 0.", remedy="Use 0, 1, 2, ...")
        for name, methods in (("loss", "per_sample"), ("optimizer", "build"), ("schedule", "factor")):
            if not hasattr(getattr(self, name), methods) or isinstance(getattr(self, name), type):
                raise TangentError(
                    f"{name}={getattr(self, name)!r} is not one of tangentlab.training's.",
                    remedy="Use for example SoftmaxCrossEntropy(), SGD(0.1) and LinearDecay().",
                )

    def describe(self) -> dict[str, Any]:
        """Return a flat dictionary of plain values that distinguishes two runs."""
        return _describe("spec", self)


def _describe(prefix: str, value: Any) -> dict[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        result = {} if prefix == "spec" else {prefix: type(value).__name__}
        for entry in fields(value):
            name = entry.metadata.get("stored_as", entry.name)  # in records of runs
            result |= _describe(f"{prefix}.{name}", getattr(value, entry.name))
        return result
    return {prefix: _text(value)}


def _text(value: Any) -> Any:
    """Return a text that is the same in another process: no addresses, as in ``repr`` of an ordinary object."""
    if value is None or isinstance(value, bool | int | float | str):
        return plain(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, Mapping):
        return str({str(key): _text(part) for key, part in value.items()})
    if isinstance(value, tuple | list):
        return str([_text(part) for part in value])
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__repr__ is object.__repr__:
        return f"{kind} {_text(vars(value))}" if hasattr(value, "__dict__") else kind
    return repr(value)


def plain(value: Any) -> Any:
    """Return a number or string of Python's own type. NumPy's float64 is a float, but cannot be stored in a
    checkpoint."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
