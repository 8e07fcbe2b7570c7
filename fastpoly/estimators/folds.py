"""Rows of a search, in memory or in shards: how they are split, and the parts of a split."""

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import (
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)
from sklearn.utils import _safe_indexing, indexable

from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.data import checked_csr
from fastpoly.rows.shard_design import ShardDesign
from fastpoly.rows.shards import Shards


@dataclass(frozen=True)
class ArrayFolds:
    """Rows in memory, as they were given; w and groups may be None."""

    X: Any
    y: Any
    w: Any
    groups: Any

    def transformed(self, head: BaseEstimator) -> Any:
        """X after the transformers of a Pipeline, fitted on all rows."""
        return clone(head).fit_transform(self.X, self.y)

    def splits(self, cv: Any, model: PolyEstimator, labels: NDArray) -> list[tuple[Any, Any]]:
        """Training and test rows; `labels` is y in the form of the model."""
        if isinstance(cv, numbers.Real) and not isinstance(cv, numbers.Integral):
            if not 0 < cv < 1:
                raise ValueError(f"cv as a share of the rows must be in 0..1, got {cv}")
            seed = model.random_state if isinstance(model.random_state, numbers.Integral) else None
            strata = model._strata(labels, float(cv))
            kind = ShuffleSplit if strata is None else StratifiedShuffleSplit
            split = kind(n_splits=1, test_size=float(cv), random_state=seed)
            return list(split.split(self.X, strata))
        if model._task == "ordinal" and (cv is None or isinstance(cv, numbers.Integral)):
            n_folds = 5 if cv is None else int(cv)
            strata = model._strata(labels, 1 / n_folds)
            return list(StratifiedKFold(n_folds).split(self.X, strata))
        splitter = check_cv(cv, self.y, classifier=is_classifier(model))
        return list(splitter.split(self.X, self.y, self.groups))

    def fold(self, split: tuple[Any, Any]) -> tuple[Any, ...]:
        """X, y, w to train on, X and y to test with."""
        train, test = split
        w = None if self.w is None else _safe_indexing(self.w, train)
        X, X_test = _safe_indexing(self.X, train), _safe_indexing(self.X, test)
        return X, _safe_indexing(self.y, train), w, X_test, _safe_indexing(self.y, test)

    def trainable(self, model: PolyEstimator, X: Any, y: Any) -> bool:
        """Whether there is more than one class or level to train on."""
        return len(labels_of(model, y)) != 1


@dataclass(frozen=True)
class ShardFolds:
    """Rows in shards, which hold targets and weights; y and w must be None."""

    X: Shards
    y: None
    w: None
    groups: None

    def transformed(self, head: BaseEstimator) -> Any:
        raise TypeError("shards cannot go through a Pipeline; transform the rows first")

    def splits(self, cv: Any, model: PolyEstimator, labels: None) -> list[tuple[Shards, Shards]]:
        """Parts of shards to train on and to test with: random rows, or the parts in cv."""
        seed = model.random_state if isinstance(model.random_state, numbers.Integral) else 0
        if cv is None or isinstance(cv, numbers.Integral):
            return self.X.folds(5 if cv is None else int(cv), seed=int(seed))
        if isinstance(cv, numbers.Real):
            return [tuple(self.X.split(1 - float(cv), float(cv), seed=int(seed)))]
        splits = list(cv) if np.iterable(cv) else []
        if not splits or not all(isinstance(each, Shards) for pair in splits for each in pair):
            raise TypeError(
                "cv must be a number of folds, a share, or pairs of shards to train on and to "
                "test with, such as (shards.take([0, 1]), shards.take([2]))"
            )
        return splits

    def fold(self, split: tuple[Shards, Shards]) -> tuple[Any, ...]:
        """X, y, w to train on, X and y to test with."""
        train, test = split
        return train, None, None, test, test.targets()

    def trainable(self, model: PolyEstimator, X: Shards, y: None) -> bool:
        """Whether shards to train a classifier on have rows of every class."""
        if not is_classifier(model) or X.classes is None:
            return True
        return bool(ShardDesign(X, n_threads=model.n_threads).statistics().counts.all())


def as_folds(X: Any, y: Any, w: Any, groups: Any) -> ArrayFolds | ShardFolds:
    """The rows of a search, wherever they are."""
    if isinstance(X, Shards):
        return ShardFolds(X, y, w, groups)
    return ArrayFolds(*indexable(checked_csr(X), y, w, groups))


def labels_of(model: PolyEstimator, y: Any) -> set[Any]:
    """The distinct classes or levels of a 1-D y; nothing for other targets."""
    if y is None:
        return set()  # shards, whose parts have all classes
    y = np.asarray(y)
    return set() if model._numeric_targets() or y.ndim != 1 else set(y.tolist())
