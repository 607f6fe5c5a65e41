"""Whether padding changes what a model computes: texts of a loader that pads each batch are padded further here."""

import torch

from tangentlab._errors import TangentError
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network

_ROUNDING = (1e-5, 1e-3, 0.1)
"""Relative change of the outputs that is still rounding in double, single and half precision; rotary embeddings are
rounded to float32 by some models in float64."""


def refuse_counted_padding(network: Network, samples: Samples) -> None:
    """Refuse a loader whose texts, padded to the longest of all, give other outputs than in their own batch.

    Then a text's outputs depend on which texts share its batch, and a kernel of texts does not exist. One text is
    tried, in two forward passes. Models with outputs at every position are not compared.

    Raises:
        TangentError: The outputs of a text change.
    """
    found = samples.as_given()
    if found is None:
        return
    number, given = found
    with torch.no_grad():
        alone, padded = network.outputs(given, 1), network.outputs(samples.batch([number]), 1)
    if alone.shape != padded.shape:
        return
    change = float((alone - padded).double().norm()) / max(float(alone.double().norm()), 1e-300)
    if change > network.tolerance(*_ROUNDING):
        raise TangentError(
            f"The outputs of sample {number} of {samples.name} change by {change:.1e} (relative) with more padding.",
            "The model counts padded positions, so that a text's outputs depend on the texts in its batch.",
            "Pad on the right, pass position_ids that count from the first token, or pad every batch to one fixed "
            'length (padding="max_length").',
        )
