"""Scores of predictions: root mean squared error, and rankings by nDCG and recall."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.checks import as_count, as_float_array

GAINS = ("exp", "linear")
TIES = ("average", "first")
WITHOUT_GAIN = {"skip": np.nan, "zero": 0.0, "one": 1.0}


def rmse(y: ArrayLike, prediction: ArrayLike) -> float:
    """Root mean squared error over all entries of y (n,) or (n, m).

    Examples
    --------
    >>> from fastpoly.metrics import rmse
    >>> rmse([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 2.0])
    1.0
    """
    y = as_float_array(y, "y", np.shape(y))
    prediction = as_float_array(prediction, "prediction", y.shape)
    if y.size == 0:
        raise ValueError("y is empty: there is no error to average")
    return float(np.sqrt(np.mean((y - prediction) ** 2)))


def ndcg(
    y: ArrayLike, score: ArrayLike, groups: ArrayLike, k: int | None = None, *,
    gain: str = "exp", ties: str = "average", skip_single: bool = False,
    without_gain: str = "skip", per_group: bool = False,
) -> float | tuple[NDArray, NDArray[np.float64]]:  # fmt: skip
    """Mean over groups of the normalized discounted cumulative gain of their first k items.

    A group is, for example, a user with the items that they rated. Its items are ranked by
    decreasing score, and

        DCG@k = sum over ranks r = 1 .. k of  gain(y of the item at rank r) / log2(r + 1),

    nDCG@k = DCG@k / ideal DCG@k, where the ideal ranking is by decreasing y. Every group that
    counts has the same weight. Published figures differ in the conventions that follow; state
    yours with the figure.

    Parameters
    ----------
    y : array-like, (n,)
        Relevances, >= 0.
    score : array-like, (n,)
        Predicted scores: only their order within each group matters.
    groups : array-like, (n,)
        The group of each row: numbers or strings, in any order.
    k : int or None
        How many ranks count; None for all. A group with fewer items than k uses those it has.
    gain : {"exp", "linear"}
        2^y - 1, which stresses the top of the scale, or y itself.
    ties : {"average", "first"}
        How to rank items of one group with equal scores: by the expected DCG over all their orders
        (so that the order of the rows does not matter), or in the order of the rows.
    skip_single : bool
        Whether to leave groups of one item out of the mean. Such a group cannot be ranked wrongly
        and scores 1.
    without_gain : {"skip", "zero", "one"}
        A group whose ideal DCG is 0 has nothing to find (all y are 0): leave it out of the mean,
        or count it as 0 or 1. This also applies to groups of one item with y = 0.
    per_group : bool
        Return the groups and their values in place of the mean.

    Returns
    -------
    float, or with `per_group` a pair of arrays
        The mean; or the distinct groups, sorted, and the nDCG of each, NaN where it is left out.

    Examples
    --------
    >>> from fastpoly.metrics import ndcg
    >>> y, users = [3.0, 0.0, 1.0, 5.0], ["ann", "ann", "ann", "bob"]
    >>> ndcg(y, [0.9, 0.1, 0.5, 2.0], users)
    1.0
    >>> ndcg(y, [0.5, 0.1, 0.9, 2.0], users, k=1, gain="linear", per_group=True)
    (array(['ann', 'bob'], dtype='<U3'), array([0.33333333, 1.        ]))
    """
    for value, known, name in (
        (gain, GAINS, "gain"), (ties, TIES, "ties"),
        (without_gain, tuple(WITHOUT_GAIN), "without_gain"),
    ):  # fmt: skip
        if value not in known:
            raise ValueError(f"{name} must be one of {known}, got {value!r}")
    ranking = Ranking(y, score, groups, k)
    with np.errstate(over="ignore"):
        gains = ranking.y if gain == "linear" else np.exp2(ranking.y) - 1
        if not np.isfinite(gains.sum()):
            raise ValueError(
                f"the {gain} gain overflows at y = {ranking.y.max()}; rescale the relevances"
            )
    discounts = np.where(ranking.rank < ranking.k, 1 / np.log2(ranking.rank + 2), 0)
    dcg = ranking.sums(gains, discounts, ranking.score, average=ties == "average")
    ideal = ranking.sums(gains, discounts, gains)
    values = np.full(len(dcg), WITHOUT_GAIN[without_gain])
    found = ideal > 0
    values[found] = np.minimum(dcg[found] / ideal[found], 1)  # above 1 by rounding only
    if skip_single:
        values[ranking.sizes == 1] = np.nan
    if per_group:
        return ranking.names, values
    if np.isnan(values).all():
        raise ValueError("no group counts: all have no gain (see without_gain) or a single item")
    return float(np.nanmean(values))


def recall(
    y: ArrayLike, score: ArrayLike, groups: ArrayLike, k: int, *, per_group: bool = False
) -> float | tuple[NDArray, NDArray[np.float64]]:
    """Mean over groups of the share of their relevant items that are among the first k.

    Items are ranked by decreasing score; of items with equal scores, the expected share counts.
    Groups without a relevant item are left out.

    Parameters
    ----------
    y : array-like, (n,)
        Whether an item is relevant: any number > 0, or True.
    score, groups, k, per_group
        As in `ndcg`.

    Returns
    -------
    float, or with `per_group` a pair of arrays
        As of `ndcg`; NaN for groups that are left out.

    Examples
    --------
    >>> from fastpoly.metrics import recall
    >>> y, users = [1, 0, 1, 1], ["ann", "ann", "ann", "bob"]
    >>> recall(y, [0.9, 0.8, 0.1, 0.3], users, k=2)
    0.75
    """
    ranking = Ranking(y, score, groups, k)
    relevant = (ranking.y > 0).astype(np.float64)
    if not per_group and not relevant.any():
        raise ValueError("no group has a relevant item, with y > 0")
    hits = ranking.sums(relevant, ranking.rank < ranking.k, ranking.score, average=True)
    total = np.bincount(ranking.group, relevant)
    values = np.divide(hits, total, out=np.full(len(hits), np.nan), where=total > 0)
    return (ranking.names, values) if per_group else float(np.nanmean(values))


class Ranking:
    """Checked relevances and scores, and the groups of the rows: `names`, `sizes`, `group` (n,).

    `rank` (n,) are the ranks 0, 1, ... of all rows, if these are sorted by group first.
    """

    def __init__(self, y: Any, score: Any, groups: Any, k: int | None) -> None:
        self.y = as_float_array(y, "y", (None,))
        n = len(self.y)
        self.k = n if k is None else as_count(k, "k")
        if n == 0:
            raise ValueError("y is empty: there is no group to score")
        if (least := self.y.min()) < 0:
            raise ValueError(f"y must be >= 0, got a minimum of {least}; shift the relevances")
        self.score = as_float_array(score, "score", (n,))
        self.names, self.group = as_groups(groups, n)
        self.sizes = np.bincount(self.group)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.rank = np.arange(n) - np.repeat(self.starts, self.sizes)

    def sums(self, gains: Any, discounts: Any, key: Any, average: bool = False) -> Any:
        """The sum of discounted gains of every group, whose rows are ranked by falling key.

        In a random order of rows with equal keys, their mean is the expected gain at each of their
        ranks; `average` takes it.
        """
        order = np.lexsort((-key, self.group))
        ranked = gains[order]
        if average:
            first = np.append(True, np.diff(key[order]) != 0)
            first[self.starts] = True
            ties = np.flatnonzero(first)
            lengths = np.diff(np.append(ties, len(gains)))
            ranked = np.repeat(np.add.reduceat(ranked, ties) / lengths, lengths)
        return np.add.reduceat(ranked * discounts, self.starts)


def as_groups(groups: Any, n: int) -> tuple[NDArray, NDArray[np.intp]]:
    """The distinct groups, sorted, and the position of each row's group among them."""
    # A list is checked before it becomes an array, where a NaN among strings would be "nan".
    given = np.asarray(groups if hasattr(groups, "dtype") else np.array(groups, dtype=object))
    groups = np.asarray(groups)
    if groups.shape != (n,):
        raise ValueError(f"groups must have shape ({n},), one per row of y, got {groups.shape}")
    objects = given.tolist() if given.dtype == object else []
    try:  # NaN and NaT differ from themselves; pandas.NA cannot tell
        gaps = any(g is None or bool(g != g) for g in objects) or (given != given).any()
    except TypeError:
        gaps = True
    if gaps:
        raise ValueError("groups contains None, NaN or NaT; give every row a group")
    return np.unique(groups, return_inverse=True)
