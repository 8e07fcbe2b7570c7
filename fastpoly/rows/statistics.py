"""What one pass finds about rows before a fit, and the units in which they are fitted.

With x' = f (x - c) and y' = (y - b) / u, a model of x' and y' is a model of x and y:

    h'x'  = (f h)'x - (f h)'c         (h'x')^2 is a quadratic in x, and so is the ANOVA kernel
    o(x)  = b + u o'(x')

Squares and products keep their basis vectors, f h. The terms that centering adds are linear in x
and go to the linear weights and the intercept. Without those, features are scaled but not centered.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.state import Floats, Model

TINY = np.finfo(np.float64).tiny  # the smallest normal number


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of columns, (d,) each, and the weight of their rows."""

    weight: float
    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, X: NDArray, w: Floats | None = None) -> Self:
        """The moments of the rows of X, (n, d), with weights (n,), in two passes.

        The sums are of differences from one row, so that the deviation of a constant column is
        exactly 0, divided by the largest one, so that squares neither overflow nor vanish. Rows are
        added in their order: the bits do not depend on memory order or threads.
        """
        weight = float(len(X) if w is None else w.sum())
        if not weight:
            return cls(0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
        if w is not None and not w.all():
            X, w = X[w > 0], w[w > 0]
        first = np.array(X[0], dtype=np.float64)
        share = np.full(len(X), 1 / len(X)) if w is None else w / w.sum()
        step = max(1, 2**17 // max(1, X.shape[1]))  # 1 MB at a time
        parts = [slice(i, i + step) for i in range(0, len(X), step)]
        largest = np.max([np.abs(X[part] - first).max(axis=0) for part in parts], axis=0)
        unit = np.where(largest > 0, largest, 1.0)

        def average(function: Callable[[Floats], Floats]) -> Floats:
            scaled = (np.subtract(X[part], first, order="C") / unit for part in parts)
            return sum(
                (share[part, None] * function(values)).sum(axis=0)
                for part, values in zip(parts, scaled, strict=True)
            )

        mean = average(lambda values: values)
        variance = average(lambda values: (values - mean) ** 2)
        return cls(weight, first + mean * unit, np.sqrt(variance) * unit)

    @classmethod
    def robust(cls, X: NDArray, w: Floats | None = None) -> Self:
        """Medians, and 1.48 times the median distance; the deviation where that is 0."""
        found, w = cls.of(X, w), np.ones(len(X)) if w is None else w

        def medians(values: NDArray) -> Floats:
            """The smallest entry of each column that half of the weight does not exceed."""
            order = np.argsort(values, axis=0, kind="stable")
            below = np.cumsum(w[order], axis=0)
            middle = np.argmax(below >= 0.5 * below[-1], axis=0)[None]
            places = np.take_along_axis(order, middle, axis=0)
            return np.take_along_axis(values, places, axis=0)[0].astype(np.float64)

        center = medians(X)
        spread = 1.4826 * medians(np.abs(X - center))
        return cls(found.weight, center, np.where(spread > 0, spread, found.deviation))

    def __add__(self, other: Self) -> Self:  # a sum of squares would lose digits of large means
        if not self.weight or not other.weight:
            return self if self.weight else other
        weight = self.weight + other.weight
        a, b = self.weight / weight, other.weight / weight
        apart = other.mean - self.mean
        within = np.hypot(np.sqrt(a) * self.deviation, np.sqrt(b) * other.deviation)
        deviation = np.hypot(within, np.sqrt(a * b) * apart)
        return type(self)(weight, self.mean + b * apart, deviation)


def varies(mean: Floats, deviation: Floats) -> NDArray[np.bool_]:
    """Which columns vary by more than the rounding of their entries, in normal numbers."""
    return deviation > np.maximum(10 * np.finfo(np.float64).eps * np.abs(mean), TINY)


@dataclass(frozen=True)
class Statistics:
    """Weights, sizes and moments of some rows; `+` gives those of two sets of rows together."""

    weight: float  # of all rows; their number where there are no weights
    weights: Floats | None  # of each class, (n_classes,)
    largest: float  # the largest |x| of all rows
    by_column: Floats  # (n_features,), the largest |x| of each feature in rows that count
    features: Moments | None  # None where rows are sparse
    targets: Moments | None  # of targets that are numbers

    def below_rounding(self) -> NDArray[np.intp]:
        """Features that vary, but by no more than the rounding of their entries."""
        if self.features is None:
            return np.flatnonzero((self.by_column > 0) & (self.by_column < TINY))
        mean, deviation = self.features.mean, self.features.deviation
        return np.flatnonzero((deviation > 0) & ~varies(mean, deviation))

    def __add__(self, other: Self) -> Self:
        def added(name: str) -> Any:
            own = getattr(self, name)
            return None if own is None else own + getattr(other, name)

        largest = max(self.largest, other.largest)
        by_column = np.maximum(self.by_column, other.by_column)
        moments = added("features"), added("targets")
        return type(self)(added("weight"), added("weights"), largest, by_column, *moments)


def row_statistics(
    X: Any, y: NDArray | None = None, w: Floats | None = None, n_classes: int = 0
) -> Statistics:
    """The statistics of rows in memory, with weights w (n,).

    X is an array, or has shape, data, indices and indptr of CSR. y holds class codes, or numbers,
    (n,) or (n, m), if n_classes is 0.
    """
    n, d = X.shape
    counted = None if w is None or w.all() else w > 0
    weights = targets = features = None
    if n_classes:
        weights = np.bincount(y, w, n_classes).astype(np.float64)  # integers if empty
    elif y is not None:
        targets = Moments.of(y.reshape(n, -1), w)
    if hasattr(X, "indptr"):
        values, by_column = X.data, np.zeros(d)
        kept = slice(None) if counted is None else np.repeat(counted, np.diff(X.indptr))
        np.maximum.at(by_column, X.indices[kept], np.abs(X.data[kept]))
    else:
        values, features = X, Moments.of(X, w)
        by_column = _largest(X if counted is None else X[counted], axis=0).astype(np.float64)
    largest = float(by_column.max() if counted is None else _largest(values))
    weight = float(n if w is None else w.sum())
    return Statistics(weight, weights, largest, by_column, features, targets)


def _largest(values: NDArray, axis: int | None = None) -> NDArray:
    """The largest |x|."""
    return np.maximum(values.max(axis=axis, initial=0), -values.min(axis=axis, initial=0))


class Scaling(NamedTuple):
    """Units in which a model is trained: features are f (x - c), and targets are (y - b) / u.

    What is None is not changed. `seen` (d,) are features that are not constant (or, where they are
    not centered, not zero); the weights of the others become zero. Where there are `tables`, x are
    codes, and features the columns of the tables. `span` is where scaled rows lie, and where a
    model is trained: columns (r,) that are seen, or an orthonormal basis (d, r).
    """

    center: Floats | None  # c, (d,)
    factor: Floats | None  # f, (d,)
    seen: NDArray[np.bool_]
    target_center: Floats | None = None  # b, (m,)
    target_unit: Floats | None = None  # u, (m,)
    tables: Any = None  # fastpoly.rows.coded.Tables
    span: NDArray | None = None

    @classmethod
    def none(cls, found: Statistics) -> Self:
        """Features that are not scaled."""
        return cls(None, None, found.by_column > 0)

    @classmethod
    def standard(cls, found: Statistics, centered: bool) -> Self:
        """Dense X gets mean 0 and unit variance; where it is not centered, |x| is at most 1.

        Centering needs a linear part, for the terms that it adds. Sparse X is never centered.
        """
        if found.features is None or not centered:
            seen = found.by_column >= TINY
            factor = 1 / np.where(seen, found.by_column, 1.0)
            return cls(None, None if (factor == 1).all() else factor, seen)
        mean, deviation = found.features.mean, found.features.deviation
        seen = varies(mean, deviation)
        return cls(mean, 1 / np.where(seen, deviation, 1.0), seen)

    def in_fields(self, squares: Floats, fields: NDArray[np.intp]) -> Self:
        """Columns of a field in units that belong together: x / sqrt(q + mean of q over the field).

        q (d,) are mean squares: rare levels, which would overfit, are held back. `fields` (d,) is
        the field of each column, -1 for a number, and -2 for a 0/1 column, a field of two levels.
        """
        own = np.where(squares > 0, fields, -1)
        counts = np.bincount(own[own >= 0], minlength=1)
        sums = np.bincount(own[own >= 0], squares[own >= 0], minlength=1)
        mean = np.where(own == -2, 0.5, (sums / np.maximum(counts, 1))[np.maximum(own, 0)])
        factor = np.ones(len(own)) if self.factor is None else self.factor
        unit = np.sqrt(squares + mean, where=own != -1, out=np.ones(len(own)))
        return self._replace(factor=np.where(own == -1, factor, 1 / unit))

    def with_targets(self, found: Moments, centered: bool) -> Self:
        """Also scale each target to unit variance, or to mean square 1 if not centered."""
        mean, deviation = found.mean, found.deviation
        if not centered:
            mean, deviation = np.zeros_like(mean), np.hypot(mean, deviation)
        unit = np.where(varies(mean, deviation), deviation, 1.0)
        return self._replace(target_center=mean, target_unit=unit)

    def features(self, X: Any) -> Any:
        """The scaled features in the span, (n, r)."""
        return self._project(self._scaled(X))

    def _project(self, A: Any) -> Any:
        """What lies in the span of the rows of A (n, d), (n, r)."""
        return A if self.span is None else A[:, self.span] if self.span.ndim == 1 else A @ self.span

    def _scaled(self, X: Any) -> Any:
        """The scaled features, (n, d), in the dtype of X."""
        if self.factor is None:
            return X
        # Units of very small float32 columns are too large for float32; their products are not.
        fits = self.factor.max() <= np.finfo(X.dtype).max
        dtype = X.dtype if fits else np.dtype(np.float64)
        factor = self.factor.astype(dtype)
        if hasattr(X, "indptr"):
            scaled = X.copy()
            scaled.data = (X.data * factor[X.indices]).astype(X.dtype, copy=False)
            return scaled
        if self.center is None:
            return (X * factor).astype(X.dtype, copy=False)
        scaled = np.subtract(X, self.center, out=np.empty(X.shape, dtype), casting="same_kind")
        scaled *= factor
        scaled[:, ~self.seen] = 0
        return scaled.astype(X.dtype, copy=False)

    def targets(self, Y: Floats) -> Floats:
        """The scaled targets, (n, m)."""
        return Y if self.target_unit is None else (Y - self.target_center) / self.target_unit

    def within(self, X: Any, activation: str) -> Self:
        """The same for a model that is trained in the span of the rows X, where that is small.

        Of a polynomial network, basis vectors and linear weights lie in the span of the rows: any
        other part would only add to the penalty. Finding it costs n^2 d, for up to 1000 dense rows.
        """
        n, d = X.shape
        if activation == "squared" and not hasattr(X, "indptr") and n <= min(d // 2, 1000):
            # Singular vectors, with signs, do not depend on the order of the rows.
            basis, R = np.linalg.qr(self._scaled(X).T.astype(np.float64))
            basis = basis @ np.linalg.svd(R)[0]
            return self._replace(span=basis * np.where(basis.sum(axis=0) < 0, -1.0, 1.0))
        if self.seen.all():
            return self
        columns = np.flatnonzero(self.seen)
        return self._replace(span=columns if len(columns) else np.zeros(1, dtype=np.intp))

    @property
    def columns(self) -> NDArray[np.intp] | None:
        """The columns where a model is trained, unless these are all, or a basis."""
        return self.span if self.span is not None and self.span.ndim == 1 else None

    def of_columns(self) -> Self:
        """The scaling of these columns alone: of all features, few may be seen."""
        parts = (self.center, self.factor, self.seen)
        center, factor, seen = (None if a is None else a[self.columns] for a in parts)
        return self._replace(center=center, factor=factor, seen=seen, span=None)

    def narrow(self, model: Model) -> Model:
        """The part in the span of a model of all scaled features."""
        return self._change(model, len(self.seen), self._project)

    def widen(self, model: Model) -> Model:
        """A model in the span as one of all scaled features."""

        def wide(A: Floats) -> Floats:
            if self.span.ndim == 2:
                return A @ self.span.T
            all_columns = np.zeros((len(A), len(self.seen)))
            all_columns[:, self.span] = A
            return all_columns

        return self._change(model, 0 if self.span is None else self.span.shape[-1], wide)

    def _change(self, model: Model, width: int, change: Callable[[Floats], Floats]) -> Model:
        """The model with every row (width,) of weights changed, but for a constant."""
        if self.span is None:
            return model
        constant, H = np.split(model.H, [model.H.shape[1] - width], axis=1)
        linear = None if model.linear is None else change(model.linear.T).T
        H = change(H)
        return model._replace(H=np.hstack([constant, H]) if constant.size else H, linear=linear)

    def _units(self, model: Model, factor: Floats) -> Model:
        """The model with the weights of every feature times its factor, but for a constant."""
        constants = np.ones(model.H.shape[1] - len(factor))  # the constant feature comes first
        linear = None if model.linear is None else model.linear * factor[:, None]
        return model._replace(H=model.H * np.concatenate([constants, factor]), linear=linear)

    def fold(self, model: Model, activation: str) -> Model:
        """Turn a model of scaled features and targets into one of the original ones."""
        if self.columns is not None:
            return self.widen(self.of_columns().fold(model, activation))
        factor = np.where(self.seen, 1.0 if self.factor is None else self.factor, 0.0)
        if self.tables is not None:
            model = self._units(self.tables.level_model(model), factor)
        else:
            model = self._units(self.widen(model), factor)
        H, V, intercept, linear = model
        if self.center is not None:
            constant, slope = _shift(H, self.center, activation)
            intercept = intercept - self.center @ linear + V.T @ constant
            linear = linear - slope.T @ V
        if self.target_unit is not None:
            V, intercept = V * self.target_unit, intercept * self.target_unit + self.target_center
            linear = None if linear is None else linear * self.target_unit
        return Model(H, V, intercept, linear)

    def unfold(self, model: Model, activation: str) -> Model:
        """The inverse of `fold`, with basis vectors of norm 1; without what is not in the span."""
        H, V, intercept, linear = model
        if self.target_unit is not None:
            V, intercept = V / self.target_unit, (intercept - self.target_center) / self.target_unit
            linear = None if linear is None else linear / self.target_unit
        if self.center is not None:
            constant, slope = _shift(H, self.center, activation)
            linear = linear + slope.T @ V
            intercept = intercept + self.center @ linear - V.T @ constant
        model = Model(H, V, intercept, linear)
        if self.factor is not None:
            model = self._units(model, 1 / self.factor)
        if self.tables is not None:
            model = self.tables.column_model(model)
        H, V, intercept, linear = self.narrow(model)
        norms = np.linalg.norm(H, axis=1, keepdims=True)
        norms[norms == 0] = 1.0
        return Model(H / norms, V * norms**2, intercept, linear)

    def mostly_mean(self, share: float) -> NDArray[np.intp]:
        """Columns of so large a mean that folding back their squares costs this share of digits."""
        if self.center is None:
            return np.zeros(0, dtype=np.intp)
        squares = (self.center * self.factor) ** 2
        return np.flatnonzero(self.seen & (squares > np.finfo(np.float64).eps ** -share))


def _shift(H: Floats, center: Floats, activation: str) -> tuple[Floats, Floats]:
    """s(H (x - c)) - s(H x) = constant - slope x, both for every basis vector: (k,), (k, d)."""
    at = H @ center
    if activation == "squared":
        return at**2, 2 * at[:, None] * H
    squares = H * H
    return 0.5 * (at**2 - squares @ center**2), at[:, None] * H - squares * center
