"""Training in standard units: features and targets are scaled, and the model is folded back.

With x' = f (x - c) and y' = (y - b) / u, a model of x' and y' is a model of x and y:

    h'x'  = (f h)'x - (f h)'c         (h'x')^2 is a quadratic in x, and so is the ANOVA kernel
    o(x)  = b + u o'(x')

Squares and products keep their basis vectors, f h. The terms that centering adds are linear in x
and go to the linear weights and the intercept. Without those, features are scaled but not centered.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.state import Model

Floats = NDArray[np.float64]


class Scaling(NamedTuple):
    """Units in which a model is trained: features are f (x - c), and targets are (y - b) / u.

    Attributes
    ----------
    center : ndarray, (d,), or None
        c; None where features are not centered.
    factor : ndarray, (d,), or None
        f; None where features are not scaled.
    seen : ndarray of bool, (d,)
        Features that are not constant (or, where they are not centered, not zero). The weights of
        the others mean nothing and become zero.
    target_center : ndarray, (m,), or None
    target_unit : ndarray, (m,), or None
        b and u; None where the targets are not scaled.
    """

    center: Floats | None
    factor: Floats | None
    seen: NDArray[np.bool_]
    target_center: Floats | None = None
    target_unit: Floats | None = None

    @classmethod
    def none(cls, X: Any) -> Self:
        """Features that are not scaled."""
        return cls(None, None, _occurs(X))

    @classmethod
    def standard(cls, X: Any, w: Floats | None, centered: bool) -> Self:
        """Dense X gets mean 0 and unit variance; where it is not centered, |x| is at most 1.

        Without centering, the largest |x| is a better unit than the deviation, and it leaves
        one-hot features unchanged.

        Parameters
        ----------
        X : ndarray or CSR, (n, d)
        w : ndarray, (n,), or None
            Sample weights of the mean and the variance.
        centered : bool
            Whether the model has a linear part, which takes the terms that centering adds. Sparse X
            is never centered.
        """
        if hasattr(X, "indptr") or not centered:
            return cls._largest(X if w is None or w.all() else X[w > 0])
        return cls.to_deviation(*mean_and_deviation(X, w))

    @classmethod
    def to_deviation(cls, mean: Floats, deviation: Floats) -> Self:
        """Features of mean 0 and deviation 1."""
        seen = varies(mean, deviation)
        return cls(mean, 1 / np.where(seen, deviation, 1.0), seen)

    @classmethod
    def _largest(cls, X: Any) -> Self:
        if hasattr(X, "indptr"):
            largest = np.zeros(X.shape[1])
            np.maximum.at(largest, X.indices, np.abs(X.data))
        else:
            largest = np.abs(X).max(axis=0, initial=0.0).astype(np.float64)
        return cls.to_largest(largest)

    @classmethod
    def to_largest(cls, largest: Floats) -> Self:
        """Features with |x| at most 1, from the largest |x| of each, (d,)."""
        seen = largest > 0
        factor = 1 / np.where(seen, largest, 1.0)
        return cls(None, None if (factor == 1).all() else factor, seen)

    def with_targets(self, Y: Floats, w: Floats | None, centered: bool) -> Self:
        """Also scale each target to unit variance, or to mean square 1 if not centered."""
        return self.with_target_moments(*mean_and_deviation(Y, w), centered)

    def with_target_moments(self, mean: Floats, deviation: Floats, centered: bool) -> Self:
        """As `with_targets`, from the means and deviations of the targets, (m,) each."""
        if not centered:
            mean, deviation = np.zeros_like(mean), np.hypot(mean, deviation)
        unit = np.where(varies(mean, deviation), deviation, 1.0)
        return self._replace(target_center=mean, target_unit=unit)

    def features(self, X: Any) -> Any:
        """The scaled features, (n, d), in the dtype of X."""
        if self.factor is None:
            return X
        if hasattr(X, "indptr"):
            scaled = X.copy()
            scaled.data *= self.factor[X.indices].astype(X.dtype)
            return scaled
        if self.center is None:
            return X * self.factor.astype(X.dtype)
        scaled = np.subtract(X, self.center, out=np.empty_like(X, order="C"), casting="same_kind")
        scaled *= self.factor.astype(X.dtype)
        scaled[:, ~self.seen] = 0
        return scaled

    def targets(self, Y: Floats) -> Floats:
        """The scaled targets, (n, m)."""
        return Y if self.target_unit is None else (Y - self.target_center) / self.target_unit

    def fold(self, model: Model, activation: str) -> Model:
        """Turn a model of scaled features and targets into one of the original ones."""
        H, V, intercept, linear = model
        constants = H.shape[1] - len(self.seen)  # the constant feature comes first
        factor = np.where(self.seen, 1.0 if self.factor is None else self.factor, 0.0)
        H = H * np.concatenate([np.ones(constants), factor])
        if linear is not None:
            linear = linear * factor[:, None]
        if self.center is not None:
            move = _shift(H, self.center, activation)
            intercept = intercept - self.center @ linear + V.T @ move[0]
            linear = linear - move[1].T @ V
        if self.target_unit is not None:
            V, intercept = V * self.target_unit, intercept * self.target_unit + self.target_center
            linear = None if linear is None else linear * self.target_unit
        return Model(H, V, intercept, linear)

    def unfold(self, model: Model, activation: str) -> Model:
        """The inverse of `fold`, with basis vectors of norm 1."""
        H, V, intercept, linear = model
        constants = H.shape[1] - len(self.seen)
        if self.target_unit is not None:
            V, intercept = V / self.target_unit, (intercept - self.target_center) / self.target_unit
            linear = None if linear is None else linear / self.target_unit
        if self.center is not None:
            move = _shift(H, self.center, activation)
            linear = linear + move[1].T @ V
            intercept = intercept + self.center @ linear - V.T @ move[0]
        inverse = 1 / (np.ones(len(self.seen)) if self.factor is None else self.factor)
        H = H * np.concatenate([np.ones(constants), inverse])
        linear = None if linear is None else linear * inverse[:, None]
        norms = np.linalg.norm(H, axis=1, keepdims=True)
        norms[norms == 0] = 1.0
        return Model(H / norms, V * norms**2, intercept, linear)

    def mostly_mean(self) -> NDArray[np.intp]:
        """Columns whose mean is so large that folding back costs two thirds of the digits.

        The squares of such a column are (mean / deviation)^2 times as large as their differences.
        """
        if self.center is None:
            return np.zeros(0, dtype=np.intp)
        squares = (self.center * self.factor) ** 2
        return np.flatnonzero(self.seen & (squares > np.finfo(np.float64).eps ** (-2 / 3)))


def mean_and_deviation(X: NDArray, w: Floats | None) -> tuple[Floats, Floats]:
    """Weighted mean and standard deviation of columns, (d,) each, in two passes.

    Rows of weight 0 do not count. The sums are of differences from one row, so that the deviation
    of a constant column is exactly 0. The differences are divided by the largest one, so that
    squares neither overflow nor vanish.
    """
    if w is not None and not w.all():
        X, w = X[w > 0], w[w > 0]
    first = np.array(X[0], dtype=np.float64)
    share = np.full(len(X), 1 / len(X)) if w is None else w / w.sum()
    step = max(1, 2**17 // max(1, X.shape[1]))  # 1 MB at a time
    parts = [slice(i, i + step) for i in range(0, len(X), step)]
    largest = np.max([np.abs(X[part] - first).max(axis=0) for part in parts], axis=0)
    unit = np.where(largest > 0, largest, 1.0)
    mean = sum(share[part] @ ((X[part] - first) / unit) for part in parts)
    variance = sum(share[part] @ ((X[part] - first) / unit - mean) ** 2 for part in parts)
    return first + mean * unit, np.sqrt(variance) * unit


def varies(mean: Floats, deviation: Floats) -> NDArray[np.bool_]:
    """Which columns vary by more than the rounding of their entries."""
    return deviation > 10 * np.finfo(np.float64).eps * np.abs(mean)


def offset_columns(X: Any, w: Floats | None) -> NDArray[np.intp]:
    """Columns that are never 0 and whose deviation is smaller than the size of their mean.

    Without centering they are hard to fit, because their squares are mostly those of their means.
    """
    n = X.shape[0]
    if hasattr(X, "indptr"):
        full = np.flatnonzero(
            np.bincount(X.indices, weights=X.data != 0, minlength=X.shape[1]) == n
        )
        X = X[:, full].toarray() if len(full) else np.zeros((n, 0))
    else:
        full = np.flatnonzero(X.all(axis=0))
        X = X[:, full]
    if not len(full):
        return full
    mean, deviation = mean_and_deviation(X, w)
    return full[varies(mean, deviation) & (deviation < np.abs(mean))]


def _occurs(X: Any) -> NDArray[np.bool_]:
    """Which features, (d,), are not 0 in all rows."""
    if hasattr(X, "indices"):
        return np.bincount(X.indices, weights=X.data != 0, minlength=X.shape[1]) > 0
    return X.any(axis=0)


def _shift(H: Floats, center: Floats, activation: str) -> tuple[Floats, Floats]:
    """s(H (x - c)) - s(H x) = constant - slope x, both for every basis vector: (k,), (k, d)."""
    at = H @ center
    if activation == "squared":
        return at**2, 2 * at[:, None] * H
    squares = H * H
    return 0.5 * (at**2 - squares @ center**2), at[:, None] * H - squares * center
