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

from fastpoly.rows.moments import Moments, varies
from fastpoly.rows.statistics import Statistics
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
    def none(cls, found: Statistics) -> Self:
        """Features that are not scaled."""
        return cls(None, None, found.by_column > 0)

    @classmethod
    def standard(cls, found: Statistics, centered: bool) -> Self:
        """Dense X gets mean 0 and unit variance; where it is not centered, |x| is at most 1.

        Without centering, the largest |x| is a better unit than the deviation, and it leaves
        one-hot features unchanged.

        Parameters
        ----------
        found : Statistics
        centered : bool
            Whether the model has a linear part, which takes the terms that centering adds. Sparse X
            is never centered.
        """
        if found.features is None or not centered:
            seen = found.by_column >= np.finfo(np.float64).tiny
            factor = 1 / np.where(seen, found.by_column, 1.0)
            return cls(None, None if (factor == 1).all() else factor, seen)
        mean, deviation = found.features.mean, found.features.deviation
        seen = varies(mean, deviation)
        return cls(mean, 1 / np.where(seen, deviation, 1.0), seen)

    def with_targets(self, found: Moments, centered: bool) -> Self:
        """Also scale each target to unit variance, or to mean square 1 if not centered."""
        mean, deviation = found.mean, found.deviation
        if not centered:
            mean, deviation = np.zeros_like(mean), np.hypot(mean, deviation)
        unit = np.where(varies(mean, deviation), deviation, 1.0)
        return self._replace(target_center=mean, target_unit=unit)

    def features(self, X: Any) -> Any:
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

    def mostly_mean(self, share: float) -> NDArray[np.intp]:
        """Columns whose mean is so large that folding back costs this share of the digits.

        The squares of such a column are (mean / deviation)^2 times as large as their differences.
        """
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
