"""One fold of a search: train along the path of alphas and score the model of every round."""

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.metrics import check_scoring

from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.folds import ArrayFolds, ShardFolds, labels_of
from fastpoly.model import PolyModel

Floats = NDArray[np.float64]


class FoldResult(NamedTuple):
    """The results of one fold.

    Attributes
    ----------
    scores : ndarray, (a, K)
        Scores of the last model with at most 1 .. K basis vectors on the path down to each alpha.
        The path may end where smaller alphas no longer help; the last scores are repeated there.
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


def negative_log_loss(model: PolyEstimator, X: Any, y: Any) -> float:
    """Mean log-probability of the true classes; for multi-label y, also over all labels."""
    P = np.clip(model.predict_proba(X), np.finfo(np.float64).tiny, 1.0)
    y = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
    model = model.steps[-1][1] if hasattr(model, "steps") else model  # steps: a Pipeline
    if model._multilabel:
        return float(np.mean(np.where(y == 1, np.log(P), np.log1p(-np.minimum(P, 1 - 1e-16)))))
    y = y.ravel()  # a column is taken as 1-D, as `fit` does
    codes = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    if not (model.classes_[codes] == y).all():
        raise ValueError("y has classes that `fit` did not see")
    return float(np.mean(np.log(P[np.arange(len(y)), codes])))


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
    row, kept, best, best_alpha = np.full(K, np.nan), [None] * K, -np.inf, 0
    for i, state, here in model._path(X_train, y_train, w_train, alphas):
        scored = perf_counter()
        seconds[0, i] += scored - begun
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
