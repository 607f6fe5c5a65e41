"""Every figure, table and theorem of the three papers, with one call each.

    >>> from tangentlab import experiments
    >>> result = experiments.reproduce("samarin2022/fig2", "tiny", out="runs")
    >>> result.table                                          # one row per measurement
    >>> for claim in result.record["claims"]:
    ...     print(claim["verdict"], claim["statement"])

An experiment is data (a frozen spec with the presets ``tiny``, ``small`` and ``paper``) and three functions,
``run(spec, context) -> table``, ``plot(table, spec) -> figure`` and ``claims(table, spec) -> tested claims``, which are
decided together (docs/verdicts.md). Results go to ``out/PAPER/ID/``, or ``out/PAPER/ID.VARIANT/`` where several results
of an id are kept: ``table.csv``, ``figure.png``, ``figure.svg``, ``figure.json`` (Vega-Lite) and ``record.json``.

What takes long is a :class:`UnitOfWork`: a frozen dataclass whose hash names its result in ``out/work``. Experiments
that need the same training run or spectrum share it, and an interrupted run repeats nothing that was finished.

To add an experiment, write one file ``PAPER/_family.py`` with

1. a frozen dataclass of a spec, derived from :class:`Spec`, whose fields declare their roles (``_roles``), and its
   three presets, the smaller ones as changes of the paper's;
2. ``run``, which makes units (:class:`Training`, :class:`Eigenpairs`, or another :class:`UnitOfWork`), passes them
   to ``context.results(units)`` by name and puts the results into a ``pandas`` table, one row per measurement;
3. ``plot``, with the charts of ``_charts``, and ``claims``, with the rules of ``_verdicts`` and the paper's numbers
   from ``PAPER/_numbers.py``;
4. ``EXPERIMENTS = (Experiment(...), ...)``,

and add the file to the families of the paper, the :class:`Paper` in ``PAPER/__init__.py``.
``tests/experiments/test_tiny.py`` then runs it.
"""

from tangentlab._deprecated import renamed_names
from tangentlab.experiments._context import Context, Settings
from tangentlab.experiments._eigenpairs import Eigenpairs
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._paper import Paper
from tangentlab.experiments._record import Result
from tangentlab.experiments._registry import available, get, papers
from tangentlab.experiments._runner import open_context, reproduce, spec_of
from tangentlab.experiments._spec import PRESETS, Spec, parse_assignments
from tangentlab.experiments._training import Training
from tangentlab.experiments._verdicts import Claim, Examined, Scope, Verdict
from tangentlab.experiments._work import UnitOfWork

__all__ = [
    "PRESETS",
    "Claim",
    "Context",
    "Eigenpairs",
    "Examined",
    "Experiment",
    "Figure",
    "Paper",
    "Result",
    "Scope",
    "Settings",
    "Spec",
    "Training",
    "UnitOfWork",
    "Verdict",
    "available",
    "get",
    "open_context",
    "papers",
    "parse_assignments",
    "reproduce",
    "spec_of",
]

# Each former name was also the name of something else in the package.
__getattr__ = renamed_names(__name__, {"Work": "UnitOfWork", "Spectrum": "Eigenpairs"})
