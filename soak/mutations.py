"""Damage to files, drawn at random: of bytes, and of what the bytes mean.

A mutation is a pure function of a generator. It says whether checksums were made anew (``sealed``): then what is read
may rightly differ from the original; if not, a format with checksums must give the original or be refused.
"""

import gzip
import io
import json
import random
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NUMBERS = (0, 1, 7, 8, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 1e308, -1e-308, 0.5, 2**31, 2**53, 2**63, 2**64, 10**30, "", "0", "x" * 5000),
    *("NaN", "\0", "\u202e", "../../evil", "/etc/passwd", "<script>alert(1)</script>", "'\"><img src=x onerror=x>"),
    *([], {}, [[]], [None], {"a": 1}, [0] * 100, {"": {}}),
)


@dataclass(frozen=True)
class Mutation:
    """The outcome of mutating a file.

    Attributes:
        content: The new content; None where the file is gone.
        sealed: Whether checksums fit the new content.
        kind: What was done.
    """

    content: bytes | None
    sealed: bool
    kind: str


def mutate(content: bytes, name: str, rng: random.Random) -> Mutation:
    """Mutate a file: its meaning if its format is known and the draw selects that, else its bytes."""
    special = next((change for suffix, change in SPECIAL.items() if name.endswith(suffix)), None)
    if special is not None and rng.random() < 0.5:
        try:
            return special(content, rng)
        except (
            ValueError,
            KeyError,
            OSError,
            EOFError,
            zipfile.BadZipFile,
            tarfile.TarError,
            OverflowError,
            IndexError,
        ):
            pass  # what this draw asks for cannot be written
    if rng.random() < 0.01:
        return Mutation(None, False, "removed")
    for _ in range(1 if rng.random() < 0.7 else rng.randint(2, 6)):
        content = change_bytes(content, rng)
    return Mutation(content, False, "bytes")


def change_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change, cut, double or move bits, bytes, numbers or pieces."""
    raw = bytearray(content)
    size = len(raw)
    at = rng.randrange(size + 1)
    length = min(rng.choice((1, 2, 4, 8, 16, 64, 512)), size - at)
    match rng.randrange(9) if size else 8:
        case 0:
            raw[min(at, size - 1)] ^= 1 << rng.randrange(8)
        case 1:
            raw[min(at, size - 1)] = rng.randrange(256)
        case 2:
            width = rng.choice((1, 2, 4, 8))
            number = (rng.choice(NUMBERS) % 256**width).to_bytes(width, rng.choice(("little", "big")))
            raw[at : at + width] = number
        case 3:
            del raw[at:]
        case 4:
            del raw[at : at + length]
        case 5:
            raw[at:at] = raw[at : at + length]
        case 6:
            raw[at : at + length] = bytes(length)
        case 7:
            other = rng.randrange(size)
            raw[at : at + length] = raw[other : other + length]
        case _:
            raw[at:at] = rng.randbytes(rng.choice((1, 2, 4, 100)))
    return bytes(raw)


def change_json(content: bytes, rng: random.Random) -> Mutation:
    """Replace, remove, double or rename a value or key somewhere in the tree."""
    tree = json.loads(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tree = _change_tree(tree, rng)
    return Mutation(json.dumps(tree).encode(), True, "json")


def _change_tree(tree: Any, rng: random.Random) -> Any:
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, value in items:
            places.append((part, key))
            walk(value)

    walk(tree)
    if not places or rng.random() < 0.02:
        return rng.choice(ODD)
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[str(rng.choice(ODD))] = holder.pop(key)
        case 1 | 2 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = rng.choice((holder[key] + 1, -holder[key], holder[key] * 10**6, str(holder[key])))
        case 3:
            other, there = rng.choice(places)
            try:
                json.dumps(other[there])  # it may be gone, or hold this place itself
                holder[key] = json.loads(json.dumps(other[there]))
            except (KeyError, IndexError, ValueError, RecursionError):
                holder[key] = None
        case 4 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case _:
            holder[key] = rng.choice(ODD)
    return tree


def change_gzip(content: bytes, rng: random.Random) -> Mutation:
    """Change the content of a gzip stream and compress it again, or add a member."""
    inner = gzip.decompress(content)
    if rng.random() < 0.1:
        return Mutation(content + gzip.compress(rng.randbytes(rng.choice((0, 1, 100)))), True, "gzip member")
    if rng.random() < 0.05:
        return Mutation(gzip.compress(inner + bytes(200 * 2**20), 1), True, "gzip bomb")
    return Mutation(gzip.compress(change_bytes(inner, rng), 1), True, "gzip content")


def change_zip(content: bytes, rng: random.Random) -> Mutation:
    """Change a member's content, name or number, with valid checksums, or compress a stored member."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    which = rng.randrange(len(members))
    name, inner = members[which]
    kind, method = "zip content", zipfile.ZIP_STORED
    match rng.randrange(8):
        case 0:
            members[which], kind = (rng.choice((name + "x", "", "../" + name, "a\0b", name.upper())), inner), "zip name"
        case 1:
            members, kind = [*members, (name, change_bytes(inner, rng))], "zip twice"
        case 2:
            members, kind = members[:which] + members[which + 1 :], "zip without"
        case 3 if rng.random() < 0.2:
            members[which], method, kind = (name, inner + bytes(200 * 2**20)), zipfile.ZIP_DEFLATED, "zip bomb"
        case 4:
            method, kind = zipfile.ZIP_DEFLATED, "zip packed"
        case _:
            changed = change_npy(inner, rng) if name.endswith(".npy") and rng.random() < 0.5 else None
            changed = change_json(inner, rng) if name.endswith(".json") and rng.random() < 0.8 else changed
            members[which] = (name, change_bytes(inner, rng) if changed is None else changed.content or b"")
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method, compresslevel=1) as archive:
        warnings.simplefilter("ignore")
        for name, inner in members:
            archive.writestr(name, inner)
    return Mutation(out.getvalue(), kind not in ("zip packed",), kind)


def change_npy(content: bytes, rng: random.Random) -> Mutation:
    """Change shape, type or order in the header of an array."""
    start = content.index(b"{")
    end = content.index(b"}", start) + 1
    header = content[start:end].decode("latin1")
    old, new = rng.choice(
        (
            ("(", rng.choice(("(0, ", "(-1, ", "(99999999999, ", "(1, ", "((", "("))),
            ("<f4", rng.choice(("<f8", "<f2", "|O", "<U8", ">f4", "<c8", "V4", "<i4", "|u1", "<M8[s]", "f4,f4"))),
            ("<i8", rng.choice((">i8", "<f8", "<u8", "|O"))),
            ("False", rng.choice(("True", "None", "1"))),
            (")", rng.choice((", 1)", ", 0)", "", ", 2**70)"))),
        )
    )
    text = header.replace(old, new, 1).encode("latin1")
    return Mutation(content[:start] + text + content[end:], True, "npy header")


def change_tar(content: bytes, rng: random.Random) -> Mutation:
    """Change a member's name, kind, size or content, and pack the archive again."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = [(info, archive.extractfile(info).read() if info.isfile() else b"") for info in archive]  # type: ignore[union-attr]
    which = rng.randrange(len(members))
    info, inner = members[which]
    kind = "tar member"
    match rng.randrange(5):
        case 0:
            names = ("../evil", "/evil", "a" * 300, "a/" * 200 + "b", "", ".", info.name + "/x", "a\nb", "A\u202eb")
            info.name, kind = rng.choice((*names, members[rng.randrange(len(members))][0].name)), "tar name"
        case 1:
            info.type, kind = rng.choice((b"1", b"2", b"3", b"5", b"6", b"S", b"x", b"Z", b"L")), "tar kind"
            info.linkname = rng.choice(("/etc/passwd", "../..", info.name))
            inner = inner if info.isfile() else b""
        case 2:
            members, kind = [*members, (info, change_bytes(inner, rng))], "tar twice"
        case 3:
            members, kind = members[:which] + members[which + 1 :], "tar without"
        case _:
            inner = change_bytes(inner, rng)
    if which < len(members) and members[which][0] is info and kind != "tar twice":
        members[which] = (info, inner)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
        for info, inner in members:
            info.size = len(inner)
            archive.addfile(info, io.BytesIO(inner))
    return Mutation(out.getvalue(), True, kind)


SPECIAL: dict[str, Callable[[bytes, random.Random], Mutation]] = {
    ".tar.gz": change_tar,
    ".gz": change_gzip,
    ".json": change_json,
    ".npz": change_zip,
    ".pt": change_zip,
    ".zip": change_zip,
    ".npy": change_npy,
}
"""By the end of a file's name, the longest first."""
