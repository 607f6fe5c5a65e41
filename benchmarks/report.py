"""The benchmark's tables in Markdown and its record in JSON."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import memory
from benchmarks.compare import Comparison
from benchmarks.measure import Outcome
from benchmarks.peers import OURS
from benchmarks.peers._peer import describe


def summary(comparisons: list[Comparison], peers: list[str]) -> str:
    """Return one row per case: each tool's best time, the ratio measured and required, our time over the limit."""
    others = [peer for peer in peers if peer != OURS]
    rows = []
    for comparison in comparisons:
        cells = [comparison.case.title, _seconds(comparison.finals.get(OURS))]
        for peer in others:
            cells.append(_seconds(comparison.finals.get(peer)) if peer in comparison.finals else _why(comparison, peer))
        ratio, required = comparison.ratio, comparison.case.required
        cells.append("-" if ratio is None else f"{ratio:.1f}")
        cells.append("-" if comparison.first_ratio is None else f"{comparison.first_ratio:.1f}")
        cells.append("-" if comparison.over_limit is None else f"{comparison.over_limit:.1f}")
        cells.append("-" if required is None else f"{required:g}")
        if ratio is None or required is None:
            cells.append("-")
        else:
            cells.append("met" if ratio >= required else "MISSED")
        rows.append(cells)
    ratios = ["best peer / ours", "the same, first call", "time over limit", "required", "verdict"]
    return table(["seconds", OURS, *others, *ratios], rows)


def details(comparisons: list[Comparison]) -> str:
    """Return one row per case and tool: time, peak memory, both relative to ours, agreement and the setting chosen."""
    rows = []
    for comparison in comparisons:
        ours = comparison.finals.get(OURS)
        for peer, final in comparison.finals.items():
            rows.append(
                [
                    comparison.case.title,
                    peer,
                    _seconds(final),
                    f"{final.best / ours.best:.1f}" if ours else "-",
                    f"{comparison.first(peer):.2f}",
                    f"{(final.peak or 0) / memory.GIB:.2f}",
                    "reference" if final.error is None or peer == OURS else f"{final.error:.1e}",
                    describe(final.setting),
                ]
            )
        for peer in _absent(comparison):
            rows.append([comparison.case.title, peer, _why(comparison, peer), "-", "-", "-", "-", "-"])
    head = ["case", "tool", "seconds", "over ours", "first call", "peak GiB", "kernel error", "fastest setting"]
    return table(head, rows)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _seconds(outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    return f"{outcome.best:.3f}" if outcome.best < 1 else f"{outcome.best:.2f}"


def _absent(comparison: Comparison) -> list[str]:
    tried = dict.fromkeys(trial.peer for trial in comparison.trials)
    return [peer for peer in (*tried, *comparison.unavailable) if peer not in comparison.finals]


def _why(comparison: Comparison, peer: str) -> str:
    """Explain in a few words why a tool has no time: the mildest of its settings' failures."""
    if peer in comparison.unavailable:
        return "not available"
    states = [trial for trial in comparison.trials if trial.peer == peer]
    for status in ("stopped", "out of memory"):
        for trial in states:
            if trial.status == status:
                return trial.note if status == "stopped" else status
    return "failed"


def machine(threads: int) -> dict[str, Any]:
    """Describe the machine of the measurements."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists() and (match := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        model = match[1]
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads": threads,
        "system": platform.system(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def record(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain JSON values."""
    return {
        "case": asdict(comparison.case),
        "ratio": comparison.ratio,
        "first_ratio": comparison.first_ratio,
        "over_limit": comparison.over_limit,
        "limit": asdict(comparison.limit) if comparison.limit else None,
        "best_peer": comparison.best_peer.peer if comparison.best_peer else None,
        "finals": {peer: asdict(final) for peer, final in comparison.finals.items()},
        "trials": [asdict(trial) for trial in comparison.trials],
        "unavailable": comparison.unavailable,
    }
