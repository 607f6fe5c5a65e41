"""``python -m benchmarks.precision``: how many digits a kernel loses in each precision, and what a regression loses.

For each network, the pseudo-NTK of some digits (the embedded data set) is computed in float64, which is the truth here,
and in float32, with TF32, in bfloat16 and in float16. Printed are the relative error in the Frobenius norm, the largest
error of an entry over sqrt(K_ii K_jj), the test accuracy of kernel regression with that kernel, and the share of test
images whose predicted class changes. The ridge is the same for all, 1e-3 of the mean diagonal.

TF32 exists on GPUs only. ``--device cuda`` measures it, switched on by ``torch.set_float32_matmul_precision("high")``
and ``torch.backends.cudnn.allow_tf32``; on a CPU it is emulated: operands of every matrix product and convolution,
forward and backward, are rounded to its ten bits, and products are added up in float32, as the hardware does.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tangentlab import TangentError, data, linalg, models, ntk

RIDGE = 1e-3
_aten = torch.ops.aten
_PRODUCTS = {_aten.mm, _aten.addmm, _aten.addmm_, _aten.bmm, _aten.baddbmm, _aten.baddbmm_, _aten.mv, _aten.dot}
_PRODUCTS |= {_aten.convolution, _aten.convolution_backward, _aten.addmv}


def ten_bits(value: Any) -> Any:
    """Return a float32 tensor rounded to TF32: eight bits of exponent, ten of fraction."""
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        return value
    bits = value.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).view_as(value)


class EmulatedTF32(TorchDispatchMode):
    """Rounds the operands of matrix products and convolutions."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in _PRODUCTS:
            kept = 1 if func.overloadpacket in {_aten.addmm, _aten.addmm_, _aten.baddbmm, _aten.baddbmm_} else 0
            args = (*args[:kept], *pytree.tree_map(ten_bits, args[kept:]))  # what is added to is not rounded
        return func(*args, **(kwargs or {}))


@contextmanager
def switched_on() -> Iterator[None]:
    """Let a GPU use TF32 for matrix products and convolutions."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


class Patches(nn.Module):
    """A transformer of two layers, width 64, on the 16 patches of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Conv2d(1, 64, 2, stride=2), nn.Parameter(0.02 * torch.randn(16, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(self.embed(x).flatten(2).mT + self.places).mean(1))


def named(name: str) -> Callable[[], nn.Module]:
    """Return the builder of one of the papers' networks, for images of 32 x 32."""
    return lambda: models.build(name, input_shape=(1, 32, 32), outputs=10, seed=0)


def transformer() -> nn.Module:
    """Return the small transformer."""
    torch.manual_seed(0)
    return Patches()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "mlp": (named("mlp"), 600, 32),
    "lenet": (named("lenet"), 600, 32),
    "resnet18": (named("resnet18"), 120, 32),
    "transformer": (transformer, 600, 8),
}
"""Builder, number of training images, and their size."""
PRECISIONS = {"float32": torch.float32, "TF32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def predicted(kernel: Tensor, count: int, labels: Tensor) -> Tensor:
    """Return the classes that kernel regression on the first images predicts for the others."""
    train, cross = kernel[:count, :count].double(), kernel[count:, :count].double()
    ridge = RIDGE * float(train.diagonal().mean())
    return linalg.regress(train, F.one_hot(labels, 10).double() - 0.1, ridge=ridge).predict(cross).argmax(1)


def kernel_in(model: nn.Module, x: Tensor, precision: str) -> Tensor:
    """Return the pseudo-NTK in one of the precisions."""
    if precision != "TF32":
        return ntk(model, x, readout="pntk", dtype=PRECISIONS.get(precision, torch.float64))
    with switched_on(), EmulatedTF32() if x.device.type == "cpu" else nullcontext():
        return ntk(model, x, readout="pntk", dtype=torch.float32)


def main() -> None:
    """Print one row per network and precision."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print(
        f"torch {torch.__version__}, {options.device}, TF32 {'emulated' if options.device == 'cpu' else 'measured'}\n"
    )
    print("| network, N | precision | relative error | largest entry | test accuracy | predictions that change |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in options.only:
        build, count, size = NETWORKS[name]
        digits = data.load("digits", n_train=count, n_test=300 if count > 200 else 120, seed=0)
        images = torch.cat([digits.train.inputs(), digits.test.inputs()])
        x = F.interpolate(images, size=(size, size), mode="nearest").to(options.device)
        labels, target = digits.train.labels.to(options.device), digits.test.labels.to(options.device)
        model = build().eval().to(options.device)
        truth = kernel_in(model, x, "float64")
        classes = predicted(truth, count, labels)
        print(f"| {name}, {count} | float64 | | | {_share(classes == target)} | |", flush=True)
        scale = truth.diagonal().sqrt()
        for precision in PRECISIONS:
            try:
                found = kernel_in(model, x, precision).double()
            except TangentError as error:
                print(f"| | {precision} | refused: {str(error).splitlines()[0]} | | | |", flush=True)
                continue
            difference = found - truth
            own = predicted(found, count, labels)
            cells = (
                f"{float(difference.norm() / truth.norm()):.1e}",
                f"{float((difference / scale / scale[:, None]).abs().max()):.1e}",
            )
            print(
                f"| | {precision} | {' | '.join(cells)} | {_share(own == target)} | {_share(own != classes)} |",
                flush=True,
            )


def _share(right: Tensor) -> str:
    return f"{float(right.double().mean()):.1%}"


if __name__ == "__main__":
    main()
