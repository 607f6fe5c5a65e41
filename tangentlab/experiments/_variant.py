"""Variants: several results of one experiment.

The result of a variant is named ``ID.VARIANT``, for example ``ortiz2021/table1.lenet``. No id has a dot, and a variant
has only characters that are valid in every file system and URL: the name is used as a folder and a link.
"""

import re

from tangentlab._errors import TangentError

LONGEST = 40
WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def check_variant(variant: str) -> str:
    """Return the variant if it can name a result; empty for none.

    Raises:
        TangentError: If it cannot, with a valid name similar to it.
    """
    if variant and (len(variant) > LONGEST or not WORD.fullmatch(variant)):
        instead = re.sub(r"[^a-z0-9]+", "-", variant.lower())[:LONGEST].strip("-")
        hint = f"For example {instead!r}." if instead else "For example 'lenet'."
        raise TangentError(
            f"The variant {variant!r} cannot name a result.",
            why=f"It becomes part of folders and links: small letters, digits and single dashes, at most {LONGEST}.",
            remedy=hint,
        )
    return variant


def result_name(identity: str, variant: str = "") -> str:
    """Return ``ID`` or ``ID.VARIANT``."""
    return f"{identity}.{variant}" if variant else identity
