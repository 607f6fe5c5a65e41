"""Fine-tuning in the tangent space: task vectors and their arithmetic; the kernel watched while a network trains.

>>> from tangentlab import finetune, linearize, training
>>> lin = linearize(network)
>>> training.train(lin, data, spec)
>>> rotated = finetune.TaskVector.of(lin)                            # theta - theta0
>>> both = 0.5 * rotated + 0.5 * finetune.TaskVector.load("other.safetensors")
>>> edited = both.apply(linearize(network))
>>> print(finetune.task_arithmetic(network, tasks, spec))            # fine-tune, add and negate in one call
>>> plot.disentanglement(finetune.disentanglement_error(network, {"a": (one, x1), "b": (two, x2)}))
>>> recorder = finetune.KernelRecorder(x[:100], y[:100])             # for three training loops
>>> training.train(network, data, spec, callbacks=[recorder])
>>> print(finetune.kernel_regime(pretrained, network, x_test))       # is fine-tuning in the kernel regime?
"""

from tangentlab.finetune._arithmetic import Addition, Negation, TaskArithmetic, addition, negation, task_arithmetic
from tangentlab.finetune._disentanglement import Disentanglement, different_predictions, disentanglement_error
from tangentlab.finetune._recorder import KernelRecorder
from tangentlab.finetune._regime import KernelRegime, kernel_regime
from tangentlab.finetune._task_vector import TaskVector

__all__ = [
    "Addition",
    "Disentanglement",
    "KernelRecorder",
    "KernelRegime",
    "Negation",
    "TaskArithmetic",
    "TaskVector",
    "addition",
    "different_predictions",
    "disentanglement_error",
    "kernel_regime",
    "negation",
    "task_arithmetic",
]
