"""The folds of a search: splits of rows, the scores of one fold, and the table of all.

In a fold, the model is trained along the path of alphas, and the model of every round is scored.
"""

import copy
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.base import is_classifier
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from fastpoly.estimators.advice import SlowFit, collected_warnings, warn
from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.data import split_rows, strata
from fastpoly.path import walk
from fastpoly.rows.shards import Shards
from fastpoly.state import Floats

Scorer = Callable[..., float]


@dataclass(frozen=True)
class SearchRows:
    """The rows of a search as they were given; shards hold their targets and weights.

    `metadata` are arrays with an entry per row, by the one that takes them: "model", "head" (the
    transformers of a Pipeline), "splitter" and "scorer".
    """

    X: Any
    y: Any
    metadata: dict[str, dict[str, Any]]

    def take(self, part: Any) -> "SearchRows":
        """One part of a split: rows, or shards."""
        if isinstance(part, Shards):
            return SearchRows(part, None, self.metadata)
        own = {name: _check_method_params(self.X, v, part) for name, v in self.metadata.items()}
        return SearchRows(_safe_indexing(self.X, part), _safe_indexing(self.y, part), own)

    def transformed(self, head: Any) -> Any:
        """X after the transformers of a Pipeline, which are fitted, or X itself without any."""
        if head is None:
            return self.X
        return head.fit_transform(self.X, self.y, **self.metadata["head"])

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
        groups = self.metadata["splitter"]
        if groups and (cv is None or isinstance(cv, numbers.Real)):
            raise ValueError(
                f"groups need a splitter that takes them, such as cv=GroupKFold(5); got cv={cv!r}"
            )
        if share:
            return [tuple(split_rows(labels, model._task, float(cv), seed))]
        y, stratified = self.y, is_classifier(model)
        if model._task == "ordinal" and isinstance(count, numbers.Integral):
            y = strata(labels, model._task, 1 / int(count))
            stratified = y is not None
        return list(check_cv(cv, y, classifier=stratified).split(self.X, y, **groups))

    def labels(self, model: PolyEstimator) -> set[Any]:
        """The distinct classes or levels of a 1-D y; nothing for other targets and for shards."""
        y = np.asarray(self.y)
        y = y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y  # as `fit` does
        return set() if model._numeric_targets or y.ndim != 1 else set(y.tolist())

    def trainable(self, model: PolyEstimator) -> bool:
        """Whether there are two classes or levels; in shards, whether all classes are there."""
        if isinstance(self.X, Shards) and is_classifier(model) and self.X.classes is not None:
            return bool(self.X.class_counts().all())
        return len(self.labels(model)) != 1


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


def negative_log_loss(
    model: PolyEstimator, X: Any, y: Any, sample_weight: ArrayLike | None = None
) -> float:
    """Mean log-probability of the true classes; for multi-label y, also over all labels."""
    P = np.clip(model.predict_proba(X), np.finfo(np.float64).tiny, 1.0)
    y = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    model = pipeline_parts(model)[1]
    if model._task == "multilabel":
        logs = np.where(y == 1, np.log(P), np.log1p(-np.minimum(P, 1 - 1e-16))).mean(axis=1)
    else:
        y = y.ravel()  # a column is taken as 1-D, as `fit` does
        codes = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
        if not (model.classes_[codes] == y).all():
            raise ValueError("y has classes that `fit` did not see")
        logs = np.log(P[np.arange(len(y)), codes])
    return float(np.average(logs, weights=sample_weight))


class FoldResult(NamedTuple):
    """The results of one fold of a alphas and K sizes.

    scores (a, K) are those of the last model with at most 1 .. K basis vectors at each alpha; NaN
    where all of its models have more. Where the path ended early, the last scores are repeated.
    models (a, K) are the models of the scores, or None. seconds (2, a) of fits and of scores.
    """

    scores: Floats
    models: NDArray[Any]
    seconds: Floats
    warnings: list[Any]


def path_scores(
    model: PolyEstimator, head: Any, rows: SearchRows, split: tuple[Any, Any], alphas: Floats,
    scorer: Scorer, *, all_alphas: bool, keep_models: bool, report: Callable[..., None] | None,
) -> FoldResult:  # fmt: skip
    """Walk down the path of alphas on the training rows, and score every model on the test rows.

    `model` and `head`, the transformers, are not fitted. The path ends early where scores no longer
    rise, unless `all_alphas`. `report` is called after each alpha with its scores (K,) and the
    number of alphas that are done now.
    """
    shape, report = (len(alphas), model.n_components), report or (lambda *_: None)
    scores, models, seconds = np.full(shape, np.nan), np.full(shape, None), np.zeros((2, shape[0]))
    train, test = map(rows.take, split)
    with collected_warnings() as collected:
        result = FoldResult(scores, models, seconds, collected)
        if not train.trainable(model):
            report(scores, len(alphas))
            return result
        X_train = train.transformed(head)
        X_test = test.X if head is None else head.transform(test.X)
        y_test = X_test.targets() if isinstance(X_test, Shards) else test.y
        begun, w = perf_counter(), train.metadata["model"].get("sample_weight")
        data = model._prepare(X_train, train.y, w)
        objective, watch = model._begin(data), SlowFit(model, data)
        at, best, best_alpha = 0, -np.inf, 0
        for i, state in walk(objective, alphas, model._options(finish=False)):
            here = copy.copy(model)
            here._scaling = model._scaling._replace(span=None)
            here._set_fit(state, model._scaling.fold(state.model, model._activation))
            watch.round_ended(state)
            fitted = perf_counter()
            if i != at:  # a model of another alpha says nothing about this one
                scores[i:], models[i:], at = np.nan, None, i
            try:
                score = scorer(here, X_test, y_test, **test.metadata["scorer"])
            except ValueError:
                if test.labels(model) <= train.labels(model):
                    raise
                score = np.nan  # a class or level without a model
            size = max(state.n_components, 1)
            scores[i:, size - 1 :] = score
            if keep_models:
                models[i:, size - 1 :] = here.model_
            if score > best:
                best, best_alpha = score, i
            seconds[0, i] += fitted - begun
            begun = perf_counter()
            seconds[1, i] += begun - fitted
            # If a third of the grid brings no better score, the model overfits, and the remaining
            # runs would take longest.
            ended = not all_alphas and i - best_alpha >= max(2, len(alphas) // 3)
            if state.stop:
                report(scores[i], len(alphas) - i if ended else 1)
                if ended:
                    break
    return result


def table(results: list[FoldResult], alphas: Floats, n_sizes: int, prefix: str) -> dict[str, Any]:
    """`cv_results_`; the names of parameters have the prefix."""
    n_splits, names = len(results), (f"{prefix}alpha", f"{prefix}n_components")
    values = np.repeat(alphas, n_sizes), np.tile(np.arange(1, n_sizes + 1), len(alphas))
    scores = np.column_stack([result.scores.ravel() for result in results])
    counts = ~np.isnan(scores).all(axis=0)
    if not counts.any():
        raise ValueError(
            "all scores are NaN: R^2 needs test parts of two rows, and classes or levels of a "
            "test part must occur in training; take fewer or stratified splits"
        )
    if not counts.all():
        warn(
            f"{n_splits - counts.sum()} of {n_splits} splits cannot be scored and are left out "
            "of the means: classes or levels are missing in training, or rows to test with"
        )
    found: dict[str, Any] = {}
    seconds = np.array([result.seconds for result in results]).repeat(n_sizes, axis=2)
    for j, name in enumerate(("fit_time", "score_time")):
        found |= {f"mean_{name}": seconds[:, j].mean(axis=0)}
        found |= {f"std_{name}": seconds[:, j].std(axis=0)}
    for name, own in zip(names, values, strict=True):
        found[f"param_{name}"] = np.ma.MaskedArray(own, mask=False)
    pairs = zip(*(own.tolist() for own in values), strict=True)
    found["params"] = [dict(zip(names, pair, strict=True)) for pair in pairs]
    found |= {f"split{i}_test_score": scores[:, i].copy() for i in range(n_splits)}
    mean = scores[:, counts].mean(axis=1)
    ranks = rankdata(np.where(np.isnan(mean), np.inf, -mean), method="min").astype(np.int32)
    deviation = scores[:, counts].std(axis=1)
    return found | {
        "mean_test_score": mean, "std_test_score": deviation, "rank_test_score": ranks
    }  # fmt: skip


def pipeline_parts(estimator: Any) -> tuple[Pipeline | None, Any, str]:
    """The transformers of a Pipeline, its last step, and the prefix of that step's parameters."""
    if not isinstance(estimator, Pipeline):
        return None, estimator, ""
    name, model = estimator.steps[-1]
    head = estimator[:-1] if len(estimator.steps) > 1 else None
    return head, model, f"{name}__"
