"""The kernel as an operator: products without forming it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab._state import version_of
from tangentlab.kernels._network import ParametersLike
from tangentlab.kernels._options import Options
from tangentlab.kernels._plan import Plan, make_plan, run
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._products import Products, prepare
from tangentlab.kernels._readout import ReadoutLike
from tangentlab.kernels._rows import RowAccess

if TYPE_CHECKING:  # SciPy takes long to import, and a kernel does not need it
    from scipy.sparse.linalg import LinearOperator


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class NTKOperator:
    """The empirical NTK as a matrix of shape (N1 R, N2 R) that is never formed: K v = J1 (J2^T v).

    Cost: a product with m vectors takes about 4 (N1 + N2) R P m operations where gradients are written out, and for a
    dense layer 2 (N1 + N2) d_in d_out m. Factors are computed once and kept if they fit into the memory budget;
    otherwise they are computed anew, batch by batch, for every product.

    Args:
        model: As for :func:`tangentlab.ntk`, like all other arguments.
        readout: ``"full"``, ``"pntk"``, an int, an (O, R) tensor, or a function of a sample's outputs and its target;
            rows run over samples, then over readouts.

    Examples:
        >>> import torch
        >>> from tangentlab import NTKOperator
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> operator = NTKOperator(network, x, readout="pntk")
        >>> operator.shape
        (20, 20)
        >>> (operator @ torch.ones(20)).shape
        torch.Size([20])

    See also:
        :func:`tangentlab.ntk`, :func:`tangentlab.linalg.eigh`, :func:`tangentlab.linalg.regress`.
    """

    def __init__(
        self,
        model: nn.Module,
        x1: Any,
        x2: Any = None,
        *,
        readout: ReadoutLike = "full",
        targets: Any = None,
        parameters: ParametersLike = None,
        output: Callable[[Any], Tensor] | None = None,
        input: Callable[[Any], Any] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | float | str | None = None,
        check: bool = True,
    ) -> None:
        options = Options(
            readout, parameters, output, input, dtype, device, batch_size, memory_budget, check, targets=targets
        )
        options.refuse_readouts(
            ("trace", "per_class"),
            "NTKOperator",
            "A matrix is the kernel of one set of functions.",
            "Use one operator per output (an int) and add their products for the trace.",
        )
        plan = make_plan(Problem.pose(model, x1, x2, options, kind="operator"), ahead=True)
        self._products, _ = run(plan, prepare)
        self._written = self._writes()

    def _writes(self) -> list[tuple[int, int]]:
        """Return where the network's parameters and buffers are and how often each has been written to."""
        model = self._plan.network.model
        dense = [t for t in (*model.parameters(), *model.buffers()) if t.layout is torch.strided and not t.is_nested]
        return [(t.data_ptr(), version_of(t)) for t in dense if not is_lazy(t)]

    def _refuse_changed(self) -> None:
        """Refuse a network with other weights: factors that are kept are old ones, and others would be new ones."""
        if self._writes() != self._written:
            raise TangentError(
                "The network's parameters or buffers have changed since the operator was created.",
                "It is the kernel at the weights of that time.",
                "Create a new NTKOperator; to use the kernel at the old weights, create it with copy.deepcopy(model).",
            )

    def _run(self, compute: Callable[[Products], Tensor]) -> Tensor:
        """Compute with the factors at hand, or with those of the fallback if the model's control flow changes."""

        def attempt(plan: Plan) -> Tensor:
            if plan is not self._products.plan:
                self._products = prepare(plan)
            return compute(self._products)

        self._refuse_changed()
        return run(self._products.plan, attempt)[0]

    @property
    def _plan(self) -> Plan:
        return self._products.plan

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (N1 R, N2 R)."""
        readouts = self._plan.network.readout.size
        return self._plan.work.rows * readouts, self._plan.work.columns * readouts

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the products."""
        return self._plan.network.kernel_dtype

    @property
    def device(self) -> torch.device:
        """The device of the products."""
        return self._plan.network.device

    def __repr__(self) -> str:
        return f"NTKOperator(shape={self.shape}, dtype={self.dtype}, device={self.device}, {self._held})"

    def _repr_html_(self) -> str:
        facts = {"shape": self.shape, "dtype": self.dtype, "device": self.device, "factors": self._held}
        return card("NTKOperator", facts)

    @property
    def _held(self) -> str:
        return "factors in memory" if self._products.kept else "factors recomputed for every product"

    def _checked(self, v: Tensor | np.ndarray, length: int) -> tuple[Tensor, bool]:
        if isinstance(v, np.ndarray):
            v = torch.from_numpy(v)
        if not isinstance(v, Tensor) or v.ndim not in (1, 2) or v.shape[0] != length:
            found = tuple(v.shape) if hasattr(v, "shape") else type(v).__name__
            raise TangentError(
                f"The operator {self.shape} was multiplied with {found}.",
                f"It takes a tensor of shape ({length},) or ({length}, m).",
                "Rows run over samples, then over readouts: use v.reshape(N * R, -1).",
            )
        return v.detach().to(dtype=self.dtype, device=self.device).reshape(length, -1), v.ndim == 1

    def __matmul__(self, v: Tensor | np.ndarray) -> Tensor:
        """Return K v for a vector (N2 R,) or a block (N2 R, m)."""
        block, single = self._checked(v, self.shape[1])
        product = self._run(lambda products: products.product(block, 0, 1))
        return product[:, 0] if single else product

    def rmatmul(self, v: Tensor | np.ndarray) -> Tensor:
        """Return K^T v for a vector (N1 R,) or a block (N1 R, m)."""
        block, single = self._checked(v, self.shape[0])
        product = self._run(lambda products: products.product(block, 1, 0))
        return product[:, 0] if single else product

    @property
    def T(self) -> "NTKOperator | TransposedNTK":
        """K^T, a view that shares the factors; a kernel of samples with themselves is its own transpose."""
        return self if self._plan.work.symmetric else TransposedNTK(self)

    def quadratic_form(self, v: Tensor | np.ndarray) -> Tensor:
        r"""Return v^T K v = ||J^T v||^2 for each column of a block (N R, m), as (m,); a number for a vector (N R,).

        The norm of the averaged Jacobian, at 2 N R P m operations for P parameters; a layer whose kernel is cheaper to
        contract than its gradients are to sum takes (N R)^2 m, tile by tile. One pass over the factors for as many
        columns as the memory budget has room for.
        """
        self._require_square()
        block, single = self._checked(v, self.shape[0])
        squares = self._run(lambda products: products.squares(block))
        return squares[0] if single else squares

    @property
    def samples(self) -> int:
        """N1, the number of samples of the rows."""
        return self._plan.work.rows

    def _require_square(self) -> None:
        if not self._plan.work.symmetric:
            raise TangentError(
                "The operator is not square.", "x1 and x2 are different samples.", "Build it without x2."
            )

    def diagonal(self) -> Tensor:
        """Return the diagonal, (N1 R,), of a kernel of samples with themselves."""
        self._require_square()
        return self._run(lambda products: products.diagonal())

    def rows(self) -> RowAccess:
        """Return access to the rows of any samples, of a kernel of samples with themselves; for block solvers."""
        self._require_square()
        self._refuse_changed()
        return RowAccess(self._products)

    def block(self, rows: Sequence[int] | Tensor, columns: Sequence[int] | Tensor | None = None) -> Tensor:
        """Compute the kernel of some samples with some others, or with themselves.

        Args:
            rows: Numbers of r samples.
            columns: Numbers of c samples; None for the same.

        Returns:
            (r R, c R), of a kernel of samples with themselves. 2 (d_in + R^2 d_out) operations per pair of samples and
            dense layer; factors that are not kept are computed for these samples.
        """
        self._require_square()
        chosen = [self._numbers(rows), *([] if columns is None else [self._numbers(columns)])]

        def compute(products: Products) -> Tensor:
            one, *two = (RowAccess(products).take(some) for some in chosen)
            return one.cross(two[0]) if two else one.gram()

        return self._run(compute)

    def _numbers(self, chosen: Sequence[int] | Tensor) -> list[int]:
        """Check numbers of samples."""
        try:
            found = torch.as_tensor(chosen if isinstance(chosen, Tensor | np.ndarray) else list(chosen))
        except (TypeError, ValueError, RuntimeError, OverflowError):
            found = torch.empty(())
        # A mask would be read as samples 0 and 1, and a float would be cut off.
        if found.numel() and (found.ndim != 1 or found.dtype not in _WHOLE):
            raise TangentError(
                "The samples of a block are not a list of whole numbers.",
                "Masks, slices and other numbers do not say in which order the samples are wanted.",
                "Pass their numbers; for a mask, mask.nonzero().flatten().",
            )
        numbers: list[int] = found.tolist()
        if not numbers or min(numbers) < 0 or max(numbers) >= self.samples:
            raise TangentError(
                f"An operator of {self.samples:,} samples has no such block.",
                "Numbers of samples are out of range, or there are none.",
                f"Pass numbers from 0 to {self.samples - 1:,}.",
            )
        return numbers

    def to_scipy(self) -> "LinearOperator":
        """Return the same as a ``scipy.sparse.linalg.LinearOperator``, for SciPy's eigen- and linear solvers."""
        if self.dtype not in (torch.float32, torch.float64):
            raise TangentError(
                f"SciPy has no {self.dtype}.",
                "Its solvers work in single and double precision.",
                "Pass dtype=torch.float32 or dtype=torch.float64.",
            )
        from scipy.sparse.linalg import LinearOperator

        dtype = torch.empty((), dtype=self.dtype).numpy().dtype

        def times(product: Callable[[Tensor], Tensor]) -> Callable[[np.ndarray], np.ndarray]:
            return lambda v: product(torch.from_numpy(np.ascontiguousarray(v, dtype=dtype))).cpu().numpy()

        forward, backward = times(self.__matmul__), times(self.rmatmul)
        return LinearOperator(
            self.shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=dtype
        )


class TransposedNTK:
    """K^T of an :class:`NTKOperator` K, made by ``K.T``; it shares the factors of K.

    Attributes:
        T: K.
        shape: (N2 R, N1 R).
        dtype: The precision of the products.
        device: The device of the products.
    """

    def __init__(self, operator: NTKOperator) -> None:
        self.T = operator
        self.shape = operator.shape[1], operator.shape[0]
        self.dtype, self.device = operator.dtype, operator.device

    def __repr__(self) -> str:
        return f"{self.T!r}.T"

    def __matmul__(self, v: Tensor | np.ndarray) -> Tensor:
        """Return K^T v for a vector (N1 R,) or a block (N1 R, m)."""
        return self.T.rmatmul(v)

    def rmatmul(self, v: Tensor | np.ndarray) -> Tensor:
        """Return K v for a vector (N2 R,) or a block (N2 R, m)."""
        return self.T @ v

    def to_scipy(self) -> "LinearOperator":
        """Return the same as a ``scipy.sparse.linalg.LinearOperator``."""
        return self.T.to_scipy().T
