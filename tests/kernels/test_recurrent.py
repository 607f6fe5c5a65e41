"""Recurrent layers and cells: every option, in every form, against the plain reference; none takes the fallback."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.overrides import TorchFunctionMode

import tangentlab
from tangentlab.kernels._recurrent import unrolled
from tests.kernels.cases import build
from tests.kernels.parts import Case, Functional, normal
from tests.kernels.test_exact import form, relative

__all__ = ["form"]  # a fixture

# A wrong rule can be found out and made up for by the fallback: right numbers are not enough.
pytestmark = pytest.mark.filterwarnings("error:.*fallback:UserWarning")

WIDTH, HIDDEN, STEPS = 4, 3, 4


def over(layer: Callable[[], nn.Module], read: Callable[[Any, Any], Tensor]) -> Callable[[], nn.Module]:
    """A recurrent layer and a dense read-out of what ``read`` makes of its outputs and its last states."""
    return lambda: Functional(lambda m, x: m.out(read(*m.layer(x)).tanh()), layer=layer(), out=nn.LazyLinear(2))


def everything(outputs: Tensor, states: Any) -> Tensor:
    """All outputs and all last states, of a layer that has the batch first."""
    states = states if isinstance(states, tuple) else (states,)
    return torch.cat([outputs.flatten(1), *(s.transpose(0, 1).flatten(1) for s in states)], 1)


def steps_first(kind: Any, **options: Any) -> Callable[[], nn.Module]:
    return lambda: Functional(
        lambda m, x: m.out(m.layer(x.transpose(0, 1))[0].transpose(0, 1).flatten(1)),
        layer=kind(WIDTH, HIDDEN, **options),
        out=nn.LazyLinear(2),
    )


def last_output(outputs: Tensor, states: Any) -> Tensor:
    return outputs[:, -1]


LAYERS: dict[str, Any] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn": nn.RNN,
    "rnn with relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "lstm with projection": lambda *a, **k: nn.LSTM(*a, proj_size=2, **k),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no bias": {"bias": False},
    "two layers": {"num_layers": 2},
    "two directions": {"bidirectional": True},
    "two layers of two directions": {"num_layers": 2, "bidirectional": True, "bias": False},
    "dropout in evaluation mode": {"num_layers": 2, "dropout": 0.5},
}


def _case(name: str, kind: Any, options: dict[str, Any]) -> Case:
    return Case(name, over(lambda: kind(WIDTH, HIDDEN, batch_first=True, **options), everything), normal(STEPS, WIDTH))


def _learned(m: Any, x: Tensor) -> Tensor:
    """Initial states that are parameters, repeated for every sample."""
    return m.out(m.layer(x, (m.h.expand(-1, len(x), -1), m.c.expand(-1, len(x), -1)))[0].flatten(1))


def _given(m: Any, x: Tensor) -> Tensor:
    """Initial states that the sample gives."""
    return m.out(m.layer(x[:, 1:], m.first(x[:, 0]).unsqueeze(0))[0].flatten(1))


def _encoder_decoder(m: Any, x: Tensor) -> Tensor:
    """One layer's last states are the next one's first, and both share a weight's values but not the weight."""
    _, states = m.layer(x)
    return m.out(m.decoder(x.flip(1), states)[0][:, -1])


def _cell(m: Any, x: Tensor) -> Tensor:
    """A cell in a loop, from no state."""
    state, found = None, []
    for part in x.unbind(1):
        state = m.layer(part, state)
        found.append(state[0] if isinstance(state, tuple) else state)
    return m.out(torch.stack(found, 1).flatten(1))


def _with_attention(m: Any, x: Tensor) -> Tensor:
    rows = m.layer(x)[0]
    return m.out((rows + m.attention(rows, rows, rows)[0]).tanh().mean(1))


def _tied(m: Any, x: Tensor) -> Tensor:
    """The same layer over a sequence and over its own outputs."""
    return m.out(m.layer(m.layer(x)[0])[0][:, -1])


CASES = [
    *(_case(f"{name}, {option}", LAYERS[name], OPTIONS[option]) for name in ("lstm", "gru") for option in OPTIONS),
    *(
        _case(f"{name}, {option}", LAYERS[name], OPTIONS[option])
        for name in ("rnn", "lstm with projection")
        for option in ("plain", "no bias", "two layers of two directions")
    ),
    _case("rnn with relu", LAYERS["rnn with relu"], {}),
    *(Case(f"{name}, steps first", steps_first(LAYERS[name], num_layers=2), normal(STEPS, WIDTH)) for name in LAYERS),
    Case(
        "lstm, last output alone", over(lambda: nn.LSTM(WIDTH, HIDDEN, batch_first=True), last_output), normal(2, WIDTH)
    ),
    Case("gru, one step", over(lambda: nn.GRU(WIDTH, HIDDEN, batch_first=True), last_output), normal(1, WIDTH)),
    Case(
        "lstm, learned states",
        lambda: Functional(
            _learned,
            layer=nn.LSTM(WIDTH, HIDDEN, 2, batch_first=True),
            h=torch.randn(2, 1, HIDDEN),
            c=torch.randn(2, 1, HIDDEN),
            out=nn.LazyLinear(2),
        ),
        normal(STEPS, WIDTH),
    ),
    Case(
        "gru, states of the sample",
        lambda: Functional(
            _given,
            layer=nn.GRU(WIDTH, HIDDEN, batch_first=True),
            first=nn.Linear(WIDTH, HIDDEN),
            out=nn.LazyLinear(2),
        ),
        normal(STEPS, WIDTH),
    ),
    Case(
        "lstm, encoder and decoder",
        lambda: Functional(
            _encoder_decoder,
            layer=nn.LSTM(WIDTH, HIDDEN, batch_first=True),
            decoder=nn.LSTM(WIDTH, HIDDEN, batch_first=True),
            out=nn.LazyLinear(2),
        ),
        normal(STEPS, WIDTH),
    ),
    *(
        Case(
            f"{kind.__name__}{', no bias' if not bias else ''}",
            lambda kind=kind, bias=bias: Functional(_cell, layer=kind(WIDTH, HIDDEN, bias=bias), out=nn.LazyLinear(2)),
            normal(STEPS, WIDTH),
        )
        for kind in (nn.LSTMCell, nn.GRUCell, nn.RNNCell)
        for bias in (True, False)
    ),
    Case(
        "RNNCell with relu",
        lambda: Functional(_cell, layer=nn.RNNCell(WIDTH, HIDDEN, nonlinearity="relu"), out=nn.LazyLinear(2)),
        normal(STEPS, WIDTH),
    ),
    Case(
        "lstm and attention",
        lambda: Functional(
            _with_attention,
            layer=nn.LSTM(WIDTH, 2, bidirectional=True, batch_first=True),
            attention=nn.MultiheadAttention(4, 2, batch_first=True),
            out=nn.Linear(4, 2),
        ),
        normal(STEPS, WIDTH),
    ),
    Case(
        "gru applied twice",
        lambda: Functional(_tied, layer=nn.GRU(WIDTH, WIDTH, batch_first=True), out=nn.Linear(WIDTH, 2)),
        normal(STEPS, WIDTH),
    ),
    Case(
        "lstm of tokens",
        lambda: Functional(
            lambda m, x: m.out(m.layer(m.table(x))[0][:, -1]),
            table=nn.Embedding(7, WIDTH),
            layer=nn.LSTM(WIDTH, HIDDEN, batch_first=True),
            out=nn.Linear(HIDDEN, 2),
        ),
        lambda n: torch.randint(0, 7, (n, STEPS)),
    ),
]
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@EACH
def test_no_parameter_falls_back(case: Case) -> None:
    model, x = build(case, 5, torch.float64)
    table = tangentlab.explain(model, x)
    assert set(table.form) <= {"compact", "gradient"}
    listed = {name for names in table.parameters for name in names.split(", ")}
    assert listed == {name for name, _ in model.named_parameters()}


@EACH
def test_kernel_equals_reference(case: Case, form: str) -> None:
    model, x = build(case, 5, torch.float64)
    expected = tangentlab.reference.ntk(model, x)
    assert relative(tangentlab.ntk(model, x, batch_size=2), expected) < 1e-10
    other = x[:3].flip(0)
    assert relative(tangentlab.ntk(model, x, other), tangentlab.reference.ntk(model, x, other)) < 1e-10
    layers = tangentlab.ntk(model, x, per_layer=True)
    for layer in ("layer", "out"):
        assert relative(layers[layer], tangentlab.reference.ntk(model, x, parameters=layer)) < 1e-10


@EACH
def test_readouts_and_products(case: Case) -> None:
    model, x = build(case, 4, torch.float64)
    for readout in ("pntk", "trace", "per_class", 1):
        expected = tangentlab.reference.ntk(model, x, readout=readout)
        assert relative(tangentlab.ntk(model, x, readout=readout, batch_size=3), expected) < 1e-10
    expected = tangentlab.reference.ntk(model, x)
    blocks = torch.stack([expected[n, :, n] for n in range(4)])
    assert relative(tangentlab.ntk(model, x, diagonal=True), blocks) < 1e-10
    matrix = expected.flatten(2).flatten(0, 1)
    v = torch.randn(len(matrix), 3, dtype=torch.float64)
    assert relative(tangentlab.NTKOperator(model, x, batch_size=3) @ v, matrix @ v) < 1e-10


@EACH
def test_single_precision(case: Case) -> None:
    model, x = build(case, 5, torch.float32)
    expected = tangentlab.reference.ntk(model, x, dtype=torch.float64)
    assert relative(tangentlab.ntk(model, x), expected) < 2e-5


class Unrolled(TorchFunctionMode):
    """Runs recurrent layers step by step, and counts them."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        steps = unrolled(func, args)
        self.count += steps is not None
        return (steps or func)(*args, **(kwargs or {}))


@EACH
def test_steps_compute_what_the_layer_computes(case: Case) -> None:
    model, x = build(case, 5, torch.float64)
    with Unrolled() as mode:
        found = model(x)
    assert mode.count
    assert relative(found.detach(), model(x).detach()) < 1e-14


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_take_the_fallback(kind: Any) -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        lengths = torch.full((len(x),), 2)
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        return m.out(pad_packed_sequence(m.layer(packed)[0], batch_first=True)[0].flatten(1))

    torch.manual_seed(0)
    model = Functional(forward, layer=kind(WIDTH, HIDDEN, batch_first=True), out=nn.Linear(2 * HIDDEN, 2)).double()
    x = torch.randn(4, STEPS, WIDTH).double()
    table = tangentlab.explain(model, x).set_index("layer")
    assert set(table.loc["layer", "form"]) == {"fallback"}
    assert relative(tangentlab.ntk(model, x), tangentlab.reference.ntk(model, x)) < 1e-10


def test_dropout_between_layers_is_refused_in_training_mode() -> None:
    case = _case("", nn.LSTM, {"num_layers": 2, "dropout": 0.5})
    model, x = build(case, 4, torch.float64)
    with pytest.raises(tangentlab.TangentError, match="random numbers"):
        tangentlab.ntk(model.train(), x)
