"""Training rows, in memory or in shards: checked, merged, split, and given to the core."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from threading import current_thread, main_thread
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.model_selection import train_test_split

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.matrix import as_csr
from fastpoly.rows.design import Design
from fastpoly.rows.moments import Moments
from fastpoly.rows.scaling import Scaling
from fastpoly.rows.shard_design import ShardDesign
from fastpoly.rows.shards import Shards
from fastpoly.rows.statistics import Statistics, row_statistics
from fastpoly.storage.state_file import fingerprint

Floats = NDArray[np.float64]

# Entries of X (1 MB) up to which copies cost nothing and threads gain nothing.
SMALL_DATA_ENTRIES = BLOCK_DOUBLES // 8


@dataclass(frozen=True)
class TrainingData:
    """Checked rows.

    Attributes
    ----------
    X : ndarray or CSR, (n, d)
    y : ndarray
        The checked y, otherwise as it was given.
    targets : ndarray, (n,) or (n, m)
        The targets in the form of the loss.
    m : int
        Number of outputs.
    w : ndarray, (n,), or None
        Weights.
    """

    X: Any
    y: Any
    targets: NDArray
    m: int
    w: Floats | None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return self.X.shape

    @property
    def is_small(self) -> bool:
        """Whether a pass over the rows is cheap."""
        return is_small(self.X)

    def take(self, rows: NDArray[np.intp]) -> Self:
        """Some of the rows."""
        w = None if self.w is None else self.w[rows]
        return replace(self, X=self.X[rows], y=self.y[rows], targets=self.targets[rows], w=w)

    def merged(self) -> Self:
        """The rows with equal ones merged into weights (see `merge_rows`), without y."""
        X, targets, w = merge_rows(self.X, self.targets, self.w)
        return replace(self, X=X, y=None, targets=targets, w=w)

    def hold_out(self, share: float, seed: int, strata: Any) -> tuple[Self, Self]:
        """Rows to train on and rows to validate with, by stratum where there are strata."""
        rows = np.arange(self.X.shape[0])
        train, held = train_test_split(rows, test_size=share, random_state=seed, stratify=strata)
        return self.take(train), self.take(held)

    def digest(self) -> str:
        """A digest of the rows."""
        return fingerprint(self.targets, self.w, self.X)

    @property
    def statistics(self) -> Statistics:
        """What is known about the features before the fit."""
        # Not a cached_property: in Python 3.11 it has a lock, which a forked child may find locked.
        if "found" not in self.__dict__:
            self.__dict__["found"] = row_statistics(self.X, w=self.w)
        return self.__dict__["found"]

    @property
    def target_moments(self) -> Moments:
        """Means and deviations of the targets."""
        return Moments.of(self.targets, self.w)

    def design(
        self, scaling: Scaling, activation: str, fit_lower: str | None, n_threads: int | None
    ) -> Design:
        """The rows as the core takes them."""
        X = scaling.features(self.X)
        n_threads = default_threads(X) if n_threads is None else n_threads
        return Design(X, activation, fit_lower=fit_lower, n_threads=n_threads)

    def scaled_targets(self, scaling: Scaling) -> NDArray:
        """The targets as the core takes them."""
        return scaling.targets(self.targets)

    def score(self, model: Any) -> float:
        """The `score` of an estimator on these rows."""
        return model.score(self.X, self.y, self.w)


class ShardData:
    """Rows in shards, with their targets in the form of an estimator's loss.

    Parameters
    ----------
    shards : Shards
    n_threads : int or None

    Attributes
    ----------
    targets : ndarray, (n_classes, ...), or None
        The target of the loss for every class of the shards; None where targets are numbers.
    m : int
        Number of outputs.
    w : ndarray, (n_classes,), or None
        Weights of the classes.
    """

    y = None  # targets stay with the rows
    targets: NDArray | None
    m: int
    w: Floats | None

    def __init__(self, shards: Shards, n_threads: int | None) -> None:
        self.shards, self.n_threads = shards, n_threads

    is_small = False

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return self.shards.n_samples, self.shards.n_features

    @cached_property
    def unweighted(self) -> Statistics:
        """What is known about the rows, without the weights of the classes."""
        return ShardDesign(self.shards, n_threads=self.n_threads).statistics()

    @cached_property
    def statistics(self) -> Statistics:
        """The same with the weights of the classes; if there are any, from another pass."""
        if self.w is None:
            return self.unweighted
        return ShardDesign(self.shards, n_threads=self.n_threads).statistics(sample_weight=self.w)

    @property
    def target_moments(self) -> Moments:
        """Means and deviations of the targets."""
        return self.statistics.targets

    def _with(self, shards: Shards) -> Self:
        other = ShardData(shards, self.n_threads)
        other.targets, other.m, other.w = self.targets, self.m, self.w
        return other

    def hold_out(self, share: float, seed: int, strata: None) -> tuple[Self, Self]:
        """Random rows to train on and to validate with."""
        if self.shards.part is not None:
            raise ValueError("early_stopping cannot split shards that are already a part")
        train, held = self.shards.split(1 - share, share, seed=seed)
        return self._with(train), self._with(held)

    def merged(self) -> Self:
        """The rows unchanged, because equal rows of shards are not merged."""
        return self

    def digest(self) -> str:
        """A digest of the rows, from the manifest."""
        return fingerprint("shards", self.shards.digest, self.targets, self.w)

    def design(
        self, scaling: Scaling, activation: str, fit_lower: str | None, n_threads: int | None
    ) -> ShardDesign:
        """The rows as the core takes them."""
        return ShardDesign(
            self.shards, activation, fit_lower=fit_lower, center=scaling.center,
            factor=scaling.factor, n_threads=n_threads,
        )  # fmt: skip

    def scaled_targets(self, scaling: Scaling) -> NDArray | None:
        """The targets as the core takes them."""
        if self.targets is not None:
            return scaling.targets(self.targets)
        if scaling.target_unit is None:
            return None
        return np.stack([scaling.target_center, scaling.target_unit])

    def score(self, model: Any) -> float:
        """The `score` of an estimator on these rows."""
        return model.score(self.shards, self.shards.targets(), self.shards.weights())


@contextmanager
def explained_text(X: Any) -> Iterator[None]:
    """Name the columns of text, and the cure, in the error that scikit-learn raises for them."""
    try:
        yield
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        names = [name for name in getattr(X, "columns", ()) if _holds_text(X[name])]
        where = f" in the columns {names}" if names else ""
        raise ValueError(
            f"{error}{where}; encode text first, for example with scikit-learn's OneHotEncoder"
        ) from None


def _holds_text(column: Any) -> bool:
    return any(isinstance(value, str) for value in np.asarray(column, dtype=object).ravel())


def checked_csr(X: Any) -> Any:
    """X or y unchanged if dense; if sparse, in CSR form with checked indices."""
    if np.ma.is_masked(X):  # scikit-learn would take what is under the mask
        raise ValueError("X or y has masked entries; fill or remove them")
    return as_csr(X) if issparse(X) else X


def is_small(X: Any) -> bool:
    """Whether copies of X cost nothing and threads gain nothing."""
    return X.shape[0] * X.shape[1] <= SMALL_DATA_ENTRIES


def default_threads(X: Any) -> int | None:
    """The default number of threads; None leaves it to OpenMP.

    It is one for small data, where waking threads costs more than they save. It is also one in any
    thread but the main one, because such threads already share the cores.
    """
    return 1 if is_small(X) or current_thread() is not main_thread() else None


def merge_rows(X: Any, targets: NDArray, w: Floats | None) -> tuple[Any, NDArray, Floats | None]:
    """Merge equal rows, drop those of weight 0, and sort the others.

    A row of weight 2 and a row that occurs twice give the same loss. But sums in another order
    differ by rounding, and Algorithm 1 amplifies that, because near the optimum many basis vectors
    are almost equally good. After merging, both are the same numbers and give the same model, bit
    for bit. This is done only for small data, where the copy costs nothing, and only if some
    weights differ or some rows are equal. Otherwise everything is returned unchanged.

    Parameters
    ----------
    X : ndarray or CSR, (n, d)
    targets : ndarray, (n,) or (n, m)
    w : ndarray, (n,), or None

    Returns
    -------
    X, targets, w
    """
    n, d = X.shape
    if n * d <= 1 or not is_small(X) or (w is not None and not (w > 0).any()):
        return X, targets, w
    dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    keys = np.column_stack([dense, targets]).astype(np.float64) + 0.0  # no negative zeros
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    if len(first) == n and (w is None or (w == w[0]).all()):
        return X, targets, w
    totals = np.bincount(group.ravel(), weights=w, minlength=len(first)).astype(np.float64)
    kept = totals > 0
    first, totals = first[kept], totals[kept]
    return X[first], targets[first], None if (totals == 1).all() else totals


def column_names(y: Any) -> list[str] | None:
    """The column names of a frame of targets, if they can name outputs: distinct strings."""
    names = list(getattr(y, "columns", ()))
    usable = all(isinstance(name, str) and "\0" not in name for name in names)
    return names if names and usable and len(set(names)) == len(names) else None
