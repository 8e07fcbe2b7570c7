"""The folds of a search: rows in memory or in shards, their splits, and the scores of one fold.

In a fold, the model is trained along the path of alphas, and the model of every round is scored.
"""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)
from sklearn.utils import _safe_indexing, indexable

from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.data import checked_csr
from fastpoly.model import PolyModel
from fastpoly.rows.shards import Shards

Floats = NDArray[np.float64]


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
        if self.groups is not None and (cv is None or isinstance(cv, numbers.Real)):
            raise ValueError(
                f"groups need a splitter that takes them, such as cv=GroupKFold(5); got cv={cv!r}"
            )
        if isinstance(cv, numbers.Real) and not isinstance(cv, numbers.Integral):
            check_share(cv)
            seed = model.random_state if isinstance(model.random_state, numbers.Integral) else None
            strata = model._strata(labels, float(cv))
            kind = ShuffleSplit if strata is None else StratifiedShuffleSplit
            split = kind(n_splits=1, test_size=float(cv), random_state=seed)
            return list(split.split(self.X, strata))
        if model._task == "ordinal" and (cv is None or isinstance(cv, numbers.Integral)):
            n_folds = 5 if cv is None else int(cv)
            strata = model._strata(labels, 1 / n_folds)
            kind = KFold if strata is None else StratifiedKFold
            return list(kind(n_folds).split(self.X, strata))
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

    def transformed(self, head: BaseEstimator) -> Any:
        raise TypeError("shards cannot go through a Pipeline; transform the rows first")

    def splits(self, cv: Any, model: PolyEstimator, labels: None) -> list[tuple[Shards, Shards]]:
        """Parts of shards to train on and to test with: random rows, or the parts in cv."""
        seed = model.random_state if isinstance(model.random_state, numbers.Integral) else 0
        if cv is None or isinstance(cv, numbers.Integral):
            return self.X.folds(5 if cv is None else int(cv), seed=int(seed))
        if isinstance(cv, numbers.Real):
            check_share(cv)
            return [tuple(self.X.split(1 - float(cv), float(cv), seed=int(seed)))]
        splits = list(cv) if np.iterable(cv) else []
        pairs = all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in splits)
        if not (splits and pairs and all(isinstance(s, Shards) for pair in splits for s in pair)):
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
        return bool(X.class_counts().all())


def as_folds(X: Any, y: Any, w: Any, groups: Any) -> ArrayFolds | ShardFolds:
    """The rows of a search, wherever they are."""
    if isinstance(X, Shards):
        if groups is not None:
            raise ValueError("groups must be None: give cv as pairs of shards instead")
        return ShardFolds(X, y, w)
    return ArrayFolds(*indexable(checked_csr(X), y, w, groups))


def check_share(cv: float) -> None:
    """Raise unless cv is a share of the rows to test with."""
    if not 0 < cv < 1:
        raise ValueError(f"cv as a share of the rows must be in 0..1, got {cv}")


def labels_of(model: PolyEstimator, y: Any) -> set[Any]:
    """The distinct classes or levels of a 1-D y; nothing for other targets."""
    if y is None:
        return set()  # shards, whose parts have all classes
    y = np.asarray(y)
    y = y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y  # as `fit` does
    return set() if model._numeric_targets() or y.ndim != 1 else set(y.tolist())


class FoldResult(NamedTuple):
    """The results of one fold.

    Attributes
    ----------
    scores : ndarray, (a, K)
        Scores of the last model with at most 1 .. K basis vectors at each alpha; NaN where all of
        its models have more. The path may end where smaller alphas no longer help; the last scores
        are repeated there.
    fit_seconds, score_seconds : ndarray, (a,)
        Seconds for each alpha.
    models : dict
        For each position of an alpha, the models (K,) of those scores, if the caller asked for
        models.
    """

    scores: Floats
    fit_seconds: Floats
    score_seconds: Floats
    models: dict[int, list[PolyModel]]

    def model(self, i: int, k: int) -> PolyModel | None:
        """The model of scores[i, k - 1]."""
        visited = [j for j in self.models if j <= i]
        return self.models[max(visited)][k - 1] if visited else None


def default_scorer(model: PolyEstimator) -> Callable[..., float]:
    """The negative log-loss for classifiers that have probabilities, else their `score`.

    Accuracy on few rows is a step function of the model; the log-loss distinguishes better.
    """
    if is_classifier(model) and hasattr(model, "predict_proba"):
        return negative_log_loss
    return check_scoring(model, None)


def score_name(scoring: Any, scorer: Callable[..., float]) -> str:
    """The name of a scorer, from the parameter `scoring` and the `scorer` that it stands for."""
    if isinstance(scoring, str):
        return scoring.replace("neg_", "negative ").replace("_", " ")
    return "score: negative log-loss" if scorer is negative_log_loss else "score"


def negative_log_loss(
    model: PolyEstimator, X: Any, y: Any, sample_weight: ArrayLike | None = None
) -> float:
    """Mean log-probability of the true classes; for multi-label y, also over all labels."""
    P = np.clip(model.predict_proba(X), np.finfo(np.float64).tiny, 1.0)
    y = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    model = model.steps[-1][1] if hasattr(model, "steps") else model  # steps: a Pipeline
    if model._multilabel:
        logs = np.where(y == 1, np.log(P), np.log1p(-np.minimum(P, 1 - 1e-16)))
        return float(np.average(logs.mean(axis=1), weights=sample_weight))
    y = y.ravel()  # a column is taken as 1-D, as `fit` does
    codes = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    if not (model.classes_[codes] == y).all():
        raise ValueError("y has classes that `fit` did not see")
    return float(np.average(np.log(P[np.arange(len(y)), codes]), weights=sample_weight))


def path_scores(
    model: PolyEstimator, transformers: BaseEstimator | None, rows: ArrayFolds | ShardFolds,
    split: tuple[Any, Any], alphas: Floats, all_alphas: bool,
    scorer: Callable[..., float], keep_models: bool, report: Callable[..., None] | None = None,
) -> FoldResult:  # fmt: skip
    """Walk down the path of alphas on the training rows, and score every model on the test rows.

    Parameters
    ----------
    model : PolyEstimator
        Unfitted; its n_components is K.
    transformers : estimator or None
        Unfitted; fitted on the training rows.
    rows : ArrayFolds or ShardFolds
        All rows.
    split : tuple
        One of the splits of these rows.
    alphas : ndarray, (a,)
        Decreasing. Each run starts from the model of the alpha before.
    all_alphas : bool
        Whether to go down to the last one, whatever the scores are.
    scorer : callable
    keep_models : bool
    report : callable, optional
        Called after each alpha with its scores (K,) and the number of alphas that are done now.
    """
    K, shape = model.n_components, (len(alphas), model.n_components)
    scores, seconds, models = np.full(shape, np.nan), np.zeros((2, len(alphas))), {}
    X_train, y_train, w_train, X_test, y_test = rows.fold(split)
    if not rows.trainable(model, X_train, y_train):
        if report is not None:
            report(scores, len(alphas))
        return FoldResult(scores, *seconds, models)
    if transformers is not None:
        X_train = transformers.fit_transform(X_train, y_train)
        X_test = transformers.transform(X_test)
    begun = perf_counter()
    row, kept, best, best_alpha, at = np.full(K, np.nan), [None] * K, -np.inf, 0, 0
    for i, state, here in model._path(X_train, y_train, w_train, alphas):
        scored = perf_counter()
        seconds[0, i] += scored - begun
        if i != at:  # a model of another alpha says nothing about this one
            row, kept, at = np.full(K, np.nan), [None] * K, i
        first = max(state.n_components, 1) - 1
        row[first:] = score = _score(scorer, here, X_test, y_test, y_train)
        kept[first:] = [here.model_] * (K - first)
        if score > best:
            best, best_alpha = score, i
        scores[i:] = row
        if keep_models:
            models[i] = list(kept)
        begun = perf_counter()
        seconds[1, i] += begun - scored
        if state.stop and report is not None:
            report(row)
        # If a third of the grid brings no better score, the model overfits, and the remaining runs
        # would take longest.
        if state.stop and not all_alphas and i - best_alpha >= max(2, len(alphas) // 3):
            if report is not None:
                report(row, len(alphas) - 1 - i)
            break
    return FoldResult(scores, *seconds, models)


def _score(scorer: Callable[..., float], view: Any, X: Any, y: Any, y_train: Any) -> float:
    try:
        return scorer(view, X, y)
    except ValueError:
        if labels_of(view, y) <= labels_of(view, y_train):
            raise
        return np.nan  # a class or level without a model
