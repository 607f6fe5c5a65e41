"""Factorizing: from a network and a range of samples to their factors, batch by batch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab.kernels import _placement
from tangentlab.kernels._fallback import jacobian_rows
from tangentlab.kernels._findings import Findings, FirstBatch
from tangentlab.kernels._gradients import output_gradients, parameter_gradients
from tangentlab.kernels._groups import Group, merge
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.kernels._record import Recorder, SeenUse
from tangentlab.kernels.factors import Direct, Factor, Factors, Key, tidy


class ControlFlowChanged(Exception):
    """The model treats its parameters or its samples differently than in the probe."""


@dataclass(frozen=True)
class Factorizer:
    """The factorization of samples by a plan.

    Attributes:
        network: The network.
        findings: What the probe found.
        groups: The plan.
        batch_size: Samples per forward pass.
        by_layer: Whether gradients written out are kept apart for each layer.
    """

    network: Network
    findings: Findings
    groups: Sequence[Group]
    batch_size: int
    by_layer: bool = False

    def __call__(self, samples: Samples, rows: range) -> Factors:
        """Return the factors of a range of samples.

        Raises:
            ControlFlowChanged: The rules do not describe what the model does with these samples.
        """
        parts: dict[Key, Factor] = {}
        for batch, first in self._all_batches(rows):
            runs = list(_runs(batch, rows.start))
            self._add_batch(parts, samples, batch, first, runs, None if list(batch) == list(rows) else len(rows))
        return Factors(parts)

    def some(self, samples: Samples, chosen: Sequence[int]) -> Factors:
        """Return the factors of any samples, in the order in which they are given.

        Raises:
            ControlFlowChanged: The rules do not describe what the model does with these samples.
        """
        parts: dict[Key, Factor] = {}
        for start in range(0, len(chosen), self.batch_size):
            batch = chosen[start : start + self.batch_size]
            places = [(slice(None), slice(start, start + len(batch)))]
            self._add_batch(parts, samples, batch, None, places, None if len(batch) == len(chosen) else len(chosen))
        return Factors(parts)

    def in_batches(self, samples: Samples, rows: range) -> Iterator[tuple[list[tuple[slice, slice]], Factors]]:
        """Yield the factors of a range of samples batch by batch.

        Each batch comes with runs of its samples: their places in the batch, and in the range.

        Raises:
            ControlFlowChanged: The rules do not describe what the model does with these samples.
        """
        for batch, first in self._all_batches(rows):
            parts: dict[Key, Factor] = {}
            self._add_batch(parts, samples, batch, first, [(slice(None), slice(None))], None)
            yield list(_runs(batch, rows.start)), Factors(parts)

    def _all_batches(self, rows: range) -> Iterator[tuple[Sequence[int], FirstBatch | None]]:
        """Yield all batches of a range of samples, first the one that the probe has begun with, if there is one."""
        first = self.findings.take_first(rows)
        begun = first.samples if first is not None else ()
        if first is not None:
            yield begun, first
            first = None
        for batch in self.batches(rows, begun):
            yield batch, None

    def _add_batch(
        self,
        parts: dict[Key, Factor],
        samples: Samples,
        batch: Sequence[int],
        first: FirstBatch | None,
        runs: Sequence[tuple[slice, slice]],
        room: int | None,
    ) -> None:
        """Add the factors of one batch to those of ``room`` samples; of None others, they are these factors."""
        columns: dict[Key, int] = {}
        widths = self.widths()
        for number, part in self.batch(samples, batch, first):
            key, compact = self._key(number), self.groups[number].form == "compact"
            at = columns.get(key, 0)
            columns[key] = at + part.g.shape[2]
            if room is None and (compact or widths[key] == part.g.shape[2]):
                parts[key] = part.map(tidy)
                continue
            if key not in parts:
                form = part if compact else Direct(part.g.new_empty(0, part.g.shape[1], widths[key]))
                parts[key] = form.allocate(len(batch) if room is None else room)
            if compact and part[:1].shapes() != parts[key][:1].shapes():
                raise ControlFlowChanged
            for given, places in runs:
                if compact:
                    parts[key][places].write(part[given])
                else:
                    parts[key].g[places, :, at : columns[key]] = part.g[given]

    def batches(self, rows: range, begun: Sequence[int] = ()) -> Iterator[range]:
        """Yield a range of samples cut into batches, without those that are begun: its first ones and its last."""
        done = set(begun)
        start = next((row for row in rows if row not in done), rows.stop)
        stop = next((row + 1 for row in reversed(rows) if row not in done), start)
        return (range(i, min(i + self.batch_size, stop)) for i in range(start, stop, self.batch_size))

    def batch(
        self, samples: Samples, rows: Sequence[int], first: FirstBatch | None = None
    ) -> Iterator[tuple[int, Factor]]:
        """Yield the factors of one batch one after the other, each with the position of its group in the plan.

        Args:
            samples: The samples.
            rows: Which.
            first: What is known of them already.

        Raises:
            ControlFlowChanged: The rules do not describe what the model does with these samples.
        """
        if any(group.form != "fallback" for group in self.groups):
            needed = sorted({number for group in self.groups for number in group.uses})
            if first is None:
                uses, grads = self._passes(samples, rows, needed)
            else:
                uses, grads = {n: first.uses[n] for n in needed}, {n: first.grads[n] for n in needed}
            with torch.no_grad():
                for number, group in enumerate(self.groups):
                    if group.form == "compact":
                        yield number, self._compact(group, uses, grads)
                    elif group.form == "gradient" and group.plain:
                        yield number, Direct(self._plain(group, uses, grads))
            mixed = {i: g.parameters[0] for i, g in enumerate(self.groups) if g.form == "gradient" and not g.plain}
            if mixed:
                both = list(uses.values()), list(grads.values())
                found = parameter_gradients(list(mixed.values()), self.network.parameters, *both)
                for number, name in mixed.items():
                    gradient = found[name].detach()
                    yield number, Direct(gradient.reshape(*gradient.shape[:2], -1))
        yield from self._fallback(samples, rows)

    def _passes(
        self, samples: Samples, rows: Sequence[int], needed: Sequence[int]
    ) -> tuple[dict[int, SeenUse], dict[int, Tensor]]:
        """Run the network on a batch; return the uses that the groups need, and their output gradients."""
        indices = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        batch, count = samples.batch(indices), len(rows)
        recorder = self.findings.recorder(self.network, count)
        with torch.enable_grad():
            values = self.network.values(batch, count, recorder)
        grads = self._trusted(samples, rows, values, recorder, needed)
        return {n: recorder.uses[n] for n in needed}, dict(zip(needed, grads, strict=True))

    def _trusted(
        self, samples: Samples, rows: Sequence[int], values: Tensor, recorder: Recorder, needed: Sequence[int]
    ) -> list[Tensor]:
        """Return the output gradients of the uses that the groups need, if the rules describe what the model does."""
        expected = [seen.source.key for seen in self.findings.uses]
        if recorder.diverged or [seen.source.key for seen in recorder.uses] != expected:
            raise ControlFlowChanged
        uses = [recorder.uses[number] for number in needed]
        grads = output_gradients(values, uses, len(rows))
        if recorder.tape not in self.findings.trusted:
            if self.findings.hidden_uses(recorder, values):
                raise ControlFlowChanged
            try:
                _placement.compare(self.network, self.findings, samples, rows, values, recorder.tape, uses, grads)
            except _placement.Misplaced as error:
                raise ControlFlowChanged from error
        return grads

    def widths(self) -> dict[Key, int]:
        """Return the numbers of parameters whose gradients are written out, for each layer kept apart."""
        result: dict[Key, int] = {}
        for group in self.groups:
            if group.form != "compact":
                key = self._direct_key(group)
                result[key] = result.get(key, 0) + group.size
        return result

    def layout(self) -> dict[Key, list[Group]]:
        """Return the groups of each factor, in the order of its columns: that in which :meth:`batch` yields them."""
        result: dict[Key, list[Group]] = {}
        last = {"compact": 0, "gradient": 1, "fallback": 3}
        order = [last[g.form] + (g.form == "gradient" and not g.plain) for g in self.groups]
        for number in sorted(range(len(self.groups)), key=order.__getitem__):  # stable
            result.setdefault(self._key(number), []).append(self.groups[number])
        return result

    def _key(self, number: int) -> Key:
        group = self.groups[number]
        return (group.layer, number + 1) if group.form == "compact" else self._direct_key(group)

    def _direct_key(self, group: Group) -> Key:
        return (group.layer if self.by_layer else "", 0)

    def _fallback(self, samples: Samples, rows: Sequence[int]) -> Iterator[tuple[int, Factor]]:
        numbers = [number for number, group in enumerate(self.groups) if group.form == "fallback"]
        if not numbers:
            return
        parameters = [self.network.parameters[self.groups[number].parameters[0]] for number in numbers]

        def values(sample: Any) -> Tensor:
            return self.network.values(sample, 1)

        found = [jacobian_rows(values, samples.batch([n]), parameters) for n in rows]
        for i, number in enumerate(numbers):
            yield number, Direct(torch.stack([row[i].reshape(len(row[i]), -1) for row in found]))

    def _plain(self, group: Group, uses: Mapping[int, SeenUse], grads: Mapping[int, Tensor]) -> Tensor:
        use = merge([uses[i] for i in group.uses])
        if use is not None:
            features = use.features_sum([grads[i] for i in group.uses])
        else:
            features = torch.stack([uses[i].use.gradient(grads[i]) for i in group.uses]).sum(0)
            features = features.reshape(*features.shape[:2], -1)
        return features if group.scale == 1 else features * group.scale

    def _compact(self, group: Group, uses: Mapping[int, SeenUse], grads: Mapping[int, Tensor]) -> Factor:
        use = merge([uses[i] for i in group.uses])
        assert use is not None
        return use.compact_sum([grads[i] for i in group.uses], group.scale, group.bias)


def _runs(batch: Sequence[int], start: int) -> Iterator[tuple[slice, slice]]:
    """Yield runs of consecutive samples: their places in the batch, and among all rows, of which ``start`` is first."""
    first = 0
    for at in range(1, len(batch) + 1):
        if at == len(batch) or batch[at] != batch[at - 1] + 1:
            row = batch[first] - start
            yield slice(first, at), slice(row, row + at - first)
            first = at
