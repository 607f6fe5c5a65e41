"""The readout of a kernel from options of the command line, and the targets that it may take."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tangentlab._cli._files import load_function, load_samples
from tangentlab._cli._options import KernelOptions
from tangentlab._cli._recipe import Recipe
from tangentlab._errors import TangentError
from tangentlab.kernels.internal import ReadoutLike, takes_targets


def parse_readout(text: str) -> ReadoutLike:
    """Parse the index of an output, the name of a readout, or "path/to/file.py:function".

    Raises:
        TangentError: The file is missing or fails, or has no such function.
    """
    if ".py:" in text:
        return load_function(text)
    return int(text) if text.lstrip("-").isdecimal() else text


def load_readout(kernel: KernelOptions, recipe: Recipe | None = None, labels: Any = None) -> dict[str, Any]:
    """Load the readout and its targets, as keyword arguments of the library.

    Args:
        kernel: The options.
        recipe: The samples; their file of labels has the targets if the options name none.
        labels: The targets if the options name none.

    Raises:
        TangentError: The options name targets for a readout that takes none, or a file that has none.
    """
    readout = parse_readout(kernel.readout)
    if not takes_targets(readout):
        if kernel.targets is not None:
            raise TangentError(
                f"--targets was given with --readout {kernel.readout}.",
                "It does not depend on targets.",
                "Leave --targets out, or choose the readout loss, margin, label, next_token or file.py:function.",
            )
        return {"readout": readout}
    if kernel.targets is not None:
        targets: Any = load_samples(kernel.targets)
    else:
        targets = recipe.load_targets() if recipe is not None else labels
    if isinstance(targets, Tensor) and targets.is_floating_point() and targets.shape[1:] == (1,):
        targets = targets[:, 0]  # as files of labels give one real target per sample
    return {"readout": readout, "targets": targets}


def with_absolute_paths(kernel: KernelOptions) -> KernelOptions:
    """Return the options in a form that is valid in any folder."""
    file, colon, name = kernel.readout.rpartition(":")
    readout = f"{Path(file).absolute()}:{name}" if colon else kernel.readout
    return replace(kernel, readout=readout, targets=None if kernel.targets is None else kernel.targets.absolute())
