"""Ordered levels from the log odds that y is at most each of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit


def level_probabilities(O: NDArray[np.float64]) -> NDArray[np.float64]:
    """p(y = level), (n, m + 1), from the m outputs whose sigmoids are p(y <= level).

    Where these cross they are sorted, which brings them nearer to any monotone ones; so the
    differences are not negative, and they add up to 1.
    """
    cumulative = np.sort(expit(O), axis=1)
    ends = np.zeros((len(O), 1)), np.ones((len(O), 1))
    return np.diff(np.hstack([ends[0], cumulative, ends[1]]), axis=1)


def level_values(levels: NDArray[Any] | None, count: int) -> NDArray[np.float64]:
    """The levels as numbers: themselves, or their ranks 1 .. count where they are not numbers."""
    if levels is not None and levels.dtype.kind in "iuf":
        return levels.astype(np.float64)
    return np.arange(1.0, count + 1)
