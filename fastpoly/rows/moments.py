"""Means, deviations and maxima of columns, combined from those of the shards.

Both classes define `+`, so that `fastpoly.rows.tree` adds them as it adds numbers.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.rows.scaling import mean_and_deviation

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Maximum:
    """A maximum of numbers or arrays; `+` takes the larger one, elementwise.

    Examples
    --------
    >>> from fastpoly.rows.moments import Maximum
    >>> float((Maximum(1.0) + Maximum(3.0)).value)
    3.0
    """

    value: float | Floats

    def __add__(self, other: Self) -> Self:
        return type(self)(np.maximum(self.value, other.value))


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

    def __add__(self, other: Self) -> Self:
        if not self.weight or not other.weight:
            return self if self.weight else other
        weight = self.weight + other.weight
        a, b = self.weight / weight, other.weight / weight
        apart = other.mean - self.mean
        within = np.hypot(np.sqrt(a) * self.deviation, np.sqrt(b) * other.deviation)
        deviation = np.hypot(within, np.sqrt(a * b) * apart)
        return type(self)(weight, self.mean + b * apart, deviation)
