"""``python -m benchmarks.readouts``: what a kernel of losses costs as the number of outputs grows.

A GPT-2-style network with a head of V logits at every position, and the readout ``"next_token"``: one number per text,
so one backward pass, whatever V is. Three kernels are timed in one process: of the network with two outputs, of the
network with V outputs, and of the head of V outputs alone, on hidden states that are given. The second should take no
longer than the first and the third together. Beside them are the memory that the second takes, and a loop of one
``autograd.grad`` per text, as a user would write it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from benchmarks import memory

VOCABULARY = 50257
WIDTH, LAYERS, HEADS = 256, 6, 8


class Decoder(nn.Module):
    """A GPT-2-style trunk with a head of its own; ``states`` are given instead of tokens for the head alone."""

    def __init__(self, outputs: int, trunk: bool = True) -> None:
        from transformers import GPT2Config, GPT2Model

        super().__init__()
        config = GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
        self.trunk = GPT2Model(config) if trunk else nn.Identity()
        self.head = nn.Linear(WIDTH, outputs, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """Return logits (B, T, V) of tokens (B, T) or states (B, T, d)."""
        hidden = states if states.is_floating_point() else self.trunk(input_ids=states).last_hidden_state
        return self.head(hidden)


def loop(model: nn.Module, x: Tensor, tokens: Tensor) -> Tensor:
    """Return the kernel by one gradient per text, rows stacked, products of columns in float64."""
    parameters = list(model.parameters())
    rows = []
    for n in range(len(x)):
        value = -F.cross_entropy(model(x[n : n + 1])[0, :-1], tokens[n, 1:])
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        rows.append(torch.cat([g.flatten() for g in found if g is not None]))
    matrix = torch.stack(rows)
    pieces = (part.double() for part in matrix.split(1 << 20, 1))  # a sum of all columns in float32 loses digits
    return torch.stack([part @ part.T for part in pieces]).sum(0)


def best(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the shortest time of some calls, and the result."""
    seconds, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--outputs", type=int, default=VOCABULARY)
    parser.add_argument("--budget", default="2GiB")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, VOCABULARY, (arguments.samples, arguments.tokens), generator=generator)
    states = torch.randn(*tokens.shape, WIDTH, generator=generator)

    def kernel(model: nn.Module, x: Tensor, outputs: int) -> Tensor:
        return tangentlab.ntk(  # type: ignore[no-any-return]
            model,
            {"states": x},
            readout="next_token",
            targets=tokens % outputs,
            memory_budget=arguments.budget,
            progress=False,
        )

    wide = Decoder(arguments.outputs).eval()
    two, _ = best(lambda: kernel(Decoder(2).eval(), tokens, 2), arguments.repeats)
    head, _ = best(
        lambda: kernel(Decoder(arguments.outputs, trunk=False), states, arguments.outputs), arguments.repeats
    )
    before = memory.start_watch()
    many, found = best(lambda: kernel(wide, tokens, arguments.outputs), arguments.repeats)
    peak = memory.peak() - before
    logits = arguments.tokens * arguments.outputs * 4
    print(f"N {arguments.samples}, T {arguments.tokens}, {sum(p.numel() for p in wide.parameters()):,} parameters")
    print(f"2 outputs                   {two:8.2f} s")
    print(f"head of {arguments.outputs:,} outputs alone {head:8.2f} s")
    print(f"{arguments.outputs:,} outputs              {many:8.2f} s, {many / (two + head):.2f} of the two together")
    print(f"peak memory {peak / memory.GIB:.2f} GiB; the logits of one text take {logits / 2**20:.0f} MiB")
    plain, expected = best(lambda: loop(wide, tokens, tokens % arguments.outputs), 1)
    sizes = expected.diagonal().sqrt()
    error = float(((found - expected).abs() / sizes.outer(sizes)).max())
    print(f"loop of autograd.grad       {plain:8.2f} s, differs by {error:.1e} of sqrt(K_ii K_jj)")


if __name__ == "__main__":
    main()
