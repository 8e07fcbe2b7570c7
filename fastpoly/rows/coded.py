"""Rows of codes with tables: a field is a column of codes, and each of its levels is a few numbers.

    X = P B      P (n, L) one-hot codes, an entry per field;  B (L, d) block-diagonal tables

A basis vector h of the d table columns acts on the codes as z = B h, and linear weights W as B W.
So a pass over X is a pass over the codes with Z = H B' in place of H, and the gradients come back
through B': whatever the number of table columns, a row costs by its fields. A fitted model IS an
ordinary model of one-hot codes. With ANOVA, pairs of columns of one level are no pairs of codes and
drop out. Where they are to count, `within`, level l has the bias

    a_rl = sum_{i<j} h_ri b_li h_rj b_lj = 1/2 (z_rl^2 - sum_j h_rj^2 b_lj^2)

and the outputs are those of the machine (Z, V) over codes, with W_l + sum_r v_rc a_rl as linear
weights. (Products of two levels of one field always count, where a row has several.)
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse import csr_array, hstack, issparse

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.explicit import ExplicitGamma, explicit_gamma, explicit_pays
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.matrix import as_matrix
from fastpoly.kernels.summed import SummedGamma
from fastpoly.rows.design import Design
from fastpoly.rows.rows import Activations, Gradient, Ray, Rows
from fastpoly.state import Floats, Model


class Tables:
    """The block-diagonal B (L, d): a table per field, (L_f, d_f), or (L_f,) for a diagonal one."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks = [
            csr_array(b, dtype=np.float64) if issparse(b) else np.array(b, np.float64)
            for b in blocks
        ]
        self.level_offsets = np.cumsum([0, *(b.shape[0] for b in self.blocks)])
        self.column_offsets = np.cumsum([0, *(b.shape[-1] for b in self.blocks)])
        self.n_levels, self.n_columns = int(self.level_offsets[-1]), int(self.column_offsets[-1])
        self._powers: dict[int, Self] = {}
        ends = pairwise(self.level_offsets), pairwise(self.column_offsets)
        levels, columns = ([slice(*pair) for pair in pairs] for pairs in ends)
        self._all = list(zip(levels, columns, self.blocks, strict=True))
        self._few = self._merged()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tables) and (
            [b.shape for b in self.blocks] == [b.shape for b in other.blocks]
            and all((a != b).sum() == 0 for a, b in zip(self.blocks, other.blocks, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def _merged(self) -> list[tuple[slice, slice, Any]]:
        """All tables, with neighbors in one while that is small: calls cost more than zeros."""
        found: list[tuple[slice, slice, Any]] = []
        for levels, columns, B in self._all:
            if found and not issparse(B) and not issparse(found[-1][2]):
                first, ahead, A = found[-1]
                if (levels.stop - first.start) * (columns.stop - ahead.start) <= 2**12:
                    pair = [np.diag(C) if C.ndim == 1 else C for C in (A, B)]
                    rows, places = slice(first.start, levels.stop), slice(ahead.start, columns.stop)
                    found[-1] = rows, places, block_diag(*pair)
                    continue
            found.append((levels, columns, B))
        return found

    def levels(self, H: Floats) -> Floats:
        """H B', from table columns (k, d) to levels (k, L), without a constant before them."""
        H, Z = H[:, H.shape[1] - self.n_columns :], np.empty((len(H), self.n_levels))
        for levels, columns, B in self._few:
            own = H[:, columns]
            Z[:, levels] = own * B if B.ndim == 1 else (B @ own.T).T
        return Z

    def columns(self, G: Floats) -> Floats:
        """G B, from gradients in levels (k, L) to gradients in table columns (k, d)."""
        H = np.empty((len(G), self.n_columns))
        for levels, columns, B in self._few:
            own = G[:, levels]
            H[:, columns] = own * B if B.ndim == 1 else (B.T @ own.T).T
        return H

    def inverse(self, Z: Floats) -> Floats:
        """The vectors of table columns (k, d) whose levels are nearest to Z (k, L)."""
        H = np.empty((len(Z), self.n_columns))
        for levels, columns, B in self._all:
            own = Z[:, levels]
            if B.ndim == 1:
                H[:, columns] = np.divide(own, B, out=np.zeros_like(own), where=B != 0)
            else:
                B = B.toarray() if issparse(B) else B
                H[:, columns] = np.linalg.lstsq(B, own.T, rcond=None)[0].T
        return H

    def power(self, p: int) -> Self:
        """The tables of all entries to a power."""
        if p not in self._powers:
            blocks = [B.power(p) if issparse(B) else B**p for B in self.blocks]
            self._powers[p] = type(self)(blocks)
        return self._powers[p]

    def with_constant(self) -> Self:
        """The tables of codes that begin with a constant."""
        return type(self)([np.ones(1), *self.blocks])

    def plain(self) -> Self:
        """The tables with levels as they are, not scaled."""
        return type(self)([np.ones(len(B)) if B.ndim == 1 else B for B in self.blocks])

    def orthogonal(self, frequencies: Floats) -> Self:
        """Dense tables rotated so that their columns are orthogonal over the rows, field by field.

        That changes neither the ridge nor the norms of basis vectors, and a diagonal preconditioner
        serves even for steps, which are nearly collinear. Columns that are zero in all rows are
        left out. `frequencies` (L,) are the weights of the rows with each level.
        """
        blocks = []
        for levels, _, B in self._all:
            if B.ndim == 2 and not issparse(B):
                root = np.sqrt(np.maximum(frequencies[levels], 0))[:, None]
                _, sizes, rotation = np.linalg.svd(root * B, full_matrices=False)
                seen = sizes > 1e-10 * max(sizes.max(initial=0.0), 1e-300)
                B = B @ rotation[seen].T
            blocks.append(B)
        if not any(B.shape[-1] for B in blocks):
            blocks[0] = np.zeros((len(blocks[0]), 1))  # rows have at least one column
        return type(self)(blocks)

    def biases(self, H: Floats, Z: Floats) -> Floats:
        """The biases A of all levels, (k, L), where H may begin with a constant."""
        constant, own = np.split(H, [H.shape[1] - self.n_columns], axis=1)
        A = 0.5 * (Z * Z - self.power(2).levels(own**2))
        return A + constant * Z if constant.size else A

    def over_levels(self, model: Model, within: bool) -> tuple[Model, Floats | None]:
        """A model of columns as one of levels, and the biases A of these where pairs count."""
        inside = not within and model.H.shape[1] > self.n_columns  # the constant is a level
        tables = self.with_constant() if inside else self
        own, linear = model.H[:, model.H.shape[1] - tables.n_columns :], model.linear
        Z = tables.levels(own if linear is None else np.vstack([own, linear.T]))
        if linear is not None:
            Z, linear = Z[: len(own)], Z[len(own) :].T
        A = self.biases(model.H, Z) if within else None
        if A is not None:
            linear = A.T @ model.V + (0.0 if linear is None else linear)
        return model._replace(H=Z, linear=linear), A

    def level_model(self, model: Model, within: bool = False) -> Model:
        """A model of table columns as one of levels; either may begin with a constant."""
        return self.over_levels(model, within)[0]

    def column_model(self, model: Model) -> Model:
        """The inverse of `level_model`."""
        own = self if model.H.shape[1] == self.n_levels else self.with_constant()
        linear = None if model.linear is None else own.inverse(model.linear.T).T
        return model._replace(H=own.inverse(model.H), linear=linear)


class CodedRows(Rows):
    """Rows X = P B, by the rows of their codes P, which are sparse and anywhere.

    Where pairs of columns `within` a table count, the codes have fit_lower="explicit" whatever
    `fit_lower` is, and the constant of "augment" is not among them. `fields` (d,) are columns that
    share a prior, and `exclusive` (n_fields,) says whether a row has at most one entry in each; by
    default every table is a field. See `fastpoly.posterior`.
    """

    def __init__(
        self, codes: Rows, tables: Tables, *, within: bool = False, fit_lower: str | None = None,
        fields: NDArray[np.intp] | None = None, exclusive: NDArray[np.bool_] | None = None,
    ) -> None:  # fmt: skip
        how = {"fields": fields, "exclusive": exclusive, "within": within, "fit_lower": fit_lower}
        self._on: Callable[[Rows], Self] = partial(type(self), tables=tables, **how)
        lower = fit_lower if within else codes.fit_lower
        constant = int(lower == "augment")
        if codes.entries is None:
            raise TypeError("codes must be sparse rows")
        if fields is None:
            fields = np.repeat(np.arange(len(tables.blocks)), np.diff(tables.column_offsets))
            exclusive = np.ones(len(tables.blocks), dtype=bool)
        self.fields = np.append([0] * constant, fields + constant).astype(np.intp)
        self.exclusive = np.append([True] * constant, exclusive).astype(bool)
        self.codes, self.within = codes, within
        self._plain: Any = None  # X, P * P, and B, of small data
        self.tables = tables.with_constant() if constant and not within else tables
        if self.tables.n_levels != codes.n_features:
            raise ValueError(f"the tables have {self.tables.n_levels} levels, X {codes.n_features}")
        shape = codes.n_samples, tables.n_columns + constant
        super().__init__(codes.blocks, codes.engine, codes, shape, codes.entries)
        self.fit_lower, self.explicit, self.block = lower, lower == "explicit", None

    def level_model(self, model: Model) -> Model:
        """The same model over levels."""
        return self.tables.level_model(model, self.within)

    def levels(self, H: Floats) -> tuple[Floats, Floats | None]:
        """Z (k, L) from basis vectors (k, d), and the biases A (k, L) where pairs count."""
        Z = self.tables.levels(H)
        return Z, self.tables.biases(H, Z) if self.within else None

    def pull(self, H: Floats, Z: Floats, G: Floats, Q: Floats | None) -> Floats:
        """The gradient in H of sum(G * Z) + sum(Q * A), (k, d)."""
        if Q is None:
            return self.tables.columns(G)
        constant, own = np.split(H, [H.shape[1] - self.tables.n_columns], axis=1)
        ahead = constant.sum(axis=1, keepdims=True)  # 0 where there is none
        found = self.tables.columns(G + Q * (Z + ahead)) - own * self.tables.power(2).columns(Q)
        return np.hstack([(Q * Z).sum(axis=1, keepdims=True), found]) if constant.size else found

    def _layers(
        self, A: Floats | None, V: Floats, intercept: Floats | None, linear: Floats | None
    ) -> tuple[Floats, Floats | None, Floats | None]:
        """The gradients in V, intercept and linear weights from those of the model of levels."""
        V = V if A is None else V + A @ linear
        return (V, intercept, self.tables.columns(linear.T).T) if self.explicit else (V, None, None)

    def value_grad(self, x: Floats, k: int, g: Floats) -> float:
        own, G = self.unpack(x, k), self.unpack(g, k)
        levels, A = self.tables.over_levels(own, self.within)
        packed = self.codes.pack(levels)
        gradient = np.empty_like(packed)
        value = self.codes.value_grad(packed, k, gradient)
        found = self.codes.unpack(gradient, k)
        Q = None if A is None else own.V @ found.linear.T
        G.H[:] = self.pull(own.H, levels.H, found.H, Q)
        G.V[:], intercept, linear = self._layers(A, *found[1:])
        if self.explicit:
            G.intercept[:], G.linear[:] = intercept, linear
        return value

    def value_layers(self, model: Model) -> tuple[float, Floats, Floats | None, Floats | None]:
        levels, A = self.tables.over_levels(model, self.within)
        value, *layers = self.codes.value_layers(levels)
        return value, *self._layers(A, *layers)

    def squared_norms(self, H: Floats, A: Floats | None = None) -> Floats:
        """As of plain rows; of columns, without products of two levels in one row and field."""
        norms = self.codes.squared_norms(*self.levels(H))
        if not self.explicit:
            return norms[: len(H)]
        first = len(H) + 1
        return np.append(norms[:first], self.tables.power(2).columns(norms[None, first:])[0])

    def gradient(self, model: Model) -> Gradient:
        levels, A = self.tables.over_levels(model, self.within)
        point = self.codes.point(levels)
        found = self.codes.gradient_at(point)
        layers = self._layers(A, *found[1:4])

        def gamma() -> Gamma:
            n, d = self.n_samples, self.n_features
            # Networks have codes only where rows are joined, and then as shards do.
            frame = self.in_memory and self.activation == "anova" and not self.within
            if frame and n * d <= BLOCK_DOUBLES and explicit_pays(n, d, self.m, d):
                return self._explicit_gamma(self.codes.block.row_gradients(point))
            operators = CodedOperators(self, found.gamma(), found.linear if self.within else None)
            if isinstance(operators.gamma, ExplicitGamma):
                return ExplicitGamma(operators.dense(None))
            return SummedGamma(self.n_features, self.m, operators, self.sample)

        return Gradient(found.value, *layers, gamma, found.conjugate)

    def _explicit_gamma(self, D: Floats) -> Gamma:
        """The operators of few rows and columns, 1/2 (X'D_cX - B'diag(s_c)B), s = (P * P)'D."""
        if self._plain is None:
            P = self.codes.sample_rows(self.n_samples, np.random.default_rng())  # all of them
            if self.codes.fit_lower == "augment":
                P = hstack([np.ones((self.n_samples, 1)), P], "csr")
            B = self.tables.levels(np.eye(self.tables.n_columns)).T
            self._plain = as_matrix(P @ B), P.power(2), B
        X, squares, B = self._plain
        G = explicit_gamma(X, D).dense() - (B.T * (squares.T @ D).T[:, None]) @ B
        # Rounding left G asymmetric; where fields cancel, it is all of G.
        return ExplicitGamma(0.25 * (G + G.transpose(0, 2, 1)))

    def sample(self, most: int, rng: np.random.Generator) -> Activations:
        P = self.codes.sample_rows(most, rng)
        design = Design(P, self.activation, fit_lower=self.codes.fit_lower, n_threads=1)

        def activations(H: Floats) -> Floats:
            Z, A = self.levels(H)
            S = design.activations(Z)
            return S if A is None else S + P @ A.T

        return activations

    def ray(self, model: Model, H: Floats, V: Floats, W: Floats | None = None) -> Ray:
        Z, A = self.levels(H)
        return self.codes.ray(self.level_model(model), Z, V, None if A is None else A.T @ V)

    def diagonal_curvature(self, model: Model, flat: bool = False) -> tuple[Any, ...]:
        """Exact where a row has one level per field, and no pairs within tables count."""
        levels = self.level_model(model)
        basis, output, intercept, linear = self.codes.diagonal_curvature(levels, flat)
        squared = self.tables.power(2)
        if self.within:
            Z, K = levels.H, (model.V**2) @ linear.T
            constant, H = np.split(model.H, [model.H.shape[1] - self.tables.n_columns], axis=1)
            own = squared.columns(basis + K * Z**2) + H**2 * self.tables.power(4).columns(K)
            own = np.maximum(own - 2 * H * self.tables.power(3).columns(K * Z), 0.0)
            first = (K * Z**2).sum(axis=1, keepdims=True)
            basis = np.hstack([first, own]) if constant.size else own
        else:
            basis = squared.columns(basis)
        if not self.explicit:
            return basis, output, None, None
        return basis, output, intercept, squared.columns(linear.T).T

    def hold_out(self, share: float, seed: int) -> tuple[Self, Self]:
        train, held = self.codes.hold_out(share, seed)
        return self._on(train), self._on(held)

    def take(self, rows: NDArray[np.bool_]) -> Self:
        return self._on(self.codes.take(rows))


class CodedOperators:
    """The operators Gamma_c of X from those of the codes, for `SummedGamma`.

        Gamma_c = B' Gamma_c(P) B + 1/2 sum_l s_lc (b_l b_l' - diag(b_l^2))

    s = P'D (L, m) are the row gradients, summed over the rows of each level; None where pairs
    within tables do not count, and with them the second term.
    """

    def __init__(self, rows: CodedRows, gamma: Gamma, s: Floats | None) -> None:
        self.rows, self.gamma, self.s = rows, gamma, s
        self._combined: tuple[bytes, Gamma] = (b"", gamma)

    def _of(self, S: Floats | None) -> tuple[Gamma, Floats | None]:
        """The operators sum_c S_ce Gamma_c(P), of which the last ones are kept, and s S / 2."""
        half = None if self.s is None else 0.5 * self.s
        if S is None:
            return self.gamma, half
        if self._combined[0] != S.tobytes():
            self._combined = S.tobytes(), self.gamma.combined(S)
        return self._combined[1], None if half is None else half @ S

    def matvecs(self, S: Floats | None, B: Floats) -> Floats:
        gamma, half = self._of(S)
        H = np.ascontiguousarray(B.T)
        Z = self.rows.tables.levels(H)
        G = gamma.matvecs(np.ascontiguousarray(Z.T), finite=False).T
        return np.ascontiguousarray(self.rows.pull(H, Z, G, None if half is None else half.T).T)

    def forms(self, S: Floats | None, h: Floats) -> Floats:
        gamma, half = self._of(S)
        Z, A = self.rows.levels(h[None])
        found = gamma.forms(np.ascontiguousarray(Z[0]), finite=False)
        return found if half is None else found + 2 * (A[0] @ half)

    def combine(self, S: Floats | None, w: Floats, h: Floats) -> Floats:
        gamma, half = self._of(S)
        Z = self.rows.tables.levels(h[None])
        G = gamma.combine(w, np.ascontiguousarray(Z[0]), finite=False)[None]
        return self.rows.pull(h[None], Z, G, None if half is None else (half @ w)[None])[0]

    def dense(self, S: Floats | None) -> Floats:
        gamma, half = self._of(S)
        eye = np.eye(self.rows.n_features)
        if isinstance(gamma, ExplicitGamma):
            Z, parts = self.rows.tables.levels(eye), []
            for c, G in enumerate(gamma.dense()):
                Q = None if half is None else np.broadcast_to(half[:, c], Z.shape)
                parts.append(self.rows.pull(eye, Z, Z @ G, Q))
            found = np.stack(parts)
        else:  # there may be many more levels than columns
            images = [self.matvecs(S, np.repeat(e[:, None], gamma.m, axis=1)) for e in eye]
            found = np.stack(images).transpose(2, 0, 1)
        return 0.5 * (found + found.transpose(0, 2, 1))
