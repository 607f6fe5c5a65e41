"""Predicting training before it happens, from the kernel of a network at its initial or pretrained weights.

>>> import tangentlab
>>> forecast = tangentlab.predict_training(network, train, test=test, lr=0.1, momentum=0.9)
>>> forecast.table                                # loss and accuracy over steps
>>> forecast.steps_to(0.05), forecast.largest_stable_lr
>>> forecast.learning_curve()                     # the error that more samples would give
"""

from tangentlab.forecast._batch_statistics import at_batch_statistics
from tangentlab.forecast._learning_curve import eigenlearning, leave_one_out
from tangentlab.forecast._predict import TrainingForecast, predict_training

__all__ = ["TrainingForecast", "at_batch_statistics", "eigenlearning", "leave_one_out", "predict_training"]
