"""Exact Shapley values of a polynomial of degree 2, in closed form.

An output is o(x) = b + w'x + x'Cx, with a symmetric C. Rows z are the background: a set S of
features is worth the mean over z of o at (x_S, z_rest). With the mean mu and the covariances of z,
the Shapley value of feature i is

    phi_i = (x_i - mu_i) (w_i + (C (x + mu))_i) - r_i,        r_i = sum_j C_ij Cov(z_i, z_j)

They add up to o(x) - mean of o(z). The sum over several features is the Shapley value of these as
one, so the levels of a field, or the shapes of a number, are added to their column. Of the
background, mu and r are kept, (d,) for each output. C = F' diag(v) F is never formed; for "anova"
it has no diagonal.
"""

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from fastpoly.interactions import largest_pairs
from fastpoly.kernels.checks import BLOCK_DOUBLES, as_count, shown
from fastpoly.kernels.explicit import row_gamma
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.matrix import Matrix
from fastpoly.state import Floats
from fastpoly.tables import Encoding

LANES = 4  # basis vectors of one pass, the width of the kernels


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each feature of each row contributes to an output; `contributions[i]` is one row's.

    Attributes
    ----------
    values : ndarray, (n, d), or (n, d, m) for several outputs
        Shapley values. With `pairs` (n, d, d) or (n, d, d, m): on the diagonal what a feature does
        alone, beside it half of what each pair does; rows add up to the Shapley values.
    base_values : ndarray, (n,) or (n, m)
        The mean output of the background. The values of a row add up to its output minus this.
    data : ndarray, (n, d)
        The rows.
    feature_names, output_names : list of str
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
        padded = np.zeros((-(-len(F) // LANES), LANES, X.d))
        padded.reshape(-1, X.d)[: len(F)] = F
        parts = [gamma.matvecs(np.ascontiguousarray(lanes.T)).T for lanes in padded]
        projected = np.vstack([np.empty((0, X.d)), *parts])[: len(F)].T
        linear = LinearTerms(X)
        if X.sparse:
            squares = linear.squared_column_norms(w)
        else:  # not by BLAS, so that the bits do not depend on threads
            parts = ((w[i, None] * X.rows(i) ** 2).sum(axis=0) for i in _chunks(X.n, X.d))
            squares = sum(parts, np.zeros(X.d))
        return cls(float(w.sum()), linear.grad(w[:, None])[:, 0], squares, projected)

    def background(self, center: Floats | None, terms: "Quadratic") -> Floats:
        """Means, deviations, and r of each output, (2 + m, d), of rows of which c was taken."""
        mean, F = self.first / self.weight, terms.F
        variance = np.maximum(self.squares / self.weight - mean**2, 0)
        shared = F * (self.projected.T / self.weight - np.outer(F @ mean, mean))  # F_ri Cov(F z)_ri
        r = terms.V.T @ shared - terms.left_out() * variance
        return np.vstack([mean if center is None else mean + center, np.sqrt(variance), r])


class Quadratic(NamedTuple):
    """The terms of m outputs: F (k, d) and V (k, m) of C, w (m, d), b (m,), and the activation."""

    F: Floats
    V: Floats
    w: Floats
    b: Floats
    anova: bool

    def left_out(self) -> Any:
        """The diagonals of F' diag(v) F that C leaves out, (m, d), or 0."""
        return self.V.T @ self.F**2 if self.anova else 0.0

    def matrix(self, c: int) -> Floats:
        """C of output c, (d, d)."""
        C = self.F.T @ (self.V[:, c, None] * self.F)
        if self.anova:
            np.fill_diagonal(C, 0)
        return (C + C.T) / 2

    def standard(self, mean: Floats, deviation: Floats) -> "Quadratic":
        """The same for features (x - mean) / deviation."""
        w = (self.w + 2 * self.times(mean)) * deviation
        return self._replace(F=self.F * deviation, w=w, b=self.outputs(mean))

    def effect(self, x: Floats, columns: NDArray[np.intp], mean: Floats) -> Floats:
        """o(x, the mean elsewhere) - o(mean), (n, m), of features `columns` (q,) at x (n, q)."""
        x, F = x - mean[columns], self.F[:, columns]
        squares = (x @ F.T) ** 2 - self.anova * (x**2 @ (F**2).T)
        return squares @ self.V + x @ (self.w + 2 * self.times(mean))[:, columns].T

    def times(self, x: Floats) -> Floats:
        """C x for each output, (m, d), of one row x (d,)."""
        return (self.V.T * (self.F @ x)) @ self.F - self.left_out() * x

    def outputs(self, x: Floats) -> Floats:
        """o(x), (m,), of one row x (d,)."""
        return self.b + (self.w + self.times(x)) @ x

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
        """Fill values (m, n, groups): with u = x - mu sums of u_i (w + 2 C mu + C u)_i - r_i."""
        mean, r, left_out = background[0], background[2:], self.left_out()
        slope = self.w + 2 * self.times(mean)
        for rows in _chunks(len(X), 8 * X.shape[1]):
            u = X[rows] - mean
            Z = u @ self.F.T
            for c, v in enumerate(self.V.T):
                term = (Z * v) @ self.F
                if self.anova:
                    term -= left_out[c] * u
                term += slope[c]
                term *= u
                term -= r[c]
                values[c, rows] = _sum_by_group(term, groups, values.shape[2])

    def _sparse(
        self, X: csr_array, background: Floats, groups: NDArray[np.intp] | None, values: Floats
    ) -> None:
        """The same at the price of the entries and of k for each column: all terms but the first of

        x_i (w_i + (C (x + mu))_i) - sum_r v_r (Fx)_r (F_ri mu_i) - mu_i (w_i + (C mu)_i) - r_i
        are sums over a column that do not depend on its entries.
        """
        mean, r, size = background[0], background[2:], values.shape[2]
        slope, own = self.w + self.times(mean), np.zeros_like(self.w) + self.left_out()
        constant = _sum_by_group(slope * mean + r, groups, size)  # (m, groups)
        shift = _sum_by_group(self.F * mean, groups, size)  # (k, groups)
        width = size + len(self.F) * (1 + X.nnz // max(1, X.shape[0]))
        for rows in _chunks(X.shape[0], width):
            x = X[rows]
            Z, at, j = x @ self.F.T, np.repeat(np.arange(x.shape[0]), np.diff(x.indptr)), x.indices
            to = at * size + (j if groups is None else groups[j])
            Zj, Fj = Z[at], self.F[:, j].T
            for c, v in enumerate(self.V.T):
                Cx = np.einsum("pr,r,pr->p", Zj, v, Fj) - own[c, j] * (x.data - mean[j])
                term = np.bincount(to, x.data * (slope[c, j] + Cx), x.shape[0] * size)
                values[c, rows] = term.reshape(-1, size) - (Z * v) @ shift - constant[c]

    def pairs(self, X: Any, rows: Any, groups: NDArray[np.intp] | None) -> Floats:
        """Half of what each pair of columns does, (n, groups, groups, m); 0 on the diagonal.

        For columns g and h it is sum_r v_r (p_g p_h + mean of p_g p_h over the background `rows`),
        where p_g = F_rg (x_g - mu_g).
        """
        size = X.shape[1] if groups is None else int(groups.max()) + 1
        mean = np.asarray(rows.mean(axis=0)).ravel()
        center = _sum_by_group(self.F * mean, groups, size)

        def products(x: Any) -> Floats:
            parts = np.empty((x.shape[0], len(self.F), size))
            for r, f in enumerate(self.F):
                scaled = x * f if not issparse(x) else x.multiply(f[None, :]).tocsr()
                parts[:, r] = _sum_by_group(scaled, groups, size) - center[r]
            return np.stack([(parts.swapaxes(1, 2) * v) @ parts for v in self.V.T], axis=-1)

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


def _sum_by_group(values: Any, groups: NDArray[np.intp] | None, size: int) -> Floats:
    """The columns of values (n, d) added by group, (n, size)."""
    if groups is None:
        return values.toarray() if issparse(values) else values
    d = len(groups)
    table = csr_array((np.ones(d), groups, np.arange(d + 1)), shape=(d, size))
    return (values @ table).toarray() if issparse(values) else values @ table


@dataclass(frozen=True, eq=False, repr=False)
class Reading:
    """The numbers of a model, and what they say of its features: the base of `PolyModel`."""

    H: Floats
    V: Floats
    intercept: Floats
    linear: Floats | None = None
    activation: str = "squared"
    augment: bool = False
    feature_names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None
    task: str = "regression"
    classes: NDArray[Any] | None = None
    level_values: Floats | None = None
    log_odds: bool = True
    encoding: Encoding | None = None
    fields: NDArray[np.int64] | None = None
    background: Floats | None = None

    # Methods of `PolyModel`, which knows rows.
    features: ClassVar[Any]
    encodes: ClassVar[Any]
    with_background: ClassVar[Any]

    @property
    def n_components(self) -> int:
        """k, the number of basis vectors."""
        return self.V.shape[0]

    @property
    def n_outputs(self) -> int:
        """m."""
        return self.V.shape[1]

    @property
    def n_features(self) -> int:
        """d, without the constant."""
        return self.H.shape[1] - self.augment

    def interaction_matrix(self, c: int | str) -> Floats:
        """The quadratic part of output c as a symmetric matrix C: it equals x'Cx.

        C_ii is the coefficient of x_i^2 (0 for "anova"), and C_ij = C_ji is half the coefficient of
        x_i x_j. The constant feature of `augment` has no row here; see `linear_terms`. c is the
        position of an output, or its name.
        """
        return self.terms().matrix(self._output(c))

    def top_interactions(
        self, c: int | str, k: int = 10, *, standardized: bool | None = None
    ) -> list[tuple[int, int, float]] | list[tuple[str, str, float]]:
        """The k pairs of features with the largest |coefficient of x_i x_j| in output c.

        The result is exact, and no d x d matrix is made. Pairs of levels of one field, which never
        occur together, are left out.

        Parameters
        ----------
        c : int or str
            Position of the output, or its name.
        k : int
        standardized : bool, optional
            Whether features are in units of their deviation, so that coefficients can be compared.
            By default if the model knows them, by its background.

        Returns
        -------
        list of tuples (i, j, coefficient)
            By decreasing |coefficient|, which is 2 C_ij of `interaction_matrix` and not 0; i < j
            are positions, or names where the model has them.

        Examples
        --------
        >>> from fastpoly import PolyModel
        >>> model = PolyModel([[1.0, 2.0, 3.0]], [[1.0]], [0.0], feature_names=["a", "b", "c"])
        >>> model.top_interactions(0, k=2)
        [('b', 'c', 12.0), ('a', 'c', 6.0)]
        """
        k, terms = as_count(k, "k"), self.terms(standardized)
        v = 2 * terms.V[:, self._output(c)]
        rows, columns, products = largest_pairs(terms.F, v, k, self.fields)
        names = self.feature_names or range(self.n_features)
        found = zip(rows.tolist(), columns.tolist(), products.tolist(), strict=True)
        return [(names[i], names[j], coefficient) for i, j, coefficient in found]

    def terms(self, standardized: bool | None = False) -> Quadratic:
        """The polynomial by its terms; `standardized` as in `top_interactions`."""
        anova = self.activation == "anova"
        w = np.array([self.linear_terms(c) for c in range(self.n_outputs)])
        V = self.V / 2 if anova else self.V
        terms = Quadratic(self.H[:, self.augment :], V, w, self.intercept_terms(), anova)
        if self.background is not None and standardized is not False:
            return terms.standard(*self.background[:2])
        if standardized:
            raise ValueError("the model does not know the units of its features: with_background")
        return terms

    def contributions(
        self, X: Any, output: int | str | None = None, *, background: Any = None,
        pairs: bool = False,
    ) -> Contributions:  # fmt: skip
        """What each feature of each row contributes to an output: exact Shapley values.

        A feature is worth what it changes on average, where features join in any order, and those
        that have not joined take their values from the background. Of a frame, the values belong to
        its columns. For each row, the values and the base value add up to the output.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)
        output : int, str or None
            An output by position or name; of an estimator also a class or level, as in its
            `interaction_matrix`. By default those of `decision_function`.
        background : as X, optional
            The rows to compare with; by default the training rows, by what the model keeps of them.
        pairs : bool
            Whether to tell apart what each pair of features does. It needs rows as background.

        Returns
        -------
        Contributions
            `to_shap()` gives what the plots of shap accept.

        Examples
        --------
        >>> from fastpoly import PolyModel
        >>> model = PolyModel([[1.0, 1.0]], [[1.0]], [0.0], activation="anova")  # x_1 x_2
        >>> found = model.contributions([[2.0, 3.0]], background=[[0.0, 0.0], [2.0, 2.0]])
        >>> found.values, found.base_values
        (array([[1.5, 2.5]]), array([2.]))
        """
        model, rows = self, None
        if background is not None:
            model, rows = self.with_background(background), _as_rows(self.features(background))
        elif model.background is None or pairs:
            why = "pairs=True needs rows" if pairs else "the model does not know its training rows"
            raise ValueError(f"{why}: give background=, such as the rows of the training")
        x, groups, names, data = _columns_of(model, X)
        mix, labels = model._mix(output)
        terms = model.terms()
        terms = terms._replace(V=terms.V @ mix, w=mix.T @ terms.w, b=terms.b @ mix)
        known = np.vstack([model.background[:2], mix.T @ model.background[2:]])
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
            values = terms.shapley(x, known, groups)
            base = terms.outputs(known[0]) + known[2:].sum(axis=1)
            base = np.tile(base, (len(values), 1))
            if pairs:
                found = terms.pairs(x, rows, groups)
                at = np.arange(values.shape[1])
                found[:, at, at] = values - found.sum(axis=2)
                values = found
        if mix.shape[1] == 1:
            values, base, labels = values[..., 0], base[:, 0], None
        if not (np.isfinite(values).all() and np.isfinite(base).all()):
            raise ValueError("the contributions overflow: X or the background is too large")
        return Contributions(values, base, data, names, labels)

    def _mix(self, output: int | str | None) -> tuple[Floats, list[str] | None]:
        """Outputs as combinations of those of `decision`, (m, q), and their names."""
        m = self.n_outputs
        if output is not None:
            return np.eye(m)[:, [self._output(output)]], None
        if self.task == "classification" and m == 2:
            return np.array([[-1.0], [1.0]]), None
        return np.eye(m), list(self.output_names) if self.output_names else None

    def linear_terms(self, c: int | str) -> Floats:
        """Coefficients of x_1 .. x_d in output c, (d,), from `linear` and the constant feature."""
        c, terms = self._output(c), np.zeros(self.n_features)
        if self.augment:
            pair = 1 if self.activation == "anova" else 2
            terms += pair * (self.V[:, c] * self.H[:, 0]) @ self.H[:, 1:]
        if self.linear is not None:
            terms += self.linear[c]
        return terms

    def intercept_terms(self) -> Floats:
        """The outputs at x = 0, (m,), from `intercept` and the constant feature."""
        if self.augment and self.activation == "squared":
            return self.intercept + self.H[:, 0] ** 2 @ self.V
        return self.intercept.copy()

    def _output(self, c: int | str) -> int:
        if isinstance(c, str):
            if c not in (self.output_names or ()):
                raise ValueError(f"there is no output {c!r}; their names are {self.output_names}")
            return self.output_names.index(c)
        if isinstance(c, (bool, np.bool_)) or not hasattr(c, "__index__"):
            raise TypeError(f"c must be the position of an output or its name, got {shown(c)}")
        position = operator.index(c)
        if not 0 <= position < self.n_outputs:
            raise ValueError(f"there is no output {c}; valid outputs are 0 to {self.n_outputs - 1}")
        return position


def _columns_of(model: Any, X: Any) -> tuple[Any, NDArray[np.intp] | None, list[str], NDArray[Any]]:
    """Rows as features, the columns these belong to, and names and values of the columns."""
    rows = _as_rows(model.features(X))
    if not model.encodes(X):
        names = model.feature_names or [f"x{j}" for j in range(model.n_features)]
        return rows, None, list(names), rows.toarray() if issparse(rows) else rows
    columns, names = model.encoding.columns(X), model.encoding.names
    data = np.empty((rows.shape[0], len(names)), object)
    for j, name in enumerate(names):
        data[:, j] = columns[name].to_list()
    return rows, model.encoding.fields_of_columns, names, data


def _as_rows(X: Matrix) -> Any:
    """The rows of a Matrix as float64, an array or CSR."""
    if not X.sparse:
        return X.rows(slice(None))
    data, indices, indptr = X.arrays
    return csr_array((data.astype(np.float64), indices, indptr), shape=(X.n, X.d))
