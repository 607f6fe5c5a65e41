"""The factors of panels: in memory if they fit, otherwise on disk or computed again."""

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tangentlab._files import written_whole
from tangentlab.kernels.internal import Factors, Plan, in_own_memory, read_factors, verify, write_factors
from tangentlab.store._leases import Leases
from tangentlab.store._tiles import TilePlan

_CHECKED = 32
"""The number of samples in the check."""


class Panels:
    """The factors of panels, by number.

    Args:
        kernel_plan: How the kernel is computed.
        plan: The tiling of the kernel.
        capacity: The number of panels that fit into memory.
        scratch: Folder for factors that several processes use or that do not fit; None to compute them again.
        leases: The leases with which processes avoid computing the same factors.
    """

    def __init__(
        self,
        kernel_plan: Plan,
        plan: TilePlan,
        capacity: int,
        scratch: Path | None = None,
        leases: Leases | None = None,
    ) -> None:
        self.kernel_plan, self.plan, self.capacity = kernel_plan, plan, capacity
        self.scratch, self.leases = scratch, leases
        self.computed = 0
        self._held: dict[int, Factors] = {}
        self._kept: frozenset[int] = frozenset()
        self._template: Factors | None = None
        side = kernel_plan.left
        self._factorizer = replace(kernel_plan.factorizer(side, kernel_plan.budget(0)), batch_size=plan.batch)
        forms = [(g.parameters, g.form, g.bias, g.scale) for g in side.groups]
        self._key = hashlib.sha256(repr((plan, forms, str(kernel_plan.network.dtype))).encode()).hexdigest()[:16]

    def keep(self, panels: frozenset[int]) -> None:
        """Set which panels stay in memory when others need room."""
        self._kept = panels

    def __getitem__(self, panel: int) -> Factors:
        if panel not in self._held:
            self._make_room()
            self._held[panel] = self._obtain(panel)
        return self._held[panel]

    def _make_room(self) -> None:
        while len(self._held) >= self.capacity:
            others = [p for p in self._held if p not in self._kept] or list(self._held)
            del self._held[others[0]]

    def compute(self, rows: range) -> Factors:
        """Compute the factors of some samples, in the form in which they are contracted."""
        factors = self._factorizer(self.kernel_plan.left.samples, rows)
        if self.kernel_plan.network.readout.reduction == "trace":
            factors = factors.merged()
        return in_own_memory(factors)

    def check(self) -> None:
        """Compare the kernel of a few samples with plain differentiation.

        Raises:
            ControlFlowChanged: They differ; ``run`` then takes the fallback.
        """
        rows = range(min(_CHECKED, self.plan.batch, self.plan.samples))
        factors = self._factorizer(self.kernel_plan.left.samples, rows)
        verify(self.kernel_plan, factors, rows, factors, rows)

    def ensure(self, panel: int) -> bool:
        """Make sure that the factors of a panel are in the scratch folder.

        Returns:
            False if another process is computing them.
        """
        assert self.scratch is not None
        if self._file(panel).exists():
            return True
        if self.leases is not None and not self.leases.take(self._lease(panel)):
            return False
        if not self._file(panel).exists():
            self._make_room()
            self._held[panel] = self._compute(panel)
            self._save(panel, self._held[panel])
        self._release(panel)
        return True

    def _obtain(self, panel: int) -> Factors:
        if self.scratch is None:
            return self._compute(panel)
        file = self._file(panel)
        if self.leases is None or self.leases.wait(self._lease(panel), file.exists):
            if not file.exists():
                factors = self._compute(panel)
                self._save(panel, factors)
                self._release(panel)
                return factors
            self._release(panel)
        with suppress(OSError, EOFError), open(file, "rb", buffering=0) as source:
            if self._template is None:
                self._template = self.compute(range(1))
            return read_factors(source, self._template, len(self.plan.panel(panel)), self.kernel_plan.network.device)
        return self._compute(panel)  # somebody removed the folder

    def _compute(self, panel: int) -> Factors:
        self.computed += 1
        factors = self.compute(self.plan.panel(panel))
        self._template = factors[0:1]
        return factors

    def _save(self, panel: int, factors: Factors) -> None:
        with written_whole(self._file(panel), durable=False) as file:
            write_factors(factors, file)  # type: ignore[arg-type]

    def _file(self, panel: int) -> Path:
        assert self.scratch is not None
        return self.scratch / f"factors-{self._key}" / str(panel)

    def _lease(self, panel: int) -> str:
        return f"factors-{self._key}-{panel}"

    def _release(self, panel: int) -> None:
        if self.leases is not None:
            self.leases.release(self._lease(panel))
