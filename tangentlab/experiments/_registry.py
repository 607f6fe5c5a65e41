"""All experiments, by id. A family of experiments is one module with a tuple ``EXPERIMENTS``, named here."""

import re
from difflib import get_close_matches
from functools import cache
from importlib import import_module

from tangentlab._errors import TangentError
from tangentlab.experiments._experiment import Experiment

FAMILIES = (
    "ortiz2021._eigenfunctions",
    "ortiz2021._sample_size",
    "ortiz2021._energy",
    "ortiz2021._alignment",
    "ortiz2021._convergence",
    "ortiz2021._nads",
    "ortiz2021._lemma",
    "ortiz2021._theorem",
    "samarin2022._widths",
    "samarin2022._ranks",
    "samarin2022._solver",
    "samarin2022._trajectories",
    "mohamadi2022._timing",
    "mohamadi2022._agreement",
    "mohamadi2022._full",
    "mohamadi2022._theorem",
)


@cache
def _by_id() -> dict[str, Experiment]:
    found: dict[str, Experiment] = {}
    for family in FAMILIES:
        for experiment in import_module(f"tangentlab.experiments.{family}").EXPERIMENTS:
            if experiment.id in found:
                raise ValueError(f"{experiment.id} is registered twice")
            found[experiment.id] = experiment
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


def _order(name: str) -> tuple[int, list[int | str]]:
    """Papers as published, figures by number."""
    paper, _, rest = name.partition("/")
    years = {"ortiz2021": 0, "samarin2022": 1, "mohamadi2022": 2}
    kinds = {"fig": "0", "figA": "1", "table": "2", "lemma": "3", "theorem": "4"}
    match = re.fullmatch(r"([a-zA-Z]+)(\d+)", rest)
    assert match is not None, name
    return years[paper], [kinds[match[1]], int(match[2])]


def available() -> tuple[Experiment, ...]:
    """Every experiment, in the order of the papers."""
    return tuple(_by_id().values())


def get(name: str) -> Experiment:
    """An experiment by id.

    Raises:
        TangentError: For an unknown id, with the closest ones.
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
