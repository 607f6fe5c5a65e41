"""The manifest: the description of a stored kernel."""

import hashlib
import secrets
import warnings
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._version import __version__
from tangentlab.kernels.internal import Plan, ReadoutLike
from tangentlab.store._hashes import sample_hashes, tensor_hash, weights_hash
from tangentlab.store._identity import Identity
from tangentlab.store._tiles import TilePlan

FORMAT = 2
READABLE = (1, 2)
"""Format 1 does not say what its network computes: such a store can be read but not continued."""
KEY = "tangentlab"
"""The attribute of the Zarr array that holds the manifest."""


@dataclass(frozen=True)
class Segment:
    """Samples that were added to a store together.

    Attributes:
        stop: The number of samples up to its end.
        sha256: Hash of its samples.
        targets: Hash of their targets; empty for a readout that takes none.
    """

    stop: int
    sha256: str
    targets: str = ""


@dataclass(frozen=True)
class Manifest:
    """The description of a stored kernel, against which anybody can check it.

    Attributes:
        weights: SHA-256 of all parameters and buffers.
        model: The model's class and number of parameters.
        parameters: Names of the parameters that the user chose, or "all".
        readout: The readout; a matrix by its hash, a function by its name (:class:`Identity` has its code).
        output: The name of the function that takes the outputs from the model's result.
        dtype: The precision of the numbers.
        samples: The segments of samples; more than one after appending.
        readouts: R.
        tile: Samples per panel.
        batch: Samples per forward pass.
        identity: What the network computes; None in stores of format 1.
        key: A random name that distinguishes the store from earlier and later ones in the same folder.
        provenance: The user's notes, for example how to make model and data again.
        versions: The versions of tangentlab and PyTorch at the start.
        format: The format of this manifest.
    """

    weights: str
    model: str
    parameters: str
    readout: str
    output: str
    dtype: str
    samples: tuple[Segment, ...]
    readouts: int
    tile: int
    batch: int
    identity: Identity | None = None
    key: str = field(default_factory=lambda: secrets.token_hex(8))
    provenance: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=lambda: {"tangentlab": __version__, "torch": torch.__version__})
    format: int = FORMAT

    @property
    def plan(self) -> TilePlan:
        """The tiling of the kernel."""
        return TilePlan(self.samples[-1].stop, self.readouts, self.tile, self.batch)

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        content = asdict(self)
        for segment in content["samples"]:  # as stores without targets have always been written
            if not segment["targets"]:
                del segment["targets"]
        return content

    @classmethod
    def from_json(cls, content: Any, where: str) -> "Manifest":
        """Build a manifest from plain values.

        Raises:
            TangentError: It is incomplete or of another format.
        """
        try:
            if content["format"] not in READABLE:
                raise TangentError(
                    f"{where} has the format {content['format']!r}.",
                    f"This version of tangentlab reads the formats {', '.join(map(str, READABLE))}.",
                    "Open it with the version that wrote it: " + str(content.get("versions")),
                )
            before = {"identity": None, "key": ""} if content["format"] == 1 else {}
            known = {f.name: (before | content)[f.name] for f in fields(cls)}
            known["samples"] = tuple(Segment(**segment) for segment in content["samples"])
            if not before:
                known["identity"] = Identity.from_json(content["identity"])
            manifest = cls(**known)
            manifest._refuse_senseless()
            return manifest
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, TangentError):
                raise
            raise TangentError(
                f"The manifest of {where} is incomplete.",
                f"It does not describe the kernel ({type(error).__name__}: {error}).",
                "Restore zarr.json from a copy, or compute the kernel again in another folder.",
            ) from error

    def _refuse_senseless(self) -> None:
        numbers = [self.readouts, self.tile, self.batch, *(segment.stop for segment in self.samples)]
        texts = [
            getattr(self, name) for name in ("weights", "model", "parameters", "readout", "output", "dtype", "key")
        ]
        stops = [0, *(segment.stop for segment in self.samples)]
        if not all(type(number) is int and number > 0 for number in numbers):
            raise ValueError("a size is not a positive whole number")
        if len(stops) == 1 or any(b <= a for a, b in pairwise(stops)):
            raise ValueError("the segments of samples are not in order")
        texts += [text for segment in self.samples for text in (segment.sha256, segment.targets)]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a name or a hash is not text")
        if not isinstance(self.provenance, dict) or not isinstance(self.versions, dict):
            raise ValueError("provenance or versions are not tables")
        if self.identity is not None and max(self.identity.behavior.samples, default=0) >= stops[1]:
            raise ValueError("the network was compared on samples that do not exist")

    def refuse_other(self, wanted: "Manifest", where: object) -> None:
        """Refuse to continue if the stored kernel is not the requested one.

        Raises:
            TangentError: The kernels differ; every difference is named.
        """
        if self.identity is None or wanted.identity is None:
            raise TangentError(
                f"{where} does not say what its network computes.",
                "An earlier version of tangentlab wrote it, which compared only weights: another activation or "
                "padding would go unnoticed.",
                "Compute the kernel again in another folder; store.open still reads what is there.",
            )
        ours, theirs = self._identity(), wanted._identity()
        differences = [
            f"{name}: {ours.get(name)} there, {theirs.get(name)} here"
            for name in {**ours, **theirs}
            if ours.get(name) != theirs.get(name)
        ]
        differences += self.identity.differences(wanted.identity)
        self.identity.warn_of(wanted.identity, where)
        if differences:
            raise TangentError(
                f"{where} holds another kernel. {'; '.join(differences)}.",
                "Tiles of two kernels would be mixed.",
                "Use another folder, or pass the model, the data and the options that it was made with.",
            )
        if self.versions.get("torch") != wanted.versions.get("torch"):
            warnings.warn(
                f"{where} was started with PyTorch {self.versions.get('torch')}, this is {torch.__version__}: its "
                "tiles belong to the same kernel but may be rounded differently.",
                stacklevel=4,
            )

    @property
    def fingerprint(self) -> str:
        """A short hash of everything that must agree."""
        return hashlib.sha256(repr((sorted(self._identity().items()), self.identity)).encode()).hexdigest()[:16]

    def _identity(self) -> dict[str, Any]:
        """List what must agree, under readable names."""
        targets = [segment.targets[:16] for segment in self.samples if segment.targets]
        return ({"targets": ", ".join(targets)} if targets else {}) | {
            "weights": self.weights[:16],
            "model": self.model,
            "readout": self.readout,
            "output": self.output or "none",
            "dtype": self.dtype,
            "readouts": self.readouts,
            "number of samples": self.samples[-1].stop,
            "samples": ", ".join(segment.sha256[:16] for segment in self.samples),
            "tile": self.tile,
            "batch size": self.batch,
        }


def describe(
    kernel_plan: Plan,
    readout: ReadoutLike,
    parameters: Any,
    output: Any,
    plan: TilePlan,
    stops: list[int],
    identity: Identity,
    provenance: dict[str, Any] | None,
) -> Manifest:
    """Build the manifest of what an kernel_plan is about to compute.

    Args:
        kernel_plan: How the kernel is computed.
        readout: As the user passed it.
        parameters: As the user passed it.
        output: As the user passed it.
        plan: The tiling of the kernel.
        stops: The ends of the segments of samples; each segment is hashed separately.
        identity: What the network computes.
        provenance: The user's notes.
    """
    network, samples = kernel_plan.network, kernel_plan.left.samples
    starts = [0, *stops[:-1]]
    count = sum(p.numel() for p in network.parameters.values())
    return Manifest(
        weights=weights_hash(network.model),
        model=f"{type(network.model).__name__}, {count} parameters",
        parameters="all" if parameters is None else ", ".join(network.parameters),
        readout=_readout_name(readout),
        output="" if output is None else _name_of(output),
        dtype=str(network.dtype).removeprefix("torch."),
        samples=tuple(Segment(b, *sample_hashes(samples, range(a, b))) for a, b in zip(starts, stops, strict=True)),
        readouts=plan.readouts,
        tile=plan.tile,
        batch=plan.batch,
        identity=identity,
        provenance=dict(provenance or {}),
    )


def grown(manifest: Manifest, wanted: Manifest) -> Manifest:
    """Append the last segment of another manifest to a stored one."""
    return replace(manifest, samples=(*manifest.samples, wanted.samples[-1]))


def unrounded(manifest: Manifest) -> Manifest:
    """Recover the manifest of a kernel before it was packed in a lower precision."""
    return replace(manifest, dtype=manifest.provenance.get("rounded_from", manifest.dtype))


def _readout_name(readout: ReadoutLike) -> str:
    if isinstance(readout, Tensor):
        return f"matrix {tuple(readout.shape)} {tensor_hash(readout)[:16]}"
    return _name_of(readout) if callable(readout) else str(readout)


def _name_of(function: Any) -> str:
    """Describe a callable in words that are the same in every process: memory addresses are left out."""
    if isinstance(function, partial):
        return f"partial({_name_of(function.func)}, {function.args}, {function.keywords})"
    if hasattr(function, "__qualname__"):
        return f"{function.__module__}.{function.__qualname__}"
    text = repr(function)
    return f"{type(function).__module__}.{type(function).__qualname__}" if " at 0x" in text else text
