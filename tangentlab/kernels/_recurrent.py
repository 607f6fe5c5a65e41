r"""Recurrent layers written as the linear maps and entrywise functions that they are made of.

PyTorch runs a recurrent layer as one operation, which shows nothing of what happens between its steps. Here it is a
loop over the steps t of a sequence, in which every weight meets its vectors in a linear map, so that the rule of linear
maps knows its gradient: with T steps it is one map applied to T positions. With gates along the last axis,

    RNN     h_t = phi(W x_t + b + U h_{t-1} + c),    phi = tanh or relu

    LSTM    i, f, g, o = W x_t + b + U h_{t-1} + c
            c_t = sigma(f) * c_{t-1} + sigma(i) * tanh(g),    h_t = V (sigma(o) * tanh(c_t))

    GRU     r, z, n from W x_t + b,   r', z', n' from U h_{t-1} + c
            n_t = tanh(n + sigma(r + r') * n'),    h_t = n_t + sigma(z + z') * (h_{t-1} - n_t)

V is the projection of an LSTM with ``proj_size``, and the identity without. A layer above takes the outputs of the one
below; a layer of two directions runs a second map over the reversed sequence and joins the outputs of both.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

State = tuple[Tensor, ...]
"""h, and c for an LSTM."""
_Cell = Callable[[Tensor, State, Sequence[Tensor | None]], State]
"""From W x_t + b, the state before and (U, c, V) to the state after."""


def _rnn(activation: Callable[[Tensor], Tensor]) -> _Cell:
    def step(inputs: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
        return (activation(inputs + _linear(state[0], *weights[:2])),)

    return step


def _lstm(inputs: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
    i, f, g, o = (inputs + _linear(state[0], *weights[:2])).chunk(4, -1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if weights[2] is None else F.linear(h, weights[2])), c


def _gru(inputs: Tensor, state: State, weights: Sequence[Tensor | None]) -> State:
    r, z, n = inputs.chunk(3, -1)
    r_, z_, n_ = _linear(state[0], *weights[:2]).chunk(3, -1)
    new = torch.tanh(n + torch.sigmoid(r + r_) * n_)
    return (new + torch.sigmoid(z + z_) * (state[0] - new),)


def _linear(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    assert weight is not None
    return F.linear(x, weight, bias)


def _layer(cell: _Cell) -> Callable[..., Any]:
    """Return what a whole layer computes, for ``torch.lstm`` and its like."""

    def run(
        x: Tensor,
        hx: Any,
        parameters: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        time, directions = int(batch_first), 2 if bidirectional else 1
        first = zip(*(part.unbind(0) for part in _state(hx)), strict=True)
        size = len(parameters) // (num_layers * directions)
        own = [_Parameters(*parameters[i : i + size], biases=has_biases) for i in range(0, len(parameters), size)]
        last: list[State] = []
        for layer in range(num_layers):
            outputs = []
            for direction in range(directions):
                weights = own[layer * directions + direction]
                steps = list(F.linear(x, weights.w, weights.b).unbind(time))
                state, states = next(first), []
                for inputs in reversed(steps) if direction else steps:
                    state = cell(inputs, state, weights.recurrent)
                    states.append(state[0])
                outputs.append(torch.stack(states[::-1] if direction else states, time))
                last.append(state)
            x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        return x, *(torch.stack(parts) for parts in zip(*last, strict=True))

    return run


def _single(cell: _Cell) -> Callable[..., Any]:
    """Return what one step computes, for ``torch.lstm_cell`` and its like."""

    def run(
        x: Tensor, hx: Any, w: Tensor, u: Tensor, b: Tensor | None = None, c: Tensor | None = None
    ) -> Tensor | State:
        state = cell(F.linear(x, w, b), _state(hx), (u, c, None))
        return state if len(state) > 1 else state[0]

    return run


class _Parameters:
    """W, U, then b, c if there are biases, then V if there is a projection."""

    def __init__(self, w: Tensor, u: Tensor, *rest: Tensor, biases: bool) -> None:
        self.w, self.b = w, rest[0] if biases else None
        projection = rest[2 if biases else 0 :]
        self.recurrent = (u, rest[1] if biases else None, projection[0] if projection else None)


def _state(hx: Any) -> State:
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


_CELLS: dict[str, _Cell] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn(torch.tanh), "rnn_relu": _rnn(torch.relu)}
_LAYERS = {getattr(torch, name): _layer(cell) for name, cell in _CELLS.items()}
_SINGLE = {getattr(torch, f"{name}_cell"): _single(cell) for name, cell in _CELLS.items()}


def unrolled(func: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any] | None:
    """Return a function that computes the same by operations with rules; None if there is none.

    There is none for packed sequences, whose rows are not in the order of the samples, and for dropout.
    """
    if func in _SINGLE:
        return _SINGLE[func]
    if func not in _LAYERS or len(args) != 9 or not isinstance(args[3], bool):  # packed: the fourth is a list
        return None
    dropout, train = args[5:7]
    return None if dropout and train else _LAYERS[func]
