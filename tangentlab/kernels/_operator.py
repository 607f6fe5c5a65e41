"""The kernel as an operator: products without forming it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab._sums import inner
from tangentlab.kernels._engine import Engine, Side
from tangentlab.kernels._factorize import Factors
from tangentlab.kernels._network import ParametersLike
from tangentlab.kernels._readout import ReadoutLike
from tangentlab.kernels.factors import Hadamard, Pairs, Total


class NTKOperator:
    """The empirical NTK as a matrix of shape (N1 R, N2 R) that is never formed: K v = J1 (J2^T v).

    A product with m vectors costs about 4 (N1 + N2) R P m operations where gradients are written out, and for a dense
    layer 2 (N1 + N2) d_in d_out m. Factors are computed once and kept if they fit into the memory budget; otherwise
    they are computed anew, batch by batch, for every product.

    Args:
        model: As for :func:`tangentlab.ntk`, like all other arguments.
        readout: ``"full"``, ``"pntk"``, an int or an (O, R) tensor; rows run over samples, then over readouts.
    """

    def __init__(
        self,
        model: nn.Module,
        x1: Any,
        x2: Any = None,
        *,
        readout: ReadoutLike = "full",
        parameters: ParametersLike = None,
        output: Callable[[Any], Tensor] | None = None,
        input: Callable[[Any], Any] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | float | str | None = None,
        check: bool = True,
    ) -> None:
        if isinstance(readout, str) and readout in ("trace", "per_class"):
            raise TangentError(
                f"NTKOperator has no readout {readout!r}.",
                "a matrix is the kernel of one set of functions.",
                "use one operator an output (an int) and add their products for the trace.",
            )
        self._engine = Engine(
            model,
            x1,
            x2,
            kind="operator",
            readout=readout,
            parameters=parameters,
            output=output,
            input=input,
            dtype=dtype,
            device=device,
            batch_size=batch_size,
            memory_budget=memory_budget,
        )
        self._kept: dict[int, Factors] = {}
        self._engine.run(lambda: self._prepare(check))

    def _prepare(self, check: bool) -> None:
        engine = self._engine
        self._budget = engine.budget(0)
        samples = sum(len(side.samples) for side in engine.sides)
        fits = samples <= self._budget.resident
        self._kept = {}
        first: list[tuple[Factors, range]] = []
        for number, side in enumerate(engine.sides):
            rows = range(len(side.samples) if fits else min(len(side.samples), self._budget.batch))
            first.append((engine.factorizer(side, self._budget)(side.samples, rows), rows))
            if fits:
                self._kept[number] = first[-1][0]
        if check:
            engine.verify(*first[0], *first[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """(N1 R, N2 R)."""
        readouts = self._engine.network.readout.size
        return self._engine.work.rows * readouts, self._engine.work.columns * readouts

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the products."""
        return self._engine.network.dtype

    @property
    def device(self) -> torch.device:
        """Where products are computed."""
        return self._engine.network.device

    def __repr__(self) -> str:
        return f"NTKOperator(shape={self.shape}, dtype={self.dtype}, device={self.device}, {self._held})"

    def _repr_html_(self) -> str:
        facts = {"shape": self.shape, "dtype": self.dtype, "device": self.device, "factors": self._held}
        return card("NTKOperator", facts)

    @property
    def _held(self) -> str:
        return "factors in memory" if self._kept else "factors recomputed for every product"

    def _blocks(self, number: int) -> Iterator[tuple[range, Factors]]:
        """The factors of one side, in pieces of a batch unless they are kept."""
        number = min(number, len(self._engine.sides) - 1)
        side: Side = self._engine.sides[number]
        if number in self._kept:
            yield range(len(side.samples)), self._kept[number]
            return
        factorizer = self._engine.factorizer(side, self._budget)
        for start in range(0, len(side.samples), factorizer.batch_size):
            rows = range(start, min(start + factorizer.batch_size, len(side.samples)))
            yield rows, factorizer(side.samples, rows)

    def _product(self, v: Tensor, out_side: int, in_side: int) -> Tensor:
        readouts = self._engine.network.readout.size
        count = v.shape[0] // readouts
        block = v.reshape(count, readouts, -1)
        sums: dict[Any, Total] = {}
        for rows, factors in self._blocks(in_side):
            for key, part in factors.parts.items():
                _add(sums, key, part.pull(block[rows.start : rows.stop]))
        pulled = {key: total.finish() for key, total in sums.items()}
        pieces = []
        for _, factors in self._blocks(out_side):
            products: dict[str, Total] = {}
            for key, part in factors.parts.items():
                _add(products, "", part.push(pulled[key]))
            pieces.append(products[""].finish())
        return torch.cat(pieces).reshape(-1, v.shape[1])

    def _checked(self, v: Tensor | np.ndarray, length: int) -> tuple[Tensor, bool]:
        if isinstance(v, np.ndarray):
            v = torch.from_numpy(v)
        if not isinstance(v, Tensor) or v.ndim not in (1, 2) or v.shape[0] != length:
            found = tuple(v.shape) if hasattr(v, "shape") else type(v).__name__
            raise TangentError(
                f"the operator {self.shape} was multiplied with {found}.",
                f"it takes a tensor of shape ({length},) or ({length}, m).",
                "rows run over samples, then over readouts: use v.reshape(N * R, -1).",
            )
        return v.detach().to(dtype=self.dtype, device=self.device).reshape(length, -1), v.ndim == 1

    def __matmul__(self, v: Tensor | np.ndarray) -> Tensor:
        """K v for a vector (N2 R,) or a block (N2 R, m)."""
        block, single = self._checked(v, self.shape[1])
        product = self._engine.run(lambda: self._product(block, 0, 1))
        return product[:, 0] if single else product

    def rmatmul(self, v: Tensor | np.ndarray) -> Tensor:
        """K^T v for a vector (N1 R,) or a block (N1 R, m)."""
        block, single = self._checked(v, self.shape[0])
        product = self._engine.run(lambda: self._product(block, 1, 0))
        return product[:, 0] if single else product

    @property
    def T(self) -> "NTKOperator | TransposedNTK":
        """K^T, a view that shares the factors; a kernel of samples with themselves is its own transpose."""
        return self if self._engine.symmetric else TransposedNTK(self)

    def quadratic_form(self, v: Tensor | np.ndarray) -> Tensor:
        r"""v^T K v = ||J^T v||^2 for each column of a block (N R, m), as (m,); a number for a vector (N R,).

        The norm of the averaged Jacobian, at 2 N R P m operations for P parameters; a layer whose kernel is cheaper to
        contract than its gradients are to sum takes (N R)^2 m, tile by tile. One pass over the factors for as many
        columns as the memory budget has room for.
        """
        self._require_square()
        block, single = self._checked(v, self.shape[0])
        squares = self._engine.run(lambda: torch.cat([self._squares(part) for part in block.split(self._columns, 1)]))
        return squares[0] if single else squares

    @property
    def samples(self) -> int:
        """N1, the number of samples of the rows."""
        return self._engine.work.rows

    @property
    def _columns(self) -> int:
        """How many vectors are pulled back at a time, so that they take an eighth of the memory budget."""
        parameters = sum(p.numel() for p in self._engine.network.parameters.values())
        return max(1, self._share // parameters)

    @property
    def _share(self) -> int:
        """Numbers that an eighth of the memory budget holds."""
        return self._budget.total // (8 * torch.empty((), dtype=self.dtype).element_size())

    def _squares(self, v: Tensor) -> Tensor:
        """||J^T v||^2 for each column."""
        block = v.reshape(self.samples, -1, v.shape[1])
        tiled = self._cheaper_by_tiles(block)
        pulled: dict[Any, Total] = {}
        for rows, factors in self._blocks(0):
            for key, part in factors.parts.items():
                if key in tiled:
                    continue
                # A factor weights its output gradients with every column before it sums over samples.
                height = max(1, self._share // (v.shape[1] * part.g[0].numel()))
                for start in range(0, len(rows), height):
                    some = part[start : start + height]
                    _add(pulled, key, some.pull(block[rows.start + start : rows.start + start + some.count]))
        total = torch.zeros(v.shape[1], dtype=torch.float64, device=v.device)
        for sum_ in pulled.values():
            total += torch.stack([inner(row, row) for row in sum_.finish()])
        if tiled:
            total += self._tiled_squares(Factors({key: self._kept[0].parts[key] for key in tiled}), block)
        return total.to(v.dtype)

    def _cheaper_by_tiles(self, block: Tensor) -> set[Any]:
        """Factors whose Gram matrix costs fewer operations than pulling back, the product with it included."""
        if 0 not in self._kept:
            return set()
        samples, readouts, columns = block.shape
        chosen, saved = set(), 0
        for key, part in self._kept[0].parts.items():
            if isinstance(part, Pairs):
                continue
            width = part.g.shape[2] * (part.a.shape[1] + 1 if isinstance(part, Hadamard) else 1)
            numbers = sum(tensor[0].numel() for tensor in part.tensors().values())
            gain = 2 * readouts * width * columns - samples * readouts * numbers
            if gain > 0:
                chosen.add(key)
                saved += gain
        return chosen if saved > samples * readouts**2 * columns else set()

    def _tiled_squares(self, factors: Factors, block: Tensor) -> Tensor:
        """v^T K v of these factors' kernel, from the panels of its upper triangle."""
        samples, readouts, columns = block.shape
        height = max(1, min(1024, self._share // (4 * samples * readouts**2)))
        total = torch.zeros(columns, dtype=torch.float64, device=block.device)
        for start in range(0, samples, height):
            one, right = factors[start : start + height], block[start:].flatten(0, 1)
            size = one.count * readouts
            panel = block.new_zeros(size, len(right))
            one.add_gram(factors[start:], panel)
            panel[:, size:] *= 2  # the other triangle
            total += (right[:size] * (panel @ right)).sum(0)
        return total.clamp_(min=0)

    def _require_square(self) -> None:
        if not self._engine.symmetric:
            raise TangentError(
                "the operator is not square.", "x1 and x2 are different samples.", "build it without x2."
            )

    def diagonal(self) -> Tensor:
        """The diagonal, (N1 R,), of a kernel of samples with themselves."""
        self._require_square()
        blocks = self._engine.run(lambda: [factors.diagonal() for _, factors in self._blocks(0)])
        return torch.cat(blocks).diagonal(dim1=1, dim2=2).reshape(-1)

    def to_scipy(self) -> LinearOperator:
        """The same as a ``scipy.sparse.linalg.LinearOperator``, for SciPy's eigen- and linear solvers."""
        if self.dtype not in (torch.float32, torch.float64):
            raise TangentError(
                f"SciPy has no {self.dtype}.", "its solvers work in single and double precision.", "pass dtype=."
            )
        dtype = torch.empty((), dtype=self.dtype).numpy().dtype

        def times(product: Callable[[Tensor], Tensor]) -> Callable[[np.ndarray], np.ndarray]:
            return lambda v: product(torch.from_numpy(np.ascontiguousarray(v, dtype=dtype))).cpu().numpy()

        forward, backward = times(self.__matmul__), times(self.rmatmul)
        return LinearOperator(
            self.shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=dtype
        )


def _add(sums: dict[Any, Total], key: Any, term: Tensor) -> None:
    """Add a term to one of several sums; the first one becomes the sum."""
    if key in sums:
        sums[key].room().add_(term)
    else:
        sums[key] = Total(term)


class TransposedNTK:
    """K^T of an :class:`NTKOperator` K, made by ``K.T``; it holds nothing of its own."""

    def __init__(self, operator: NTKOperator) -> None:
        self.T = operator

    @property
    def shape(self) -> tuple[int, int]:
        """(N2 R, N1 R)."""
        rows, columns = self.T.shape
        return columns, rows

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the products."""
        return self.T.dtype

    @property
    def device(self) -> torch.device:
        """Where products are computed."""
        return self.T.device

    def __repr__(self) -> str:
        return f"{self.T!r}.T"

    def __matmul__(self, v: Tensor | np.ndarray) -> Tensor:
        """K^T v for a vector (N1 R,) or a block (N1 R, m)."""
        return self.T.rmatmul(v)

    def rmatmul(self, v: Tensor | np.ndarray) -> Tensor:
        """K v for a vector (N2 R,) or a block (N2 R, m)."""
        return self.T @ v

    def to_scipy(self) -> LinearOperator:
        """The same as a ``scipy.sparse.linalg.LinearOperator``."""
        return self.T.to_scipy().T
