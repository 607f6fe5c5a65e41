"""What the papers said and what was found, in a dozen sentences that are put together from the records.

Every number of a sentence is a claim's, so a sentence changes with the results it is about.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tangentlab.experiments import Result, Scope, Verdict
from tangentlab.report._topics import TOPICS, Topic


@dataclass(frozen=True)
class Finding:
    """A topic with what was found.

    Attributes:
        topic: The topic.
        counts: How many of its claims have each verdict.
        sentence: What was found, with the number, its interval and where it was tested.
        leading: The claim whose number is shown, and the result it is of.
        network: The network that the claim is about; empty for none or several.
    """

    topic: Topic
    counts: dict[Verdict, int]
    sentence: str
    leading: tuple[Result, dict[str, Any]]
    network: str

    @property
    def verdict(self) -> Verdict:
        """The verdict that most decided claims have; undecided if none is decided, or as many hold as do not."""
        holds, fails = (self.counts.get(verdict, 0) for verdict in (Verdict.HOLDS, Verdict.FAILS))
        if holds == fails:
            return Verdict.UNDECIDED
        return Verdict.HOLDS if holds > fails else Verdict.FAILS


def tell(results: Sequence[Result]) -> list[Finding]:
    """Return what was found on every topic that has results."""
    found = []
    for topic in TOPICS:
        claims = [
            (result, claim)
            for name in topic.ids
            for result in results
            if result.id == name
            for claim in result.record["claims"]
            if any(part in claim["statement"] for part in topic.claims)
        ]
        if claims:
            counts = Counter(Verdict(claim["verdict"]) for _, claim in claims)
            leading = max(claims, key=lambda pair: _weight(topic, pair[1]))
            named = [name for name in _NETWORKS if name in leading[1]["statement"]]
            network = named[0] if len(named) == 1 else ""
            found.append(Finding(topic, dict(counts), _sentence(topic, counts, leading[1], network), leading, network))
    return found


def failed(results: Sequence[Result]) -> list[tuple[Result, str]]:
    """Return a sentence for every claim that does not hold, with the result it is of."""
    return [
        (
            result,
            f"{_label(result)}, {claim['statement']}: {_shown(claim)}, required "
            f"{claim['threshold'].replace('+-', '±')} ({claim['units']}, {_where(claim)}).",
        )
        for result in results
        for claim in result.record["claims"]
        if claim["verdict"] == Verdict.FAILS
    ]


def coverage(results: Sequence[Result]) -> str:
    """Return how many of all claims the topics are about."""
    claims = sum(len(result.record["claims"]) for result in results)
    told = sum(sum(finding.counts.values()) for finding in tell(results))
    return f"These topics are about {told} of the {claims} claims."


def in_numbers(results: Sequence[Result]) -> str:
    """Return how many claims hold, do not hold and are undecided, by where they were tested."""
    parts = []
    for scope in Scope:
        counts = Counter(c["verdict"] for r in results for c in r.record["claims"] if c["scope"] == scope)
        if counts:
            number = [f"{verdict} {counts[verdict]}" for verdict in Verdict]
            parts.append(f"{WHERE[scope]}: {', '.join(number)}.")
    return f"Claims by verdict. {' '.join(parts)}" if parts else ""


WHERE = {
    Scope.PUBLISHED: "As published",
    Scope.REDUCED: "The papers' settings, reduced",
    Scope.OTHER: "On other data",
}
_NETWORKS = ("MLP", "LeNet", "ConvNet", "FCN", "WideResNet-16-k", "ResNet18", "AlexNet")


def _weight(topic: Topic, claim: dict[str, Any]) -> tuple[bool, bool, bool, bool, bool, int]:
    """Order claims: those of the leading statement, decided, on the paper's data, over seeds rather than points of one,
    with an interval, and as close to the paper as can be."""
    scopes = {Scope.PUBLISHED: 2, Scope.REDUCED: 1, Scope.OTHER: 0}
    return (
        topic.leading in claim["statement"] and claim["value"] is not None,
        claim["verdict"] != Verdict.UNDECIDED,
        Scope(claim["scope"]) != Scope.OTHER,
        "points of" not in claim["units"],
        claim["low"] is not None,
        scopes[Scope(claim["scope"])],
    )


def _sentence(topic: Topic, counts: Counter[Verdict], claim: dict[str, Any], network: str) -> str:
    total = sum(counts.values())
    parts = []
    if counts[Verdict.HOLDS]:
        parts.append(f"holds in {counts[Verdict.HOLDS]} of {total} claim{'' if total == 1 else 's'}")
    if counts[Verdict.FAILS]:
        parts.append(f"does not hold in {counts[Verdict.FAILS]} of {total}")
    if counts[Verdict.UNDECIDED]:
        parts.append(f"{counts[Verdict.UNDECIDED]} of {total} undecided")
    first = f"Found: {', '.join(parts)}."
    if topic.leading not in claim["statement"] or claim["value"] is None:
        return first
    of = f"{network}, " if network else ""
    return f"{first} {_capital(topic.number.format(value(topic, claim)))} ({of}{_evidence(topic, claim)})."


def value(topic: Topic, claim: dict[str, Any]) -> str:
    """Return a claim's value as its topic shows it."""
    return _number(claim["value"], topic.percent)


def _evidence(topic: Topic, claim: dict[str, Any]) -> str:
    bounds = ""
    if claim["low"] is not None:
        bounds = f"95 % bounds {_number(claim['low'], topic.percent)} and {_number(claim['high'], topic.percent)}, "
    elif claim["p"] is not None:
        bounds = "p < 0.0001, " if claim["p"] < 1e-4 else f"p = {claim['p']:.2g}, "
    return f"{bounds}{claim['units']}, {_where(claim)}"


def _where(claim: dict[str, Any]) -> str:
    return {Scope.PUBLISHED: "as published", Scope.REDUCED: "reduced", Scope.OTHER: "other data"}[Scope(claim["scope"])]


def _label(result: Result) -> str:
    return f"{result.id} · {result.variant}" if result.variant else result.id


def _shown(claim: dict[str, Any]) -> str:
    return "no value" if claim["value"] is None else _number(claim["value"], percent=False)


def _number(value: float, percent: bool) -> str:
    return (f"{100 * value:.1f}" if percent else f"{value:.3g}").replace("-", "−")


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
