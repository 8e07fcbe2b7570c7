"""How to split rows by classes or ordered levels."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def level_strata(codes: ArrayLike, share: float) -> NDArray[np.intp] | None:
    """Strata of ordinal levels; a level that occurs often enough is a stratum of its own.

    A stratum needs two rows, one for each part, and there can be no more strata than the smaller
    part has rows. Levels that are too rare join the next ones.

    Parameters
    ----------
    codes : array-like of int, (n,)
        Levels 0 .. m-1, each of which occurs.
    share : float
        Share of the rows to hold out.

    Returns
    -------
    ndarray of int, (n,), or None
        None if the smaller part is empty.

    Examples
    --------
    >>> from fastpoly.levels import level_strata
    >>> level_strata([0, 0, 0, 1, 2, 2, 3], 0.5)  # 1 joins 2; 3 is the last, and joins them
    array([0, 0, 0, 1, 1, 1, 1])
    """
    codes = np.asarray(codes)
    n = len(codes)
    held = math.ceil(share * n)
    smaller = min(held, n - held)
    if smaller < 1:
        return None
    counts = np.bincount(codes)
    strata = _join(counts, 2)
    if strata[-1] >= smaller:
        strata = _join(counts, math.ceil(n / smaller))
    return strata[codes]


def _join(counts: NDArray[np.intp], least: int) -> NDArray[np.intp]:
    """The stratum of each level, neighbors joined until a stratum has `least` rows."""
    strata, current, filled = [], 0, 0
    for count in counts.tolist():
        strata.append(current)
        filled += count
        if filled >= least:
            current, filled = current + 1, 0
    joined = np.array(strata)
    return np.minimum(joined, max(current - 1, 0))  # what is left over joins the last stratum
