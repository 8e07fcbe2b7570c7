"""Exact Shapley values of a polynomial of degree 2, in closed form.

An output is o(x) = b + w'x + x'Cx, with a symmetric C. Rows z are the background: a set S of
features is worth the mean over z of o at (x_S, z_rest). With the mean mu and the covariances of z,
the Shapley value of feature i is

    phi_i = (x_i - mu_i) (w_i + (C (x + mu))_i) - r_i,        r_i = sum_j C_ij Cov(z_i, z_j)

They add up to o(x) - mean of o(z). The sum over several features is the Shapley value of these as
one, so the levels of a field, or the shapes of a number, are added to their column. Of the
background, mu and r are kept, (d,) for each output. C = F' diag(v) F is never formed; for "anova"
it is half of that, without the diagonal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.explicit import row_gamma
from fastpoly.kernels.matrix import Matrix

Floats = NDArray[np.float64]
LANES = 4  # basis vectors of one pass, the width of the kernels


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each feature of each row contributes to an output; `contributions[i]` is one row's.

    Attributes
    ----------
    values : ndarray, (n, d), or (n, d, m) for several outputs
        Shapley values. With `pairs` (n, d, d) or (n, d, d, m): on the diagonal what a feature does
        alone, and beside it half of what each pair does; rows of such a matrix add up to the
        Shapley values.
    base_values : ndarray, (n,) or (n, m)
        The mean output of the background. The values of a row add up to its output minus this.
    data : ndarray, (n, d)
        The rows.
    feature_names : list of str
    output_names : list of str, or None
        The names of the m outputs.
    """

    values: Floats
    base_values: Floats
    data: NDArray[Any]
    feature_names: list[str]
    output_names: list[str] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> "Contributions":
        return replace(
            self, values=self.values[rows], base_values=self.base_values[rows], data=self.data[rows]
        )

    def to_shap(self) -> Any:
        """The same as a `shap.Explanation`, which all plots of shap accept."""
        import shap

        return shap.Explanation(
            self.values, self.base_values, self.data,
            feature_names=self.feature_names, output_names=self.output_names,
        )  # fmt: skip


class Sums(NamedTuple):
    """Sums over rows x - c, which can be added: the weights, x, x^2, and (h'x) x for each h."""

    weight: float
    first: Floats  # (d,)
    squares: Floats  # (d,)
    projected: Floats  # (d, k)

    @classmethod
    def of(cls, X: Matrix, w: Floats | None, F: Floats, n_threads: int | None = 1) -> "Sums":
        """The sums of the rows of X, (n, d), with weights (n,) and basis vectors F, (k, d)."""
        w = np.ones(X.n) if w is None else w
        gamma = row_gamma(X, np.repeat(w[:, None], LANES, axis=1), False, n_threads)
        projected = np.empty((X.d, len(F)))
        for first in range(0, len(F), LANES):
            lanes = np.zeros((X.d, LANES))
            part = F[first : first + LANES].T
            lanes[:, : part.shape[1]] = part
            projected[:, first : first + LANES] = gamma.matvecs(lanes)[:, : part.shape[1]]
        if X.sparse:
            data, indices, indptr = X.arrays
            weighted = np.repeat(w, np.diff(indptr)) * data
            sums = [np.bincount(indices, each, X.d) for each in (weighted, weighted * data)]
        else:  # not by BLAS, so that the bits do not depend on threads
            sums = [np.zeros(X.d), np.zeros(X.d)]
            for rows in _chunks(X.n, X.d):
                x, u = X.rows(rows), w[rows, None]
                sums[0] += (u * x).sum(axis=0)
                sums[1] += (u * x**2).sum(axis=0)
        return cls(float(w.sum()), sums[0], sums[1], projected)

    def background(self, center: Floats | None, F: Floats, V: Floats, anova: bool) -> Floats:
        """Means, deviations, and r of each output, (2 + m, d), of rows of which c was taken."""
        mean = self.first / self.weight
        variance = np.maximum(self.squares / self.weight - mean**2, 0)
        shared = F * (self.projected.T / self.weight - np.outer(F @ mean, mean))  # F_ri Cov(F z)_ri
        r = V.T @ shared
        if anova:
            r = (r - (V.T @ F**2) * variance) / 2
        center = np.zeros_like(mean) if center is None else center
        return np.vstack([center + mean, np.sqrt(variance), r])


class Quadratic(NamedTuple):
    """The terms of m outputs: F (k, d) and V (k, m) of C, w (m, d), b (m,), and the activation."""

    F: Floats
    V: Floats
    w: Floats
    b: Floats
    anova: bool

    def matrix(self, c: int) -> Floats:
        """C of output c, (d, d)."""
        C = self.F.T @ (self.V[:, c, None] * self.F)
        C = (C + C.T) / (4 if self.anova else 2)
        if self.anova:
            np.fill_diagonal(C, 0)
        return C

    def standard(self, mean: Floats, deviation: Floats) -> "Quadratic":
        """The same for features (x - mean) / deviation."""
        b = self.b + (self.w + self.times(mean)) @ mean
        w = (self.w + 2 * self.times(mean)) * deviation
        return self._replace(F=self.F * deviation, w=w, b=b)

    def effect(self, x: Floats, columns: NDArray[np.intp], mean: Floats) -> Floats:
        """o(x, the mean elsewhere) - o(mean), (n, m), of features `columns` (q,) at x (n, q)."""
        x, F = x - mean[columns], self.F[:, columns]
        squares = (x @ F.T) ** 2
        if self.anova:
            squares = (squares - x**2 @ (F**2).T) / 2
        return squares @ self.V + x @ (self.w + 2 * self.times(mean))[:, columns].T

    def times(self, x: Floats) -> Floats:
        """C x for each output, (m, d), of one row x (d,)."""
        product = (self.V.T * (self.F @ x)) @ self.F
        return (product - (self.V.T @ self.F**2) * x) / 2 if self.anova else product

    def base(self, background: Floats) -> Floats:
        """The mean outputs of the background, (m,)."""
        mean, r = background[0], background[2:]
        return self.b + (self.w + self.times(mean)) @ mean + r.sum(axis=1)

    def shapley(self, X: Any, background: Floats, groups: NDArray[np.intp] | None) -> Floats:
        """Shapley values of the rows X (n, d), an array or CSR: (n, groups, m).

        `groups` (d,) is the number of the column that a feature belongs to; None: its own.
        """
        size = X.shape[1] if groups is None else int(groups.max()) + 1
        values = np.empty((self.V.shape[1], X.shape[0], size))
        (self._sparse if issparse(X) else self._dense)(X, background, groups, values)
        return np.moveaxis(values, 0, 2)

    def _dense(
        self, X: Floats, background: Floats, groups: NDArray[np.intp] | None, values: Floats
    ) -> None:
        """Fill values (m, n, groups) by the formula of this file."""
        mean, r = background[0], background[2:]
        V = self.V / 2 if self.anova else self.V
        own = V.T @ self.F**2
        for rows in _chunks(len(X), 8 * X.shape[1]):
            away, both = X[rows] - mean, X[rows] + mean
            Z = both @ self.F.T
            for c, v in enumerate(V.T):
                term = (Z * v) @ self.F
                if self.anova:  # C has no diagonal
                    term -= own[c] * both
                term += self.w[c]
                term *= away
                term -= r[c]
                values[c, rows] = _added(term, groups, values.shape[2])

    def _sparse(
        self, X: csr_array, background: Floats, groups: NDArray[np.intp] | None, values: Floats
    ) -> None:
        """The same at the price of the entries and of k for each column.

        phi_i = x_i (w_i + (C (x + mu))_i) - sum_r v_r (Fx)_r (F_ri mu_i) - mu_i (w_i + (C mu)_i)
        - r_i: but for the first term, sums over a column do not depend on its entries.
        """
        mean, r = background[0], background[2:]
        size, V = values.shape[2], self.V / 2 if self.anova else self.V
        slope, own = self.w + self.times(mean), (V.T @ self.F**2) * self.anova
        constant = _added(slope * mean + r, groups, size)  # (m, groups)
        shift = _added(self.F * mean, groups, size)  # (k, groups)
        width = size + len(self.F) * (1 + X.nnz // max(1, X.shape[0]))
        for rows in _chunks(X.shape[0], width):
            x = X[rows]
            Z, at, j = x @ self.F.T, np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), x.indices
            to = at * size + (j if groups is None else groups[j])
            Zj, Fj = Z[at], self.F[:, j].T
            for c, v in enumerate(V.T):
                Cx = np.einsum("pr,r,pr->p", Zj, v, Fj) - own[c, j] * (x.data - mean[j])
                term = np.bincount(to, x.data * (slope[c, j] + Cx), x.shape[0] * size)
                values[c, rows] = term.reshape(-1, size) - (Z * v) @ shift - constant[c]

    def pairs(self, X: Any, rows: Any, groups: NDArray[np.intp] | None) -> Floats:
        """Half of what each pair of columns does, (n, groups, groups, m); 0 on the diagonal.

        For columns g and h it is sum_r v_r (p_g p_h + mean of p_g p_h over the background `rows`),
        half of that for "anova", where p_g = F_rg (x_g - mu_g).
        """
        size = X.shape[1] if groups is None else int(groups.max()) + 1
        V = self.V / 2 if self.anova else self.V
        mean = np.asarray(rows.mean(axis=0)).ravel()
        center = _added(self.F * mean, groups, size)

        def products(x: Any) -> Floats:
            parts = np.empty((x.shape[0], len(self.F), size))
            for r, f in enumerate(self.F):
                scaled = x * f if not issparse(x) else x.multiply(f[None, :]).tocsr()
                parts[:, r] = _added(scaled, groups, size) - center[r]
            return np.stack([(parts.swapaxes(1, 2) * v) @ parts for v in V.T], axis=-1)

        each = max(1, size * (size + len(self.F)))
        kept = sum(products(rows[part]).sum(axis=0) for part in _chunks(rows.shape[0], each))
        values = np.concatenate([products(X[part]) for part in _chunks(X.shape[0], each)])
        values += kept / rows.shape[0]
        values[:, range(size), range(size)] = 0
        return values


def _chunks(n: int, width: int) -> Iterator[slice]:
    """Ranges of rows of `width` doubles that fit the cache."""
    step = max(1, BLOCK_DOUBLES // width)
    return (slice(i, min(i + step, n)) for i in range(0, max(n, 1), step))


def _added(values: Any, groups: NDArray[np.intp] | None, size: int) -> Floats:
    """The columns of values (n, d) added by group, (n, size)."""
    if groups is None:
        return values.toarray() if issparse(values) else values
    d = len(groups)
    table = csr_array((np.ones(d), groups, np.arange(d + 1)), shape=(d, size))
    return (values @ table).toarray() if issparse(values) else values @ table
