"""What the papers said, by topic: which claims test it, and which number of theirs is shown."""

from dataclasses import dataclass


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
