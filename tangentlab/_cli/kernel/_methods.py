"""The part of ``tangentlab kernel plan`` that compares methods of regression."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tangentlab._cli import _options as options
from tangentlab._durations import show_seconds
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab.solvers import Machine, MethodCost
    from tangentlab.store import Probe


@dataclass(frozen=True)
class MethodOptions:
    """What a regression with the kernel would cost."""

    panel: ClassVar[str] = "Methods"
    methods: Annotated[
        bool, options.option(help="Also estimate regressions with the kernel by each method, and say which to choose.")
    ] = False
    price: Annotated[
        float | None, options.option(value="MONEY", help="Price of a machine for one hour, to estimate what they cost.")
    ] = None
    features: Annotated[int, options.option(value="K", min=1, help="Features of a sketched regression.")] = 4096
    epochs: Annotated[int, options.option(value="N", min=1, help="Passes of block coordinate descent.")] = 10
    bandwidth: Annotated[float, options.option(value="GBIT", help="Gigabits per second between two machines.")] = 10.0
    within: Annotated[float, options.option(value="HOURS", help="The longest time that is acceptable.")] = 168.0

    @property
    def asked(self) -> bool:
        """Whether to compare methods."""
        return self.methods or self.price is not None


def measured(chosen: MethodOptions, model: Any, x: Any, arguments: dict[str, Any]) -> "Machine":
    """Measure what the methods need, on this machine.

    Args:
        chosen: The options.
        model: The network.
        x: Some samples.
        arguments: Those of the kernel.
    """
    from tangentlab.solvers import Machine

    for name, value in (("--bandwidth", chosen.bandwidth), ("--within", chosen.within)):
        if not value > 0:
            raise TangentError(f"{name} is {value}.", "", "Pass a positive number.")
    if chosen.price is not None and not chosen.price >= 0:  # before anything is measured
        raise TangentError(f"The price is {chosen.price}.", "", "Pass the price of one machine for one hour.")
    own = {name: value for name, value in arguments.items() if name != "tile"}
    return Machine.measure(model, x, chosen.features, chosen.bandwidth * 1e9 / 8, **own)


def compared(chosen: MethodOptions, probe: "Probe", machine: "Machine", workers: int) -> "list[MethodCost]":
    """Estimate all methods."""
    from tangentlab.solvers import method_costs

    return method_costs(probe, machine, workers, epochs=chosen.epochs, price=chosen.price)


def as_text(chosen: MethodOptions, samples: int, costs: "list[MethodCost]") -> str:
    """Return the methods and the choice among them as text."""
    return "\n".join(["methods of regression:", *map(str, costs), f"  choose: {choice(chosen, samples, costs)}"])


def choice(chosen: MethodOptions, samples: int, costs: "list[MethodCost]") -> str:
    """Name the method to choose."""
    from tangentlab.solvers import recommend

    found = recommend(costs, 3600 * chosen.within)
    if found is None:
        return (
            f"none takes at most {show_seconds(3600 * chosen.within)}; use fewer than {samples:,} samples, or features"
        )
    return f"{found.method}"


def assumptions(chosen: MethodOptions, machine: "Machine") -> list[str]:
    """Return what the estimates of methods rest on, one sentence each."""
    from tangentlab._memory import show_bytes

    return [
        f"Matrix products in float64 at {machine.operations / 1e9:.3g} GFLOP/s and {show_bytes(machine.memory)} of "
        f"memory per machine, as here; {chosen.bandwidth:g} Gbit/s between machines.",
        "A cluster factorizes at 80 % of its machines' rate, and Dask takes 1 ms per task.",
        f"Block coordinate descent: {chosen.epochs} passes over all tiles, on one machine. The number that a problem "
        "needs depends on its targets and ridge.",
        f"Sketched regression: {chosen.features:,} features at {show_seconds(machine.sketched)} per sample, on one "
        "machine. Its kernel is an approximation.",
        f"Chosen is the fastest method with the exact kernel that is possible and takes at most "
        f"{show_seconds(3600 * chosen.within)} (--within), or else the sketched one.",
    ]
