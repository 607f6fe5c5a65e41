"""Pictures of kernels, spectra, training, directions and samples. Each function draws into axes and returns them.

    >>> from tangentlab import plot
    >>> plot.kernel(tangentlab.ntk(model, x, readout="pntk"), labels)
    >>> ax = plot.spectrum(at_start, label="at the start")
    >>> plot.spectrum(trained, ax=ax, label="after training")
    >>> plot.history(training.compare(network, data, spec), "test_accuracy")
    >>> plot.samples(images[selection.indices])
    >>> plot.chosen(pool, selection.indices)
    >>> plot.directions(analysis.anisotropy_directions(model, input_shape=(1, 32, 32), k=8))
    >>> plot.reliability(belief.evaluate(x_test, y_test))
    >>> plot.disentanglement(finetune.disentanglement_error(network, tasks))
    >>> plot.predictions(found.mean, found.std, y_test)

Nothing is shown or saved: call ``ax.figure.savefig``, or let the notebook show it. Pictures need the extra
``tangentlab[plot]``.
"""

from importlib.util import find_spec

from tangentlab._extras import missing

if find_spec("matplotlib") is None:
    raise missing("Matplotlib", "plot", "The package tangentlab.plot draws with it.")

from tangentlab.plot._chosen import chosen
from tangentlab.plot._directions import directions
from tangentlab.plot._disentanglement import disentanglement
from tangentlab.plot._forecast import forecast
from tangentlab.plot._history import history
from tangentlab.plot._kernel import kernel
from tangentlab.plot._predictions import predictions
from tangentlab.plot._reliability import reliability
from tangentlab.plot._samples import is_images, samples
from tangentlab.plot._spectrum import spectrum

__all__ = [
    "chosen",
    "directions",
    "disentanglement",
    "forecast",
    "history",
    "is_images",
    "kernel",
    "predictions",
    "reliability",
    "samples",
    "spectrum",
]
