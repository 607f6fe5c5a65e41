"""``tangentlab bench``: the time of a kernel on this machine."""

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import say
from tangentlab._cli.measures import parse_shape

app = typer.Typer()
_LENET = options.NetworkOptions(model="lenet")


@command(app)
def bench(
    *,
    network: options.NetworkOptions = _LENET,
    samples: Annotated[int, options.option(value="N", min=2, help="Number of random inputs.")] = 500,
    shape: options.Shape = "3,32,32",
    repeats: Annotated[
        int, options.option(value="N", min=1, help="Number of timed calls, of which the fastest counts.")
    ] = 3,
    chosen: options.KernelOptions,
    output: options.OutputOptions,
) -> None:
    """Time a kernel on this machine, next to PyTorch's own vmap(jacrev) and to the rate of matrix products.

    The two kernels are compared. The full benchmark against other tools is in the repository: python -m benchmarks.

    Example: tangentlab bench --model lenet --samples 200
    """
    import torch

    from tangentlab._cli._kernels import load_network, parse_device, parse_dtype
    from tangentlab._cli._readouts import load_readout
    from tangentlab._cli._recipe import make_recipe
    from tangentlab.kernels import ntk

    size = parse_shape(shape)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, *size, generator=generator)
    place, dtype = parse_device(chosen.device) or torch.device("cpu"), parse_dtype(chosen.dtype)
    model = load_network(make_recipe(network), x, output).to(place, dtype)
    x = x.to(place, dtype)
    readout, budget = load_readout(chosen), chosen.memory
    ours, kernel = _best(lambda: ntk(model, x, **readout, memory_budget=budget, progress=False), repeats, place)
    facts: dict[str, Any] = {
        "samples": samples,
        "parameters": sum(p.numel() for p in model.parameters()),
        "tangentlab_seconds": ours,
        "entries_a_second": kernel.numel() / ours,
    }
    if kernel.ndim == 2 and readout["readout"] == "pntk":
        theirs, other = _best(lambda: _jacobians(model, x), 1, place)
        facts |= {
            "vmap_jacrev_seconds": theirs,
            "ratio": theirs / ours,
            "relative_difference": float((kernel - other).norm() / other.norm()),
        }
    n = 2048
    a = torch.randn(n, n, generator=generator).to(place)
    product, _ = _best(lambda: a @ a, max(3, repeats), place)
    facts["gemm_gflops"] = 2 * n**3 / product / 1e9
    say(facts, output.as_json)


def _best(call: Callable[[], Any], repeats: int, device: Any) -> tuple[float, Any]:
    """Time some calls after a warm-up call; return the shortest time and the result."""
    import torch

    result, seconds = call(), []
    for _ in range(repeats):
        begin = time.perf_counter()
        result = call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


def _jacobians(network: Any, x: Any) -> Any:
    """Compute the pseudo-NTK as in PyTorch's tutorial, in chunks of 32 samples."""
    from torch.func import functional_call, grad, vmap

    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}

    def value(weights: Any, sample: Any) -> Any:
        logits = functional_call(network, weights, (sample.unsqueeze(0),))
        return logits.sum() / logits.shape[-1] ** 0.5

    rows = vmap(grad(value), (None, 0), chunk_size=32)(weights, x)
    return sum(part.flatten(1) @ part.flatten(1).T for part in rows.values())
