"""From uint8 pixels to network inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_CHUNK = 1000  # images whose pixels are counted at once: small beside the data, large beside the overhead


@dataclass(frozen=True)
class Normalization:
    """The map x -> (x / 255 - mean) / std per channel, as in ortiz2021 (code) with the training set's own statistics.

    Attributes:
        mean: Per channel, of pixels in [0, 1].
        std: Per channel, of pixels in [0, 1], over all pixels and images, with divisor N.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, images: Tensor) -> "Normalization":
        """Compute the exact statistics of uint8 images (N, C, H, W), from a histogram of each channel."""
        histogram = torch.zeros(images.shape[1], 256, dtype=torch.float64)
        for chunk in images.split(_CHUNK):
            for channel in range(images.shape[1]):
                histogram[channel] += torch.bincount(chunk[:, channel].flatten(), minlength=256)
        values = torch.arange(256, dtype=torch.float64) / 255
        weights = histogram / histogram.sum(1, keepdim=True)
        mean = weights @ values
        variance = (weights * (values - mean[:, None]) ** 2).sum(1)
        # A channel that never changes has nothing to scale.
        std = torch.where(variance > 0, variance.sqrt(), 1.0)
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    def __call__(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Normalize uint8 images to inputs (N, C, H, W); the images are not changed."""
        mean, std = (self._column(values, images, dtype) for values in (self.mean, self.std))
        return images.to(dtype).mul_(1 / (255 * std)).sub_(mean / std)

    def inverse(self, inputs: Tensor) -> Tensor:
        """Convert normalized inputs back to pixels in [0, 1], for pictures."""
        return inputs * self._column(self.std, inputs, inputs.dtype) + self._column(self.mean, inputs, inputs.dtype)

    @staticmethod
    def _column(values: Sequence[float], like: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=like.device)[:, None, None]
