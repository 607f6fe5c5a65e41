"""A paper: its name, its title and authors, and the modules with its experiments."""

import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

from tangentlab.experiments._experiment import Experiment

# As a reader of the paper meets them.
_ORDER = ("fig", "figA", "table", "lemma", "theorem")


@dataclass(frozen=True)
class Paper:
    """A paper whose figures, tables and theorems are reproduced.

    Attributes:
        name: The first part of its experiments' ids, and the package of their modules.
        title: Its title.
        authors: Authors and year.
        families: Modules of that package; each has a tuple ``EXPERIMENTS``.
    """

    name: str
    title: str
    authors: str
    families: tuple[str, ...]

    @cached_property
    def experiments(self) -> tuple[Experiment, ...]:
        """All experiments, by kind and number. Their modules are imported at first use.

        Raises:
            ValueError: If an id is there twice or is not of this paper.
        """
        found: dict[str, Experiment] = {}
        for family in self.families:
            for experiment in import_module(f"{__package__}.{self.name}.{family}").EXPERIMENTS:
                if experiment.paper != self.name or experiment.id in found:
                    raise ValueError(f"{experiment.id} is registered twice, or is not of {self.name}")
                found[experiment.id] = experiment
        return tuple(sorted(found.values(), key=lambda experiment: _place(experiment.id)))


def _place(name: str) -> tuple[int, int]:
    match = re.fullmatch(r"\w+/([a-zA-Z]+)(\d+)", name)
    assert match is not None, name
    return _ORDER.index(match[1]), int(match[2])
