"""scikit-learn's digits: real data that needs no files."""

import torch

from tangentlab._seeds import generator
from tangentlab.data._examples import Examples
from tangentlab.data._image_data import ImageData, Provenance
from tangentlab.data._normalization import Normalization
from tangentlab.data._subset import stratified

_TEST = 360
_SPLIT_SEED = 0


def load_digits() -> ImageData:
    """Load 1,797 handwritten digits of 8 x 8 pixels: 1,437 for training and 360 for testing.

    scikit-learn gives no split; this one is stratified and always the same. Its pixels go from 0 to 16 and
    are stretched to 0 to 255, rounded.
    """
    from sklearn.datasets import load_digits as embedded

    bunch = embedded()
    images = torch.from_numpy(bunch.images * (255 / 16)).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(bunch.target).to(torch.int64)
    in_test = torch.zeros(len(labels), dtype=torch.bool)
    in_test[stratified(labels, _TEST, generator("split", _SPLIT_SEED))] = True
    normalization = Normalization.of(images[~in_test])
    return ImageData(
        "digits",
        Examples(images[~in_test], labels[~in_test], normalization),
        Examples(images[in_test], labels[in_test], normalization),
        tuple("0123456789"),
        Provenance("scikit-learn's embedded digits, the test part of UCI's optical digits"),
    )
