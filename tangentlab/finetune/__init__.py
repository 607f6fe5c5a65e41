"""Fine-tuning in the tangent space: task vectors, their arithmetic, and how much they interfere.

>>> from tangentlab import finetune, linearize, training
>>> lin = linearize(network)
>>> training.train(lin, data, spec)
>>> rotated = finetune.TaskVector.of(lin)                            # theta - theta0
>>> both = 0.5 * rotated + 0.5 * finetune.TaskVector.load("other.safetensors")
>>> edited = both.apply(linearize(network))
>>> print(finetune.task_arithmetic(network, tasks, spec))            # fine-tune, add and negate in one call
>>> plot.disentanglement(finetune.disentanglement_error(network, {"a": (one, x1), "b": (two, x2)}))
"""

from tangentlab.finetune._arithmetic import Addition, Negation, TaskArithmetic, addition, negation, task_arithmetic
from tangentlab.finetune._disentanglement import Disentanglement, different_predictions, disentanglement_error
from tangentlab.finetune._task_vector import TaskVector

__all__ = [
    "Addition",
    "Disentanglement",
    "Negation",
    "TaskArithmetic",
    "TaskVector",
    "addition",
    "different_predictions",
    "disentanglement_error",
    "negation",
    "task_arithmetic",
]
