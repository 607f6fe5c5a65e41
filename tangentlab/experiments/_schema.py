"""Validation of records: a record may come from an untrusted source, and all other code relies on its types."""

import re
from collections.abc import Callable
from typing import Any

from tangentlab.experiments._spec import PRESETS
from tangentlab.experiments._variant import LONGEST, WORD
from tangentlab.experiments._verdicts import Scope, Verdict

FORMAT = 2
READ = (1, 2)
"""Formats that are read. A record of format 1 has verdicts without interval and scope: see :func:`upgraded`."""
_ID = re.compile(r"[A-Za-z0-9]+/[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*")
_Check = Callable[[Any], bool]


def fault(record: Any) -> str:
    """Return what is wrong with a record, as the end of a sentence that starts with its file; empty for nothing."""
    if not isinstance(record, dict):
        return f"holds a {type(record).__name__} where an object is expected"
    if type(record.get("format")) is not int or record["format"] not in READ:
        return f"has the format {str(record.get('format'))[:40]!r}, and {READ[0]} to {READ[-1]} are read here"
    return _first(record, _RECORD, "") or next(
        (
            found
            for i, claim in enumerate(record["claims"])
            if (found := _first(claim, _CLAIM, f"claims[{i}].") if isinstance(claim, dict) else f"has no claims[{i}]")
        ),
        "",
    )


def upgraded(record: dict[str, Any]) -> dict[str, Any]:
    """Return a valid record in the present format. Its claims keep the verdicts of the rules they were judged by."""
    claims = [
        {
            **_LATER,
            "scope": str(Scope.REDUCED),
            **claim,
            "verdict": str(Verdict.UNDECIDED) if claim["verdict"] == _BEFORE else claim["verdict"],
        }
        for claim in record["claims"]
    ]
    return {**record, "format": FORMAT, "claims": claims}


def _first(values: dict[str, Any], checks: dict[str, _Check], where: str) -> str:
    for name, check in checks.items():
        optional = name in _OPTIONAL and name not in values
        if not optional and (name not in values or not check(values[name])):
            what = "lacks" if name not in values else "has no proper"
            return f"{what} {where}{name}"
    return ""


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 2**53


def _measured(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) < 1e300)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _hardware(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and {"processor", "cores", "memory_gib", "gpus"} <= value.keys()
        and _texts(value["gpus"])
    )


def _work(value: Any) -> bool:
    return isinstance(value, dict) and all(_count(value.get(name)) for name in ("computed", "reused"))


def _data(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(part, dict) and _text(part.get("source")) and isinstance(part.get("original", 0), bool | None)
        for part in value.values()
    )


_RECORD: dict[str, _Check] = {
    "id": lambda value: _text(value) and bool(_ID.fullmatch(value)) and len(value) <= 100,
    "variant": lambda value: value == "" or (_text(value) and len(value) <= LONGEST and bool(WORD.fullmatch(value))),
    "preset": lambda value: value in PRESETS,
    "claims": lambda value: isinstance(value, list),
    "rows": _count,
    "seconds": _number,
    "seeds": lambda value: isinstance(value, list) and all(map(_count, value)),
    "spec": lambda value: isinstance(value, dict),
    "versions": lambda value: isinstance(value, dict) and _texts(list(value.values())) and "tangentlab" in value,
    "hardware": _hardware,
    "work": _work,
    "data": _data,
    "deviations": _texts,
    **dict.fromkeys(("title", "shows", "cost", "caption", "command", "finished"), _text),
}
_CLAIM: dict[str, _Check] = {
    "verdict": lambda value: value in (*Verdict, _BEFORE),
    "scope": lambda value: value in list(Scope),
    **dict.fromkeys(("value", "low", "high", "p", "reference"), _measured),
    **dict.fromkeys(("statement", "statistic", "threshold", "paper", "explanation", "units", "reduced"), _text),
}
_OPTIONAL = {"variant"}
# What claims of format 1 do not have.
_LATER: dict[str, Any] = {"low": None, "high": None, "p": None, "reference": None, "units": "", "reduced": ""}
_BEFORE = "not decidable at this scale"
_OPTIONAL |= {*_LATER, "scope"}
