r"""Random projections of gradients: the linear maps S, of shape (k, P), behind :func:`tangentlab.kernels.sketch`.

Every parameter entry p gets a place h(p) in 0..k-1 and a sign s(p), and (S u)[i] = sum of s(p) u[p] over all p with
h(p) = i. Signs of different entries are uncorrelated, so

    E <S u, S v> = sum_{p,q} E[s(p) s(q) 1{h(p) = h(q)}] u_p v_q = <u, v>

whatever the places are: the estimate is unbiased. Its variance counts collisions. Where entries collide with a
probability of at most 1/k,

    Var <S u, S v> <= (|u|^2 |v|^2 + <u, v>^2) / k

as for a dense matrix of Gaussian entries, which would cost k operations per entry instead of one. Two such maps:

- :class:`CountSketch`, for gradients written out. Signs are independent; places are drawn a block at a time, so that
  applying it streams through the gradient. Pr[collision] <= 1/k, hence the bound.
- :class:`TensorSketch`, for gradients sum_t g_t a_t^T that are never written out. Place and sign of entry (i, j) are
  h1(i) + h2(j) mod k and s1(i) s2(j), so that the sketch of g a^T is the circular convolution of those of g and of a:
  a product of their Fourier transforms. Signs are uncorrelated but dependent, which for hashes as they are usually
  drawn (or for features r_j^T G s_j with random r_j, s_j) adds up to 6 |u|^2 |v|^2 / k for gradients of rank one. Here
  neither h1 nor h2 lets two entries of a block of k collide, so for d_in, d_out <= k an entry can only collide with
  one in another row and another column, and the dependent signs do not matter: for d_in <= k/2

      Var <S u, S v> = sum over i != i', j != j' of (u_ij^2 v_i'j'^2 + u_ij v_ij u_i'j' v_i'j') / (k - 1)

  which is below the bound above (with k - 1 for k). Beyond k inputs (or outputs) there are several blocks, whose
  entries meet with probability 1/k, and up to 2 |U^T V|^2 / k (2 |U V^T|^2 / k) is added, and terms of
  the order of 1/k^2. For gradients of rank one in a single layer that is all of the gradient, the worst case, that
  makes twice the bound, or three times for both; gradients of many positions and layers stay near it.

Maps of different parameters are independent, so a network's sketch is the sum of theirs and the bound holds for whole
gradients. All random numbers come from the seed and the parameter's name: a map does not depend on samples or batches.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab.kernels.factors import Factor

_WIDE = 1 << 14
"""Width in which written-out gradients are added up before they are folded to k: fewer and longer vector operations."""
_WORK = 1 << 22
"""Numbers of a transform's workspace."""


def generator(seed: int, *names: str) -> torch.Generator:
    """Return the random numbers of a seed and some names, on the CPU so that devices agree."""
    text = "\0".join((str(seed), *names)).encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1
    return torch.Generator().manual_seed(number)


def _signs(size: int, source: torch.Generator, like: Tensor) -> Tensor:
    bits = torch.randint(0, 2, (size,), generator=source, dtype=torch.int8)
    return bits.to(like.device).to(like.dtype).mul_(2).sub_(1)


class CountSketch:
    """A map of P entries to ``width`` places.

    Entry p goes to (p + shift of its block) mod width, blocks being of that width. Two entries of a block never
    collide, two of different blocks with probability 1 / width.

    Args:
        size: P.
        width: Places.
        source: Random numbers.
        like: A tensor of the dtype and device to work in.
    """

    def __init__(self, size: int, width: int, source: torch.Generator, like: Tensor) -> None:
        self.width = width
        blocks = -(-size // width)
        self.shifts: list[int] = torch.randint(0, width, (blocks,), generator=source).tolist()
        self.signs = _signs(size, source, like)

    def add(self, rows: Tensor, out: Tensor, start: int = 0) -> None:
        """Add the sketches of rows (m, P) to ``out`` (m, width), at one multiplication and addition per entry.

        Args:
            rows: The entries from ``start`` on, all of them or some.
            out: Where they go.
            start: Which entry is the first.
        """
        stop = start + rows.shape[1]
        for block in range(start // self.width, -(-stop // self.width)):
            low, shift = block * self.width, self.shifts[block]
            middle = low + self.width - shift
            for place, first, last in ((shift, low, middle), (0, middle, low + self.width)):
                one, end = max(first, start), min(last, stop)
                if one < end:
                    at = place + one - first
                    out[:, at : at + end - one].addcmul_(rows[:, one - start : end - start], self.signs[one:end])

    def places(self, index: Tensor) -> Tensor:
        """Return the places of some entries."""
        shifts = torch.tensor(self.shifts, device=index.device)
        return (index + shifts[index // self.width]) % self.width


class TensorSketch:
    """A map of matrices G^T A of d_out x d_in entries to k places, from G (T, d_out) and A (T, d_in).

    Columns are placed as by :class:`CountSketch`; rows by a random permutation of the k places per block of k rows.
    The permutation is what makes differences of two places uniform, as collisions with probability 1 / (k - 1) need.

    Cost: for each sample T (1 + R) transforms of 2.5 k log2(k) operations, instead of T R d_in d_out and more.

    Args:
        rows: d_out.
        columns: d_in.
        k: Places.
        source: Random numbers.
        like: A tensor of the dtype and device to work in.
    """

    def __init__(self, rows: int, columns: int, k: int, source: torch.Generator, like: Tensor) -> None:
        self.k = k
        blocks = [torch.randperm(k, generator=source)[: min(k, rows - i)] for i in range(0, rows, k)]
        self.row_places = torch.cat(blocks).to(like.device)
        self.row_signs = _signs(rows, source, like)
        self.columns = CountSketch(columns, k, source, like)

    def add_spectrum(self, a: Tensor, g: Tensor, out: Tensor) -> None:
        """Add the Fourier transforms of the sketches of sum_t g_t a_t^T to ``out`` (n, R, k // 2 + 1).

        Args:
            a: Inputs, (n, T, d_in).
            g: Output gradients, (n, R, T, d_out).
            out: Where they go.
        """
        placed = a.new_zeros(*a.shape[:2], self.k)
        self.columns.add(a.flatten(0, 1), placed.view(-1, self.k))
        inputs = torch.fft.rfft(placed)
        rows = (g * self.row_signs).flatten(0, 2)
        placed = g.new_zeros(*g.shape[:3], self.k)
        placed.view(-1, self.k).scatter_add_(1, self.row_places.expand(rows.shape), rows)
        outputs = torch.fft.rfft(placed)
        out += outputs.mul_(inputs.unsqueeze(1)).sum(2)

    def add_lookup(self, index: Tensor, g: Tensor, out: Tensor) -> None:
        """Add the sketches of an embedding's gradients to ``out`` (n, R, k): every token's row goes to its place.

        Args:
            index: Tokens, (n, T).
            g: Output gradients, (n, R, T, d_out).
            out: Where they go.
        """
        tokens = self.columns.signs[index][:, None, :, None]
        values = (g * self.row_signs * tokens).flatten(2)
        places = (self.row_places + self.columns.places(index)[:, :, None]) % self.k
        out.scatter_add_(2, places.flatten(1)[:, None].expand(values.shape), values)


class Projection:
    """The sketch of all parameters of a network: the sum of the sketches of each.

    Written-out gradients are added up in W = c k >= k places and then folded: the c blocks of k places are shifted at
    random and added. Two entries collide with probability 1/W or, if they did not and lie in different blocks, with
    probability 1/k, which is (1/W) + (1 - k/W) / k = 1/k in all.

    Args:
        k: Length of a sketch.
        seed: Seed of all random numbers.
        largest: Entries of the largest parameter.
        dtype: Precision to work in.
        device: Where to work.
    """

    def __init__(self, k: int, seed: int, largest: int, dtype: torch.dtype, device: torch.device) -> None:
        self.k, self.seed = k, seed
        self.width = k * max(1, -(-min(_WIDE, largest) // k))
        self._like = torch.empty((), dtype=dtype, device=device)
        self._fold = torch.randint(0, k, (self.width // k,), generator=generator(seed, "fold")).tolist()
        self._maps: dict[tuple[str, str], CountSketch | TensorSketch] = {}

    @property
    def workspace(self) -> int:
        """The numbers of intermediate results, whatever the batch."""
        return 4 * _WORK

    def __call__(self, parts: Iterable[tuple[Sequence[str], Factor]], count: int, readouts: int) -> Tensor:
        """Return the sketches (n, R, k) of some samples' gradients.

        Args:
            parts: Names of parameters (a weight, perhaps a bias), and the factor of their gradients.
            count: n.
            readouts: R.
        """
        new = self._like.new_zeros
        sketch = Sketch(self, new(count, readouts, self.k), new(count * readouts, self.width))
        for names, part in parts:
            part.map(self._cast).add_sketch(names, sketch)
            del part
        return sketch.finish()

    def fold(self, wide: Tensor, out: Tensor) -> None:
        """Add sketches of the wider length (n R, W) to ``out`` (n, R, k)."""
        for block, shift in enumerate(self._fold):
            out += wide[:, block * self.k : (block + 1) * self.k].roll(shift, 1).view_as(out)

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._like.dtype) if tensor.is_floating_point() else tensor

    def entries(self, name: str, size: int) -> CountSketch:
        """Return the map of a parameter whose gradients are written out."""
        found = self._maps.get((name, "entries"))
        if found is None:
            found = CountSketch(size, self.width, generator(self.seed, name, "entries"), self._like)
            self._maps[name, "entries"] = found
        assert isinstance(found, CountSketch)
        return found

    def matrix(self, name: str, rows: int, columns: int) -> TensorSketch:
        """Return the map of a parameter whose gradients are sums of outer products."""
        found = self._maps.get((name, "matrix"))
        if found is None:
            found = TensorSketch(rows, columns, self.k, generator(self.seed, name, "matrix"), self._like)
            self._maps[name, "matrix"] = found
        assert isinstance(found, TensorSketch)
        return found


@dataclass
class Sketch:
    """The sketches of n samples while factors add their parameters to it.

    Attributes:
        projection: The random maps.
        out: What is added up in its final place, (n, R, k).
        wide: What is folded at the end, (n R, W).
        spectrum: What is transformed back at the end, (n, R, k // 2 + 1), or None if there is nothing.
    """

    projection: Projection
    out: Tensor
    wide: Tensor
    spectrum: Tensor | None = None

    def pieces(self, positions: int) -> Iterator[slice]:
        """Yield the samples in pieces, so that transforms of that many positions each stay within the workspace."""
        count, readouts, k = self.out.shape
        step = max(1, _WORK // (positions * (1 + readouts) * k))
        return (slice(start, min(start + step, count)) for start in range(0, count, step))

    def add_entries(self, name: str, gradients: Tensor, start: int = 0, size: int | None = None) -> None:
        """Add a parameter whose gradients (n, R, P) are written out, or its entries from ``start`` on of ``size``."""
        rows = gradients.flatten(0, 1)
        self.projection.entries(name, size or rows.shape[1]).add(rows, self.wide, start)

    def add_outer(self, name: str, rows: slice, a: Tensor, g: Tensor) -> None:
        """Add a parameter whose gradients are sum_t g_t a_t^T.

        Args:
            name: The parameter.
            rows: Which of the samples.
            a: Inputs of these samples, (m, T, d_in).
            g: Their output gradients, (m, R, T, d_out).
        """
        if self.spectrum is None:
            count, readouts, k = self.out.shape
            self.spectrum = self.out.new_zeros(count, readouts, k // 2 + 1, dtype=self.out.dtype.to_complex())
        self.projection.matrix(name, g.shape[-1], a.shape[-1]).add_spectrum(a, g, self.spectrum[rows])

    def add_lookup(self, name: str, index: Tensor, rows: int, g: Tensor) -> None:
        """Add a table of ``rows`` rows, of which tokens (n, T) have the gradients g (n, R, T, d_out)."""
        self.projection.matrix(name, g.shape[-1], rows).add_lookup(index, g, self.out)

    def finish(self) -> Tensor:
        """Return the sketches, (n, R, k)."""
        self.projection.fold(self.wide, self.out)
        if self.spectrum is not None:
            self.out += torch.fft.irfft(self.spectrum, n=self.out.shape[2])
        return self.out
