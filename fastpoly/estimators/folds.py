"""The folds of a search: splits of rows in memory or in shards, and the scores of one fold.

In a fold, the model is trained along the path of alphas, and the model of every round is scored.
"""

import copy
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)
from sklearn.utils import _safe_indexing

from fastpoly.estimators.advice import Progress
from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.data import TrainingRows, strata
from fastpoly.model import PolyModel
from fastpoly.path import largest_alpha, walk
from fastpoly.rows.shards import Shards
from fastpoly.state import State
from fastpoly.strengths import default_ridge

Floats = NDArray[np.float64]
Scorer = Callable[..., float]


@dataclass(frozen=True)
class SearchRows:
    """The rows of a search as they were given; shards hold their targets and weights.

    `metadata` are arrays with an entry per row, by the one that takes them: "model", "head" (the
    transformers of a Pipeline), "splitter" and "scorer".
    """

    X: Any
    y: Any
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)

    def given_to(self, taker: str, rows: Any = None) -> dict[str, Any]:
        """The metadata of the rows, or of some rows, for one that takes them."""
        given = self.metadata.get(taker, {})
        if rows is None:
            return given
        return {name: _safe_indexing(value, rows) for name, value in given.items()}

    def splits(self, cv: Any, model: PolyEstimator, labels: NDArray | None) -> list[tuple]:
        """Rows to train on and rows to test with; `labels` is y in the form of the model."""
        share = isinstance(cv, numbers.Real) and not isinstance(cv, numbers.Integral)
        if share and not 0 < cv < 1:
            raise ValueError(f"cv as a share of the rows must be in 0..1, got {cv}")
        count = 5 if cv is None else cv
        seed = model.random_state if isinstance(model.random_state, numbers.Integral) else None
        if isinstance(self.X, Shards):
            if share:
                return [tuple(self.X.split(1 - float(cv), float(cv), seed=int(seed or 0)))]
            if isinstance(count, numbers.Integral):
                return self.X.folds(int(count), seed=int(seed or 0))
            return as_pairs_of_shards(cv)
        groups = self.given_to("splitter")
        if groups and (cv is None or isinstance(cv, numbers.Real)):
            raise ValueError(
                f"groups need a splitter that takes them, such as cv=GroupKFold(5); got cv={cv!r}"
            )
        if share:
            by = strata(labels, model._task, float(cv))
            kind = ShuffleSplit if by is None else StratifiedShuffleSplit
            return list(kind(1, test_size=float(cv), random_state=seed).split(self.X, by))
        if model._task == "ordinal" and isinstance(count, numbers.Integral):
            by = strata(labels, model._task, 1 / int(count))
            return list((KFold if by is None else StratifiedKFold)(int(count)).split(self.X, by))
        splitter = check_cv(cv, self.y, classifier=is_classifier(model))
        return list(splitter.split(self.X, self.y, **groups))

    def take(self, part: Any) -> tuple[Any, Any]:
        """X and y of one part of a split; of shards, y is None."""
        if isinstance(self.X, Shards):
            return part, None
        return _safe_indexing(self.X, part), _safe_indexing(self.y, part)


def as_pairs_of_shards(cv: Any) -> list[tuple[Shards, Shards]]:
    """Folds of shards that a user made."""
    splits = list(cv) if np.iterable(cv) else []
    pairs = all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in splits)
    if not (splits and pairs and all(isinstance(s, Shards) for pair in splits for s in pair)):
        raise TypeError(
            "cv must be a number of folds, a share, or pairs of shards to train on and to "
            "test with, such as (shards.take([0, 1]), shards.take([2]))"
        )
    return splits


def labels_of(model: PolyEstimator, y: Any) -> set[Any]:
    """The distinct classes or levels of a 1-D y; nothing for other targets."""
    if y is None:
        return set()  # shards, whose parts have all classes
    y = np.asarray(y)
    y = y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y  # as `fit` does
    return set() if model._numeric_targets or y.ndim != 1 else set(y.tolist())


def is_trainable(model: PolyEstimator, X: Any, y: Any) -> bool:
    """Whether a training part has two classes or levels; of shards, whether it has all classes."""
    if isinstance(X, Shards):
        return not is_classifier(model) or X.classes is None or bool(X.class_counts().all())
    return len(labels_of(model, y)) != 1


class FoldResult(NamedTuple):
    """The results of one fold.

    scores (a, K) are those of the last model with at most 1 .. K basis vectors at each alpha; NaN
    where all of its models have more. Where the path ended early, the last scores are repeated.
    fit_seconds and score_seconds (a,) belong to the alphas. models[i], (K,), are the models of the
    scores at the i-th alpha, if the caller asked for models.
    """

    scores: Floats
    fit_seconds: Floats
    score_seconds: Floats
    models: dict[int, list[PolyModel]]

    def model(self, i: int, k: int) -> PolyModel | None:
        """The model of scores[i, k - 1]."""
        visited = [j for j in self.models if j <= i]
        return self.models[max(visited)][k - 1] if visited else None


def default_scorer(model: PolyEstimator) -> Scorer:
    """The negative log-loss for classifiers that have probabilities, else their `score`.

    Accuracy on few rows is a step function of the model; the log-loss distinguishes better.
    """
    if is_classifier(model) and hasattr(model, "predict_proba"):
        return negative_log_loss
    return check_scoring(model, None)


def score_name(scoring: Any, scorer: Scorer) -> str:
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
    if model._task == "multilabel":
        logs = np.where(y == 1, np.log(P), np.log1p(-np.minimum(P, 1 - 1e-16)))
        return float(np.average(logs.mean(axis=1), weights=sample_weight))
    y = y.ravel()  # a column is taken as 1-D, as `fit` does
    codes = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    if not (model.classes_[codes] == y).all():
        raise ValueError("y has classes that `fit` did not see")
    return float(np.average(np.log(P[np.arange(len(y)), codes]), weights=sample_weight))


def path_begin(model: PolyEstimator, data: TrainingRows) -> tuple[float, float | None]:
    """Where a path begins: the largest alpha, and alpha_linear by rows held out."""
    model._scaling = data.within_span(model._units(data), model._activation)
    objective, ridge = model._objective(data), model.alpha_linear
    if ridge is None and objective.explicit:
        ridge = default_ridge(objective, model._options())
    return largest_alpha(objective.at(alpha_linear=ridge), model.tol), ridge


def walk_path(
    model: PolyEstimator, data: TrainingRows, alphas: Floats
) -> Iterator[tuple[int, State, PolyEstimator]]:
    """The position of an alpha, a state, and the estimator fitted at that state, for all states.

    A run ends early where rounds gain little, and is not finished.
    """
    model._scaling = data.within_span(model._units(data), model._activation)
    progress = Progress(model, data)
    for i, state in walk(model._objective(data), alphas, model._options(finish=False)):
        here = copy.copy(model)
        here._scaling = model._scaling._replace(span=None)
        here._set_fit(state, model._scaling.fold(state.model, model._activation))
        progress.warn_if_slow(state)
        yield i, state, here


def path_scores(
    model: PolyEstimator, transformers: BaseEstimator | None, rows: SearchRows,
    split: tuple[Any, Any], alphas: Floats, all_alphas: bool,
    scorer: Scorer, keep_models: bool, report: Callable[..., None] | None = None,
) -> FoldResult:  # fmt: skip
    """Walk down the path of alphas on the training rows, and score every model on the test rows.

    `model` and `transformers` are not fitted; the n_components of the model is K. Each alpha starts
    from the model of the one before. `all_alphas` says to go down to the last one, whatever the
    scores are. `report` is called after each alpha with its scores (K,) and the number of alphas
    that are done now.
    """
    K, report = model.n_components, report or (lambda *_: None)
    scores, seconds = np.full((len(alphas), K), np.nan), np.zeros((2, len(alphas)))
    models: dict[int, list[PolyModel | None]] = {}
    (train, test), stored = split, isinstance(rows.X, Shards)
    (X_train, y_train), (X_test, y_test) = rows.take(train), rows.take(test)
    if not is_trainable(model, X_train, y_train):
        report(scores, len(alphas))
        return FoldResult(scores, *seconds, models)
    if transformers is not None:
        X_train = transformers.fit_transform(X_train, y_train, **rows.given_to("head", train))
        X_test = transformers.transform(X_test)
    y_test = X_test.targets() if stored else y_test
    weights = {} if stored else rows.given_to("scorer", test)
    begun = perf_counter()
    w = {} if stored else rows.given_to("model", train)
    data = model._prepare(X_train, y_train, w.get("sample_weight"))
    kept: list[PolyModel | None] = [None] * K
    row, best, best_alpha, at = np.full(K, np.nan), -np.inf, 0, 0
    for i, state, here in walk_path(model, data, alphas):
        scored = perf_counter()
        seconds[0, i] += scored - begun
        if i != at:  # a model of another alpha says nothing about this one
            row, kept, at = np.full(K, np.nan), [None] * K, i
        first = max(state.n_components, 1) - 1
        row[first:] = score = _score(scorer, here, X_test, y_test, y_train, weights)
        kept[first:] = [here.model_] * (K - first)
        if score > best:
            best, best_alpha = score, i
        scores[i:] = row
        if keep_models:
            models[i] = list(kept)
        begun = perf_counter()
        seconds[1, i] += begun - scored
        if state.stop:
            report(row)
        # If a third of the grid brings no better score, the model overfits, and the remaining runs
        # would take longest.
        if state.stop and not all_alphas and i - best_alpha >= max(2, len(alphas) // 3):
            report(row, len(alphas) - 1 - i)
            break
    return FoldResult(scores, *seconds, models)


def _score(
    scorer: Scorer, view: PolyEstimator, X: Any, y: Any, y_train: Any, weights: dict[str, Any]
) -> float:
    try:
        return scorer(view, X, y, **weights)
    except ValueError:
        if labels_of(view, y) <= labels_of(view, y_train):
            raise
        return np.nan  # a class or level without a model
