"""neural-tangents 0.6.5 on jax 0.4.23, in its own environment.

The networks are written again in plain jax.numpy on the same weights (their outputs are compared with those of
PyTorch before anything is measured), channels last, which is what XLA is fast at on a CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case, Problem
from benchmarks.peers._peer import Peer, Setting

Parameters = dict[str, Any]
Network = Callable[[Parameters, Any], Any]


class NeuralTangents(Peer):
    """``nt.empirical_ntk_fn`` in each of its implementations, jitted, whole or by ``nt.batch``."""

    name = "neural-tangents"
    requirements = "requirements-neural-tangents.txt"

    def settings(self, case: Case) -> tuple[Setting, ...]:
        quarter = max(size for size in range(1, case.samples // 4 + 2) if case.samples % size == 0)
        return tuple(
            {"implementation": implementation, "batch": batch}
            for batch in (None, quarter)
            for implementation in ("structured derivatives", "Jacobian contraction", "NTK-vector products")
        )

    def prepare(self, problem: Problem, setting: Setting, memory: int) -> Callable[[], Any]:
        import jax
        import neural_tangents as nt
        from jax import numpy as jnp

        network = _NETWORKS[problem.case.network](problem)
        parameters = {name: jnp.asarray(_to_jax(problem.state[name])) for name in problem.parameters}
        x = jnp.asarray(problem.x.transpose(0, 2, 3, 1))
        _check_outputs(jax.jit(network)(parameters, x[:64]), problem.y[:64])

        case = problem.case

        def readout(parameters: Parameters, x: Any) -> Any:
            logits = network(parameters, x)
            return logits if case.readout == "full" else logits.sum(-1, keepdims=True) / math.sqrt(case.outputs)

        implementation = {
            "structured derivatives": nt.NtkImplementation.STRUCTURED_DERIVATIVES,
            "Jacobian contraction": nt.NtkImplementation.JACOBIAN_CONTRACTION,
            "NTK-vector products": nt.NtkImplementation.NTK_VECTOR_PRODUCTS,
        }[setting["implementation"]]
        kernel = nt.empirical_ntk_fn(readout, trace_axes=(), vmap_axes=0, implementation=implementation)
        start = time.perf_counter()
        if setting["batch"] is None:
            compiled = jax.jit(lambda x, parameters: kernel(x, None, parameters)).lower(x, parameters).compile()

            def call() -> Any:
                return compiled(x, parameters).block_until_ready()
        else:
            batched = nt.batch(kernel, batch_size=setting["batch"], device_count=0, store_on_device=False)
            batched(x[: 2 * setting["batch"]], None, parameters)  # compiles the block

            def call() -> Any:
                return batched(x, None, parameters)

        call.compiling = time.perf_counter() - start  # type: ignore[attr-defined]
        return call

    def canonical(self, problem: Problem, kernel: Any) -> np.ndarray:
        size = problem.case.samples * problem.case.readouts
        return np.asarray(kernel).transpose(0, 2, 1, 3).reshape(size, size)  # (N, N, R, R) there


def _to_jax(array: np.ndarray) -> np.ndarray:
    """Convert PyTorch's (out, in, h, w) to (h, w, in, out), (out, in) to (in, out); the kernel is the same."""
    if array.ndim == 4:
        return array.transpose(2, 3, 1, 0)
    return array.T if array.ndim == 2 else array


def _check_outputs(ours: Any, reference: np.ndarray) -> None:
    error = np.linalg.norm(np.asarray(ours) - reference) / np.linalg.norm(reference)
    if not error < 1e-4:
        raise RuntimeError(f"the network in JAX differs from PyTorch's: relative error {error:.1e} in its outputs")


def _convolution(x: Any, weight: Any, stride: int = 1, padding: int = 0) -> Any:
    from jax import lax

    pads = [(padding, padding)] * 2
    return lax.conv_general_dilated(x, weight, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _dense(problem: Problem) -> Network:
    from jax import nn

    names = [name.removesuffix(".weight") for name in problem.parameters if name.endswith(".weight")]

    def network(parameters: Parameters, x: Any) -> Any:
        x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
        for name in names[:-1]:
            x = nn.relu(x @ parameters[f"{name}.weight"] + parameters[f"{name}.bias"])
        return x @ parameters[f"{names[-1]}.weight"] + parameters[f"{names[-1]}.bias"]

    return network


def _lenet(problem: Problem) -> Network:
    from jax import nn

    def pool(x: Any) -> Any:
        n, height, width, channels = x.shape
        return x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))

    def network(parameters: Parameters, x: Any) -> Any:
        for name in ("conv1", "conv2"):
            x = _convolution(x, parameters[f"{name}.weight"]) + parameters[f"{name}.bias"]
            x = pool(nn.relu(x))
        x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
        for name in ("fc1", "fc2"):
            x = nn.relu(x @ parameters[f"{name}.weight"] + parameters[f"{name}.bias"])
        return x @ parameters["fc3.weight"] + parameters["fc3.bias"]

    return network


def _resnet18(problem: Problem) -> Network:
    from jax import nn
    from jax import numpy as jnp

    buffers = {name: jnp.asarray(array) for name, array in problem.state.items() if "running" in name}
    epsilon = 1e-5

    def normalize(parameters: Parameters, name: str, x: Any) -> Any:
        scale = parameters[f"{name}.weight"] / jnp.sqrt(buffers[f"{name}.running_var"] + epsilon)
        return (x - buffers[f"{name}.running_mean"]) * scale + parameters[f"{name}.bias"]

    def block(parameters: Parameters, name: str, x: Any, stride: int) -> Any:
        y = _convolution(x, parameters[f"{name}.conv1.weight"], stride, 1)
        y = nn.relu(normalize(parameters, f"{name}.bn1", y))
        y = _convolution(y, parameters[f"{name}.conv2.weight"], 1, 1)
        y = normalize(parameters, f"{name}.bn2", y)
        if f"{name}.shortcut.0.weight" in parameters:
            x = _convolution(x, parameters[f"{name}.shortcut.0.weight"], stride)
            x = normalize(parameters, f"{name}.shortcut.1", x)
        return nn.relu(y + x)

    def network(parameters: Parameters, x: Any) -> Any:
        x = nn.relu(normalize(parameters, "bn1", _convolution(x, parameters["conv1.weight"], 1, 1)))
        for stage, stride in enumerate((1, 2, 2, 2)):
            x = block(parameters, f"layers.{stage}.0", x, stride)
            x = block(parameters, f"layers.{stage}.1", x, 1)
        return x.mean((1, 2)) @ parameters["fc.weight"] + parameters["fc.bias"]

    return network


_NETWORKS: dict[str, Callable[[Problem], Network]] = {
    "mlp": _dense,
    "fcn": _dense,
    "lenet": _lenet,
    "resnet18": _resnet18,
}
