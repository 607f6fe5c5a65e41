"""What the papers said and what was found, in a dozen sentences that are put together from the records.

Every number of a sentence is a claim's, so a sentence changes with the results it is about.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tangentlab.experiments import Result, Scope, Verdict


@dataclass(frozen=True)
class Topic:
    """One thing that a paper said.

    Attributes:
        title: A few words.
        said: What the paper says, in words for a student.
        ids: The experiments that test it; the picture is that of the first with a result.
        claims: Parts of the statements of its claims.
        leading: The part of the statement whose number is shown.
        number: What the number is, in words, with ``{}`` for it.
        percent: Whether the number is a fraction, to be shown in points of a percentage.
        short: Whether it belongs to the five on the first screen.
    """

    title: str
    said: str
    ids: tuple[str, ...]
    claims: tuple[str, ...]
    leading: str
    number: str
    percent: bool = False
    short: bool = False

    @property
    def paper(self) -> str:
        """The paper's name."""
        return self.ids[0].partition("/")[0]


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


_WIDTHS = ("samarin2022/fig2", "samarin2022/fig3", "samarin2022/fig4", "samarin2022/fig5")

TOPICS = (
    Topic(
        "Easy and hard tasks",
        "The eigenfunctions of a network's kernel at initialization, in order of their eigenvalues, are tasks of "
        "increasing difficulty, for the network and for its linearization.",
        ("ortiz2021/fig2", "ortiz2021/fig10", "ortiz2021/fig11"),
        ("less accurate on later eigenfunctions",),
        "less accurate on later eigenfunctions",
        "the mean rank correlation of accuracy with the index is {}",
    ),
    Topic(
        "The linearization can be better",
        "On these tasks the linearized network is more accurate than the network itself.",
        ("ortiz2021/fig2", "ortiz2021/fig10", "ortiz2021/fig11"),
        ("ahead of the network on eigenfunctions",),
        "ahead of the network on eigenfunctions",
        "the linearization is ahead by {} points of test accuracy",
        percent=True,
        short=True,
    ),
    Topic(
        "The network can be better",
        "On tasks along single directions of the input, the network is far better than its linearization.",
        ("ortiz2021/fig4",),
        ("ahead of its linearization on NADs",),
        "ahead of its linearization on NADs",
        "the network is ahead by {} points of test accuracy",
        percent=True,
    ),
    Topic(
        "More images help the network more",
        "On images, the network's advantage over its linearization appears as the training set grows.",
        ("ortiz2021/fig5",),
        ("advantage of",),
        "advantage of",
        "the mean rank correlation of the advantage with the number of images is {}",
    ),
    Topic(
        "The kernel turns toward the labels",
        "Training changes the kernel: much more of the labels comes to lie in its first 50 eigenvectors.",
        ("ortiz2021/table1", "ortiz2021/fig6"),
        ("grows during training",),
        "grows during training",
        "the share grows by {} points",
        short=True,
    ),
    Topic(
        "The kernel aligns with what is learned",
        "A network trained on one eigenfunction aligns its kernel with that one, and hardly changes the order of the "
        "rest.",
        ("ortiz2021/fig7", "ortiz2021/fig14", "ortiz2021/fig15"),
        ("has grown more than", "keeps its order"),
        "keeps its order",
        "the rank correlation of the other alignments before and after is {}",
    ),
    Topic(
        "Faster, but not better",
        "On a hard eigenfunction, the network and the linear model with its final kernel learn faster than the initial "
        "linearization, and generalize worse.",
        ("ortiz2021/fig8",),
        ("converges much faster", "generalizes worse"),
        "network generalizes worse",
        "the network's test accuracy is lower by {} points",
        percent=True,
    ),
    Topic(
        "The network is ahead on images",
        "A convolutional network of ordinary width is well ahead of its linearization.",
        _WIDTHS,
        ("outperforms its linearization",),
        "outperforms its linearization",
        "at the smallest width the gap is {} points of test accuracy",
    ),
    Topic(
        "Width narrows the gap",
        "The wider the network, the less it is ahead of its linearization.",
        _WIDTHS,
        ("gap shrinks",),
        "gap shrinks",
        "the mean rank correlation of the gap with width is {}",
        short=True,
    ),
    Topic(
        "The linear model can fit all training data",
        "Solved exactly instead of by gradient descent, the linearization fits all its training data.",
        ("samarin2022/table1", "samarin2022/table2"),
        ("interpolates",),
        "interpolates",
        "the largest training error is {} %",
    ),
    Topic(
        "The effective rank is low",
        "The matrix of gradients has a lower effective rank than a random one, and the rank grows with width.",
        ("samarin2022/fig6", "samarin2022/figA3"),
        ("effectively of low rank", "effective rank grows"),
        "effectively of low rank",
        "the effective rank is {} of that of a random matrix",
    ),
    Topic(
        "The pseudo-NTK approximates the full kernel",
        "At initialization, the pseudo-NTK, the kernel of the sum of the outputs, approaches the full kernel as "
        "networks get wider.",
        tuple(f"mohamadi2022/fig{i}" for i in (3, 2, 4, 5, 6, 7)),
        ("falls with width at initialization",),
        "Frobenius difference falls",
        "the mean rank correlation of the difference with width is {}",
        short=True,
    ),
    Topic(
        "The pseudo-NTK predicts as well",
        "Kernel regression with the pseudo-NTK is at least as accurate as with the full kernel, and its lead over the "
        "untrained network shrinks to nothing as the network is trained.",
        tuple(f"mohamadi2022/fig{i}" for i in (8, 9, 11, 12)),
        ("more accurate than with the eNTK", "ahead of the untrained", "lead shrinks", "Trained weights improve"),
        "more accurate than with the eNTK",
        "the pseudo-NTK is ahead by {} points of test accuracy",
        percent=True,
        short=True,
    ),
)


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
            f"{claim['statement']}: {_shown(claim)}, required {claim['threshold']} "
            f"({claim['units']}, {_where(claim)}).",
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


def _weight(topic: Topic, claim: dict[str, Any]) -> tuple[bool, bool, bool, bool, int]:
    """Order claims: those of the leading statement, decided, over seeds rather than points of one, with an interval,
    and as close to the paper as can be."""
    scopes = {Scope.PUBLISHED: 2, Scope.REDUCED: 1, Scope.OTHER: 0}
    return (
        topic.leading in claim["statement"] and claim["value"] is not None,
        claim["verdict"] != Verdict.UNDECIDED,
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


def _shown(claim: dict[str, Any]) -> str:
    return "no value" if claim["value"] is None else _number(claim["value"], percent=False)


def _number(value: float, percent: bool) -> str:
    return (f"{100 * value:.1f}" if percent else f"{value:.3g}").replace("-", "−")


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
