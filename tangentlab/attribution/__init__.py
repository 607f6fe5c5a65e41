"""Data attribution: which training samples made this prediction?

>>> from tangentlab import attribution
>>> result = attribution.attribute(model, train, test)                        # "trak", or "exact", "gradient", ...
>>> result.scores.shape                                                       # (tests, training samples)
>>> result.top(3, 5), result.top(3, 5, harmful=True), result.to_pandas(10)
>>> result.picture(3, train, test)
>>> attribution.attribute([seed0, seed1], train, test, attribution.Trak(k=4096), out="scores")   # rerun to resume
>>> networks = attribution.retrain(attribution.Retraining(build, train, test, spec), len(train), folder="retrained")
>>> attribution.lds(result, networks)                                         # does it predict retrained networks?
"""

from tangentlab.attribution._attribute import METHODS, attribute
from tangentlab.attribution._exact import Exact
from tangentlab.attribution._gradient import Gradient
from tangentlab.attribution._lds import LDS, lds
from tangentlab.attribution._method import Method
from tangentlab.attribution._representer import Representer
from tangentlab.attribution._result import Attribution, Top
from tangentlab.attribution._retrained import Retrained, retrain
from tangentlab.attribution._retraining import Retraining
from tangentlab.attribution._trak import Trak

__all__ = [
    "LDS",
    "METHODS",
    "Attribution",
    "Exact",
    "Gradient",
    "Method",
    "Representer",
    "Retrained",
    "Retraining",
    "Top",
    "Trak",
    "attribute",
    "lds",
    "retrain",
]
