"""Tasks that are new targets for the same images, made from the labels."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._seeds import generator
from tangentlab.data import Examples, ImageData


def binary(
    data: ImageData,
    positive: Iterable[int | str],
    *,
    values: tuple[float, float] = (-1.0, 1.0),
    name: str | None = None,
) -> ImageData:
    """Set the targets to some classes against the others.

    Cost: one pass over the labels; images are not copied.

    Args:
        data: Any labeled data.
        positive: Classes of the positive side, by number or name.
        values: Targets of the negative and of the positive side.
        name: Name of the task.

    Returns:
        The same images with targets (N, 1) float32. Labels stay the classes.

    Examples:
        >>> from tangentlab import data, tasks
        >>> digits = data.load("digits", n_train=60, n_test=20)
        >>> sorted(set(tasks.binary(digits, [0, 1, 2]).train.targets.flatten().tolist()))
        [-1.0, 1.0]

    See also:
        :func:`tangentlab.tasks.cifar2`, :func:`tangentlab.tasks.one_vs_rest`.
    """
    chosen = sorted({_class_number(data, which) for which in positive})
    if not 0 < len(chosen) < len(data.classes):
        raise TangentError(
            f"{len(chosen)} of {len(data.classes)} classes are on the positive side.",
            why="Both sides need a class.",
            remedy="Choose some of the classes, not all.",
        )
    low, high = values

    def targets(labels: Tensor) -> Tensor:
        return torch.where(torch.isin(labels, torch.tensor(chosen)), high, low).float()[:, None]

    title = name or f"{data.name}: {', '.join(data.classes[which] for which in chosen)} against the rest"
    return _with_targets(data, title, targets)


def cifar2(data: ImageData, values: tuple[float, float] = (-1.0, 1.0)) -> ImageData:
    """Set the targets of CIFAR2: +1 for the first five classes, -1 for the other five (ortiz2021, section 4.1).

    It accepts any ten classes, for instance those of the embedded digits.

    Cost: that of :func:`binary`.

    Examples:
        >>> from tangentlab import data, tasks
        >>> digits = data.load("digits", n_train=60, n_test=20)
        >>> tasks.cifar2(digits).train.targets.unique().tolist()
        [-1.0, 1.0]

    See also:
        :func:`tangentlab.tasks.binary`.
    """
    if len(data.classes) != 10:
        raise TangentError(
            f"{data.name!r} has {len(data.classes)} classes.",
            why="CIFAR2 sets the first five of ten classes against the other five.",
            remedy="Use binary(data, positive=...) for another division.",
        )
    title = "cifar2" if data.name == "cifar10" else f"{data.name}: first five classes against the rest"
    return binary(data, range(5), values=values, name=title)


def one_vs_rest(data: ImageData, positive: int | str = 0, values: tuple[float, float] = (-1.0, 1.0)) -> ImageData:
    """Set the targets to one class against the rest: digit 0 against the others (samarin2022, section 4.3).

    The paper says "one output" and "the same least-squares objective" but not which two numbers are fitted. Here
    they are -1 and 1, so that every binary task is decided by the sign; values=(0, 1) gives the column of the
    one-hot targets.

    Cost: that of :func:`binary`.

    Examples:
        >>> from tangentlab import data, tasks
        >>> digits = data.load("digits", n_train=60, n_test=20)
        >>> tasks.one_vs_rest(digits, 3).train.targets.unique().tolist()
        [-1.0, 1.0]

    See also:
        :func:`tangentlab.tasks.binary`.
    """
    return binary(data, [positive], values=values)


def one_hot(data: ImageData) -> ImageData:
    """Set regression targets e_label, (N, classes) float32, for the squared loss (samarin2022, mohamadi2022).

    Cost: one pass over the labels, and 4 N classes bytes; images are not copied.

    Examples:
        >>> from tangentlab import data, tasks
        >>> digits = data.load("digits", n_train=60, n_test=20)
        >>> tuple(tasks.one_hot(digits).train.targets.shape)
        (60, 10)

    See also:
        :func:`tangentlab.tasks.binary`, :func:`tangentlab.linalg.regress`.
    """
    classes = len(data.classes)
    return _with_targets(
        data,
        f"{data.name}, one-hot",
        lambda labels: torch.nn.functional.one_hot(labels, classes).float(),
    )


def random_labels(data: ImageData, *, classes: int | None = None, fraction: float = 1.0, seed: int = 0) -> ImageData:
    """Draw labels uniformly, independent of the images; equal seeds give equal labels.

    This task changes the labels themselves, so that it can be followed by another: random signs are
    ``binary(random_labels(data, classes=2), positive=[1])``.

    Cost: one pass over the labels; images are not copied.

    Args:
        data: Any labeled data; targets of an earlier task are dropped.
        classes: Number of classes to draw from, by default those of the data.
        fraction: Share of the examples, chosen at random, whose label is drawn again; it may stay the same.
        seed: Seed of the draws; the two splits draw separately.

    Examples:
        >>> from tangentlab import data, tasks
        >>> digits = data.load("digits", n_train=60, n_test=20)
        >>> len(tasks.random_labels(digits, seed=0).train)
        60

    See also:
        :func:`tangentlab.tasks.binary`.
    """
    count = len(data.classes) if classes is None else classes
    if count < 2:
        raise TangentError(f"classes={count} leaves nothing to draw.", remedy="Give at least 2.")
    if not 0 <= fraction <= 1:
        raise TangentError(f"fraction={fraction} is not between 0 and 1.")
    if fraction < 1 and count < len(data.classes):
        raise TangentError(
            f"classes={count} with fraction={fraction}: the labels that stay need {len(data.classes)} classes.",
            remedy="Leave classes out, or draw all labels.",
        )

    def drawn(examples: Examples, split: int) -> Examples:
        source = generator("random labels", seed, split)
        labels = examples.labels.clone()
        changed = torch.randperm(len(labels), generator=source)[: round(fraction * len(labels))]
        labels[changed] = torch.randint(count, (len(changed),), generator=source)
        return replace(examples, labels=labels, task_targets=None)

    names = data.classes if count == len(data.classes) else tuple(str(number) for number in range(count))
    share = "" if fraction == 1 else f" for {fraction:.0%}"
    return replace(
        data,
        name=f"{data.name}, random labels{share}",
        train=drawn(data.train, 0),
        test=drawn(data.test, 1),
        classes=names,
    )


def _with_targets(data: ImageData, name: str, targets: Callable[[Tensor], Tensor]) -> ImageData:
    train, test = (split.with_targets(targets(split.labels)) for split in (data.train, data.test))
    return replace(data, name=name, train=train, test=test)


def _class_number(data: ImageData, which: int | str) -> int:
    if isinstance(which, str) and which in data.classes:
        return data.classes.index(which)
    if isinstance(which, int) and 0 <= which < len(data.classes):
        return which
    raise TangentError(
        f"{data.name!r} has no class {which!r}.",
        remedy=f"Its classes are {', '.join(f'{i} {name}' for i, name in enumerate(data.classes))}.",
    )
