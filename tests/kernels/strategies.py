"""Random networks for hypothesis."""

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tangentlab import TangentError
from tests.kernels.architectures import Architecture, draw, refusable
from tests.kernels.case import Case
from tests.kernels.properties import PROPERTIES

QUICK = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # soak.architectures shrinks by the grammar
)


@st.composite
def architectures(choose: Any, kinds: Sequence[str] | None = None) -> Architecture:
    """Descriptions of networks of the given kinds of blocks, or of all."""
    return draw(lambda options: choose(st.sampled_from(options)), choose(st.integers(0, 10_000)), kinds)


def check(architecture: Architecture, name: str) -> bool:
    """Whether a property holds, rather than being refused where that is a right answer."""
    try:
        Case(architecture).check(PROPERTIES[name])
    except TangentError:
        if not refusable(architecture, name):
            raise
        return False
    return True
