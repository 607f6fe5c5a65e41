"""One training loop for networks and linearized models, and the closed forms next to it.

>>> from tangentlab import linearize, training
>>> spec = training.TrainingSpec(epochs=10, batch_size=128, optimizer=training.SGD(0.05, momentum=0.9))
>>> result = training.train(linearize(network), (inputs, targets), spec, test=(test_inputs, test_targets))
>>> print(result)
>>> result.history                                        # a table, one row per epoch
>>> print(training.compare(network, (inputs, targets), spec))
"""

from tangentlab.training._callback import Callback
from tangentlab.training._compare import Comparison, compare
from tangentlab.training._divergence import DivergenceError
from tangentlab.training._gradient_flow import GradientFlow
from tangentlab.training._losses import Loss, SigmoidCrossEntropy, SoftmaxCrossEntropy, Squared, TaskSum
from tangentlab.training._measure import Score, evaluate
from tangentlab.training._optimizers import SGD, Adam
from tangentlab.training._result import TrainingResult
from tangentlab.training._schedules import Constant, LinearDecay, OneCycle, Schedule, Steps
from tangentlab.training._spec import TrainingSpec
from tangentlab.training._train import train

__all__ = [
    "SGD",
    "Adam",
    "Callback",
    "Comparison",
    "Constant",
    "DivergenceError",
    "GradientFlow",
    "LinearDecay",
    "Loss",
    "OneCycle",
    "Schedule",
    "Score",
    "SigmoidCrossEntropy",
    "SoftmaxCrossEntropy",
    "Squared",
    "Steps",
    "TaskSum",
    "TrainingResult",
    "TrainingSpec",
    "compare",
    "evaluate",
    "train",
]
