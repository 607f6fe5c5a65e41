"""All papers and experiments, by name. A paper is one object, ``PAPER`` in its package, and is named here."""

from difflib import get_close_matches
from functools import cache

from tangentlab._errors import TangentError
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._paper import Paper
from tangentlab.experiments.mohamadi2022 import PAPER as MOHAMADI2022
from tangentlab.experiments.ortiz2021 import PAPER as ORTIZ2021
from tangentlab.experiments.samarin2022 import PAPER as SAMARIN2022

_PAPERS = (ORTIZ2021, SAMARIN2022, MOHAMADI2022)


def papers() -> tuple[Paper, ...]:
    """Return the papers, in the order of publication.

    Examples:
        >>> from tangentlab import experiments
        >>> len(experiments.papers())
        3

    See also:
        :func:`tangentlab.experiments.available`.
    """
    return _PAPERS


@cache
def _by_id() -> dict[str, Experiment]:
    return {experiment.id: experiment for paper in _PAPERS for experiment in paper.experiments}


def available() -> tuple[Experiment, ...]:
    """Return every experiment, in the order of the papers.

    Examples:
        >>> from tangentlab import experiments
        >>> len(experiments.available()) > 30
        True

    See also:
        :func:`tangentlab.experiments.get`, :func:`tangentlab.experiments.papers`.
    """
    return tuple(_by_id().values())


def get(name: str) -> Experiment:
    """Return an experiment by id.

    Raises:
        TangentError: For an unknown id, with the closest ones.

    Examples:
        >>> from tangentlab import experiments
        >>> experiments.get("ortiz2021/table1").id
        'ortiz2021/table1'

    See also:
        :func:`tangentlab.experiments.available`, :func:`tangentlab.experiments.reproduce`.
    """
    known = _by_id()
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    close += [identity for identity in known if identity.endswith(f"/{name}") and identity not in close]
    hint = f"Did you mean {' or '.join(repr(identity) for identity in close[:3])}? " if close else ""
    raise TangentError(
        f"There is no experiment {name!r}.", remedy=f"{hint}`tangentlab reproduce list` names all {len(known)}."
    )
