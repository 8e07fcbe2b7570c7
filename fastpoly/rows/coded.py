"""Rows of codes with tables: a field is a column of codes, and each of its levels is a few numbers.

    X = P B      P (n, L) one-hot codes, an entry per field;  B (L, d) block-diagonal tables

A basis vector h of the d table columns acts on the codes as z = B h, and linear weights W as B W.
So a pass over X is a pass over the codes with Z = H B' in place of H, and the gradients come back
through B': whatever the number of table columns, a row costs by its fields. A fitted model IS an
ordinary model of one-hot codes. With ANOVA, pairs of columns of one level drop out: they are no
pairs of codes. (Products of two levels of one field count, where a row has several.)
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.summed import SummedGamma
from fastpoly.rows.design import Curvature
from fastpoly.rows.rows import Activations, Gradient, Rows
from fastpoly.state import Model

Floats = NDArray[np.float64]

# Singular values of a table, as a share of the largest, below which no training row sees a column.
UNSEEN = 1e-10


class Padded(NamedTuple):
    """Ranges of up to `width` positions: all real ones, and where they are among the padded."""

    ranges: NDArray[np.intp]  # (F, width), 0 where padded
    real: NDArray[np.intp]
    among: NDArray[np.intp]
    width: int

    @classmethod
    def of(cls, slices: list[slice]) -> Self:
        """The ranges of these slices."""
        sizes = np.array([s.stop - s.start for s in slices])
        at = np.arange(sizes.max())
        inside = at < sizes[:, None]
        ranges = np.where(inside, at + np.array([s.start for s in slices])[:, None], 0)
        return cls(ranges, ranges[inside], np.flatnonzero(inside), len(at))

    def padded(self, vectors: Floats) -> Floats:
        """The positions of vectors (k, size) by range, (F, width, k); tables have 0 for padding."""
        return vectors.T.take(self.ranges, axis=0)

    def unpadded(self, found: Floats) -> Floats:
        """The real positions of (F, width, k)."""
        return found.reshape(self.ranges.size, found.shape[-1]).take(self.among, axis=0)


class Tables:
    """The block-diagonal matrix B (L, d) of all fields.

    Parameters
    ----------
    blocks : sequence of arrays
        One table per field: (L_f,), a scale for each level, whose columns are its levels; or
        (L_f, d_f), an array or a sparse matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.rows.coded import Tables
    >>> tables = Tables([np.array([1.0, 2.0]), np.array([[-1.0], [0.0], [1.0]])])
    >>> tables.n_levels, tables.n_columns
    (5, 3)
    >>> tables.levels(np.array([[1.0, 1.0, 5.0]]))
    array([[ 1.,  2., -5.,  0.,  5.]])
    """

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks = [
            csr_array(b, dtype=np.float64) if issparse(b) else np.array(b, np.float64)
            for b in blocks
        ]
        levels = np.cumsum([0, *(b.shape[0] for b in self.blocks)])
        columns = np.cumsum([0, *(b.shape[-1] for b in self.blocks)])
        self.n_levels, self.n_columns = int(levels[-1]), int(columns[-1])
        self.level_offsets, self.column_offsets = levels, columns
        self._alone, self._groups = self._grouped()
        self._all = list(self._each())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tables) and (
            [b.shape for b in self.blocks] == [b.shape for b in other.blocks]
            and all((a != b).sum() == 0 for a, b in zip(self.blocks, other.blocks, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def _each(self) -> Any:
        """The levels and columns of each table, and the table."""
        for f, table in enumerate(self.blocks):
            yield (
                slice(self.level_offsets[f], self.level_offsets[f + 1]),
                slice(self.column_offsets[f], self.column_offsets[f + 1]),
                table,
            )

    def _grouped(self) -> tuple[list[Any], list[tuple["Padded", "Padded", Floats]]]:
        """Scales and sparse tables one by one; dense ones of similar sizes as one array (F, p, q).

        One product then serves F tables, which would cost more calls than arithmetic.
        """
        alone: list[Any] = []
        similar: dict[tuple[int, ...], list[Any]] = {}
        for each in self._each():
            if each[2].ndim == 1 or issparse(each[2]):
                alone.append(each)
            else:
                similar.setdefault(tuple(map(int.bit_length, each[2].shape)), []).append(each)
        groups = []
        for tables in similar.values():
            levels, columns = (Padded.of([each[axis] for each in tables]) for axis in (0, 1))
            stacked = np.zeros((len(tables), levels.width, columns.width))
            for own, (*_, B) in zip(stacked, tables, strict=True):
                own[: B.shape[0], : B.shape[1]] = B
            groups.append((levels, columns, stacked))
        return alone, groups

    def _ways(self, k: int) -> tuple[list[Any], list[tuple["Padded", "Padded", Floats]]]:
        """Tables one by one, and in groups, whose copies of long vectors would cost more."""
        return (self._alone, self._groups) if k * self.n_levels < 2**14 else (self._all, [])

    def levels(self, H: Floats) -> Floats:
        """H B', from vectors of table columns (k, d) to vectors of levels (k, L)."""
        Z = np.empty((len(H), self.n_levels))
        alone, groups = self._ways(len(H))
        for levels, columns, B in alone:
            own = H[:, columns]
            Z[:, levels] = own * B if B.ndim == 1 else (B @ own.T).T
        for levels, columns, B in groups:
            Z[:, levels.real] = levels.unpadded(B @ columns.padded(H)).T
        return Z

    def columns(self, G: Floats) -> Floats:
        """G B, from gradients in levels (k, L) to gradients in table columns (k, d)."""
        H = np.empty((len(G), self.n_columns))
        alone, groups = self._ways(len(G))
        for levels, columns, B in alone:
            own = G[:, levels]
            H[:, columns] = own * B if B.ndim == 1 else (B.T @ own.T).T
        for levels, columns, B in groups:
            H[:, columns.real] = columns.unpadded(B.transpose(0, 2, 1) @ levels.padded(G)).T
        return H

    def squared(self) -> Self:
        """The tables of the squared entries."""
        return type(self)([B.multiply(B) if issparse(B) else B * B for B in self.blocks])

    def with_constant(self) -> Self:
        """The tables of codes that begin with a constant."""
        return type(self)([np.ones(1), *self.blocks])

    def inverse(self, Z: Floats) -> Floats:
        """The vectors of table columns (k, d) whose levels are nearest to Z (k, L)."""
        H = np.empty((len(Z), self.n_columns))
        for levels, columns, B in self._each():
            own = Z[:, levels]
            if B.ndim == 1:
                H[:, columns] = np.divide(own, B, out=np.zeros_like(own), where=B != 0)
            else:
                B = B.toarray() if issparse(B) else B
                H[:, columns] = np.linalg.lstsq(B, own.T, rcond=None)[0].T
        return H

    def orthogonal(self, frequencies: Floats) -> Self:
        """Tables of the same model whose columns are orthogonal over the rows, field by field.

        The columns of a dense table are rotated, which changes neither the ridge nor the norms of
        basis vectors, so that a diagonal preconditioner serves even for steps, which are nearly
        collinear. Columns that are zero in all rows are left out: their weights would be zero.

        Parameters
        ----------
        frequencies : ndarray, (L,)
            The weights of the rows with each level.
        """
        blocks = []
        for levels, _, B in self._each():
            if B.ndim == 2 and not issparse(B):
                root = np.sqrt(np.maximum(frequencies[levels], 0))[:, None]
                _, sizes, rotation = np.linalg.svd(root * B, full_matrices=False)
                seen = sizes > UNSEEN * max(sizes.max(initial=0.0), 1e-300)
                B = B @ rotation[seen].T
            blocks.append(B)
        return type(self)(blocks)

    def level_model(self, model: Model) -> Model:
        """A model of table columns as one of levels; either may begin with a constant."""
        own = self if model.H.shape[1] == self.n_columns else self.with_constant()
        linear = None if model.linear is None else own.levels(model.linear.T).T
        return model._replace(H=own.levels(model.H), linear=linear)

    def column_model(self, model: Model) -> Model:
        """The inverse of `level_model`."""
        own = self if model.H.shape[1] == self.n_levels else self.with_constant()
        linear = None if model.linear is None else own.inverse(model.linear.T).T
        return model._replace(H=own.inverse(model.H), linear=linear)

    def dense(self) -> Floats:
        """B itself, (L, d)."""
        return self.levels(np.eye(self.n_columns)).T


class CodedRows(Rows):
    """Rows X = P B, by the rows of their codes P.

    Parameters
    ----------
    codes : Rows
        P, anywhere.
    tables : Tables
        B. With fit_lower="augment", the constant is added here.
    """

    def __init__(self, codes: Rows, tables: Tables) -> None:
        if codes.fit_lower == "augment":
            tables = tables.with_constant()
        if codes.entries is None:
            raise TypeError("codes must be sparse rows")
        if tables.n_levels != codes.n_features:
            raise ValueError(f"the tables have {tables.n_levels} levels, X {codes.n_features}")
        self.codes, self.tables, self._squared = codes, tables, tables.squared()
        self.exclusive = np.ones(len(tables.blocks), dtype=bool)  # a row has a code per field
        shape = codes.n_samples, tables.n_columns
        super().__init__(
            (), codes.engine, codes.loss, codes.m, shape, codes.activation, codes.fit_lower,
            codes.entries,
        )  # fmt: skip

    @property
    def in_memory(self) -> bool:
        return self.codes.in_memory

    @property
    def weight(self) -> float:
        return self.codes.weight

    @property
    def loss_at_zero(self) -> float:
        return self.codes.loss_at_zero

    def level_model(self, model: Model) -> Model:
        """The same model over levels."""
        return self.tables.level_model(model)

    def _own(self, G: Floats | None) -> Floats | None:
        """The gradient in the linear weights of the columns, from that of the levels (L, m)."""
        return None if G is None else self.tables.columns(G.T).T

    def value_grad(self, x: Floats, k: int, g: Floats) -> float:
        d, L, m, tables = self.n_features, self.tables.n_levels, self.m, self.tables
        H, middle, W = np.split(x, [k * d, len(x) - d * m if self.explicit else len(x)])
        parts = [tables.levels(H.reshape(k, d)).ravel(), middle]
        if self.explicit:
            parts.append(tables.levels(W.reshape(d, m).T).T.ravel())
        levels = np.concatenate(parts)
        gradient = np.empty_like(levels)
        value = self.codes.value_grad(levels, k, gradient)
        G, after = gradient[: k * L].reshape(k, L), k * L + len(middle)
        g[: k * d] = tables.columns(G).ravel()
        g[k * d : k * d + len(middle)] = gradient[k * L : after]
        if self.explicit:
            g[k * d + len(middle) :] = tables.columns(gradient[after:].reshape(L, m).T).T.ravel()
        return value

    def value(self, model: Model) -> float:
        return self.codes.value(self.level_model(model))

    def value_layers(self, model: Model) -> tuple[float, Floats, Floats | None, Floats | None]:
        value, V, intercept, linear = self.codes.value_layers(self.level_model(model))
        return value, V, intercept, self._own(linear)

    def squared_norms(self, H: Floats) -> Floats:
        """As of plain rows; of columns, without products of two levels in one row and field."""
        norms = self.codes.squared_norms(self.tables.levels(H))
        first = len(H) + 1
        if not self.explicit:
            return norms
        return np.concatenate([norms[:first], self._squared.columns(norms[None, first:])[0]])

    def gradient(self, model: Model) -> Gradient:
        found = self.codes.gradient(self.level_model(model))
        return found._replace(
            linear=self._own(found.linear), gamma=lambda: self._gamma_of(found.gamma())
        )

    def _gamma_of(self, gamma: Gamma) -> Gamma:
        """The operators B' Gamma_c B."""
        operators = CodedOperators(self.tables, gamma)
        if isinstance(gamma, ExplicitGamma):
            return ExplicitGamma(operators.dense(None))
        return SummedGamma(self.n_features, self.m, operators, self.sample)

    def sample(self, most: int, rng: np.random.Generator) -> Activations:
        activations = self.codes.sample(most, rng)
        return lambda H: activations(self.tables.levels(H))

    def ray(
        self, model: Model, H: Floats, V: Floats
    ) -> tuple[Callable[[float], tuple[float, float]], float]:
        return self.codes.ray(self.level_model(model), self.tables.levels(H), V)

    def curvature(self, model: Model, penalty: Floats) -> Curvature:
        """Diagonals; exact where a row has one level per field."""
        found = self.codes.curvature(self.level_model(model), penalty)
        linear = found.linear
        return found._replace(
            basis=self._squared.columns(found.basis),
            linear=None if linear is None else self._squared.columns(linear.T).T,
        )

    def flat_curvature(self, model: Model) -> tuple[Any, ...]:
        """As `curvature`, where every row has the mean curvature of each output."""
        basis, output, *lower = self.codes.flat_curvature(self.tables.level_model(model))
        if self.explicit:
            lower[1] = self._squared.columns(lower[1].T).T
        return self._squared.columns(basis), output, *lower

    def folds(self, n_folds: int, seed: int) -> list[tuple[Self, Self]]:
        return [(self._on(one), self._on(other)) for one, other in self.codes.folds(n_folds, seed)]

    def parts(self, n_parts: int, seed: int) -> list[Self]:
        return [self._on(codes) for codes in self.codes.parts(n_parts, seed)]

    def _on(self, codes: Rows) -> Self:
        """Other codes with the same tables."""
        own = self.tables.blocks[1:] if self.fit_lower == "augment" else None
        return type(self)(codes, self.tables if own is None else Tables(own))


class CodedOperators:
    """B' Gamma_c B from the operators of the codes, for `SummedGamma`."""

    def __init__(self, tables: Tables, gamma: Gamma) -> None:
        self.tables, self.gamma = tables, gamma
        self._combined: tuple[bytes, Gamma] = (b"", gamma)

    def _of(self, S: Floats | None) -> Gamma:
        """The operators sum_c S_ce Gamma_c of the codes; the last ones are kept."""
        if S is None:
            return self.gamma
        if self._combined[0] != S.tobytes():
            self._combined = S.tobytes(), self.gamma.combined(S)
        return self._combined[1]

    def matvecs(self, S: Floats | None, B: Floats) -> Floats:
        levels = np.ascontiguousarray(self.tables.levels(B.T).T)
        return self.tables.columns(self._of(S).matvecs(levels, finite=False).T).T

    def forms(self, S: Floats | None, h: Floats) -> Floats:
        return self._of(S).forms(self.tables.levels(h[None])[0], finite=False)

    def combine(self, S: Floats | None, w: Floats, h: Floats) -> Floats:
        z = self.tables.levels(h[None])[0]
        return self.tables.columns(self._of(S).combine(w, z, finite=False)[None])[0]

    def dense(self, S: Floats | None) -> Floats:
        gamma, columns = self._of(S), self.tables.columns
        if isinstance(gamma, ExplicitGamma):
            G = np.stack([columns(columns(G).T) for G in gamma.dense()])
        else:  # there may be many more levels than columns
            each = np.eye(self.tables.n_columns)
            images = [self.matvecs(S, np.repeat(e[:, None], gamma.m, axis=1)) for e in each]
            G = np.stack(images).transpose(2, 0, 1)
        return 0.5 * (G + G.transpose(0, 2, 1))
