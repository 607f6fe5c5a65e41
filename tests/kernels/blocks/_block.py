"""What a block of a random network is, and the table of all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

Maker = Callable[..., nn.Module]


@dataclass(frozen=True)
class Block:
    """A way to make a module from (B, T, D) to (B, T, D).

    Attributes:
        name: Its name.
        make: From D, T and options to the module.
        options: For each option its values, the simplest first.
        refusable: Beginnings of the names of properties for which a clear refusal is a right answer, since the block
            does what the documentation excludes; ``("",)`` for all.
        fresh: Whether nothing else needs the tensor that it gives, so that it may be changed in place.
        lacks: The derivative that torch does not have of it, "forward" or "second" (of a backward pass); "" for none.
            A linearized network needs one of the two for all of its blocks.
    """

    name: str
    make: Maker
    options: dict[str, tuple[Any, ...]]
    refusable: tuple[str, ...] = ()
    fresh: bool = True
    lacks: str = ""


BLOCKS: dict[str, Block] = {}


def block(
    refusable: tuple[str, ...] = (), fresh: bool = True, lacks: str = "", **options: tuple[Any, ...]
) -> Callable[[Maker], Maker]:
    """Enter a maker of modules, ``make(d, t, **options)``, into the table."""

    def enter(make: Maker) -> Maker:
        name = make.__name__.removesuffix("_")
        BLOCKS[name] = Block(name, make, options, refusable, fresh, lacks)
        return make

    return enter
