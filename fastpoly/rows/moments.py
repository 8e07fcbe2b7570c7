"""Means and deviations of columns, combined from those of parts of the rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
EPS = np.finfo(np.float64).eps


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of columns, (d,) each, and the weight of their rows.

    They are merged, not computed from a sum of squares. That loses no digits where the mean is much
    larger than the deviation, and the deviation of a constant column is exactly 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.rows.moments import Moments
    >>> both = Moments.of(np.array([[1.0], [2.0]])) + Moments.of(np.array([[6.0]]))
    >>> both.mean, both.deviation**2
    (array([3.]), array([4.66666667]))
    """

    weight: float
    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, X: NDArray, w: Floats | None = None) -> Self:
        """The moments of the rows of X, (n, d), with weights (n,)."""
        weight = float(len(X) if w is None else w.sum())
        if not weight:
            return cls(0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1]))
        return cls(weight, *mean_and_deviation(X, w))

    @classmethod
    def robust(cls, X: NDArray, w: Floats | None = None) -> Self:
        """Medians, and median distances from them, times 1.48: the deviation of normal numbers.

        Outliers hardly change them. Where half of a column is equal, the deviation takes its place.
        """
        found, w = cls.of(X, w), np.ones(len(X)) if w is None else w
        center = _medians(X, w)
        spread = 1.4826 * _medians(np.abs(X - center), w)
        return cls(found.weight, center, np.where(spread > 0, spread, found.deviation))

    def __add__(self, other: Self) -> Self:
        if not self.weight or not other.weight:
            return self if self.weight else other
        weight = self.weight + other.weight
        a, b = self.weight / weight, other.weight / weight
        apart = other.mean - self.mean
        within = np.hypot(np.sqrt(a) * self.deviation, np.sqrt(b) * other.deviation)
        deviation = np.hypot(within, np.sqrt(a * b) * apart)
        return type(self)(weight, self.mean + b * apart, deviation)


def mean_and_deviation(X: NDArray, w: Floats | None) -> tuple[Floats, Floats]:
    """Weighted mean and standard deviation of columns, (d,) each, in two passes.

    Rows of weight 0 do not count. The sums are of differences from one row, so that the deviation
    of a constant column is exactly 0. The differences are divided by the largest one, so that
    squares neither overflow nor vanish. Rows are added in their order, and not by BLAS: the bits
    depend neither on the order of X in memory nor on threads.
    """
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
    return first + mean * unit, np.sqrt(variance) * unit


def _medians(X: NDArray, w: Floats) -> Floats:
    """The smallest entry of each column that half of the weight does not exceed, (d,)."""
    order = np.argsort(X, axis=0, kind="stable")
    below = np.cumsum(w[order], axis=0)
    middle = np.argmax(below >= 0.5 * below[-1], axis=0)
    return X[order[middle, np.arange(X.shape[1])], np.arange(X.shape[1])].astype(np.float64)


def varies(mean: Floats, deviation: Floats) -> NDArray[np.bool_]:
    """Which columns vary by more than the rounding of their entries, in normal numbers."""
    return deviation > np.maximum(10 * EPS * np.abs(mean), np.finfo(np.float64).tiny)
