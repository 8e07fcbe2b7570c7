"""One run of a search: train once, score the models of all sizes."""

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from fastpoly.estimators.base import PolyEstimator

Floats = NDArray[np.float64]


def path_scores(
    estimator: PolyEstimator, X: Any, y: Any, w: Any, train: Any, test: Any, scorer: Any
) -> tuple[Floats, float, float]:
    """Scores on the test rows of the models with 1 .. n_components basis vectors, from one run;
    and the seconds that training and scoring took."""
    y_train, y_test = _safe_indexing(y, train), _safe_indexing(y, test)
    if len(_labels(estimator, y_train)) == 1:
        return np.full(estimator.n_components, np.nan), 0.0, 0.0
    weights = {} if w is None else {"sample_weight": _safe_indexing(w, train)}
    begun = perf_counter()
    estimator.fit(_safe_indexing(X, train), y_train, **weights)
    fitted, X_test = perf_counter(), _safe_indexing(X, test)
    stages = [estimator._stages.of_size(k + 1) for k in range(estimator.n_components)]
    try:
        scores = {i: scorer(estimator._stage_view(i), X_test, y_test) for i in set(stages)}
    except ValueError:
        if _labels(estimator, y_test) <= _labels(estimator, y_train):
            raise
        scores = dict.fromkeys(stages, np.nan)  # of a label without a model
    table = np.array([scores[i] for i in stages], dtype=np.float64)
    return table, fitted - begun, perf_counter() - fitted


def _labels(estimator: PolyEstimator, y: Any) -> set[Any]:
    """The distinct classes or levels of a 1-D y; nothing for other targets."""
    y = np.asarray(y)
    return set() if estimator._numeric_targets() or y.ndim != 1 else set(y.tolist())
