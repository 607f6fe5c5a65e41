"""What is mutated: modules, and the tests that should notice every error in them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Some modules, and the tests that should notice every error in them.

    Attributes:
        modules: Patterns of files below the root.
        tests: Patterns of test files. Those that start other processes would not see a mutant.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def _modules(package: str, names: str) -> tuple[str, ...]:
    return tuple(f"tangentlab/{package}/_{name}.py" for name in names.split())


_KERNELS = ("tests/kernels/test_*.py",)
_SOLVERS = "cholesky cg regress solvers krylov ridge_path nystrom least_squares lsqr"
TARGETS = {
    "rules": Target(_modules("kernels/rules", "[a-z]*"), _KERNELS),
    "factors": Target(_modules("kernels/factors", "[a-z]*"), _KERNELS),
    "record": Target(_modules("kernels", "record isometries probe_record dataflow"), _KERNELS),
    "probe": Target(_modules("kernels", "probe agreement findings verify placement"), _KERNELS),
    "contraction": Target(_modules("kernels", "contract"), _KERNELS),
    "claims": Target(_modules("experiments", "verdicts evidence judge"), ("tests/experiments/test_claim*.py",)),
    "solvers": Target(_modules("linalg", _SOLVERS), ("tests/linalg/test_*.py",)),
}
