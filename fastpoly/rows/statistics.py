"""What one pass over the rows finds before anything is fitted, for rows in memory and in shards."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.rows.moments import Moments, varies

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """Counts, sizes and moments of some rows; `+` gives those of two sets of rows together.

    Attributes
    ----------
    n_samples, n_features : int
    weight : float
        Sum of the weights of the rows; n_samples where there are none.
    classes : ndarray, (n_levels,), or None
        The distinct targets, sorted; None where targets are arbitrary numbers, or are not known.
    weights, counts : ndarray, (n_levels,), or None
        Weight and number of the rows of each class; rows of weight 0 do not count.
    largest : float
        The largest |x| of all rows.
    by_column : ndarray, (n_features,)
        The largest |x| of each feature in rows that count.
    features : Moments or None
        Means and deviations of the features; None where rows are sparse.
    targets : Moments or None
        Means and deviations of targets that are numbers.
    """

    n_samples: int
    n_features: int
    weight: float
    classes: NDArray | None
    weights: Floats | None
    counts: Floats | None
    largest: float
    by_column: Floats
    features: Moments | None
    targets: Moments | None

    @property
    def unseen(self) -> NDArray[np.intp]:
        """Features that are 0 in all rows that count."""
        return np.flatnonzero(self.by_column == 0)

    def below_rounding(self) -> NDArray[np.intp]:
        """Features that vary, but by no more than the rounding of their entries."""
        if self.features is None:
            return np.flatnonzero((self.by_column > 0) & (self.by_column < np.finfo(float).tiny))
        mean, deviation = self.features.mean, self.features.deviation
        return np.flatnonzero((deviation > 0) & ~varies(mean, deviation))

    def with_classes(self, classes: NDArray) -> Self:
        """The same with the classes whose codes were counted, and their moments if numbers."""
        numeric = classes.dtype.kind in "iufb"
        values = classes.astype(np.float64)[:, None] if numeric else None
        moments = Moments.of(values, self.weights) if numeric else None
        return replace(self, classes=classes, targets=moments)

    def __add__(self, other: Self) -> Self:
        def both(a: Any, b: Any) -> Any:
            return None if a is None else a + b

        return replace(
            self, n_samples=self.n_samples + other.n_samples, weight=self.weight + other.weight,
            weights=both(self.weights, other.weights), counts=both(self.counts, other.counts),
            largest=max(self.largest, other.largest),
            by_column=np.maximum(self.by_column, other.by_column),
            features=both(self.features, other.features),
            targets=both(self.targets, other.targets),
        )  # fmt: skip


def row_statistics(
    X: Any, y: NDArray | None = None, w: Floats | None = None, n_classes: int = 0
) -> Statistics:
    """The statistics of rows in memory.

    Parameters
    ----------
    X : ndarray or CSR, (n, d)
        CSR is any object with shape, data, indices and indptr, without duplicates.
    y : ndarray, (n,) or (n, m), optional
        Class codes 0 .. n_classes - 1, or numbers if n_classes is 0.
    w : ndarray, (n,), optional
        Weights of the rows.
    n_classes : int

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.rows.statistics import row_statistics
    >>> found = row_statistics(np.array([[1.0, 0.0], [-3.0, 0.0]]), np.array([0, 1]), n_classes=2)
    >>> found.largest, found.unseen, found.counts
    (3.0, array([1]), array([1., 1.]))
    """
    n, d = X.shape
    counted = None if w is None or w.all() else w > 0
    counts = weights = targets = None
    if n_classes:
        present = y if counted is None else y[counted]
        counts = np.bincount(present, minlength=n_classes).astype(np.float64)
        weights = np.bincount(y, w, n_classes).astype(np.float64)  # integers if empty
    elif y is not None:
        targets = Moments.of(y.reshape(n, -1), w)
    if hasattr(X, "indptr"):
        by_column, features = _largest_sparse(X, counted), None
        largest = _largest(X.data) if counted is not None else by_column.max()
    else:
        rows = X if counted is None else X[counted]
        by_column = np.maximum(rows.max(axis=0, initial=0), -rows.min(axis=0, initial=0))
        by_column, features = by_column.astype(np.float64), Moments.of(X, w)
        largest = _largest(X) if counted is not None else by_column.max()
    weight = float(n if w is None else w.sum())
    return Statistics(
        n, d, weight, None, weights, counts, float(largest), by_column, features, targets
    )


def _largest(values: NDArray) -> float:
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _largest_sparse(X: Any, counted: NDArray[np.bool_] | None) -> Floats:
    """The largest |x| of each column in the rows that count."""
    data, indices = X.data, X.indices
    if counted is not None:
        kept = np.repeat(counted, np.diff(X.indptr))
        data, indices = data[kept], indices[kept]
    largest = np.zeros(X.shape[1])
    np.maximum.at(largest, indices, np.abs(data))
    return largest
