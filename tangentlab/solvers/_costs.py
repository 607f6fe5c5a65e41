"""What the methods of regression cost for a number of samples that is too large to try."""

import math
import os
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from tangentlab._durations import show_seconds
from tangentlab._errors import TangentError
from tangentlab._memory import available, show_bytes
from tangentlab.kernels import sketch
from tangentlab.solvers._dask_kernel import block_rows
from tangentlab.solvers._rows import number_of, rows_of
from tangentlab.store import Probe

_GEMM, _SKETCHED = 1536, 16
_TASK = 1e-3
"""Seconds that the scheduler of Dask takes per task."""
_EFFICIENCY = 0.8
"""The share of the workers' rate that a factorization in a cluster reaches."""


@dataclass(frozen=True)
class Machine:
    """What methods need to know of a machine, besides the rates of :class:`tangentlab.store.Probe`.

    Attributes:
        operations: Operations per second of a matrix product in float64.
        memory: Bytes.
        network: Bytes per second that it receives from others.
        sketched: Seconds to sketch one sample.
        features: The number of features of the sketch, k.
    """

    operations: float
    memory: int
    network: float
    sketched: float
    features: int

    @classmethod
    def measure(cls, model: torch.nn.Module, x: Any, features: int, network: float, **options: Any) -> "Machine":
        """Measure this machine, for a few seconds or two sketches of 16 samples.

        Args:
            model: The network.
            x: Some samples.
            features: k.
            network: Bytes per second between machines, which one machine cannot measure.
            options: Further arguments of :func:`tangentlab.sketch`.
        """
        a = torch.randn(_GEMM, _GEMM, dtype=torch.float64)
        seconds = min(_seconds(lambda: a @ a) for _ in range(3))
        some = rows_of(x, range(min(_SKETCHED, number_of(x))))
        sketched = min(_seconds(lambda: sketch(model, some, features, progress=False, **options)) for _ in range(2))
        return cls(2 * _GEMM**3 / seconds, _memory(), network, sketched / number_of(some), features)


@dataclass(frozen=True)
class MethodCost:
    """The estimated cost of one regression by one method.

    Attributes:
        method: Its name.
        exact: Whether it solves with the exact kernel.
        machines: The machines that it uses.
        seconds: In all.
        kernel_seconds: The part that computes the kernel, or features.
        memory: Bytes per machine.
        disk: Bytes.
        network: Bytes that machines send each other.
        price: Money; None without a price.
        obstacle: Why it is not possible, or empty.
    """

    method: str
    exact: bool
    machines: int
    seconds: float
    kernel_seconds: float
    memory: int
    disk: int
    network: int
    price: float | None
    obstacle: str = ""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        return asdict(self)

    def __str__(self) -> str:
        money = "" if self.price is None else f", price {self.price:,.2f}"
        count = "1 machine" if self.machines == 1 else f"{self.machines} machines"
        obstacle = f"\n    not possible: {self.obstacle}" if self.obstacle else ""
        return (
            f"  {self.method}, {count}: {show_seconds(self.seconds)}{money}\n"
            f"    of which {show_seconds(self.kernel_seconds)} for {'the kernel' if self.exact else 'the features'}; "
            f"memory {show_bytes(self.memory)} per machine, disk {show_bytes(self.disk)}, network "
            f"{show_bytes(self.network)}{obstacle}"
        )


def method_costs(
    probe: Probe, machine: Machine, machines: int = 1, *, epochs: int = 10, price: float | None = None
) -> list[MethodCost]:
    r"""Estimate what a regression costs by every method, from measured rates.

    With n rows, W machines of rate g, and k features:

    - Cholesky on one machine: the kernel, and n^3 / (3 g); 4 n^2 bytes of memory.
    - Cholesky in a Dask cluster (:class:`DaskKernel`): the kernel by W machines, and n^3 / (3 g W) at 80 % of that
      rate, or one millisecond per task if that is longer, and 4 n^2 bytes to every machine; 4 n^2 / W bytes of memory.
    - Block coordinate descent without a matrix, on one machine: all n^2 entries in every epoch, none stored.
    - Sketched regression (:func:`sketched_regression`), on one machine: one sketch of every sample and 4 n k^2 / g.

    Args:
        probe: The rates of the kernel, for the number of samples in question.
        machine: The machine.
        machines: W.
        epochs: Passes of block coordinate descent.
        price: The price of a machine for one hour, in any currency.

    Raises:
        TangentError: A number is not positive.

    Examples:
        >>> import torch
        >>> from tangentlab import solvers, store
        >>> _ = torch.manual_seed(0)
        >>> network, x = torch.nn.Linear(4, 1), torch.randn(20, 4)
        >>> probe = store.probe(network, x, samples=100_000)
        >>> machine = solvers.Machine(operations=1e11, memory=2**34, network=1e9, sketched=1e-4, features=2048)
        >>> [cost.method for cost in solvers.method_costs(probe, machine, machines=4)][2:]
        ['block coordinate descent', 'sketched regression']

    See also:
        :func:`tangentlab.solvers.recommend`, :func:`tangentlab.store.estimate`.
    """
    for name, value in (("machines", machines), ("epochs", epochs)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TangentError(f"The number of {name} is {value!r}.", "", "Pass a positive number.")
    if price is not None and not 0 <= price < math.inf:
        raise TangentError(f"The price is {price!r}.", "", "Pass the price of one machine for one hour.")
    n, k, rate, tile = probe.plan.size, machine.features, machine.operations, probe.plan.side
    one, all_ = probe.estimate(1), probe.estimate(machines)
    triangle = 4 * n * n

    def cost(
        method: str, count: int, first: float, second: float, memory: float, disk: float, network: float = 0.0
    ) -> MethodCost:
        obstacles = []
        if memory > machine.memory:
            obstacles.append(f"a machine has {show_bytes(machine.memory)} of memory")
        if disk > probe.free:
            obstacles.append(f"{show_bytes(probe.free)} are free on the disk")
        seconds = first + second
        money = None if price is None else price * count * seconds / 3600
        exact = method != SKETCHED
        where = int(memory), int(disk), int(network)
        return MethodCost(method, exact, count, seconds, first, *where, money, " and ".join(obstacles))

    read = one.disk / probe.disk.read
    found = [
        cost(
            "Cholesky on one machine",
            1,
            one.seconds,
            read + n**3 / 3 / rate,
            max(one.memory, triangle),
            one.disk + one.scratch,
        )
    ]
    if machines > 1:
        side = block_rows(n, tile, machines)
        solve = max(n**3 / 3 / (rate * machines * _EFFICIENCY), (n / side) ** 3 / 6 * _TASK)
        found.append(
            cost(
                "Cholesky in a Dask cluster",
                machines,
                all_.seconds,
                read / machines + solve + triangle / machine.network,
                max(all_.memory, triangle / machines + 16 * n * side),
                all_.disk + all_.scratch,
                triangle * machines + all_.disk,
            )
        )
    pass_ = 2 * (one.factor_seconds + one.contract_seconds)
    blocks = n * tile**2 / 3 / rate
    memory = one.memory + 16 * tile**2
    found.append(
        cost("block coordinate descent", 1, epochs * pass_, epochs * blocks, memory, one.scratch),
    )
    features, normal = probe.plan.samples * machine.sketched, (4 * n * k**2 + 9 * k**3) / rate
    found.append(cost(SKETCHED, 1, features, normal, 40 * k**2 + 12 * k * 4096, 4 * n * k))
    return found


SKETCHED = "sketched regression"


def recommend(costs: list[MethodCost], seconds: float) -> MethodCost | None:
    """Choose the fastest possible method with the exact kernel, if it takes at most so long, or else the sketched one.

    Returns:
        The method; None if none is possible within that time.

    Examples:
        >>> from tangentlab import solvers
        >>> common = {"machines": 1, "kernel_seconds": 0.0, "memory": 0, "disk": 0, "network": 0, "price": None}
        >>> exact = solvers.MethodCost("Cholesky", True, seconds=7200.0, **common)
        >>> sketched = solvers.MethodCost("sketch", False, seconds=600.0, **common)
        >>> solvers.recommend([exact, sketched], seconds=3600.0).method
        'sketch'

    See also:
        :func:`tangentlab.solvers.method_costs`.
    """
    possible = [cost for cost in costs if not cost.obstacle and cost.seconds <= seconds]
    return min(possible, key=lambda cost: (not cost.exact, cost.seconds), default=None)


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _memory() -> int:
    """Return the memory of this machine, used or not."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return available(torch.device("cpu"))
