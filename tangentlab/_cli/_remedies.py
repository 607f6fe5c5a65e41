"""Errors of the library in the words of the command line."""

import functools
import re

from tangentlab._errors import TangentError

_PHRASES: tuple[tuple[str, str], ...] = (
    (r'[Pp]ass 4 \* 1024\*\*3 or "4GiB"', "Pass a size such as 4GiB"),
    (r"memory_budget", "--memory"),
    (r"[Pp]ass output=, for instance .*", "Let the model that --model names return that tensor."),
    (r"[;,]? (?:or )?pass output= to (\w+)", r", or \1 in the model"),
    (
        r"(?:, )?or look for the sample with [\w.]*\(?.*?diagonal=True\)?(?: on parts of the data)?",
        ", or look for extreme values in the data",
    ),
    (r"dtype=torch\.(\w+)", r"--dtype \1"),
    (r"torch\.(float\d+)", r"\1"),
    (r"\bdtype=", "--dtype"),
    (r"\bdevice=", "--device"),
    (r"\breadout=[\"']?(\w+)[\"']?", r"--readout \1"),
    (r"[Pp]ass targets=, one per sample; for two sets.*", "Pass --targets FILE, or --labels FILE with --data FILE."),
    (r"\btargets=", "--targets"),
    (r" a smaller batch_size, or a", " or a"),  # a kernel's batches are not chosen on the command line
    (r",? or drop_last=False", ""),
    (r"\bbatch_size\b(?!=)", "--batch-size"),
    (r"[Pp]ass a larger tile", "Pass a larger --tile"),
    (r"a smaller tile to", "a smaller --tile to"),
    (r"(?:or )?pass resume=False to start over", "or choose another --out to start over"),
    (r"use binary\(data, positive=\.\.\.\) for another division", "choose --task one-vs-rest:CLASS or one-hot"),
    (r"the same call of store\.compute, or with ", ""),
    (r"store\.open still reads what is there", "'tangentlab spectrum --kernel' still reads what is there"),
    (r"that store\.compute or 'tangentlab kernel compute' made", "that 'tangentlab kernel compute' made"),
    (r"\bwhat store\.pack made", "what 'tangentlab kernel export' made"),
)
"""What a message of the library says to callers of Python, and what a user of the command line can do instead."""


def on_command_line(error: TangentError) -> TangentError:
    """Return the same error with options of commands in place of Python arguments."""
    parts = (_translated(text) for text in (error.what, error.why, error.remedy))
    return TangentError(*parts, topic=error.topic)


def _translated(text: str) -> str:
    for pattern, words in _PHRASES:
        text = re.sub(pattern, functools.partial(_replaced, words), text, flags=re.IGNORECASE)
    return text


def _replaced(words: str, match: re.Match[str]) -> str:
    """Return the words in place of a match; at the start of a sentence they start with a capital, too."""
    new = match.expand(words)
    return new[:1].upper() + new[1:] if match[0][:1].isupper() else new
